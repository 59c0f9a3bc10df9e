package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Explain returns why a job does not run: the first cause with a remedy, the causes that would
// apply next, and the history of the job. It changes nothing.
func (e *Engine) Explain(ctx context.Context, id gq.JobID) (gq.Explanation, error) {
	out, err := e.explain(ctx, id)
	if err != nil {
		return gq.Explanation{}, jobError("explain", id, err)
	}
	return out, nil
}

func (e *Engine) explain(ctx context.Context, id gq.JobID) (out gq.Explanation, err error) {
	job, err := e.Get(ctx, id, 0)
	if err != nil {
		return out, err
	}
	hideContent(ctx, &job)
	x := inquiry{engine: e, job: &job, state: &job.State, now: e.Now()}
	out = gq.Explanation{
		Job: id, Queue: job.Spec.Queue, Type: job.Spec.Type,
		Status: x.state.Status, Attempt: x.state.Attempt, Bound: x.state.Bound,
	}
	if out.Timeline, err = e.History(ctx, id); err != nil {
		return out, err
	}
	switch s := x.state.Status; {
	case s.Terminal():
		x.add(x.finished())
	case s.Held():
		if err := x.capacity(ctx); err != nil {
			return out, err
		}
		x.add(x.heldBy())
		x.lifetime()
	default:
		if err := x.waiting(ctx); err != nil {
			return out, err
		}
		switch {
		case len(x.reasons) == 0:
			if out.Ahead, err = x.inLine(ctx); err != nil {
				return out, err
			}
		case x.reasons[0].Cause == gq.CauseNext: // a delegate decides which job is next
			out.Ahead = -1
		}
		x.lifetime()
	}
	out.Reason, out.Also = x.reasons[0], x.reasons[1:]
	return out, nil
}

// inquiry collects the reasons why a job does not run.
type inquiry struct {
	engine  *Engine
	job     *gq.Job
	state   *gq.State
	now     time.Time // estimated store time
	queue   gq.Queue
	reasons []gq.Reason // the first blocking one first
}

func (x *inquiry) add(r gq.Reason) { x.reasons = append(x.reasons, r) }

// waiting checks everything that a job can wait for, in the order in which it does.
func (x *inquiry) waiting(ctx context.Context) (err error) {
	if x.queue, _, err = x.engine.findQueue(ctx, x.job.Spec.Queue); err != nil {
		return err
	}
	if err := x.dependencies(ctx); err != nil {
		return err
	}
	if x.state.Gate == gq.GateSignal || x.state.Gate == gq.GateSignalled {
		x.signal()
		return nil // no worker runs it
	}
	x.tooLate()
	x.delay()
	if x.queue.Paused {
		x.add(gq.Reason{
			Cause:   gq.CausePaused,
			Summary: fmt.Sprintf("queue %s is paused", x.queue.Name),
			Remedy:  fmt.Sprintf("resume it: gq queue resume %s", x.queue.Name),
		})
	}
	if err := x.limits(ctx); err != nil {
		return err
	}
	if explain := x.engine.delegates.of(x.queue.Name).Explain; explain != nil {
		reasons, err := explain(ctx, x.job)
		x.reasons = append(x.reasons, reasons...)
		return err
	}
	return x.workers(ctx)
}

// shown is the maximum number of related jobs per reason.
const shown = 10

// dependencies adds a reason for unmet dependencies.
func (x *inquiry) dependencies(ctx context.Context) error {
	if x.state.Status != gq.StatusPending || x.state.Waits == 0 && !x.state.AnyOpen {
		return nil
	}
	var refs []store.Ref
	var kinds []gq.DependencyKind
	for _, d := range x.job.Spec.DependsOn {
		if d.Kind.Waits() && (d.Kind != gq.DependencyAfterAny || x.state.AnyOpen) {
			refs, kinds = append(refs, store.Ref{Job: d.Job}), append(kinds, d.Kind)
		}
	}
	ahead, err := x.ahead(ctx)
	if err != nil {
		return err
	}
	if ahead != nil {
		refs, kinds = append(refs, store.Ref{Job: ahead.Job}), append(kinds, 0)
	}
	found, err := x.engine.store.Get(ctx, refs, 0)
	if err != nil {
		return err
	}
	r := gq.Reason{Cause: gq.CauseDependency}
	open, either := 0, 0
	for i := range found {
		if found[i].Err != nil || found[i].State.Status.Terminal() {
			continue // it has ended; a sweep updates this job
		}
		if open++; kinds[i] == gq.DependencyAfterAny {
			either++
		}
		if len(r.Jobs) == shown {
			r.More++
			continue
		}
		r.Jobs = append(r.Jobs, gq.Related{Job: refs[i].Job, Status: found[i].State.Status, Kind: kinds[i]})
	}
	switch {
	case open == 0:
		r.Summary = "its last dependency has just ended; the next sweep releases it"
	case open == 1 && ahead != nil:
		r.Summary = fmt.Sprintf("waits for job %s, which has the same order key and is %s", ahead.Job, ahead.Status)
		r.Remedy = fmt.Sprintf("find out why that job has not ended: gq job explain %s", ahead.Job)
	case open == 1:
		d := r.Jobs[0]
		r.Summary = fmt.Sprintf("waits for job %s (%s), which is %s", d.Job, d.Kind, d.Status)
		r.Remedy = fmt.Sprintf("find out why that job has not ended: gq job explain %s", d.Job)
	case either == open:
		r.Summary = fmt.Sprintf("waits for any of %d jobs to end", open)
		r.Remedy = fmt.Sprintf("find out why they have not ended: gq job explain %s", r.Jobs[0].Job)
	default:
		r.Summary = fmt.Sprintf("waits for %d jobs; the first is %s, which is %s", open, r.Jobs[0].Job, r.Jobs[0].Status)
		r.Remedy = fmt.Sprintf("find out why they have not ended: gq job explain %s", r.Jobs[0].Job)
	}
	x.add(r)
	return nil
}

// signal adds a reason for a signal that has not come.
func (x *inquiry) signal() {
	if x.state.Gate != gq.GateSignal {
		return // it has come, and the job waits for its dependencies
	}
	flow, ref := x.job.Spec.Workflow, x.job.Spec.Ref
	r := gq.Reason{Cause: gq.CauseSignal, Remedy: fmt.Sprintf("send it: gq workflow signal %s %s", flow, ref)}
	within := x.state.Policy.ExecutionTimeout
	switch end := machine.SignalBy(x.state); {
	case !end.IsZero():
		r.Until = end
		r.Summary = fmt.Sprintf("waits for signal %s of workflow %s, for %v more; it then fails, at %s", ref, flow, round(max(end.Sub(x.now), 0)), instant(end))
	case within > 0:
		r.Summary = fmt.Sprintf("waits for signal %s of workflow %s, for %v from the end of its dependencies", ref, flow, within)
	default:
		r.Summary = fmt.Sprintf("waits for signal %s of workflow %s, without a deadline", ref, flow)
	}
	x.add(r)
}

// delay adds a reason for a delay or a backoff.
func (x *inquiry) delay() {
	s := x.state
	if !s.RunAt.After(x.now) {
		return
	}
	at, wait := instant(s.RunAt), round(s.RunAt.Sub(x.now))
	if s.Status == gq.StatusRetrying {
		r := gq.Reason{Cause: gq.CauseBackoff, Until: s.RunAt}
		r.Summary = fmt.Sprintf("attempt %d of %d starts in %v, at %s", s.Attempt+1, s.Bound, wait, at)
		if s.Failure != nil {
			r.Summary += fmt.Sprintf("; the last one failed: %s %s: %s", s.Failure.Category, s.Failure.Code, line1(s.Failure.Message))
		}
		r.Remedy = "wait, or fix the cause of the last failure"
		x.add(r)
		return
	}
	x.add(gq.Reason{
		Cause: gq.CauseDelay, Until: s.RunAt,
		Summary: fmt.Sprintf("delayed until %s (in %v)", at, wait),
		Remedy:  "wait, or cancel it and submit it without the delay",
	})
}

// inLine returns how many jobs come before this one.
func (x *inquiry) inLine(ctx context.Context) (ahead int, err error) {
	found, err := x.engine.store.Peek(ctx, store.Filter{Queues: []string{x.queue.Name}, Offers: x.job.Spec.Requires}, store.MaxClaim)
	if err != nil {
		return 0, err
	}
	ahead = -1
	for i := range found {
		if found[i].Err == nil && found[i].State.ID == x.state.ID {
			ahead = i
			break
		}
	}
	r := gq.Reason{Cause: gq.CauseNext}
	switch {
	case ahead == 0:
		r.Summary = fmt.Sprintf("is the next job of queue %s", x.queue.Name)
		r.Remedy = "wait for a free worker"
	case ahead > 0:
		r.Summary = fmt.Sprintf("jobs ahead of it in queue %s: %d", x.queue.Name, ahead)
		r.Remedy = "wait, add workers, or submit it with a more urgent priority"
	case len(found) < store.MaxClaim:
		r.Summary = fmt.Sprintf("waits in queue %s", x.queue.Name)
		r.Remedy = "wait for a free worker"
	default:
		r.Summary = fmt.Sprintf("jobs ahead of it in queue %s: more than %d", x.queue.Name, store.MaxClaim)
		r.Remedy = "wait, add workers, or submit it with a more urgent priority"
	}
	x.add(r)
	return ahead, nil
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// round rounds a duration for display.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}
