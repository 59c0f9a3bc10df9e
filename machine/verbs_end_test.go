package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

// inState brings a job into each live status, a minute after its submission if that needs a
// move.
var inState = map[gq.Status]func(*testing.T, gq.Policy) *subject{
	gq.StatusPending: func(t *testing.T, p gq.Policy) *subject {
		return submitted(t, machine.Submission{Policy: &p, Waits: 1})
	},
	gq.StatusDelayed: func(t *testing.T, p gq.Policy) *subject {
		return submitted(t, machine.Submission{Policy: &p, RunAt: verbsStart.Add(gq.MaxDuration)})
	},
	gq.StatusScheduled: submit,
	gq.StatusClaimed: func(t *testing.T, p gq.Policy) *subject {
		j := submit(t, p).after(time.Minute)
		j.claim(machine.Grant{TTL: gq.MaxDuration})
		return j
	},
	gq.StatusRunning: func(t *testing.T, p gq.Policy) *subject {
		j := submit(t, p).after(time.Minute)
		j.claim(machine.Grant{Start: true, TTL: gq.MaxDuration})
		return j
	},
	gq.StatusRetrying: func(t *testing.T, p gq.Policy) *subject {
		j := submit(t, p).after(time.Minute)
		j.do(release(j.run(), time.Hour))
		j.s.RunAt = verbsStart.Add(gq.MaxDuration) // an earlier version may have stored such a time
		return j
	},
}

// each calls a test for every live status.
func eachLive(t *testing.T, p gq.Policy, test func(t *testing.T, j *subject)) {
	t.Helper()
	for _, status := range enum.All[gq.Status]() {
		if status.Terminal() {
			continue
		}
		t.Run(status.String(), func(t *testing.T) {
			j := inState[status](t, p)
			j.is(status)
			test(t, j)
		})
	}
}

// TestLifetime: the end of its lifetime ends a job in any live status.
func TestLifetime(t *testing.T) {
	spec.Covers(t, "J-35", "J-57")
	p := policy(gq.PresetJobModel, func(p *gq.Policy) { p.ExecutionTimeout = 0 })
	eachLive(t, p, func(t *testing.T, j *subject) {
		j.now = verbsStart.Add(7*24*time.Hour - 1) // counts from the submission, not from the last change
		j.idle(advance)
		if !machine.Due(&j.s).Equal(j.now.Add(1)) {
			t.Errorf("due at %v", machine.Due(&j.s))
		}
		j.after(1)
		j.refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
		var ref gq.LeaseRef
		if j.s.Lease != nil {
			ref = j.s.Lease.Ref()
			j.refuses(gq.ErrStaleLease, map[string]verb{"Complete": complete(ref), "Heartbeat": heartbeat(ref), "Start": start(ref, 0)})
		}
		held := j.s.Status.Held()
		j.do(advance)
		j.is(gq.StatusDeadLetter)
		if j.s.Reason != "lifetime" || j.last().Reason != "lifetime" || !j.s.CompletedAt.Equal(j.now) || !machine.Due(&j.s).IsZero() {
			t.Errorf("at the end of its life: %+v", j.s)
		}
		if held && j.s.Lease.State != gq.LeaseCancelled {
			t.Errorf("its lease lives on: %+v", j.s.Lease)
		}
	})

	// Other lifetimes count from the first start.
	j := submit(t, policy(gq.PresetAI, func(p *gq.Policy) { p.Lifetime = 0 }))
	j.after(1000 * time.Hour).idle(advance)
	ref := j.claim(machine.Grant{Start: true, TTL: gq.MaxDuration})
	end := j.now.Add(6 * time.Hour)
	j.after(time.Hour).do(release(ref, 0))
	j.claim(machine.Grant{Start: true, TTL: gq.MaxDuration})
	if !machine.Due(&j.s).Equal(end) {
		t.Errorf("due at %v, want %v", machine.Due(&j.s), end)
	}
	j.now = end
	j.do(advance)
	j.is(gq.StatusDeadLetter)
}

// TestCancel: a job that does not run ends at once.
func TestCancel(t *testing.T) {
	spec.Covers(t, "J-148", "J-149")
	eachLive(t, machine.DefaultPolicy(), func(t *testing.T, j *subject) {
		if j.s.Status == gq.StatusRunning {
			return // see TestCancelRunning
		}
		claimed := j.s.Status == gq.StatusClaimed
		j.do(cancel)
		j.is(gq.StatusCancelled)
		if c := j.s.Cancellation; !c.RequestedAt.Equal(j.now) || c.Reason != "not wanted" || j.s.Reason != "not wanted" || !c.HonouredAt.IsZero() {
			t.Errorf("cancelled: %+v", j.s)
		}
		if claimed && j.s.Lease.State != gq.LeaseCancelled {
			t.Errorf("the hold lives on: %+v", j.s.Lease)
		}
		j.after(time.Hour).idle(cancel)
		j.refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim, "Update": setPriority(gq.PriorityHigh)})
	})
	for _, end := range []gq.Category{gq.CategoryTemporary, gq.CategoryPermanent} {
		j := submit(t, policy(gq.PresetJobModel, func(p *gq.Policy) { p.MaxAttempts = 1 }))
		j.do(fail(j.run(), end))
		j.refuses(gq.ErrIllegalMove, map[string]verb{"Cancel": cancel})
	}
	j := submit(t, machine.DefaultPolicy())
	j.do(complete(j.run()))
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Cancel": cancel})
}

// TestCancelRunning: a running job gets a cancel request and ends when its worker reports
// an outcome or its lease expires.
func TestCancelRunning(t *testing.T) {
	asked := func(t *testing.T, p gq.Policy) (*subject, gq.LeaseRef) {
		t.Helper()
		j := submit(t, p)
		ref := j.run()
		j.do(cancel)
		j.is(gq.StatusRunning)
		if c := j.s.Cancellation; !c.RequestedAt.Equal(j.now) || !c.DeliveredAt.IsZero() || j.last().Type != gq.EventCancelRequested || j.last().Reason != "not wanted" {
			t.Errorf("asked to stop: %+v", j.s)
		}
		j.idle(cancel)
		return j, ref
	}

	j, ref := asked(t, machine.DefaultPolicy())
	requested := j.now
	j.after(time.Second).do(heartbeat(ref))
	delivered := j.now
	if c := j.s.Cancellation; !c.DeliveredAt.Equal(delivered) || j.last().Type != gq.EventCancelDelivered {
		t.Errorf("told: %+v", c)
	}
	events := len(j.events)
	j.after(time.Second).do(heartbeat(ref))
	if len(j.events) != events || !j.s.Cancellation.DeliveredAt.Equal(delivered) {
		t.Errorf("told twice: %+v", j.last())
	}
	j.do(fail(ref, gq.CategoryCancelled))
	j.is(gq.StatusCancelled)
	if c := j.s.Cancellation; !c.HonouredAt.Equal(j.now) || !c.RequestedAt.Equal(requested) || j.s.Reason != "not wanted" {
		t.Errorf("honoured: %+v", c)
	}

	for name, verb := range map[string]func(gq.LeaseRef) verb{
		"another failure": func(ref gq.LeaseRef) verb { return fail(ref, gq.CategoryTemporary) },
		"a release":       func(ref gq.LeaseRef) verb { return release(ref, time.Hour) },
	} {
		j, ref = asked(t, machine.DefaultPolicy())
		j.do(verb(ref))
		j.is(gq.StatusCancelled)
		if !j.s.Cancellation.HonouredAt.Equal(j.now) {
			t.Errorf("%s: %+v", name, j.s.Cancellation)
		}
	}
	for name, wait := range map[string]func(p *gq.Policy) time.Duration{
		"silence":   func(p *gq.Policy) time.Duration { return p.LeaseTTL },
		"a timeout": func(p *gq.Policy) time.Duration { p.ExecutionTimeout = time.Minute; return time.Minute },
	} {
		p := machine.DefaultPolicy()
		d := wait(&p)
		j, _ = asked(t, p)
		j.after(d).do(advance)
		j.is(gq.StatusCancelled)
		if !j.s.Cancellation.HonouredAt.IsZero() {
			t.Errorf("%s is no honour: %+v", name, j.s.Cancellation)
		}
	}

	// An expired lease protects no holder.
	j = submit(t, machine.DefaultPolicy())
	j.run()
	j.after(j.s.Policy.LeaseTTL).do(cancel)
	j.is(gq.StatusCancelled)

	// If the worker succeeds nevertheless, the policy decides whether the cancel wins.
	for _, preset := range enum.All[gq.Preset]() {
		j, ref = asked(t, preset.Policy())
		j.do(complete(ref))
		want := gq.StatusCompleted
		if preset == gq.PresetScheduler || preset == gq.PresetTaskQueue {
			want = gq.StatusCancelled
		}
		if j.s.Status != want || j.s.ResultBytes != 2 {
			t.Errorf("%s: success after a cancel request ends %s, want %s", preset, j.s.Status, want)
		}
		j.idle(complete(ref))
	}
}

// TestDependencyEnds: the effect of the end of a dependency on a waiting job.
func TestDependencyEnds(t *testing.T) {
	spec.Covers(t, "J-85", "J-86", "J-87", "J-88")
	p := machine.DefaultPolicy()
	end := func(kind gq.DependencyKind, status gq.Status) verb {
		return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.DependencyEnded(s, machine.EndedDependency{Kind: kind, Status: status, Priority: gq.PriorityHigh}, now)
		}
	}
	for _, c := range []struct {
		kind   gq.DependencyKind
		status gq.Status
		want   gq.Status
	}{
		{gq.DependencyAfter, gq.StatusCompleted, gq.StatusScheduled},
		{gq.DependencyAfter, gq.StatusFailed, gq.StatusFailed},
		{gq.DependencyAfter, gq.StatusDeadLetter, gq.StatusDeadLetter},
		{gq.DependencyAfter, gq.StatusCancelled, gq.StatusCancelled},
		{gq.DependencyChain, gq.StatusCompleted, gq.StatusScheduled},
		{gq.DependencyChain, gq.StatusFailed, gq.StatusFailed},
		{gq.DependencyFanIn, gq.StatusCompleted, gq.StatusScheduled},
		{gq.DependencyFanIn, gq.StatusFailed, gq.StatusScheduled},
		{gq.DependencyFanIn, gq.StatusCancelled, gq.StatusScheduled},
	} {
		j := submitted(t, machine.Submission{Policy: &p, Waits: 1})
		j.do(end(c.kind, c.status))
		if j.s.Status != c.want || j.s.Attempt != 0 || j.s.Priority() != gq.PriorityHigh || j.s.Own != gq.PriorityNormal {
			t.Errorf("%s a job that is %s: %+v, want %s", c.kind, c.status, j.s, c.want)
		}
		if j.s.Status.Terminal() && (j.s.Reason != "dependency" || j.last().Reason != "dependency" || !j.s.CompletedAt.Equal(j.now)) {
			t.Errorf("%s a job that is %s: %+v", c.kind, c.status, j.last())
		}
		j.idle(end(c.kind, c.status)) // it no longer waits
	}

	j := submitted(t, machine.Submission{Policy: &p, Waits: 2, AnyOpen: true, RunAt: verbsStart.Add(time.Minute)})
	j.idle(end(gq.DependencyFanOut, gq.StatusFailed))
	j.do(end(gq.DependencyAfter, gq.StatusCompleted))
	j.do(end(gq.DependencyAfterAny, gq.StatusFailed))
	j.do(end(gq.DependencyAfterAny, gq.StatusFailed))
	j.is(gq.StatusPending)
	j.do(end(gq.DependencyFanIn, gq.StatusDeadLetter))
	j.is(gq.StatusDelayed) // its run time is in the future
}

// TestUpdate: metadata can change while a job is live; its priority only while
// no worker holds it.
func TestUpdate(t *testing.T) {
	j := submit(t, machine.DefaultPolicy())
	updated := j.s.UpdatedAt
	j.after(time.Second).do(setPriority(gq.PriorityCritical))
	if j.s.Own != gq.PriorityCritical || !j.s.UpdatedAt.Equal(updated) || j.last().Type != gq.EventUpdated {
		t.Errorf("updated: %+v", j.s)
	}
	j.refuses(gq.ErrInvalid, map[string]verb{"none": setPriority(0), "unknown": setPriority(9)})
	ref := j.run()
	j.do(setPriority(gq.PriorityCritical))
	j.refuses(gq.ErrIllegalMove, map[string]verb{"another": setPriority(gq.PriorityLow)})
	j.do(release(ref, time.Minute))
	j.do(setPriority(gq.PriorityLow))
	if j.s.Own != gq.PriorityLow || j.s.Status != gq.StatusRetrying {
		t.Errorf("updated between two attempts: %+v", j.s)
	}
	j.after(time.Minute).do(setPriority(gq.PriorityCritical))
	j.do(complete(j.run()))
	j.refuses(gq.ErrIllegalMove, map[string]verb{"the same": setPriority(gq.PriorityCritical)})
}
