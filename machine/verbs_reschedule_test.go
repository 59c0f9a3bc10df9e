package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

func reschedule(at time.Time) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Reschedule(s, at, now) }
}

// TestReschedule: a waiting job gets a new run time, in every status that waits.
func TestReschedule(t *testing.T) {
	p := machine.DefaultPolicy()
	later := verbsStart.Add(time.Hour)
	j := submitted(t, machine.Submission{Policy: &p, RunAt: later})
	even := later.Add(time.Hour)
	j.do(reschedule(even))
	j.is(gq.StatusDelayed)
	if e := j.last(); e.Type != gq.EventUpdated || e.Reason != machine.ReasonRescheduled || !e.Until.Equal(even) || !j.s.RunAt.Equal(even) {
		t.Errorf("rescheduled to %v: %+v", j.s.RunAt, e)
	}
	j.idle(reschedule(even))

	// Run now: a zero time, and one in the past.
	j.after(time.Minute).do(reschedule(time.Time{}))
	j.is(gq.StatusScheduled)
	if e := j.last(); e.Reason != machine.ReasonRescheduled || !j.s.RunAt.Equal(j.now) || !j.s.ScheduledAt.Equal(j.now) || !machine.Claimable(&j.s, j.now) {
		t.Errorf("run now: %+v, %+v", j.s, e)
	}
	j.idle(reschedule(j.now.Add(-time.Second)))

	// A claimable job does not go back, nor one whose time has come without a sweep.
	j.refuses(machine.ErrClaimable, map[string]verb{"claimable": reschedule(even)})
	ref := j.run()
	j.refuses(gq.ErrIllegalMove, map[string]verb{"running": reschedule(even)})
	j.do(release(ref, time.Minute))
	j.is(gq.StatusRetrying)
	j.do(reschedule(even))
	j.is(gq.StatusRetrying)
	j.now = even
	j.refuses(machine.ErrClaimable, map[string]verb{"come": reschedule(even.Add(time.Hour))})
	j.do(reschedule(j.now))
	j.is(gq.StatusScheduled)
	j.do(cancel)
	j.refuses(gq.ErrIllegalMove, map[string]verb{"ended": reschedule(time.Time{})})
}

// TestPutOff: a copy of a claimable job that takes its place carries on from it.
func TestPutOff(t *testing.T) {
	p := machine.DefaultPolicy()
	p.Lifetime = 2 * time.Hour
	j := submit(t, p)
	ref := j.run()
	j.do(fail(ref, gq.CategoryTemporary))
	j.after(time.Hour)
	by := machine.NewJobID([16]byte{9})
	putOff := func(version gq.LeaseVersion) verb {
		return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.PutOff(s, by, version, now)
		}
	}
	j.refuses(gq.ErrConflict, map[string]verb{"claimed since": putOff(0)})
	j.s.Losses, j.s.Progress, j.s.Note, j.s.CheckpointBytes, j.s.Checkpoints = 3, 0.5, "half", 7, 2
	old := j.s
	j.do(putOff(1))
	j.is(gq.StatusCancelled)
	if j.s.ReplacedBy != by {
		t.Errorf("replaced by %v", j.s.ReplacedBy)
	}
	at := j.now.Add(30 * time.Minute)
	b := machine.Submission{ID: by, Sequence: 2, Policy: &p, Own: gq.PriorityNormal, Depth: 1, RunAt: at, Replaces: &j.s, CarriesOn: true}
	s, events := machine.Submit(b, j.now)
	if len(events) != 2 || s.Status != gq.StatusDelayed || events[1].Reason != machine.ReasonRescheduled {
		t.Errorf("%v: %+v", s.Status, events)
	}
	if s.Attempt != 1 || s.Bound != old.Bound || s.Faults != 1 || s.Version != 1 || s.PreviousLease != ref.ID || s.Failure == nil || s.Lease != nil {
		t.Errorf("it carries on with %+v", s)
	}
	if s.Losses != 3 || s.Progress != 0.5 || s.Note != "half" || s.CheckpointBytes != 7 || s.Checkpoints != 2 || !s.StartedAt.Equal(old.StartedAt) || !s.FirstStartedAt.Equal(old.FirstStartedAt) {
		t.Errorf("it carries on with %+v, want what attempts have left of %+v", s, old)
	}
	if end := machine.LifeEnd(&s); !s.CreatedAt.Equal(j.now) || !end.Equal(old.CreatedAt.Add(p.Lifetime)) {
		t.Errorf("its lifetime ends at %v", end)
	}
	b.CarriesOn = false
	if s, _ := machine.Submit(b, j.now); s.Attempt != 0 || !machine.LifeEnd(&s).Equal(old.CreatedAt.Add(p.Lifetime)) {
		t.Errorf("an edited job has %d attempts and lives until %v", s.Attempt, machine.LifeEnd(&s))
	}
	b.Replaces = &s
	again, _ := machine.Submit(b, j.now.Add(time.Minute))
	if !machine.LifeEnd(&again).Equal(old.CreatedAt.Add(p.Lifetime)) {
		t.Errorf("edited twice it lives until %v", machine.LifeEnd(&again))
	}
}

func TestRescheduleRefused(t *testing.T) {
	p := machine.DefaultPolicy()
	p.Lifetime = time.Hour
	for _, c := range []struct {
		waits   int
		anyOpen bool
		want    string
	}{{1, false, "a dependency"}, {2, true, "2 dependencies"}, {0, true, "one of several dependencies"}} {
		j := submitted(t, machine.Submission{Policy: &p, Waits: c.waits, AnyOpen: c.anyOpen})
		j.refuses(gq.ErrIllegalMove, map[string]verb{"pending": reschedule(time.Time{})})
		if err := j.try(reschedule(time.Time{})); !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v does not say that it waits for %s", err, c.want)
		}
	}
	j := submit(t, p)
	j.refuses(gq.ErrInvalid, map[string]verb{"the end of its lifetime": reschedule(verbsStart.Add(time.Hour))})
	j.refuses(machine.ErrClaimable, map[string]verb{"before its end": reschedule(verbsStart.Add(time.Hour - 1))})
	j.after(time.Hour).refuses(gq.ErrIllegalMove, map[string]verb{"after its lifetime": reschedule(time.Time{})})
	p.Lifetime = 0
	j = submit(t, p)
	j.refuses(gq.ErrInvalid, map[string]verb{"too far": reschedule(verbsStart.Add(gq.MaxDuration + 1))})
}
