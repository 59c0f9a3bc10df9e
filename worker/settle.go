package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/retry"
)

// settleMost bounds the time between two attempts to send outcomes: leases do
// not last long, and what has finished meanwhile waits too.
const settleMost = 2 * time.Second

// settler sends outcomes. While one call is in flight the next batch gathers,
// so that handlers that finish together share calls; an idle worker waits for
// nothing.
type settler struct {
	worker *Worker

	mu      sync.Mutex
	waiting []*Run
	busy    bool // a goroutine is sending

	stats settlerStats
}

type settlerStats struct {
	succeeded, failed, released, refused, undelivered atomic.Uint64
}

// add takes over the outcome of an execution.
func (s *settler) add(ctx context.Context, r *Run) {
	s.worker.slots.settling(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, r)
	if !s.busy {
		s.busy = true
		s.worker.background.Go(func() { s.send(ctx) })
	}
}

// send sends until nothing waits. When ctx ends it gives up.
func (s *settler) send(ctx context.Context) {
	var again []*Run // to be repeated, before what waits
	for failures := 0; ; {
		batch := s.next(again)
		if len(batch) == 0 {
			return
		}
		var err error
		again, err = s.step(ctx, batch, time.Now())
		s.worker.slots.settling(len(again) - len(batch))
		if err == nil {
			failures = 0
			continue
		}
		failures++
		retry.Pause(ctx, s.pauseFor(again, failures))
	}
}

// pauseFor is how long to wait before outcomes are sent again: not so long that a
// lease runs out meanwhile.
func (s *settler) pauseFor(again []*Run, failures int) time.Duration {
	d := min(retry.Delay(failures, retryFirst, retryMost), settleMost)
	now := time.Now()
	for _, r := range again {
		d = min(d, max(r.over.Sub(now)/2, 50*time.Millisecond))
	}
	return d
}

// next is what to send now: what must be repeated, then what waits, as much as
// one call takes.
func (s *settler) next(again []*Run) []*Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, size := again, 0
	for _, r := range again {
		size += r.outcome.size()
	}
	n := 0
	for n < len(s.waiting) && len(batch)+n < maxBatch && size < maxBytes {
		size += s.waiting[n].outcome.size()
		n++
	}
	if n == len(s.waiting) && len(batch) == 0 {
		batch, s.waiting = s.waiting, nil
	} else {
		batch = append(batch, s.waiting[:n]...)
		s.waiting = append([]*Run(nil), s.waiting[n:]...)
	}
	s.busy = len(batch) > 0
	return batch
}

// step sends one batch and returns what must be sent again, with the reason to
// wait before that.
func (s *settler) step(ctx context.Context, batch []*Run, now time.Time) (again []*Run, err error) {
	outcomes := make([]gq.Outcome, 0, len(batch))
	sent := batch[:0:0]
	patience := 2 * callTimeout
	for _, r := range batch {
		if ctx.Err() != nil || reached(r.over, now) {
			s.stats.undelivered.Add(1)
			r.logged(slog.LevelError, "outcome could not be delivered", slog.String("verdict", r.outcome.Verdict.String()))
			continue
		}
		outcomes, sent = append(outcomes, r.outcome.Outcome), append(sent, r)
		patience = min(patience, r.over.Sub(now))
	}
	if len(sent) == 0 {
		return nil, nil
	}
	// Half of the time that is left, so that a call that hangs can be repeated.
	answers, err := s.call(ctx, outcomes, max(patience/2, 500*time.Millisecond))
	if err != nil && errs.KindOf(err) == gq.KindInvalid {
		return s.alone(ctx, sent, err)
	}
	s.worker.settles.record(err)
	if err != nil {
		return sent, err
	}
	for i, r := range sent {
		if e := s.answered(r, answers[i]); e != nil {
			again, err = append(again, r), e
		} else if r.outcome.pending {
			r.outcome.pending = false
			again = append(again, r)
		}
	}
	return again, err
}

// alone sends outcomes one by one whose batch the queue refused as invalid, so
// that a bad one does not take the others with it.
func (s *settler) alone(ctx context.Context, batch []*Run, refusal error) (again []*Run, err error) {
	for _, r := range batch {
		answer := gq.LeaseResult{Err: refusal}
		if len(batch) > 1 {
			answers, e := s.call(ctx, []gq.Outcome{r.outcome.Outcome}, callTimeout)
			switch {
			case e == nil:
				answer = answers[0]
			case errs.KindOf(e) == gq.KindInvalid:
				answer.Err = e
			default:
				again, err = append(again, r), e
				continue
			}
		}
		if e := s.answered(r, answer); e != nil {
			again, err = append(again, r), e
		} else if r.outcome.pending {
			r.outcome.pending = false
			again = append(again, r)
		}
	}
	return again, err
}

func (s *settler) call(ctx context.Context, outcomes []gq.Outcome, patience time.Duration) ([]gq.LeaseResult, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.worker.calls.settles.Add(1)
	answers, err := s.worker.queue.Settle(ctx, outcomes)
	if err == nil && len(answers) != len(outcomes) {
		err = fmt.Errorf("settle: %d answers to %d outcomes", len(answers), len(outcomes))
	}
	return answers, err
}

// answered notes what became of an outcome. A returned error means that nothing
// is known. A success that was refused is replaced by a failure, once.
func (s *settler) answered(r *Run, a gq.LeaseResult) error {
	kind := errs.KindOf(a.Err)
	switch {
	case a.Err == nil:
		s.settled(r)
	case passing(kind):
		return a.Err
	case kind == gq.KindStaleLease || r.outcome.Verdict != gq.VerdictComplete || r.outcome.replaced:
		s.stats.refused.Add(1)
		r.logged(slog.LevelWarn, "outcome refused", slog.String("verdict", r.outcome.Verdict.String()), slog.String("code", errs.CodeOf(a.Err)))
	default:
		f := refused(r.outcome.Outcome, a.Err)
		r.logged(slog.LevelError, "success refused; failing the job instead", slog.String("code", f.Code))
		r.outcome = outcome{Outcome: failing(r, f), replaced: true, pending: true}
	}
	return nil
}

// settled counts and logs an outcome that the queue has taken.
func (s *settler) settled(r *Run) {
	o := &r.outcome
	switch o.Verdict {
	case gq.VerdictComplete:
		s.stats.succeeded.Add(1)
		r.logged(slog.LevelDebug, "job completed")
	case gq.VerdictRelease:
		s.stats.released.Add(1)
		r.logged(slog.LevelInfo, "job given back", slog.String("reason", o.Reason), slog.Duration("delay", o.Delay))
	default:
		s.stats.failed.Add(1)
		r.logged(slog.LevelWarn, "job failed",
			slog.String("category", o.Failure.Category.String()), slog.String("code", o.Failure.Code))
		r.logged(slog.LevelDebug, "failure", slog.String("message", o.Failure.Message))
	}
}

// outcome is what the settler knows of an execution.
type outcome struct {
	gq.Outcome
	replaced bool // a failure in the place of a success that was refused
	pending  bool // and not sent yet
}

// size is roughly what an outcome adds to a call.
func (o *outcome) size() int {
	n := len(o.Result)
	for i := range o.Spawn {
		n += len(o.Spawn[i].Payload.Data)
	}
	return n
}
