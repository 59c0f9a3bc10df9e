package engine

import (
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// serve runs while claims wait.
func (wq *waitQueue) serve() {
	wq.listen()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	a := &wq.alarm
	for {
		tries, before, open := wq.nextTries()
		if !open {
			return
		}
		if len(tries) > 0 {
			wq.tryAll(tries, before)
			continue
		}
		timer.Reset(a.wait())
		slept := false
		select {
		case <-wq.wake:
		case <-timer.C:
			slept = true
		}
		if a.rings(slept) {
			wq.readyAll()
		}
	}
}

// listen subscribes to the store's news, if the store reports any.
func (wq *waitQueue) listen() {
	n, ok := wq.engine.store.(store.Notifier)
	if !ok || wq.alarm.subscribed {
		return
	}
	n.Notify(false, wq.news)
	wq.alarm.subscribed = true
	wq.mu.Lock()
	defer wq.mu.Unlock()
	wq.subscribed = true
	wq.counts.claimable++ // invalidates earlier results of newsSoFar
}

func (wq *waitQueue) readyAll() {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	for _, l := range wq.lists {
		wq.readyLocked(l)
	}
}

// nextTries returns the claims to retry and the counts of news so far. It reports false if no
// claim waits, which ends serve.
func (wq *waitQueue) nextTries() (tries []*waiter, before newsCounts, open bool) {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if len(wq.lists) == 0 {
		wq.serving = false
		clear(wq.ready)
		wq.ready = wq.ready[:0]
		return nil, wq.counts, false
	}
	wq.ready = slices.DeleteFunc(wq.ready, func(l *waitlist) bool {
		if l.busy || len(tries) >= maxTries {
			return false
		}
		l.ready = false
		width := min(l.width, maxTries-len(tries))
		for at := l.waiters.Front(); at != nil && width > 0; at = at.Next() {
			w := at.Value.(*waiter)
			w.trying, l.busy = true, true
			tries = append(tries, w)
			width--
		}
		return true
	})
	return tries, wq.counts, true
}

// tryAll retries claims, one goroutine per waitlist. It returns when all have been answered or
// after patience.
func (wq *waitQueue) tryAll(tries []*waiter, before newsCounts) {
	answered := make(chan struct{}, len(tries))
	lists := 0
	for len(tries) > 0 {
		n := 1
		for n < len(tries) && tries[n].list == tries[0].list {
			n++
		}
		mine := tries[:n]
		tries = tries[n:]
		lists++
		go func() {
			wq.attempt(mine, before)
			answered <- struct{}{}
		}()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for range lists {
		select {
		case <-answered:
		case <-timer.C:
			return
		}
	}
}

// attempt makes the claims of several waiters of one waitlist in one call. before has the counts
// of news before it.
func (wq *waitQueue) attempt(tries []*waiter, before newsCounts) {
	claims := make([]store.Claim, len(tries))
	for i, w := range tries {
		claims[i] = w.claim
	}
	asked := time.Now()
	claimed, err := wq.engine.claimAll(context.Background(), claims)
	if err != nil {
		wq.failAll(tries, err)
		return
	}
	var orphans []gq.Job
	wq.mu.Lock()
	full := map[*waitlist]bool{} // whether every claim got as many jobs as it wanted
	for i, w := range tries {
		w.trying, w.list.busy = false, false
		c := &claimed[i]
		wq.engine.throttled(&w.claim, c)
		wq.retry = wake.Earlier(wq.retry, c.RetryAt)
		w.list.unlimited = c.Unlimited
		if !c.Unlimited && before.freed != wq.counts.freed { // and the list may have been unlimited before
			wq.readyLocked(w.list)
		}
		enough := len(c.Jobs) == w.claim.N
		if all, seen := full[w.list]; !seen || all {
			full[w.list] = enough
		}
		if !enough && c.Err == nil && len(wq.empty) < maxEmpty {
			wq.empty[w.list.key] = emptyResult{before, time.Now(), c.Unlimited}
		}
		switch {
		case w.gone:
			orphans = append(orphans, c.Jobs...)
		case len(c.Jobs) > 0 || c.Err != nil || w.leaving:
			wq.removeLocked(w)
			w.got <- claimResult{c.Jobs, asked, c.Err}
		}
	}
	for l, all := range full {
		if !all {
			l.width = 1
			continue
		}
		l.width = min(2*l.width, maxWidth)
		if l.waiters.Len() > 0 {
			wq.readyLocked(l)
		}
	}
	wq.wakeUp() // these waitlists are no longer busy and may be ready
	wq.mu.Unlock()
	wq.engine.giveBack(orphans)
}

// failAll answers all waiters with an error of the store, except those with a claim in flight.
func (wq *waitQueue) failAll(tries []*waiter, err error) {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	for _, w := range tries {
		w.trying, w.list.busy = false, false
	}
	for _, l := range wq.lists {
		for at := l.waiters.Front(); at != nil; {
			w := at.Value.(*waiter)
			if at = at.Next(); w.trying {
				continue
			}
			wq.removeLocked(w)
			w.got <- claimResult{err: err}
		}
	}
	wq.wakeUp()
}
