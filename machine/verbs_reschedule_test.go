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

	// A claimable job can wait again.
	j.do(reschedule(even))
	j.is(gq.StatusDelayed)
	if machine.Claimable(&j.s, j.now) || !machine.Due(&j.s).Equal(even) {
		t.Errorf("claimable, due at %v", machine.Due(&j.s))
	}
	j.do(reschedule(j.now))
	ref := j.run()
	j.refuses(gq.ErrIllegalMove, map[string]verb{"running": reschedule(even)})
	j.do(release(ref, time.Minute))
	j.is(gq.StatusRetrying)
	j.do(reschedule(j.now))
	j.is(gq.StatusScheduled)
	j.do(reschedule(even))
	j.is(gq.StatusRetrying) // an attempt has ended

	// A time that has come without a sweep can still change.
	j.now = even
	j.do(reschedule(even.Add(time.Hour)))
	j.is(gq.StatusRetrying)
	j.do(cancel)
	j.refuses(gq.ErrIllegalMove, map[string]verb{"ended": reschedule(time.Time{})})
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
	j.do(reschedule(verbsStart.Add(time.Hour - 1)))
	j.after(time.Hour).refuses(gq.ErrIllegalMove, map[string]verb{"after its lifetime": reschedule(time.Time{})})
	p.Lifetime = 0
	j = submit(t, p)
	j.refuses(gq.ErrInvalid, map[string]verb{"too far": reschedule(verbsStart.Add(gq.MaxDuration + 1))})
}
