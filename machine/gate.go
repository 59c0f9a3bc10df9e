package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// Reasons why a gate ended a job.
const (
	ReasonSignalTimeout = "signal_timeout" // no signal came before the deadline
	ReasonNoFailure     = "no_failure"     // none of its dependencies failed
)

// Signal completes a job that waits for a signal; the value becomes its result. While its
// dependencies have not ended the job keeps the value and completes with the last of them. A
// job takes one signal, and none after its deadline, whether or not a sweep has noticed.
func Signal(s gq.State, value []byte, now time.Time) (gq.State, []gq.Event, error) {
	if s.Gate != gq.GateSignal || s.Status != gq.StatusPending {
		if s.Gate == gq.GateSignalled || s.Status == gq.StatusCompleted {
			return s, nil, gq.ErrIllegalMove.Errorf("job %s already has its signal", s.ID)
		}
		return s, nil, illegal(s, "signal")
	}
	if over(&s, now) || reached(SignalBy(&s), now) {
		return s, nil, gq.ErrIllegalMove.Errorf("job %s no longer waits for its signal: the deadline has passed", s.ID)
	}
	t := begin(s)
	t.Gate, t.ResultBytes = gq.GateSignalled, len(value)
	if t.Waits > 0 || t.AnyOpen {
		t.note(gq.EventUpdated)
		return t.State, t.events, nil
	}
	t.ready(now)
	return t.State, t.events, nil
}

// SignalBy returns the deadline of a job that waits for its signal; zero is never. The time
// counts from the end of its dependencies.
func SignalBy(s *gq.State) time.Time {
	if s.Gate != gq.GateSignal || s.Status != gq.StatusPending || s.ScheduledAt.IsZero() || s.Policy.ExecutionTimeout == 0 {
		return time.Time{}
	}
	return s.ScheduledAt.Add(s.Policy.ExecutionTimeout)
}

func reached(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// unsignalled ends a job that got no signal in time.
func (t *step) unsignalled(now time.Time) {
	t.Reason = ReasonSignalTimeout
	t.Failure = &gq.Failure{
		Category: gq.CategoryTimeout, Code: ReasonSignalTimeout,
		Message: fmt.Sprintf("no signal came within %v", t.Policy.ExecutionTimeout),
	}
	e := t.move(gq.StatusFailed, now)
	e.Reason, e.Failure = t.Reason, t.Failure
}

// gated moves on a job without open dependencies as its gate says. It reports false if the job
// has none.
func (t *step) gated(now time.Time) bool {
	switch t.Gate {
	case gq.GateSignal:
		if t.ScheduledAt.IsZero() { // another AFTER_ANY dependency does not postpone the deadline
			t.ScheduledAt = now
		}
	case gq.GateSignalled:
		t.Progress = 1
		t.move(gq.StatusCompleted, now)
	case gq.GateFailure:
		t.Reason = ReasonNoFailure
		t.move(gq.StatusCancelled, now).Reason = t.Reason
	default:
		return false
	}
	return true
}

// MaxDependencies returns how many dependencies a store accepts. The final jobs of a workflow wait
// for all others; a store cannot tell which these are, so the engine limits the other members.
func MaxDependencies(s *gq.Spec) int {
	if s.Workflow.IsZero() {
		return gq.MaxDependencies
	}
	return gq.MaxGroupJobs
}

// countDependencies counts those that a user has named: not the one on the job that spawned this
// one, nor the last one on the job before it in its order, which a store adds.
func countDependencies(all []gq.Dependency) int {
	n := len(all)
	if n > 0 && all[n-1].Kind == DependencyOrder {
		n--
	}
	if slices.ContainsFunc(all, func(d gq.Dependency) bool { return d.Kind == gq.DependencyFanOut }) {
		n--
	}
	return n
}

// checkMembership reports what is wrong with a job's place in a workflow.
func checkMembership(s *gq.Spec, f *faults) {
	if s.Workflow.IsZero() {
		if s.Ref != "" || s.Gate != 0 {
			f.add("workflow", "a reference or a gate needs a workflow")
		}
		return
	}
	if s.Ref == "" || len(s.Ref) > gq.MaxRefBytes {
		f.add("ref", "has %d bytes; a reference has 1 to %d", len(s.Ref), gq.MaxRefBytes)
	} else {
		checkName("ref", s.Ref, true, f)
	}
	if s.Gate > gq.GateFailure {
		f.add("gate", "must be SIGNAL, FAILURE or nothing")
	}
	if s.Key.Name != "" {
		f.add("idempotency_key", "a job of a workflow has none: submitting the workflow again is safe by its id; remove the key")
	}
	if !s.Unique.IsZero() {
		f.add("unique", "a job of a workflow cannot be unique, because it could resolve to a job outside; remove the rule")
	}
	if s.Gate == gq.GateSignal && (s.Delay != 0 || !s.RunAt.IsZero()) {
		f.add("delay", "a job that waits for a signal does not run; remove the delay and the start time")
	}
}
