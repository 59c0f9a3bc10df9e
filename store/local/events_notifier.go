package local

import (
	"slices"
	"sync"

	"github.com/gopherqueue/gq/store"
)

// watchers are those who asked for news.
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

// tell passes news on. The lock is held meanwhile, so that nobody is called who
// has stopped.
func (w *watchers) tell(n store.News) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, each := range w.all {
		each.tell(n)
	}
}

// change notes that there may be something to claim from a queue that was not before.
func (tx *txn) change(q *queue) {
	if !q.changed {
		q.changed = true
		tx.changed = append(tx.changed, q)
	}
}

// changePool is change for all queues of a queue's pool.
func (tx *txn) changePool(q *queue) {
	if q.pool != nil {
		for _, o := range q.pool.queues {
			tx.change(o)
		}
	}
}

// news is what the open commit has to tell, and forgets it.
func (tx *txn) news() store.News {
	n := store.News{Event: tx.t.lastEvent}
	for _, q := range tx.changed { // what one queue of a pool leaves, the others can have
		tx.changePool(q)
	}
	for i, q := range tx.changed {
		q.changed = false
		n.Queues = append(n.Queues, q.config.Name)
		tx.changed[i] = nil
	}
	tx.changed = tx.changed[:0]
	return n
}
