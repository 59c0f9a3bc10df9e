package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// ownKey returns the limits of one key of a queue, nil if it has none of its own.
func (q *queue) ownKey(name string) *gq.QueueKey {
	if i, found := q.findOwn(name); found {
		return q.own[i]
	}
	return nil
}

func (q *queue) findOwn(name string) (int, bool) {
	return slices.BinarySearchFunc(q.own, name, func(k *gq.QueueKey, name string) int { return compare(k.Key, name) })
}

// PutKey implements [store.Store].
func (s *Store) PutKey(ctx context.Context, k gq.QueueKey) error {
	if err := machine.CheckQueueKey(k); err != nil {
		return err
	}
	var refused error
	err := s.do(ctx, 1, func(tx *txn) {
		if refused = s.fits(forChanges, tx.size()); refused == nil {
			refused = tx.putKey(k)
		}
	})
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

func (tx *txn) putKey(k gq.QueueKey) error {
	q := tx.t.queues[k.Queue]
	if q == nil || q.config.UpdatedAt.IsZero() || q.deleted {
		return store.NoQueue(k.Queue)
	}
	k.UpdatedAt, k.FreeAt = tx.now, time.Time{}
	own := &k
	if k.Limit == 0 && !k.Rate.Limited() {
		own = nil
	}
	i, found := q.findOwn(k.Key)
	switch {
	case own == nil && !found:
		return store.NoKey(k)
	case !found && len(q.own) >= gq.MaxQueueKeys:
		return store.TooManyKeys(k.Queue)
	}
	limited := q.limitsKeys()
	known := q.keys[k.Key]
	var was gq.Rate
	if known != nil {
		_, was = known.limits()
	}
	switch {
	case own == nil:
		q.own = slices.Delete(q.own, i, i+1)
	case found:
		q.own[i] = own
	default:
		q.ownLimitKeys().own = slices.Insert(q.own, i, own)
	}
	tx.writeOwn(q, k.Key, own)
	if known != nil {
		if known.own = own; known.due != 0 {
			tx.rerateKey(known, was)
		}
		tx.t.judge(known)
	}
	if limited != q.limitsKeys() {
		tx.regroup(q, q.configuration(), q.pool)
	}
	tx.change(q)
	return nil
}

// writeOwn writes or removes the record of a key's limits.
func (tx *txn) writeOwn(q *queue, key string, own *gq.QueueKey) {
	name := append(smallKey(prefixOwnKey, q.number), key...)
	if own == nil {
		tx.remove(name)
		return
	}
	b, err := json.Marshal(ownRecord{own.Limit, own.Rate, own.UpdatedAt})
	must(err)
	tx.set(name, b)
}

// ownRecord is the record of a key's limits.
type ownRecord struct {
	Limit     int
	Rate      gq.Rate
	UpdatedAt time.Time
}

func decodeOwn(queue, key string, value []byte) (k gq.QueueKey, err error) {
	var r ownRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return k, fmt.Errorf("limits of a key: %w", errors.Join(gq.ErrCorrupt, err))
	}
	k = gq.QueueKey{Queue: queue, Key: key, Limit: r.Limit, Rate: r.Rate, UpdatedAt: r.UpdatedAt}
	if err := machine.CheckQueueKey(k); err != nil {
		return k, fmt.Errorf("limits of a key: %w: %w", gq.ErrCorrupt, err)
	}
	return k, nil
}

// recoverOwnKeys reads the limits of keys, which come by queue and name.
func (s *Store) recoverOwnKeys() error {
	return s.each(prefixOwnKey, func(key, value []byte) error {
		q, name, err := s.table.keyOf(key)
		if err != nil {
			return err
		}
		k, err := decodeOwn(q.config.Name, name, value)
		q.ownLimitKeys().own = append(q.own, &k)
		return err
	})
}

// dropKeys removes the limits of all keys and what they owe.
func (tx *txn) dropKeys(q *queue) {
	for _, k := range q.keys {
		tx.settle(k)
	}
	if len(q.own) > 0 {
		tx.removeRange(smallKey(prefixOwnKey, q.number), smallKey(prefixOwnKey, q.number+1))
		q.own = nil
	}
}

// Keys implements [store.Store].
func (s *Store) Keys(ctx context.Context, asked store.KeyQuery) ([]gq.QueueKey, error) {
	if err := store.CheckKeys(&asked); err != nil {
		return nil, err
	}
	var out []gq.QueueKey
	err := s.view(ctx, memoryOnly, func(now time.Time) (then, error) {
		q := s.table.queues[asked.Queue]
		if q == nil {
			q = &queue{limitKeys: noLimitKeys}
		}
		for _, name := range asked.Names {
			k := gq.QueueKey{Queue: asked.Queue, Key: name}
			if own := q.ownKey(name); own != nil {
				k = *own
			}
			out = append(out, k)
		}
		if asked.Names == nil {
			from, found := q.findOwn(asked.After)
			if found {
				from++
			}
			for _, own := range q.own[from:min(from+asked.Limit, len(q.own))] {
				out = append(out, *own)
			}
		}
		for i := range out {
			if k := q.keys[out[i].Key]; k != nil && k.due != 0 {
				_, rate := k.limits()
				if at := machine.KeyRateAt(rate, time.Unix(0, k.due).UTC(), now); at.After(now) {
					out[i].FreeAt = at
				}
			}
		}
		return nil, nil
	})
	return out, err
}

// importKeys adds the limits of keys and what keys owe.
func (tx *txn) importKeys(items *store.Items) error {
	for _, own := range items.Keys {
		q := tx.t.queues[own.Queue]
		if q == nil {
			return fmt.Errorf("key %.80q: queue %s is missing: %w", own.Key, own.Queue, gq.ErrCorrupt)
		}
		i, found := q.findOwn(own.Key)
		if found {
			return fmt.Errorf("key %.80q of queue %s is there twice: %w", own.Key, own.Queue, gq.ErrCorrupt)
		}
		q.ownLimitKeys().own = slices.Insert(q.own, i, &own)
		tx.writeOwn(q, own.Key, &own)
	}
	for _, o := range items.Owed {
		q := tx.t.queues[o.Queue]
		if q == nil {
			return fmt.Errorf("key %.80q: queue %s is missing: %w", o.Key, o.Queue, gq.ErrCorrupt)
		}
		k := q.keyNamed(o.Key)
		k.due = o.Due.UnixNano()
		tx.owe(k)
	}
	return nil
}
