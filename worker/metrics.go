package worker

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Metrics receives the measurements of workers: Config.Metrics. Package workerprom implements it
// for Prometheus, package workerotel for OpenTelemetry. Its methods must be safe for concurrent
// use and return quickly. Types are those that the worker has handlers for, so their number is
// limited.
type Metrics interface {
	// Attach begins to observe a worker when it starts; stats returns its current numbers.
	// The worker calls detach after it has stopped.
	Attach(stats func() Stats) (detach func())
	// Started reports that an execution begins, and how long the job could have been claimed
	// before it was.
	Started(typ string, latency time.Duration)
	// Finished reports that a handler returned.
	Finished(typ string, outcome RunOutcome, took time.Duration)
}

// RunOutcome says how an execution ended, as its worker knows it.
type RunOutcome uint8

const (
	RunCompleted RunOutcome = iota + 1
	RunFailed
	RunTimedOut  // exceeded its execution timeout
	RunCancelled // a user or the handler cancelled the job
	RunReleased  // returned to its queue without using up an attempt
	RunLost      // the lease was lost, so the outcome was not sent
	RunAbandoned // the handler returned after the worker had given it up
	outcomeEnd
)

var runOutcomeNames = [...]string{"", "completed", "failed", "timed_out", "cancelled", "released", "lost", "abandoned"}

// String returns the name, such as "completed".
func (o RunOutcome) String() string {
	if o < outcomeEnd {
		return runOutcomeNames[o]
	}
	return ""
}

// RunOutcomes lists all outcomes.
func RunOutcomes() []RunOutcome {
	return []RunOutcome{RunCompleted, RunFailed, RunTimedOut, RunCancelled, RunReleased, RunLost, RunAbandoned}
}

// observe ends the span of an execution and measures it. The outcome is nil if it is not sent.
func (w *Worker) observe(r *Run, how RunOutcome, o *gq.Outcome) {
	if r.span != nil {
		r.endSpan(how, o)
	}
	if m := w.config.Metrics; m != nil {
		m.Finished(r.Type(), how, time.Since(r.began))
	}
}

// outcomeOf returns how an execution ended.
func outcomeOf(o *gq.Outcome) RunOutcome {
	switch {
	case o.Verdict == gq.VerdictComplete:
		return RunCompleted
	case o.Verdict == gq.VerdictRelease:
		return RunReleased
	case o.Failure.Category == gq.CategoryTimeout:
		return RunTimedOut
	case o.Failure.Category == gq.CategoryCancelled:
		return RunCancelled
	}
	return RunFailed
}

// latencyOf returns how long a claimed job could have been claimed before it was, by the queue's
// clock.
func latencyOf(s *gq.State) time.Duration {
	if s.Lease == nil || s.ScheduledAt.IsZero() {
		return 0
	}
	return max(0, s.Lease.GrantedAt.Sub(s.ScheduledAt))
}
