package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
)

// workers adds a reason if no live worker can run the job.
func (x *inquiry) workers(ctx context.Context) error {
	all, err := x.engine.Workers(ctx)
	if err != nil {
		return err
	}
	spec := &x.job.Spec
	var serving []gq.LiveWorker
	for _, w := range all {
		if w.Serves(spec.Queue, spec.Type) {
			serving = append(serving, w)
		}
	}
	if len(serving) == 0 {
		x.add(gq.Reason{
			Cause:   gq.CauseNoWorker,
			Summary: fmt.Sprintf("no live worker claims type %s of queue %s", spec.Type, spec.Queue),
			Remedy:  fmt.Sprintf("start a worker that handles %s from queue %s", spec.Type, spec.Queue),
		})
		return nil
	}
	able := slices.DeleteFunc(slices.Clone(serving), func(w gq.LiveWorker) bool { return len(w.Lacks(spec.Requires)) > 0 })
	if len(able) == 0 {
		best := slices.MinFunc(serving, func(a, b gq.LiveWorker) int { return len(a.Lacks(spec.Requires)) - len(b.Lacks(spec.Requires)) })
		x.add(gq.Reason{
			Cause: gq.CauseConstraint,
			Summary: fmt.Sprintf("requires %s; none of %d live workers offers all of it, %s lacks %s",
				strings.Join(spec.Requires, ", "), len(serving), best.Name, strings.Join(best.Lacks(spec.Requires), ", ")),
			Remedy: "start a worker that offers it",
		})
		return nil
	}
	most := int64(0)
	for _, w := range able {
		if w.MaxCost == 0 || w.MaxCost >= spec.CostUnits {
			return nil
		}
		most = max(most, w.MaxCost)
	}
	x.add(gq.Reason{
		Cause:   gq.CauseCost,
		Summary: fmt.Sprintf("costs %s; no live worker accepts more than %d", quantity.Of(spec.CostUnits, "unit"), most),
		Remedy:  "start a worker that accepts more expensive jobs",
	})
	return nil
}

// tooLate adds a reason if the lifetime or the start deadline of the job ends before it may run. The engine rejects
// such jobs, but an earlier version may have stored one.
func (x *inquiry) tooLate() {
	end, run := machine.LifeEnd(x.state), x.state.RunAt
	if end.IsZero() || run.Before(end) {
		return
	}
	limit, then := x.limit(end)
	x.add(gq.Reason{
		Cause: gq.CauseLifetime, Until: end, Never: true,
		Summary: fmt.Sprintf("will never run: it may start no earlier than %s, but its %s ends at %s, in %v; it then becomes %s",
			instant(run), limit, instant(end), round(max(end.Sub(x.now), 0)), then),
		Remedy: fmt.Sprintf("cancel it and submit it again with a shorter delay or a longer %s in its policy", limit),
	})
}

// limit names what ends the job at a time returned by [machine.LifeEnd], and how it ends then.
func (x *inquiry) limit(end time.Time) (name, then string) {
	if machine.StartBy(x.state).Equal(end) {
		return "start deadline", "CANCELLED"
	}
	return "lifetime", "a dead letter"
}

// lifetime adds when the job ends unless it starts before. It adds a warning in the last tenth of
// the job's lifetime, at most an hour before its end.
func (x *inquiry) lifetime() {
	end := machine.LifeEnd(x.state)
	if end.IsZero() || !x.state.Status.Held() && !x.state.RunAt.Before(end) { // see tooLate
		return
	}
	left := end.Sub(x.now)
	limit, then := x.limit(end)
	if limit == "start deadline" {
		x.add(gq.Reason{
			Cause: gq.CauseLifetime, Until: end,
			Summary: fmt.Sprintf("must start within %v, before %s; it becomes %s otherwise", round(max(left, 0)), instant(end), then),
			Remedy:  "give it a worker before then; otherwise replay it with more time",
		})
		return
	}
	if left > end.Sub(x.state.CreatedAt)/10 || left > lifetimeWarning {
		return
	}
	x.add(gq.Reason{
		Cause: gq.CauseLifetime, Until: end,
		Summary: fmt.Sprintf("its lifetime ends in %v, at %s; it then becomes a dead letter", round(max(left, 0)), instant(end)),
		Remedy:  "replay it afterwards with a longer lifetime in its policy",
	})
}

const lifetimeWarning = time.Hour

// heldBy returns which worker holds the job.
func (x *inquiry) heldBy() gq.Reason {
	s, l := x.state, x.state.Lease
	r := gq.Reason{Jobs: []gq.Related{related(x.job)}, Until: l.ExpiresAt}
	since, seen := round(x.now.Sub(l.GrantedAt)), round(x.now.Sub(l.HeartbeatAt))
	switch {
	case l.Expired(x.now):
		r.Cause = gq.CauseLost
		r.Summary = fmt.Sprintf("worker %s sent its last heartbeat %v ago; its lease expired at %s", l.Worker, seen, instant(l.ExpiresAt))
		r.Remedy = "the next claim or sweep ends the lease; make sure that an engine runs"
	case s.Status == gq.StatusClaimed:
		r.Cause = gq.CauseHeld
		r.Summary = fmt.Sprintf("worker %s has held it for %v without starting it (%s)", l.Worker, since, s.Detail)
		r.Remedy = fmt.Sprintf("it becomes claimable at %s if the worker does not start it", instant(l.ExpiresAt))
	case s.Cancellation.Requested():
		r.Cause = gq.CauseCancelling
		c := s.Cancellation
		asked := round(x.now.Sub(c.RequestedAt))
		if c.DeliveredAt.IsZero() {
			r.Summary = fmt.Sprintf("runs on worker %s; cancelled %v ago, and the worker has not confirmed it yet", l.Worker, asked)
			r.Remedy = "wait: a Go worker and gq work learn of it at once, a worker over HTTP with its next heartbeat"
		} else {
			r.Summary = fmt.Sprintf("runs on worker %s, which learned of the cancellation %v ago and has not stopped", l.Worker, round(x.now.Sub(c.DeliveredAt)))
			r.Remedy = "make the handler watch its context; otherwise its execution timeout or the expiry of its lease ends it"
		}
	default:
		r.Cause = gq.CauseRunning
		r.Summary = fmt.Sprintf("attempt %d of %d has run on worker %s for %v; last heartbeat %v ago", s.Attempt, s.Bound, l.Worker, since, seen)
		if s.Progress > 0 {
			r.Summary += fmt.Sprintf("; %.0f%% done", 100*s.Progress)
		}
		if d := machine.Deadline(s); !d.IsZero() && d.Sub(x.now) < l.TTL {
			r.Remedy = fmt.Sprintf("its execution timeout is at %s", instant(d))
		}
	}
	return r
}

// finished returns how the job ended.
func (x *inquiry) finished() gq.Reason {
	s := x.state
	r := gq.Reason{Cause: gq.CauseFinished}
	r.Summary = fmt.Sprintf("%s at %s after %d of %d attempts", s.Status, instant(s.CompletedAt), s.Attempt, s.Bound)
	switch {
	case s.Status == gq.StatusCompleted:
		r.Summary = fmt.Sprintf("%s at %s in attempt %d", s.Status, instant(s.CompletedAt), s.Attempt)
	case s.Status == gq.StatusCancelled && s.Reason == machine.ReasonStartDeadline:
		r.Summary = fmt.Sprintf("%s at %s: no worker started it within %v of its submission", s.Status, instant(s.CompletedAt), s.Policy.StartWithin)
		r.Remedy = fmt.Sprintf("submit it again: gq job replay %s", s.ID)
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
		r.Remedy = fmt.Sprintf("fix the cause and submit it again: gq job replay %s", s.ID)
	}
	return r
}

// outlived returns how the lifetime ended a job: it was over, or it would have been over before
// the next attempt.
func (x *inquiry) outlived() string {
	s, end := x.state, machine.LifeEnd(x.state)
	if !s.RunAt.Before(end) && !end.IsZero() {
		return fmt.Sprintf("it could not run before %s, but its lifetime ended at %s", instant(s.RunAt), instant(end))
	}
	return fmt.Sprintf("its lifetime ended at %s", instant(end))
}

// line1 returns the first line of a text, truncated to 200 characters.
func line1(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if runes := []rune(s); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return s
}
