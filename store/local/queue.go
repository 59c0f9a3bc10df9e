package local

import (
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// PutQueue implements [store.Store].
func (s *Store) PutQueue(ctx context.Context, config gq.Queue) error {
	if err := machine.CheckQueue(config); err != nil {
		return err
	}
	var refused error
	err := s.do(ctx, 1, func(tx *txn) {
		if refused = s.fits(forChanges, tx.size()); refused != nil {
			return
		}
		if refused = store.CheckPool(config, tx.t.pools[config.Pool] != nil); refused != nil {
			return
		}
		var was gq.Queue
		if known := tx.t.queues[config.Name]; known != nil {
			was = known.configuration()
		} else if len(tx.t.queues) >= gq.MaxQueues {
			refused = store.TooManyQueues(config.Name)
			return
		}
		next, err := machine.ConfigureQueue(was, config, tx.now)
		if err != nil {
			refused = err
			return
		}
		q := tx.queue(config.Name)
		tx.changePool(q) // the pool it may leave
		tx.reconfigure(q, next)
		q.deleted = false
		tx.set(smallKey(prefixQueue, q.number), encodeQueue(next))
		tx.change(q)
	})
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

// DeleteQueue implements [store.Store]. The record of the queue stays, because its number stands
// in those of its finished jobs.
func (s *Store) DeleteQueue(ctx context.Context, name string) error {
	var refused error
	err := s.do(ctx, 1, func(tx *txn) {
		q := tx.t.queues[name]
		if q == nil || q.hidden() {
			refused = store.NoQueue(name)
			return
		}
		if refused = store.QueueInUse(gq.Count{Queue: name, By: q.counts}); refused != nil {
			return
		}
		tx.changePool(q)
		tx.dropKeys(q)
		tx.reconfigure(q, machine.NewQueue(name))
		q.deleted, q.due = true, time.Time{}
		tx.set(smallKey(prefixQueue, q.number), encodeDeleted(q.config.queue()))
		tx.remove(smallKey(prefixPace, q.number))
		tx.change(q)
	})
	if err == nil {
		err = refused
	}
	return err
}

// hidden reports whether the queue was deleted and has no jobs.
func (q *queue) hidden() bool { return q.deleted && q.counts == [len(q.counts)]int64{} }

// Queues implements [store.Store].
func (s *Store) Queues(ctx context.Context, asked store.QueueQuery) ([]gq.Queue, error) {
	var out []gq.Queue
	err := s.view(ctx, memoryOnly, func(time.Time) (then, error) {
		for _, q := range s.candidates(asked) {
			if q.hidden() || q.config.Name <= asked.After && asked.After != "" ||
				asked.Pool != "" && q.config.Pool != asked.Pool || !asked.Selects(q.config.queue()) {
				continue
			}
			if out = append(out, q.configuration()); len(out) == asked.Limit {
				break
			}
		}
		return nil, nil
	})
	return out, err
}

// candidates returns the queues that a query may ask for, by name.
func (s *Store) candidates(asked store.QueueQuery) []*queue {
	var some []*queue
	switch {
	case asked.Names != nil:
		for _, name := range slices.Compact(slices.Sorted(slices.Values(asked.Names))) {
			if q := s.table.queues[name]; q != nil {
				some = append(some, q)
			}
		}
		return some
	case asked.Pool != "":
		if p := s.table.pools[asked.Pool]; p != nil {
			some = slices.SortedFunc(slices.Values(p.queues), func(a, b *queue) int { return compare(a.config.Name, b.config.Name) })
		}
		return some
	default:
		all := s.queuesByName()
		from, found := slices.BinarySearchFunc(all, asked.After, func(q *queue, after string) int { return compare(q.config.Name, after) })
		if found {
			from++
		}
		return all[from:]
	}
}

// queuesByName returns all queues sorted by name. It sorts again only after a queue was
// added: queues are never removed or renamed.
func (s *Store) queuesByName() []*queue {
	known := s.byName.Load()
	if known != nil && len(*known) == len(s.table.numbers)-1 {
		return *known
	}
	sorted := slices.Clone(s.table.numbers[1:])
	slices.SortFunc(sorted, func(a, b *queue) int { return compare(a.config.Name, b.config.Name) })
	s.byName.Store(&sorted)
	return sorted
}

// Counts implements [store.Store].
func (s *Store) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	var out []gq.Count
	err := s.view(ctx, memoryOnly, func(time.Time) (then, error) {
		if len(queues) == 0 {
			byName := s.queuesByName()
			out = make([]gq.Count, 0, len(byName))
			for _, q := range byName {
				if q.hidden() {
					continue
				}
				out = append(out, gq.Count{Queue: q.config.Name, By: q.counts})
			}
			return nil, nil
		}
		for _, name := range queues {
			c := gq.Count{Queue: name}
			if q := s.table.queues[name]; q != nil {
				c.By = q.counts
			}
			out = append(out, c)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
