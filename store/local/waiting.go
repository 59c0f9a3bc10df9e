package local

import (
	"context"
	"slices"
	"strings"

	"github.com/gopherqueue/gq/store"
)

// waiting lists the queues with claimable jobs whose names begin with a prefix. The table has one
// for each prefix that was asked for, so that a listing does not visit idle queues; without any it
// costs nothing.
type waiting struct {
	prefix string
	queues []*queue // by name; all that have claimable jobs, and some that had
}

// maxWaiting limits the number of prefixes for which there is a list.
const maxWaiting = 100

// Waiting implements [store.Store].
func (s *Store) Waiting(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if err := store.CheckWaiting(limit); err != nil {
		return nil, err
	}
	var names []string
	err := s.do(ctx, 1, func(tx *txn) {
		tx.catchUp()
		names = tx.t.waitingFor(prefix).list(after, limit)
	})
	if err != nil {
		return nil, err // the writer may still be setting the result
	}
	return names, nil
}

// waitingFor returns the list of a prefix.
func (t *table) waitingFor(prefix string) *waiting {
	for _, w := range t.waiting {
		if w.prefix == prefix {
			return w
		}
	}
	if len(t.waiting) >= maxWaiting {
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	w := &waiting{prefix: strings.Clone(prefix)}
	for _, q := range t.numbers[1:] {
		if q.claimable() && strings.HasPrefix(q.config.Name, prefix) {
			w.queues = append(w.queues, q)
		}
	}
	slices.SortFunc(w.queues, func(a, b *queue) int { return compare(a.config.Name, b.config.Name) })
	t.waiting = append(t.waiting, w)
	return w
}

// claimable reports whether a bucket of the queue has jobs. Jobs of keys that are at their limit
// are in none.
func (q *queue) claimable() bool {
	return slices.ContainsFunc(q.classes, func(c *class) bool { return len(c.heads) > 0 }) || len(q.aside.heap) > 0
}

// filled adds a queue that has a claimable job to the lists.
func (t *table) filled(q *queue) {
	for _, w := range t.waiting {
		if strings.HasPrefix(q.config.Name, w.prefix) {
			if i, found := w.find(q.config.Name); !found {
				w.queues = slices.Insert(w.queues, i, q)
			}
		}
	}
}

func (w *waiting) find(name string) (int, bool) {
	return slices.BinarySearchFunc(w.queues, name, func(q *queue, name string) int { return compare(q.config.Name, name) })
}

// list returns queues after a name and removes those that have no claimable job any more.
func (w *waiting) list(after string, limit int) (names []string) {
	from, found := w.find(after)
	if found {
		from++
	}
	at, kept := from, from
	for ; at < len(w.queues) && len(names) < limit; at++ {
		q := w.queues[at]
		if !q.claimable() {
			continue
		}
		w.queues[kept] = q
		kept++
		if !q.config.Paused {
			names = append(names, q.config.Name)
		}
	}
	w.queues = slices.Delete(w.queues, kept, at)
	return names
}
