package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/wake"
)

const (
	gatherMost  = 2 * time.Millisecond
	retryFirst  = 100 * time.Millisecond
	retryMost   = 30 * time.Second
	callTimeout = 30 * time.Second // in addition to the time that a call waits by design
	foreignFor  = 10 * time.Second // delay of a job that this worker has no handler for
)

// fetch claims jobs for a queue set until ctx ends.
func (w *Worker) fetch(ctx context.Context, f *fetcher) {
	outage := outage{log: w.log, call: "claim"}
	for failures := 0; ctx.Err() == nil; {
		w.gather(ctx, f)
		n, wait := w.reserve(f)
		if n == 0 {
			select {
			case <-f.wake:
			case <-ctx.Done():
			}
			continue
		}
		jobs, took, err := w.claim(ctx, f, n, wait)
		if ctx.Err() != nil {
			return
		}
		outage.record(err)
		if err == nil {
			failures = 0
			f.busy, f.took = jobs == n, took
			f.eager = f.busy || wait > 0 && jobs > 0
			if jobs == maxBatch {
				wake.Up(f.more)
			}
			continue
		}
		failures++
		retry.Pause(ctx, retry.Delay(failures, retryFirst, retryMost))
	}
}

// fetchAhead claims jobs beside fetch as long as claims get as many jobs as one call may have. So
// the queue works on one claim while this worker starts the jobs of another.
func (w *Worker) fetchAhead(ctx context.Context, f *fetcher) {
	for {
		select {
		case <-f.more:
		case <-ctx.Done():
			return
		}
		for full := true; full && ctx.Err() == nil && w.slots.takeAll(f, maxBatch); {
			jobs, _, err := w.claim(ctx, f, maxBatch, 0)
			full = err == nil && jobs == maxBatch // fetch repeats the call and reports its error
		}
	}
}

// gather waits briefly for more free slots. Without it a busy queue of small jobs would make
// one claim per finished job.
func (w *Worker) gather(ctx context.Context, f *fetcher) {
	if !f.busy {
		return
	}
	if n := w.slots.available(f); n > 0 && n < f.Slots/2 {
		retry.Pause(ctx, min(f.took/2, gatherMost))
	}
}

// reserve reserves slots for the next claim and returns how long the claim may wait. If queue
// sets compete for slots, a waiting claim reserves only one.
func (w *Worker) reserve(f *fetcher) (n int, wait time.Duration) {
	switch {
	case f.many || !w.slots.shared:
		return w.slots.take(f, maxBatch), w.config.Poll
	case f.eager:
		return w.slots.take(f, maxBatch), 0
	default:
		return w.slots.take(f, 1), w.config.Poll
	}
}

// claim claims jobs once, starts their handlers and frees the slots that it did not use. It
// returns how many jobs it got and how long the call took.
func (w *Worker) claim(ctx context.Context, f *fetcher, n int, wait time.Duration) (got int, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait+callTimeout)
	defer cancel()
	asked := time.Now()
	w.calls.claims.Add(1)
	jobs, err := w.queue.Claim(ctx, gq.ClaimRequest{
		Worker: w.config.Name, Queues: f.Queues, Types: f.types, Offers: w.config.Offers, MaxCost: w.config.MaxCost,
		N: n, Wait: wait, TTL: w.config.LeaseTTL, DefaultTTL: shortLease,
	})
	if err != nil {
		w.failures.claims.Add(1)
		w.slots.give(f, n)
		return 0, 0, err
	}
	received := time.Now()
	stopped := ctx.Err() != nil // the worker still has to release the jobs
	started := 0
	for i := range jobs {
		r := w.newRun(f, &jobs[i])
		switch {
		case r == nil:
		case stopped:
			w.giveBack(r, received, 0, ErrDraining.Error())
		case started == n:
			w.giveBack(r, received, 0, "the queue returned more jobs than requested")
		case r.handler == nil:
			w.giveBack(r, received, foreignFor, "this worker has no handler for the type")
		case !w.slots.begin(f):
			w.giveBack(r, received, 0, "all slots are in use")
		default:
			started++
			w.start(r, asked, received)
		}
	}
	w.slots.give(f, n-started)
	return len(jobs), received.Sub(asked), nil
}

// outage logs the first of several consecutive failures, and the first success after them.
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
		o.log.Warn("call to the queue failed; retrying", slog.String("call", o.call), slog.Any("error", err))
	case err == nil && failures > 0:
		o.log.Info("calls to the queue succeed again", slog.String("call", o.call),
			slog.Int("failures", failures), milliseconds("after_ms", time.Since(since)))
	}
}
