package machine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// ReasonRescheduled is the Event.Reason of a run time that a user set.
const ReasonRescheduled = "rescheduled"

// Reschedule sets the run time of a waiting job. A time that is not in the future makes the job
// claimable at once. A claimable job can move to a later time too: it becomes DELAYED, or
// RETRYING if an attempt has ended. The error is [gq.ErrIllegalMove] for a job that a worker
// holds, that has ended or that waits for dependencies, and [gq.ErrInvalid] for a time at which
// the job may no longer run.
func Reschedule(s gq.State, at, now time.Time) (gq.State, []gq.Event, error) {
	switch {
	case s.Status == gq.StatusPending:
		return s, nil, gq.ErrIllegalMove.Errorf("cannot reschedule job %s: it waits for %s", s.ID, waitsFor(&s))
	case s.Status.Terminal() || s.Status.Held():
		return s, nil, illegal(s, "reschedule")
	case over(&s, now):
		return s, nil, gq.ErrIllegalMove.Errorf("cannot reschedule job %s: its %s is over", s.ID, limitOf(&s))
	}
	later := at.After(now)
	if later {
		if err := checkRunTime(&s, at, now); err != nil {
			return s, nil, err
		}
	} else {
		at = now
	}
	if !later && s.Status == gq.StatusScheduled || later && at.Equal(s.RunAt) && waitsForTime(&s) {
		return s, nil, nil
	}
	t := begin(s)
	t.RunAt = at
	var e *gq.Event
	switch {
	case !later:
		e = t.move(gq.StatusScheduled, now)
	case t.Status != gq.StatusScheduled:
		e = t.note(gq.EventUpdated)
	case t.Attempt > 0:
		e = t.move(gq.StatusRetrying, now)
	default:
		e = t.move(gq.StatusDelayed, now)
	}
	e.Reason = ReasonRescheduled
	if later {
		e.Until = at
	}
	return t.State, t.events, nil
}

// checkRunTime rejects a time at which the job would not run.
func checkRunTime(s *gq.State, at, now time.Time) error {
	if end := LifeEnd(s); !end.IsZero() && !at.Before(end) {
		return invalid("run_at", fmt.Sprintf("%s is not before the end of the job's %s, %s", at.UTC().Format(time.RFC3339), limitOf(s), end.UTC().Format(time.RFC3339)))
	}
	if at.Sub(now) > gq.MaxDuration {
		return invalid("run_at", fmt.Sprintf("%s is more than %v from now", at.UTC().Format(time.RFC3339), gq.MaxDuration))
	}
	return nil
}

// waitsFor says what a PENDING job waits for.
func waitsFor(s *gq.State) string {
	switch {
	case s.Waits == 0:
		return "one of several dependencies to end"
	case s.Waits == 1:
		return "a dependency to end"
	}
	return fmt.Sprintf("%d dependencies to end", s.Waits)
}
