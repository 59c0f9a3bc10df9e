package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// workers tells whether anyone is there to run the job.
func (x *inquiry) workers() {
	spec := &x.job.Spec
	var serving []gq.LiveWorker
	for _, w := range x.engine.liveWorkers() {
		if w.Serves(spec.Queue, spec.Type) {
			serving = append(serving, w)
		}
	}
	if len(serving) == 0 {
		x.add(gq.Reason{
			Cause:   gq.CauseNoWorker,
			Summary: fmt.Sprintf("no live worker asks this server for type %s of queue %s", spec.Type, spec.Queue),
			Remedy:  fmt.Sprintf("start a worker that handles %s from queue %s", spec.Type, spec.Queue),
		})
		return
	}
	able := slices.DeleteFunc(slices.Clone(serving), func(w gq.LiveWorker) bool { return len(w.Lacks(spec.Requires)) > 0 })
	if len(able) == 0 {
		best := slices.MinFunc(serving, func(a, b gq.LiveWorker) int { return len(a.Lacks(spec.Requires)) - len(b.Lacks(spec.Requires)) })
		x.add(gq.Reason{
			Cause: gq.CauseConstraint,
			Summary: fmt.Sprintf("requires %s; none of %d live workers offers it all, %s lacks %s",
				strings.Join(spec.Requires, ", "), len(serving), best.Name, strings.Join(best.Lacks(spec.Requires), ", ")),
			Remedy: "start a worker that offers it",
		})
		return
	}
	most := int64(0)
	for _, w := range able {
		if w.MaxCost == 0 || w.MaxCost >= spec.CostUnits {
			return
		}
		most = max(most, w.MaxCost)
	}
	x.add(gq.Reason{
		Cause:   gq.CauseCost,
		Summary: fmt.Sprintf("costs %d units; no live worker takes more than %d", spec.CostUnits, most),
		Remedy:  "start a worker that takes dearer jobs",
	})
}

// tooLate compares when the job may run with when its life ends. New jobs and
// retries of that kind are refused; an earlier version may have stored one.
func (x *inquiry) tooLate() {
	end, run := machine.LifeEnd(x.state), x.state.RunAt
	if end.IsZero() || run.Before(end) {
		return
	}
	x.add(gq.Reason{
		Cause: gq.CauseLifetime, Until: end,
		Summary: fmt.Sprintf("will never run: it may start at %s at the earliest, and its lifetime ends before, at %s, in %v; it will be dead-lettered then",
			instant(run), instant(end), round(max(end.Sub(x.now), 0))),
		Remedy: "cancel it and submit it again with a shorter delay or a longer lifetime in its policy",
	})
}

// lifetime warns of an end that is near: the last tenth of a life, an hour at
// most.
func (x *inquiry) lifetime() {
	end := machine.LifeEnd(x.state)
	if end.IsZero() || !x.state.Status.Held() && !x.state.RunAt.Before(end) { // see tooLate
		return
	}
	left := end.Sub(x.now)
	if left > end.Sub(x.state.CreatedAt)/10 || left > lifetimeWarning {
		return
	}
	x.add(gq.Reason{
		Cause: gq.CauseLifetime, Until: end,
		Summary: fmt.Sprintf("its lifetime ends in %v, at %s; it will be dead-lettered then", round(max(left, 0)), instant(end)),
		Remedy:  "replay it afterwards, with a longer lifetime in its policy",
	})
}

const lifetimeWarning = 3600e9 // an hour

// heldBy tells who has the job.
func (x *inquiry) heldBy() gq.Reason {
	s, l := x.state, x.state.Lease
	r := gq.Reason{Jobs: []gq.Related{related(x.job)}, Until: l.ExpiresAt}
	since, seen := round(x.now.Sub(l.GrantedAt)), round(x.now.Sub(l.HeartbeatAt))
	switch {
	case l.Expired(x.now):
		r.Cause = gq.CauseLost
		r.Summary = fmt.Sprintf("worker %s has been silent for %v; its lease ended at %s", l.Worker, seen, instant(l.ExpiresAt))
		r.Remedy = "the next claim or sweep takes the job back; make sure that an engine runs"
	case s.Status == gq.StatusClaimed:
		r.Cause = gq.CauseHeld
		r.Summary = fmt.Sprintf("worker %s has held it for %v and not started yet (%s)", l.Worker, since, s.Detail)
		r.Remedy = fmt.Sprintf("it is free again at %s if the worker does not start", instant(l.ExpiresAt))
	case s.Cancellation.Requested():
		r.Cause = gq.CauseCancelling
		c := s.Cancellation
		asked := round(x.now.Sub(c.RequestedAt))
		if c.DeliveredAt.IsZero() {
			r.Summary = fmt.Sprintf("runs on worker %s; the cancel of %v ago is told with its next heartbeat", l.Worker, asked)
		} else {
			r.Summary = fmt.Sprintf("runs on worker %s, which was told to stop %v ago and has not", l.Worker, round(x.now.Sub(c.DeliveredAt)))
			r.Remedy = "let the handler watch its context; its execution timeout or the end of its heartbeats will end it"
		}
	default:
		r.Cause = gq.CauseRunning
		r.Summary = fmt.Sprintf("attempt %d of %d runs on worker %s for %v; last sign of life %v ago", s.Attempt, s.Bound, l.Worker, since, seen)
		if s.Progress > 0 {
			r.Summary += fmt.Sprintf("; %.0f%% done", 100*s.Progress)
		}
		if d := machine.Deadline(s); !d.IsZero() && d.Sub(x.now) < l.TTL {
			r.Remedy = fmt.Sprintf("its execution timeout is at %s", instant(d))
		}
	}
	return r
}

// finished tells how the job ended.
func (x *inquiry) finished() gq.Reason {
	s := x.state
	r := gq.Reason{Cause: gq.CauseFinished}
	r.Summary = fmt.Sprintf("%s at %s after %d of %d attempts", s.Status, instant(s.CompletedAt), s.Attempt, s.Bound)
	switch {
	case s.Status == gq.StatusCompleted:
		r.Summary = fmt.Sprintf("%s at %s in attempt %d", s.Status, instant(s.CompletedAt), s.Attempt)
	case s.Reason == machine.ReasonLifetime:
		r.Summary += ": " + x.outlived()
		if s.Failure != nil {
			r.Summary += fmt.Sprintf("; the last attempt failed: %s %s: %s", s.Failure.Category, s.Failure.Code, line1(s.Failure.Message))
		}
	case s.Failure != nil:
		r.Summary += fmt.Sprintf(": %s %s: %s", s.Failure.Category, s.Failure.Code, line1(s.Failure.Message))
	case s.Reason != "":
		r.Summary += ": " + line1(s.Reason)
	}
	if s.Status == gq.StatusFailed || s.Status == gq.StatusDeadLetter {
		r.Remedy = fmt.Sprintf("mend the cause and submit it again: gq job replay %s", s.ID)
	}
	return r
}

// outlived tells how a lifetime ended a job: it was over, or would have been when
// the job might have run again.
func (x *inquiry) outlived() string {
	s, end := x.state, machine.LifeEnd(x.state)
	if !s.RunAt.Before(end) && !end.IsZero() {
		return fmt.Sprintf("it could not run before %s, and its lifetime ended before, at %s", instant(s.RunAt), instant(end))
	}
	return fmt.Sprintf("its lifetime ended at %s", instant(end))
}

// line1 is the first line of a text, not too long.
func line1(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if runes := []rune(s); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return s
}
