package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
)

const (
	gatherMost  = 2 * time.Millisecond
	retryFirst  = 100 * time.Millisecond
	retryMost   = 30 * time.Second
	callTimeout = 30 * time.Second // beyond the time that a call is meant to take
	foreignFor  = 10 * time.Second // how long a job is put off that we cannot run
)

// fetch claims jobs for a lane until ctx ends.
func (w *Worker) fetch(ctx context.Context, l *lane) {
	outage := outage{log: w.log, call: "claim"}
	for failures := 0; ctx.Err() == nil; {
		w.gather(ctx, l)
		n, wait := w.reserve(l)
		if n == 0 {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := w.claim(ctx, l, n, wait)
		if ctx.Err() != nil {
			return
		}
		outage.record(err)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		retry.Pause(ctx, retry.Delay(failures, retryFirst, retryMost))
	}
}

// gather waits a moment for more slots to become free, so that a busy lane of
// small jobs does not spend a whole call on each of the first that finish.
func (w *Worker) gather(ctx context.Context, l *lane) {
	if !l.busy {
		return
	}
	if n := w.slots.available(l); n > 0 && n < l.Slots/2 {
		retry.Pause(ctx, min(l.took/2, gatherMost))
	}
}

// reserve takes slots for the next claim and says how long it may wait. Where
// lanes compete, a claim that waits holds one slot only.
func (w *Worker) reserve(l *lane) (n int, wait time.Duration) {
	switch {
	case !w.slots.shared:
		return w.slots.take(l, maxBatch), w.config.Poll
	case l.eager:
		return w.slots.take(l, maxBatch), 0
	default:
		return w.slots.take(l, 1), w.config.Poll
	}
}

// claim asks once for jobs and starts what it gets. It gives back the slots that
// it did not need.
func (w *Worker) claim(ctx context.Context, l *lane, n int, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait+callTimeout)
	defer cancel()
	asked := time.Now()
	w.calls.claims.Add(1)
	jobs, err := w.queue.Claim(ctx, gq.ClaimRequest{
		Worker: w.config.Name, Queues: l.Queues, Types: w.types, Offers: w.config.Offers, MaxCost: w.config.MaxCost,
		N: n, Wait: wait, TTL: w.config.LeaseTTL,
	})
	if err != nil {
		w.slots.give(l, n)
		return err
	}
	received := time.Now()
	l.busy, l.took = len(jobs) == n, received.Sub(asked)
	l.eager = l.busy || wait > 0 && len(jobs) > 0
	stopped := ctx.Err() != nil // but the jobs are ours
	started := 0
	for i := range jobs {
		r := w.newRun(l, &jobs[i])
		switch {
		case r == nil:
		case stopped:
			w.giveBack(r, received, 0, ErrDraining.Error())
		case started == n:
			w.giveBack(r, received, 0, "more jobs than were asked for")
		case r.handler == nil:
			w.giveBack(r, received, foreignFor, "this worker has no handler for the type")
		default:
			started++
			w.start(r, asked, received)
		}
	}
	w.slots.give(l, n-started)
	return nil
}

// outage logs the first failure of a row and its end.
type outage struct {
	log  *slog.Logger
	call string

	mu       sync.Mutex
	since    time.Time
	failures int
}

func (o *outage) record(err error) {
	o.mu.Lock()
	since, failures := o.since, o.failures
	if err == nil {
		o.failures = 0
	} else {
		o.failures++
		if failures == 0 {
			o.since = time.Now()
		}
	}
	o.mu.Unlock()
	switch {
	case err != nil && failures == 0:
		o.log.Warn("calls to the queue fail; trying again", slog.String("call", o.call), slog.Any("error", err))
	case err == nil && failures > 0:
		o.log.Info("calls to the queue succeed again", slog.String("call", o.call),
			slog.Int("failures", failures), slog.Duration("after", time.Since(since)))
	}
}
