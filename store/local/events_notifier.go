package local

import (
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// watchers are the subscribers to news.
type watchers struct {
	mu  sync.Mutex
	all []*watcher // guarded by mu
}

type watcher struct{ tell func(store.News) }

// Notify implements [store.Notifier]. News comes after its commit is durable,
// from the committer.
func (s *Store) Notify(_ bool, f func(store.News)) (stop func()) {
	w := &watcher{f}
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	s.watchers.all = append(s.watchers.all, w)
	return func() {
		s.watchers.mu.Lock()
		defer s.watchers.mu.Unlock()
		s.watchers.all = slices.DeleteFunc(s.watchers.all, func(o *watcher) bool { return o == w })
	}
}

// tell calls every watcher. It holds the lock meanwhile, so that none is called after
// it stopped.
func (w *watchers) tell(n store.News) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, each := range w.all {
		each.tell(n)
	}
}

// change notes that a queue may have a job to claim that it did not have before.
func (tx *txn) change(q *queue) {
	if !q.changed {
		q.changed = true
		tx.changed = append(tx.changed, q)
	}
}

// changePool calls change for all queues that share the queue's pool.
func (tx *txn) changePool(q *queue) {
	if q.pool != nil {
		for _, o := range q.pool.queues {
			tx.change(o)
		}
	}
}

// news returns the news of the open commit and clears it.
func (tx *txn) news() store.News {
	n := store.News{Event: tx.t.lastEvent}
	for _, q := range tx.changed { // capacity that one queue of a pool frees is available to the others
		tx.changePool(q)
	}
	for i, q := range tx.changed {
		q.changed = false
		n.Queues = append(n.Queues, q.config.Name)
		tx.changed[i] = nil
	}
	tx.changed = tx.changed[:0]
	n.Cancels, tx.cancels = tx.cancels, nil
	n.Due, tx.retained = wake.Earlier(tx.retained, tx.nextDue()), time.Time{}
	return n
}

// nextDue returns when time changes the next job; zero if that is overdue or never.
func (tx *txn) nextDue() (next time.Time) {
	for _, h := range []*timers{&tx.t.toRun, &tx.t.toDue} {
		if first, ok := h.next(); ok && first.at > tx.now.UnixNano() {
			next = wake.Earlier(next, time.Unix(0, first.at).UTC())
		}
	}
	return next
}

// Announce implements [store.Announcer].
func (s *Store) Announce(due time.Time) {
	s.watchers.tell(store.News{Event: s.lastEvent.Load(), Due: due, DueKnown: true})
}
