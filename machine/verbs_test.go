package machine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

// subject is one job under test, with its history.
type subject struct {
	t      *testing.T
	s      gq.State
	now    time.Time
	events []gq.Event
	leases int
}

var verbsStart = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// submit creates a job without dependencies.
func submit(t *testing.T, p gq.Policy) *subject {
	t.Helper()
	return submitted(t, machine.Submission{Policy: &p})
}

func submitted(t *testing.T, b machine.Submission) *subject {
	t.Helper()
	j := &subject{t: t, now: verbsStart}
	b.ID, b.Sequence = machine.NewJobID([16]byte{1}), 1
	if b.Own == 0 {
		b.Own = gq.PriorityNormal
	}
	j.s, j.events = machine.Submit(b, j.now)
	return j
}

// verb is a transition of package machine with all arguments but the time.
type verb func(s gq.State, now time.Time) (gq.State, []gq.Event, error)

// try applies a verb. A refused verb must change nothing.
func (j *subject) try(v verb) error {
	j.t.Helper()
	before := deepCopy(j.s)
	next, events, err := v(j.s, j.now)
	if diff := cmp.Diff(before, j.s); diff != "" {
		j.t.Fatalf("a verb changed its argument:\n%s", diff)
	}
	if err != nil {
		if diff := cmp.Diff(j.s, next); diff != "" || len(events) > 0 {
			j.t.Fatalf("a refused verb left %d events and this change:\n%s", len(events), diff)
		}
		return err
	}
	j.s = next
	j.events = append(j.events, events...)
	return nil
}

// deepCopy returns a copy that shares nothing with the state.
func deepCopy(s gq.State) gq.State {
	p := *s.Policy
	s.Policy = &p
	if s.Lease != nil {
		l := *s.Lease
		s.Lease = &l
	}
	if s.Failure != nil {
		f := *s.Failure
		s.Failure = &f
	}
	return s
}

// do applies a verb, which must be accepted.
func (j *subject) do(v verb) {
	j.t.Helper()
	if err := j.try(v); err != nil {
		j.t.Fatalf("in state %s: %v", j.s.Status, err)
	}
}

// refuses applies verbs, which must be refused with the error.
func (j *subject) refuses(want error, verbs map[string]verb) {
	j.t.Helper()
	for name, v := range verbs {
		if err := j.try(v); !errors.Is(err, want) {
			j.t.Errorf("%s in state %s: %v, want %q", name, j.s.Status, err, want)
		}
	}
}

// idle applies a verb, which must be accepted without any effect.
func (j *subject) idle(v verb) {
	j.t.Helper()
	before, events := j.s, len(j.events)
	j.do(v)
	if diff := cmp.Diff(before, j.s); diff != "" || len(j.events) != events {
		j.t.Errorf("%d new events and this change:\n%s", len(j.events)-events, diff)
	}
}

func (j *subject) is(want gq.Status) {
	j.t.Helper()
	if j.s.Status != want {
		j.t.Fatalf("the job is %s, want %s", j.s.Status, want)
	}
}

// after advances the time.
func (j *subject) after(d time.Duration) *subject {
	j.now = j.now.Add(d)
	return j
}

// run claims the job and starts it.
func (j *subject) run() gq.LeaseRef {
	j.t.Helper()
	return j.claim(machine.Grant{Start: true})
}

func (j *subject) claim(g machine.Grant) gq.LeaseRef {
	j.t.Helper()
	j.leases++
	g.Lease, g.Worker = gq.LeaseID(fmt.Sprintf("lease-%d", j.leases)), fmt.Sprintf("worker-%d", j.leases)
	j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Claim(s, g, now) })
	return j.s.Lease.Ref()
}

func claim(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
	return machine.Claim(s, machine.Grant{Lease: "one-more", Worker: "w", Start: true}, now)
}

func advance(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
	return machine.Advance(s, machine.Draw{U: 0.5}, now)
}

func complete(ref gq.LeaseRef) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(s, ref, []byte("ok"), now)
	}
}

func fail(ref gq.LeaseRef, c gq.Category) verb {
	return failAs(ref, gq.Failure{Category: c, Code: "code", Message: "message"})
}

func failAs(ref gq.LeaseRef, f gq.Failure) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Fail(s, ref, f, machine.Draw{U: 0.5}, now)
	}
}

func release(ref gq.LeaseRef, delay time.Duration) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Release(s, ref, delay, "shutdown", now)
	}
}

func heartbeat(ref gq.LeaseRef) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, ref, machine.Report{Progress: 0.5, Note: "half"}, now)
	}
}

func start(ref gq.LeaseRef, ttl time.Duration) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Start(s, ref, ttl, now) }
}

func prepare(ref gq.LeaseRef, d gq.Detail) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Prepare(s, ref, d, now) }
}

func cancel(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
	return machine.Cancel(s, "not wanted", now)
}

func setPriority(p gq.Priority) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Update(s, p, now) }
}

// held has the verbs of a holder.
func held(ref gq.LeaseRef) map[string]verb {
	return map[string]verb{
		"Complete": complete(ref), "Fail": fail(ref, gq.CategoryTemporary), "Release": release(ref, 0),
		"Heartbeat": heartbeat(ref), "Prepare": prepare(ref, gq.DetailPreparing), "Start": start(ref, 0),
	}
}

// path returns the statuses of the history, without repetitions.
func (j *subject) path() (path []gq.Status) {
	for _, e := range j.events {
		if len(path) == 0 || path[len(path)-1] != e.Status {
			path = append(path, e.Status)
		}
	}
	return path
}

func (j *subject) took(want ...gq.Status) {
	j.t.Helper()
	if diff := cmp.Diff(want, j.path()); diff != "" {
		j.t.Errorf("the way through the states (-want +got):\n%s", diff)
	}
}

// last returns the newest event.
func (j *subject) last() gq.Event { return j.events[len(j.events)-1] }

// policy returns a modified policy of a preset.
func policy(p gq.Preset, change func(*gq.Policy)) gq.Policy {
	policy := p.Policy()
	change(&policy)
	return policy
}

func TestSubmit(t *testing.T) {
	spec.Covers(t, "Q-29", "J-18", "J-19", "J-20", "J-26", "J-27", "J-28", "J-36", "J-37", "J-134", "J-138", "J-139")
	p := machine.DefaultPolicy()

	j := submitted(t, machine.Submission{Policy: &p})
	j.took(gq.StatusPending, gq.StatusScheduled)
	if j.s.Attempt != 0 || j.s.ID != machine.NewJobID([16]byte{1}) || !j.s.ScheduledAt.Equal(j.now) || !machine.Claimable(&j.s, j.now) {
		t.Errorf("a new job: %+v", j.s)
	}
	if j.events[0].Type != gq.EventSubmitted || j.events[1].Type != gq.EventScheduled || j.events[0].Job != j.s.ID {
		t.Errorf("its history: %+v", j.events)
	}

	j = submitted(t, machine.Submission{Policy: &p, RunAt: verbsStart.Add(time.Hour)})
	j.is(gq.StatusDelayed)
	if !j.s.ScheduledAt.IsZero() || machine.Claimable(&j.s, j.now) || !machine.Due(&j.s).Equal(j.s.RunAt) {
		t.Errorf("a delayed job: %+v", j.s)
	}
	j.after(time.Hour - time.Nanosecond).idle(advance)
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
	if seen := j.s.At(j.now.Add(time.Nanosecond)); seen.Status != gq.StatusScheduled || !seen.ScheduledAt.Equal(j.s.RunAt) {
		t.Errorf("a reader sees %s when its time has come", seen.Status)
	}
	j.after(time.Nanosecond).run()
	j.took(gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusRunning)
	if !j.s.ScheduledAt.Equal(j.now) {
		t.Errorf("became claimable at %v, want %v", j.s.ScheduledAt, j.now)
	}

	j = submitted(t, machine.Submission{Policy: &p, Waits: 1})
	j.is(gq.StatusPending)
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
	j.idle(advance)
}

func TestSuccess(t *testing.T) {
	spec.Covers(t, "Q-30", "Q-31", "Q-47", "J-21", "J-22", "J-29", "J-30", "J-94", "J-141")
	j := submit(t, machine.DefaultPolicy())
	j.after(time.Second)
	ref := j.run()
	j.is(gq.StatusRunning)
	started := j.now
	if j.s.Attempt != 1 || j.s.Lease.Attempt != 1 || !j.s.StartedAt.Equal(started) || !j.s.FirstStartedAt.Equal(started) || !j.s.CompletedAt.IsZero() {
		t.Errorf("a running job: %+v", j.s)
	}
	j.after(time.Minute).do(complete(ref))
	j.took(gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusCompleted)
	if !j.s.CompletedAt.Equal(j.now) || !j.s.StartedAt.Equal(started) || j.s.ResultBytes != 2 || j.s.Progress != 1 || j.s.Lease.State != gq.LeaseCompleted {
		t.Errorf("a completed job: %+v", j.s)
	}

	// The identical call gets the same answer, even after the lease would have expired; any
	// other call is refused.
	j.idle(complete(ref))
	j.after(24 * time.Hour).idle(complete(ref))
	j.refuses(gq.ErrStaleLease, map[string]verb{
		"another result": func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Complete(s, ref, []byte("no"), now)
		},
		"another verb":  fail(ref, gq.CategoryTemporary),
		"another lease": complete(gq.LeaseRef{ID: "lease-9"}),
	})
}

// Every attempt has its own start time, and the first start time is kept too.
func TestStartedAt(t *testing.T) {
	spec.Covers(t, "J-140")
	j := submit(t, machine.DefaultPolicy())
	if !j.s.StartedAt.IsZero() {
		t.Errorf("before the first attempt it has started at %v", j.s.StartedAt)
	}
	first := j.after(time.Second).now
	for attempt := 1; attempt <= 3; attempt++ {
		ref := j.run()
		if !j.s.StartedAt.Equal(j.now) || !j.s.FirstStartedAt.Equal(first) || j.s.Attempt != attempt {
			t.Errorf("attempt %d has started at %v, the first at %v; want %v and %v", j.s.Attempt, j.s.StartedAt, j.s.FirstStartedAt, j.now, first)
		}
		started := j.now
		if j.after(time.Minute).do(heartbeat(ref)); !j.s.StartedAt.Equal(started) {
			t.Errorf("attempt %d: a heartbeat has moved its start to %v", attempt, j.s.StartedAt)
		}
		if attempt < 3 {
			j.do(fail(ref, gq.CategoryTemporary))
			j.after(time.Hour)
		} else {
			j.do(complete(ref))
		}
		if !j.s.StartedAt.Equal(started) {
			t.Errorf("after attempt %d it has started at %v, want %v", attempt, j.s.StartedAt, started)
		}
	}
}

// A lease and an execution have separate end times, and neither changes the other.
func TestLeaseAndExecutionTimeoutAreSetApart(t *testing.T) {
	spec.Covers(t, "Q-101")
	for _, ttl := range []time.Duration{5 * time.Second, 20 * time.Second} {
		for _, timeout := range []time.Duration{time.Minute, 5 * time.Minute} {
			j := submit(t, policy(gq.PresetSemantics, func(p *gq.Policy) { p.LeaseTTL, p.ExecutionTimeout = ttl, timeout }))
			ref := j.run()
			if got := j.s.Lease.ExpiresAt.Sub(j.now); got != ttl {
				t.Errorf("lease %v, timeout %v: the lease lasts %v", ttl, timeout, got)
			}
			end := j.now.Add(timeout)
			for j.now.Before(end.Add(-ttl / 2)) {
				j.after(ttl / 2).do(heartbeat(ref))
			}
			j.now = end.Add(-1)
			j.idle(advance)
			j.is(gq.StatusRunning)
			j.after(1).do(advance)
			if f := j.s.Failure; j.s.Status == gq.StatusRunning || f == nil || f.Category != gq.CategoryTimeout {
				t.Errorf("lease %v, timeout %v: at its end the job is %s, %+v", ttl, timeout, j.s.Status, f)
			}
		}
	}
}

func TestFencing(t *testing.T) {
	spec.Covers(t, "Q-46", "Q-50", "Q-58", "Q-61", "Q-83", "Q-84", "Q-85", "Q-89", "Q-90", "J-95")
	j := submit(t, gq.PresetSemantics.Policy())
	if j.s.Lease != nil || j.s.Version != 0 {
		t.Errorf("a lease before the first claim: %+v", j.s)
	}
	j.refuses(gq.ErrStaleLease, held(gq.LeaseRef{ID: "lease-1"}))
	first := j.run()
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
	for name, ref := range map[string]gq.LeaseRef{
		"none": {}, "another": {ID: "lease-2"}, "another version": {ID: first.ID, Version: 2},
		"another worker": {ID: first.ID, Version: 1, Worker: "worker-2"},
	} {
		t.Run(name, func(*testing.T) { j.refuses(gq.ErrStaleLease, held(ref)) })
	}
	j.after(5*time.Second - time.Nanosecond)
	if err := j.try(heartbeat(gq.LeaseRef{ID: first.ID})); err != nil {
		t.Errorf("the id alone names a lease: %v", err)
	}

	// A lease is invalid from its expiry, even before another worker has the job.
	j.after(5 * time.Second)
	j.refuses(gq.ErrStaleLease, held(first))
	j.is(gq.StatusRunning)
	j.do(advance)
	j.refuses(gq.ErrStaleLease, held(first))
	second := j.run()
	if second.Version != 2 || j.s.Version != 2 || j.s.Lease.Previous != first.ID {
		t.Errorf("the second lease: %+v", j.s.Lease)
	}
	lease := *j.s.Lease
	j.refuses(gq.ErrStaleLease, held(first))
	if *j.s.Lease != lease {
		t.Errorf("late calls changed the lease of the new holder: %+v", j.s.Lease)
	}
	j.do(complete(second))
	j.refuses(gq.ErrStaleLease, held(first))
}

// TestLostReply: between a lost reply and the repeated call another worker may have claimed
// the job.
func TestLostReply(t *testing.T) {
	j := submit(t, policy(gq.PresetJobModel, func(p *gq.Policy) { p.Backoff.Initial = 1 }))
	first := j.run()
	j.do(fail(first, gq.CategoryTemporary))
	j.idle(fail(first, gq.CategoryTemporary))
	j.after(time.Second)
	second := j.run()
	j.idle(fail(first, gq.CategoryTemporary))
	j.refuses(gq.ErrStaleLease, map[string]verb{"Complete": complete(first), "Fail": fail(first, gq.CategorySystem)})
	j.do(release(second, 0))
	j.idle(release(second, 0))
	j.refuses(gq.ErrStaleLease, map[string]verb{"another delay": release(second, time.Second)})
	j.run()
	j.idle(release(second, 0))
	j.refuses(gq.ErrStaleLease, map[string]verb{"two leases ago": fail(first, gq.CategoryTemporary)})
}
