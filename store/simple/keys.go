package simple

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// keyLimits returns the limits of a limit key; a job without a key has none.
func (s *Store) keyLimits(k limitKey) (limit int, rate gq.Rate) {
	if k.key == "" {
		return 0, gq.Rate{}
	}
	q, own := s.queues[k.queue], s.ownKeys[k]
	return machine.KeyLimits(&q, &own)
}

// changeKeys applies a change of limits and converts what the keys of a queue owe.
func (s *Store) changeKeys(queue string, now time.Time, change func()) {
	before := make(map[limitKey]gq.Rate)
	for k := range s.owed {
		if k.queue == queue {
			_, before[k] = s.keyLimits(k)
		}
	}
	change()
	for k, rate := range before {
		if _, next := s.keyLimits(k); next != rate {
			s.owed[k] = machine.ChangeKeyRate(rate, next, s.owed[k], now)
		}
	}
	s.forgetKeys(now)
}

// forgetKeys forgets the keys that owe nothing any more.
func (s *Store) forgetKeys(now time.Time) {
	maps.DeleteFunc(s.owed, func(_ limitKey, due time.Time) bool { return !due.After(now) })
}

// PutKey implements [store.Settings].
func (s *Store) PutKey(ctx context.Context, k gq.QueueKey) error {
	now, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	if err := machine.CheckQueueKey(k); err != nil {
		return err
	}
	q := s.queues[k.Queue]
	if q.UpdatedAt.IsZero() {
		return store.NoQueue(k.Queue)
	}
	key := limitKey{k.Queue, k.Key}
	_, known := s.ownKeys[key]
	remove := k.Limit == 0 && !k.Rate.Limited()
	switch {
	case remove && !known:
		return store.NoKey(k)
	case !known && q.OwnKeys >= gq.MaxQueueKeys:
		return store.TooManyKeys(k.Queue)
	case !known:
		q.OwnKeys++
	case remove:
		q.OwnKeys--
	}
	s.changeKeys(k.Queue, now, func() {
		s.queues[k.Queue] = q
		if k.UpdatedAt, k.FreeAt = now, (time.Time{}); remove {
			delete(s.ownKeys, key)
		} else {
			s.ownKeys[key] = k
		}
	})
	s.changed(k.Queue)
	return nil
}

// Keys implements [store.Settings].
func (s *Store) Keys(ctx context.Context, asked store.KeyQuery) (keys []gq.QueueKey, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := store.CheckKeys(&asked); err != nil {
		return nil, err
	}
	for _, name := range asked.Names {
		k := s.ownKeys[limitKey{asked.Queue, name}]
		k.Queue, k.Key = asked.Queue, name
		keys = append(keys, k)
	}
	if asked.Names == nil {
		for _, k := range s.ownKeys {
			if k.Queue == asked.Queue && k.Key > asked.After {
				keys = append(keys, k)
			}
		}
		slices.SortFunc(keys, func(a, b gq.QueueKey) int { return strings.Compare(a.Key, b.Key) })
		keys = keys[:min(len(keys), asked.Limit)]
	}
	for i, k := range keys {
		key := limitKey{k.Queue, k.Key}
		if _, rate := s.keyLimits(key); rate.Limited() {
			if at := machine.KeyRateAt(rate, s.owed[key], now); at.After(now) {
				keys[i].FreeAt = at
			}
		}
	}
	return keys, nil
}
