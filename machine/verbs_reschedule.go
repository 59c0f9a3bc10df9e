package machine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// ReasonRescheduled is the Event.Reason of a run time that a user set.
const ReasonRescheduled = "rescheduled"

// ErrClaimable is the error of [Reschedule] for a job that is claimable and is to run later. No
// job goes back to waiting: another one takes its place ([PutOff]).
var ErrClaimable = gq.ErrIllegalMove.Errorf("a job that is claimable does not go back to waiting")

// Reschedule sets the run time of a waiting job. A time that is not in the future makes the job
// claimable at once. The error is [ErrClaimable] for a claimable job that is to run later,
// [gq.ErrIllegalMove] for a job that a worker holds, that has ended or that waits for
// dependencies, and [gq.ErrInvalid] for a time at which the job may no longer run.
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
	switch {
	case !later && s.Status == gq.StatusScheduled || later && at.Equal(s.RunAt) && waitsForTime(&s):
		return s, nil, nil
	case later && Claimable(&s, now):
		return s, nil, ErrClaimable
	}
	t := begin(s)
	t.RunAt = at
	var e *gq.Event
	if later {
		e = t.note(gq.EventUpdated)
		e.Until = at
	} else {
		e = t.move(gq.StatusScheduled, now)
	}
	e.Reason = ReasonRescheduled
	return t.State, t.events, nil
}

// PutOff cancels a claimable job because a copy of it takes its place that runs later and carries
// on from there ([Submission]). The error is [gq.ErrConflict] if a worker has had the job since it
// was read with that version, and [gq.ErrIllegalMove] for a job that is not claimable.
func PutOff(s gq.State, by gq.JobID, version gq.LeaseVersion, now time.Time) (gq.State, []gq.Event, error) {
	switch {
	case s.Version != version:
		return s, nil, gq.ErrConflict.Errorf("job %s was claimed since it was read", s.ID)
	case !Claimable(&s, now):
		return s, nil, illegal(s, "put off")
	}
	return replace(s, by, now)
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
