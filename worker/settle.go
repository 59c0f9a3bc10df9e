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

// settleMost is the longest pause between two attempts to send outcomes. Leases are short, and
// later outcomes wait too.
const settleMost = 2 * time.Second

// settler sends outcomes. While one call is in flight it collects the next batch, so handlers
// that finish together share a call, and an idle worker sends at once.
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

// add queues the outcome of an execution.
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

// send sends outcomes until none wait or ctx ends.
func (s *settler) send(ctx context.Context) {
	var again []*Run // to be repeated, before those that wait
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

// pauseFor returns how long to wait before sending outcomes again, without letting a lease
// expire meanwhile.
func (s *settler) pauseFor(again []*Run, failures int) time.Duration {
	d := min(retry.Delay(failures, retryFirst, retryMost), settleMost)
	now := time.Now()
	for _, r := range again {
		d = min(d, max(r.over.Sub(now)/2, 50*time.Millisecond))
	}
	return d
}

// next returns the next batch: the outcomes to repeat, then waiting ones up to the size of one
// call.
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

// step sends one batch and returns the outcomes to repeat. With an error the caller waits
// before repeating them.
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
	s.report(ctx, sent, max(patience/4, 250*time.Millisecond))
	// Half of the remaining time leaves room to repeat a call that hangs.
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

// report sends the progress that handlers have reported and no heartbeat has sent. It is tried once,
// because outcomes matter more.
func (s *settler) report(ctx context.Context, batch []*Run, patience time.Duration) {
	beats := s.worker.keeper.unsent(batch)
	if len(beats) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.worker.calls.heartbeats.Add(1)
	if _, err := s.worker.queue.Heartbeat(ctx, beats); err != nil {
		s.worker.failures.heartbeats.Add(1)
	}
}

// alone sends the outcomes of a batch one by one after the queue rejected the batch as
// invalid, so that one invalid outcome does not affect the others.
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
	for i := range outcomes {
		outcomes[i].NoState = true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.worker.calls.settles.Add(1)
	answers, err := s.worker.queue.Settle(ctx, outcomes)
	if err == nil && len(answers) != len(outcomes) {
		err = fmt.Errorf("settle: %d answers to %d outcomes", len(answers), len(outcomes))
	}
	if err != nil {
		s.worker.failures.settles.Add(1)
	}
	return answers, err
}

// answered handles the answer to an outcome. It returns an error if the outcome must be sent
// again. It replaces a rejected success with a failure, once.
func (s *settler) answered(r *Run, a gq.LeaseResult) error {
	kind := errs.KindOf(a.Err)
	switch {
	case a.Err == nil:
		s.settled(r)
	case passing(kind):
		return a.Err
	case kind == gq.KindStaleLease || r.outcome.Verdict != gq.VerdictComplete || r.outcome.replaced:
		s.stats.refused.Add(1)
		r.logged(slog.LevelWarn, "outcome rejected", slog.String("verdict", r.outcome.Verdict.String()), slog.String("code", errs.CodeOf(a.Err)))
	default:
		f := refused(r.outcome.Outcome, a.Err)
		r.logged(slog.LevelError, "success rejected; failing the job instead", slog.String("code", f.Code))
		r.outcome = outcome{Outcome: failing(r, f), replaced: true, pending: true}
	}
	return nil
}

// settled counts and logs an accepted outcome.
func (s *settler) settled(r *Run) {
	o := &r.outcome
	switch o.Verdict {
	case gq.VerdictComplete:
		s.stats.succeeded.Add(1)
		r.logged(slog.LevelDebug, "job completed")
	case gq.VerdictRelease:
		s.stats.released.Add(1)
		r.logged(slog.LevelInfo, "job released", slog.String("reason", o.Reason), milliseconds("delay_ms", o.Delay))
	default:
		s.stats.failed.Add(1)
		level, message := slog.LevelWarn, "job failed"
		if o.Failure.Category == gq.CategoryCancelled {
			level, message = slog.LevelInfo, "job cancelled"
		}
		r.logged(level, message, slog.String("category", o.Failure.Category.String()),
			slog.String("code", o.Failure.Code), slog.String("error", r.quotable(o.Failure.Message)))
	}
}

// outcome is the settler's state of an execution.
type outcome struct {
	gq.Outcome
	replaced bool // a failure that replaces a rejected success
	pending  bool // the replacement has not been sent
}

// size returns the approximate size of an outcome in a call.
func (o *outcome) size() int {
	n := len(o.Result)
	for i := range o.Spawn {
		n += len(o.Spawn[i].Payload.Data)
	}
	return n
}
