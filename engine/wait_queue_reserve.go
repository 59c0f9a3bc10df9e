package engine

import (
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// reservation is a waiter whose claim travels with a submission: see [store.Group].
type reservation struct {
	w      *waiter
	before newsCounts  // waitQueue.counts before the submission
	timer  *time.Timer // ends it after patience
}

// reserve reserves a waiter that would claim a new job. It returns nil if none waits. The
// waitlist makes no other claim until served is called, or for as long as patience.
func (wq *waitQueue) reserve(spec *gq.Spec) *reservation {
	if spec.Key.Name != "" && !machine.ForRetry(spec.Key) || !spec.Replaces.IsZero() || len(spec.DependsOn) > 0 || spec.Gate != 0 || spec.Delay != 0 || !spec.RunAt.IsZero() {
		return nil // it may have to wait for others, or exist already
	}
	wq.mu.Lock()
	defer wq.mu.Unlock()
	for l := range wq.byQueue[spec.Queue] {
		if l.busy || l.ready || hasPattern(l.queues) {
			continue // its claims are in flight or about to be, or the store cannot make them
		}
		if w := l.waiters.Front().Value.(*waiter); w.claim.Selects(spec) {
			r := &reservation{w: w, before: wq.counts}
			r.timer = time.AfterFunc(patience, func() { wq.served(r, store.Claimed{}, time.Time{}) })
			w.trying, w.reserved, l.busy = true, r, true
			return r
		}
	}
	return nil
}

// served answers a reserved waiter and returns the jobs that it can no longer receive. A waiter
// that got nothing goes on waiting.
func (wq *waitQueue) served(r *reservation, c store.Claimed, asked time.Time) (orphans []gq.Job) {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	w := r.w
	open := w.reserved == r // patience has not ended
	if open {
		r.timer.Stop()
		w.reserved, w.trying, w.list.busy = nil, false, false
		wq.retry = wake.Earlier(wq.retry, c.RetryAt)
	}
	defer wq.wakeUp() // the waitlist may be no longer busy, or gone
	got := len(c.Jobs) > 0
	if got && len(c.Jobs) < w.claim.N && len(wq.empty) < maxEmpty {
		wq.empty[w.list.key] = emptyResult{r.before, time.Now(), c.Unlimited}
	}
	if !w.gone && w.place != nil && !w.trying && (got || open && (c.Err != nil || w.leaving)) {
		wq.removeLocked(w)
		w.got <- claimResult{c.Jobs, asked, c.Err}
		return nil
	}
	return c.Jobs
}
