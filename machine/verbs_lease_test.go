package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

// TestHeartbeatResets: with ExtendReset a heartbeat grants a full TTL from now.
func TestHeartbeatResets(t *testing.T) {
	spec.Covers(t, "Q-86", "Q-94", "J-136")
	j := submit(t, gq.PresetSemantics.Policy())
	ref := j.run()
	if !j.s.Lease.ExpiresAt.Equal(j.now.Add(5 * time.Second)) {
		t.Errorf("the lease ends at %v", j.s.Lease.ExpiresAt)
	}
	updated, events := j.s.UpdatedAt, len(j.events)
	for range 400 {
		j.after(4 * time.Second).do(heartbeat(ref))
		l := j.s.Lease
		if !l.ExpiresAt.Equal(j.now.Add(5*time.Second)) || !l.HeartbeatAt.Equal(j.now) || l.Renewals != 0 || l.Version != 1 {
			t.Fatalf("after a heartbeat: %+v", l)
		}
	}
	if j.s.Progress != 0.5 || j.s.Note != "half" || !j.s.UpdatedAt.Equal(updated) || len(j.events) != events {
		t.Errorf("a heartbeat is no change of state: %+v", j.s)
	}
	if by := machine.RenewBy(*j.s.Lease, j.s.Policy); !by.Equal(j.now.Add(5 * time.Second / 3)) {
		t.Errorf("to be renewed by %v", by)
	}
	j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, ref, machine.Report{Progress: -1, CheckpointBytes: 7}, now)
	})
	if j.s.Progress != 0.5 || j.s.Note != "half" || j.s.CheckpointBytes != 7 {
		t.Errorf("what a heartbeat does not carry stays: %+v", j.s)
	}
	j.refuses(gq.ErrInvalid, map[string]verb{"progress": func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, ref, machine.Report{Progress: 1.1}, now)
	}})

	// The next attempt has no progress or note but has the checkpoint.
	j.do(release(ref, 0))
	j.run()
	if j.s.Progress != 0 || j.s.Note != "" || j.s.CheckpointBytes != 7 {
		t.Errorf("the next attempt: %+v", j.s)
	}
}

// TestHeartbeatExtends: with ExtendAdd the deadline moves by a share of the TTL, a limited
// number of times.
func TestHeartbeatExtends(t *testing.T) {
	j := submit(t, gq.PresetAI.Policy()) // 10 min, renewed four times by half of it
	j.refuses(gq.ErrIllegalMove, map[string]verb{"renewal of a hold": heartbeat(j.claim(machine.Grant{}))})
	ref := j.s.Lease.Ref()
	j.do(start(ref, 0))
	granted := j.now
	for n := 1; n <= 4; n++ {
		j.after(time.Minute).do(heartbeat(ref))
		end := granted.Add(10*time.Minute + time.Duration(n)*5*time.Minute)
		if l := j.s.Lease; !l.ExpiresAt.Equal(end) || l.Renewals != n || !machine.RenewBy(*l, j.s.Policy).Equal(end.Add(-4*time.Minute)) {
			t.Errorf("after renewal %d: %+v, to be renewed by %v", n, l, machine.RenewBy(*l, j.s.Policy))
		}
		if e := j.last(); e.Type != gq.EventRenewed || !e.Until.Equal(end) || e.Lease != ref.ID {
			t.Errorf("renewal %d is told as %+v", n, e)
		}
	}
	j.refuses(gq.ErrIllegalMove, map[string]verb{"fifth renewal": heartbeat(ref)})
	j.do(complete(ref))

	j = submit(t, gq.PresetAI.Policy())
	ref = j.run()
	j.after(10*time.Minute - 1).do(heartbeat(ref)) // before the deadline, not at it
	j.after(5*time.Minute+1).refuses(gq.ErrStaleLease, held(ref))

	j = submit(t, policy(gq.PresetQuantum, func(p *gq.Policy) { p.ExtendPPB = 333_333_333 }))
	ref = j.claim(machine.Grant{Start: true, TTL: time.Hour})
	j.do(heartbeat(ref))
	if got := j.s.Lease.ExpiresAt.Sub(j.now); got != time.Hour+1199999998800*time.Nanosecond {
		t.Errorf("a third of the TTL that was asked for: %v", got)
	}
}

// TestHold: between claim and start a job is held, with a separate time limit.
func TestHold(t *testing.T) {
	p := gq.PresetScheduler.Policy() // hold 60 s, lease 30 s
	j := submit(t, p)
	ref := j.claim(machine.Grant{CostUnits: 7})
	j.is(gq.StatusClaimed)
	if j.s.Detail != gq.DetailClaimed || j.s.Attempt != 0 || !j.s.StartedAt.IsZero() || j.s.Lease.Attempt != 0 ||
		!j.s.Lease.ExpiresAt.Equal(j.now.Add(time.Minute)) || j.last().CostUnits != 7 {
		t.Errorf("a held job: %+v %+v", j.s, j.s.Lease)
	}
	j.refuses(gq.ErrIllegalMove, map[string]verb{
		"Claim": claim, "Complete": complete(ref), "Fail": fail(ref, gq.CategoryTemporary),
		"no detail": prepare(ref, gq.DetailNone), "detail of another face": prepare(ref, gq.DetailAssigned),
	})
	for _, d := range []gq.Detail{gq.DetailPreparing, gq.DetailPreparing, gq.DetailLeasePending, gq.DetailLeasePending} {
		events, before := len(j.events), j.s.Detail
		j.after(50 * time.Second).do(prepare(ref, d))
		if !j.s.Lease.ExpiresAt.Equal(j.now.Add(time.Minute)) || j.s.Detail != d || (d != before) != (len(j.events) > events) {
			t.Errorf("report of %s: %+v, %d new events", d, j.s.Lease, len(j.events)-events)
		}
	}
	j.refuses(gq.ErrIllegalMove, map[string]verb{"backwards": prepare(ref, gq.DetailPreparing)})
	j.after(59 * time.Second).do(heartbeat(ref))
	j.do(start(ref, 0))
	j.is(gq.StatusRunning)
	if l := j.s.Lease; j.s.Attempt != 1 || l.Attempt != 1 || l.ID != ref.ID || l.Version != 1 || !l.ExpiresAt.Equal(j.now.Add(30*time.Second)) || l.TTL != 30*time.Second {
		t.Errorf("started: %+v", l)
	}
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Start": start(ref, 0), "Prepare": prepare(ref, gq.DetailLeasePending)})

	j = submit(t, p)
	ref = j.claim(machine.Grant{TTL: time.Second})
	j.do(start(ref, 2*time.Second))
	if got := j.s.Lease.ExpiresAt.Sub(j.now); got != 2*time.Second {
		t.Errorf("a lease of its own length: %v", got)
	}
}

func TestHoldExpiry(t *testing.T) {
	for _, preset := range enum.All[gq.Preset]() {
		t.Run(preset.String(), func(t *testing.T) {
			j := submit(t, preset.Policy())
			ref := j.claim(machine.Grant{})
			j.after(j.s.Policy.Hold - 1).idle(advance)
			j.after(1).refuses(gq.ErrStaleLease, held(ref))
			j.do(advance)
			if j.s.Attempt != 0 || j.s.Lease.State != gq.LeaseExpired {
				t.Errorf("a hold that ran out: %+v", j.s)
			}
			if !j.s.Policy.HoldFault {
				j.is(gq.StatusScheduled)
				if j.s.Faults != 0 || j.s.Losses != 0 || j.s.Bound != j.s.Policy.MaxAttempts || j.last().Reason != "hold_expired" {
					t.Errorf("it cost something: %+v", j.s)
				}
				return
			}
			// In matching it counts as one of the four faults.
			j.is(gq.StatusRetrying)
			if j.s.Faults != 1 || j.s.Losses != 1 || j.s.Failure.Code != "ack_timeout" || !j.s.RunAt.After(j.now) {
				t.Errorf("it cost too little: %+v", j.s)
			}
			for range 5 {
				j.now = j.s.RunAt
				j.claim(machine.Grant{})
				j.after(j.s.Policy.Hold).do(advance)
			}
			j.is(gq.StatusDeadLetter)
			if j.s.Reason != "attempts_exhausted" || j.s.Attempt != 0 || j.s.Faults != 6 {
				t.Errorf("after six faults: %+v", j.s)
			}
		})
	}
}

// TestLeaseLoss checks each preset's rule for an expired lease.
func TestLeaseLoss(t *testing.T) {
	spec.Covers(t, "Q-34", "J-71")
	lose := func(j *subject) {
		j.t.Helper()
		ref := j.run()
		j.after(j.s.Policy.LeaseTTL - 1).idle(advance)
		j.after(1)
		if !machine.Due(&j.s).Equal(j.now) {
			j.t.Errorf("due at %v, now is %v", machine.Due(&j.s), j.now)
		}
		j.refuses(gq.ErrStaleLease, held(ref))
		j.do(advance)
		if j.s.Lease.State != gq.LeaseExpired || j.s.Failure == nil {
			j.t.Errorf("after a loss: %+v", j.s)
		}
	}

	t.Run("jobmodel", func(t *testing.T) { // it counts as the attempt it interrupted
		j := submit(t, gq.PresetJobModel.Policy())
		for n := 1; n <= 2; n++ {
			lose(j)
			j.is(gq.StatusScheduled)
			if f := j.s.Failure; j.s.Attempt != n || j.s.Faults != n || j.s.Losses != n || f.Category != gq.CategorySystem || j.s.Bound != 3 {
				t.Errorf("loss %d: %+v %+v", n, j.s, f)
			}
		}
		lose(j)
		j.is(gq.StatusDeadLetter)
		if c := j.s.Failure.Category; c != gq.CategorySystem {
			t.Errorf("the last loss has the category %s", c)
		}
		j.took(gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusRetrying, gq.StatusScheduled, gq.StatusRunning, gq.StatusRetrying, gq.StatusScheduled, gq.StatusRunning, gq.StatusDeadLetter)

		j = submit(t, policy(gq.PresetJobModel, func(p *gq.Policy) { p.RetrySystem = false }))
		lose(j)
		j.is(gq.StatusFailed)
	})
	t.Run("semantics", func(t *testing.T) { // it uses up no retry; the twenty-first ends the job
		j, other := submit(t, gq.PresetSemantics.Policy()), submit(t, gq.PresetSemantics.Policy())
		for n := 1; n <= 20; n++ {
			for _, j := range []*subject{j, other} {
				lose(j)
				j.is(gq.StatusScheduled)
				if j.s.Faults != 0 || j.s.Losses != n || j.s.Attempt != n || !machine.Claimable(&j.s, j.now) {
					t.Fatalf("loss %d: %+v", n, j.s)
				}
			}
		}
		lose(other)
		other.is(gq.StatusDeadLetter)
		if other.s.Reason != "lease_losses" || other.s.Losses != 21 {
			t.Errorf("given up for %q after %d losses", other.s.Reason, other.s.Losses)
		}
		for range 4 { // no retry was used up
			if j.s.Status.Terminal() {
				t.Fatalf("losses used up retries: %+v", j.s)
			}
			j.do(fail(j.run(), gq.CategoryTemporary))
			j.now = j.s.RunAt
		}
		j.is(gq.StatusDeadLetter)
	})
	t.Run("guard against jobs that kill their workers", func(t *testing.T) {
		j := submit(t, policy(gq.PresetSemantics, func(p *gq.Policy) { p.MaxLeaseLosses = 3 }))
		for range 3 {
			lose(j)
			j.is(gq.StatusScheduled)
		}
		lose(j)
		j.is(gq.StatusDeadLetter)
		if j.s.Reason != "lease_losses" {
			t.Errorf("given up for %q", j.s.Reason)
		}
	})
	t.Run("scheduler", func(t *testing.T) { // it is a timeout, and final
		j := submit(t, gq.PresetScheduler.Policy())
		lose(j)
		j.is(gq.StatusFailed)
		if j.s.Failure.Category != gq.CategoryTimeout || j.last().Failure.Category != gq.CategoryTimeout {
			t.Errorf("the failure: %+v", j.s.Failure)
		}
	})
	for name, p := range map[string]gq.Policy{ // attempts bound lost holders only, and the last loss is a timeout
		"scheduler with requeue": policy(gq.PresetScheduler, func(p *gq.Policy) { p.OnLoss = gq.LossCounts }),
		"taskqueue":              gq.PresetTaskQueue.Policy(),
	} {
		t.Run(name, func(t *testing.T) {
			j := submit(t, p)
			for range 2 {
				lose(j)
				j.is(gq.StatusScheduled)
				if c := j.s.Failure.Category; c != gq.CategorySystem {
					t.Errorf("after a loss that is not the last the category is %s", c)
				}
			}
			lose(j)
			j.is(gq.StatusDeadLetter)
			if j.s.Failure.Category != gq.CategoryTimeout || j.last().Failure.Category != gq.CategoryTimeout || j.s.Failure.Code != "lease_expired" {
				t.Errorf("the failure: %+v, in the event %+v", j.s.Failure, j.last().Failure)
			}
		})
	}
	for _, preset := range []gq.Preset{gq.PresetAI, gq.PresetQuantum} {
		t.Run(preset.String(), func(t *testing.T) { // counts as a fault, with backoff
			j := submit(t, preset.Policy())
			for n := 1; n <= 5; n++ {
				lose(j)
				j.is(gq.StatusRetrying)
				if want := machine.Delay(j.s.Policy.Backoff, n, j.s.ID, machine.Draw{}); j.s.RunAt.Sub(j.now) != want || want == 0 {
					t.Errorf("loss %d: retry after %v, want %v", n, j.s.RunAt.Sub(j.now), want)
				}
				j.now = j.s.RunAt
			}
			lose(j)
			j.is(gq.StatusDeadLetter)
		})
	}
}
