package engine

import (
	"context"
	"time"
)

// alarm tells the wait queue when to look without having been told.
type alarm struct {
	waitQueue *waitQueue
	told      bool          // the store tells news
	due       time.Time     // when time has something to do next, in the store's time; zero for never
	read      time.Time     // when due was read; zero if it must be read again
	retry     time.Time     // when a limit will have room; zero for none
	again     time.Duration // until something overdue is looked at again
	brief     bool          // the sleep is only until due may be read again
}

// wait is how long to sleep.
func (a *alarm) wait() time.Duration {
	d := a.waitQueue
	d.mu.Lock()
	if d.stale {
		d.stale = false
		a.brief = true
	}
	a.retry, d.retry = earlier(a.retry, d.retry), time.Time{}
	d.mu.Unlock()
	if a.brief || a.read.IsZero() {
		if soon := dueEvery - time.Since(a.read); soon > 0 {
			a.brief = true
			return soon
		}
		a.brief = false
		a.look()
	}
	sleep := d.engine.options.Poll
	if a.told {
		sleep = max(sleep, time.Minute) // news are hints
	}
	now := d.engine.clock.now()
	for _, at := range []time.Time{a.due, a.retry} {
		if !at.IsZero() {
			sleep = min(sleep, max(at.Sub(now), time.Millisecond))
		}
	}
	return sleep
}

// rings reports, at the end of a sleep, whether everyone should try.
func (a *alarm) rings() bool {
	if a.brief {
		return false
	}
	now := a.waitQueue.engine.clock.now()
	if !a.retry.IsZero() && !now.Before(a.retry) {
		a.retry = time.Time{}
	}
	a.read = time.Time{}
	return true
}

// look reads when the next job is due. One that is overdue may have become so since
// the wait queue has claimed: try at once. If it still is then, it is not for those who wait
// here: try again, less and less often, but no later because there was news.
func (a *alarm) look() {
	e := a.waitQueue.engine
	a.read = time.Now()
	due, err := e.store.Due(context.Background(), 1)
	if err == nil && len(due.Jobs) == 0 {
		a.again, a.due = 0, due.Next
		return
	}
	now := e.clock.now()
	if a.again > 0 && now.Before(a.due) {
		return
	}
	a.due = now.Add(a.again)
	a.again = min(max(2*a.again, dueEvery), e.options.Poll)
}

// earlier is the first of two instants; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
