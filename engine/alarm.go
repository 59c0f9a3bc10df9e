package engine

import (
	"context"
	"time"

	"github.com/gopherqueue/gq/internal/wake"
)

// alarm decides when the wait queue retries without news.
type alarm struct {
	waitQueue  *waitQueue
	subscribed bool          // the store reports news
	due        time.Time     // when the next job is due or a retry for an overdue one, in the store's time; zero is never
	read       time.Time     // when due was read; zero if it must be read again
	retry      time.Time     // when a limit allows another claim; zero is never
	again      time.Duration // until the next retry for an overdue job
	brief      bool          // the sleep only ends the pause between two reads of due
}

// wait returns how long to sleep.
func (a *alarm) wait() time.Duration {
	wq := a.waitQueue
	wq.mu.Lock()
	if wq.stale {
		wq.stale = false
		a.brief = true
	}
	a.retry, wq.retry = wake.Earlier(a.retry, wq.retry), time.Time{}
	a.due, wq.due = wake.Earlier(a.due, wq.due), time.Time{}
	wq.mu.Unlock()
	sleep := wq.engine.options.Poll
	if a.subscribed {
		sleep = max(sleep, time.Minute) // notifications can get lost
	}
	if a.brief || a.read.IsZero() {
		if soon := dueEvery - time.Since(a.read); soon > 0 {
			a.brief, sleep = true, soon
		} else {
			a.brief = false
			a.look()
		}
	}
	now := wq.engine.clock.now()
	for _, at := range []time.Time{a.due, a.retry} {
		if !at.IsZero() {
			sleep = min(sleep, max(at.Sub(now), time.Millisecond))
		}
	}
	return sleep
}

// rings reports, at the end of a sleep or when something woke the wait queue before it, whether
// all waitlists must retry.
func (a *alarm) rings(slept bool) bool {
	passed := false
	now := a.waitQueue.engine.clock.now()
	for _, at := range []*time.Time{&a.due, &a.retry} {
		if !at.IsZero() && !now.Before(*at) {
			*at, passed = time.Time{}, true
		}
	}
	if passed || slept && !a.brief {
		a.read = time.Time{}
		return true
	}
	return false
}

// look reads when the next job is due. A job can have become due since the last claim, so
// retry at once for an overdue job. If it is still overdue after that, the waiting claims
// cannot take it: retry less and less often.
func (a *alarm) look() {
	e := a.waitQueue.engine
	a.read = time.Now()
	due, err := e.store.Due(context.Background(), 1)
	if err == nil && len(due.Jobs) == 0 {
		a.again, a.due = 0, due.Next
		return
	}
	if a.again > 0 && !a.due.IsZero() {
		return // that retry is still to come
	}
	a.due = e.clock.now().Add(a.again)
	a.again = min(max(2*a.again, dueEvery), e.options.Poll)
}
