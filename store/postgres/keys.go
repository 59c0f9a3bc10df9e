package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// A limit key has a row in gq.limit_key while it owes units of its rate or has limits of
// its own. Claims read and write it under the lock on the queue. A claim that meets a job
// whose key has used up its rate sets the key aside until its rate allows the next claim;
// until then claims do not see its jobs.

// keyState is a limit key in a transaction.
type keyState struct {
	own   *gq.QueueKey // nil for none
	due   time.Time    // until when it owes units of its rate
	aside bool         // its rate is used up: claims do not see its jobs
	lined bool         // some of its jobs were set aside: see keys_aside.go
	moved bool         // due or aside have changed
}

// ratesKeys reports whether claims need to read the rows of limit keys.
func ratesKeys(q *gq.Queue) bool { return q.KeyRate.Limited() || q.OwnKeys > 0 }

// keyLimits returns the limits of a key.
func (l *queueLimits) keyLimits(key string) (limit int, rate gq.Rate) {
	var own *gq.QueueKey
	if k := l.keys[key]; k != nil {
		own = k.own
	}
	return machine.KeyLimits(&l.config, own)
}

// queueKeys adds to a batch a query for keys that the limits do not know yet.
func (l *queueLimits) queueKeys(batch *pgx.Batch, names []string) {
	names = slices.DeleteFunc(distinct(names), func(name string) bool { return name == "" || l.keys[name] != nil })
	if len(names) == 0 {
		return
	}
	if l.keys == nil {
		l.keys = make(map[string]*keyState, len(names))
	}
	for _, name := range names {
		l.keys[name] = &keyState{}
	}
	batch.Queue("SELECT key, due, lined, config FROM gq.limit_key WHERE queue = $1 AND key = ANY ($2)", l.config.Name, names).Query(func(rows pgx.Rows) error {
		var key string
		var due int64
		var lined bool
		var config []byte
		_, err := pgx.ForEachRow(rows, []any{&key, &due, &lined, &config}, func() error {
			k := l.keys[key]
			k.lined = lined
			if due != 0 {
				k.due = instant(due)
			}
			if config == nil {
				return nil
			}
			k.own = &gq.QueueKey{}
			if err := json.Unmarshal(config, k.own); err != nil {
				return fmt.Errorf("limits of key %q of queue %s: %w: %w", key, l.config.Name, gq.ErrCorrupt, err)
			}
			config = nil
			return nil
		})
		return err
	})
}

// readKeys reads keys that the limits do not know yet.
func (tx *txn) readKeys(ctx context.Context, l *queueLimits, names []string) error {
	var batch pgx.Batch
	if l.queueKeys(&batch, names); batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// limitKeys lists the limit keys of jobs.
func limitKeys(rows []*row) (names []string, err error) {
	for _, r := range rows {
		spec, err := r.specOf()
		if err != nil {
			return nil, err
		}
		names = append(names, spec.LimitKey)
	}
	return names, nil
}

// allows reports whether the rate of a job's key allows a claim. If not, it sets the key
// aside.
func (l *queueLimits) allows(s *gq.Spec, now time.Time) bool {
	k := l.keys[s.LimitKey]
	if k == nil {
		return true
	}
	_, rate := l.keyLimits(s.LimitKey)
	if _, ok := machine.TakeKeyRate(rate, 1, k.due, now); ok {
		return true
	}
	l.refused++
	l.exhaust(s.LimitKey, k, rate, now)
	return false
}

// useKey takes the weight of a claimed job from the rate of its key.
func (l *queueLimits) useKey(s *gq.Spec, now time.Time) {
	k := l.keys[s.LimitKey]
	if k == nil {
		return
	}
	if _, rate := l.keyLimits(s.LimitKey); rate.Limited() {
		k.due, _ = machine.TakeKeyRate(rate, machine.Weight(s), k.due, now)
		k.moved = true
		if k.lined && machine.KeyRateAt(rate, k.due, now).After(now) {
			l.exhaust(s.LimitKey, k, rate, now) // there are more jobs, but no claim meets them
		}
	}
}

// exhaust sets a key aside whose rate is used up.
func (l *queueLimits) exhaust(name string, k *keyState, rate gq.Rate, now time.Time) {
	if k.aside {
		return
	}
	k.aside, k.moved = true, true
	l.exhausted = append(l.exhausted, name)
	l.free = wake.Earlier(l.free, machine.KeyRateAt(rate, k.due, now))
}

// spend takes the weight of a job from the rate of its key, which owes units until an instant. It
// reports whether the rate allows that; if not, it sets the key aside.
func (l *queueLimits) spend(s *gq.Spec, owes int64, now time.Time) bool {
	if s.LimitKey == "" {
		return true
	}
	if l.keys == nil {
		l.keys = make(map[string]*keyState)
	}
	if l.keys[s.LimitKey] == nil {
		k := &keyState{}
		if owes != 0 {
			k.due = instant(owes)
		}
		l.keys[s.LimitKey] = k
	}
	if !l.allows(s, now) {
		return false
	}
	l.useKey(s, now)
	return true
}

// retryKeys notes when the first key of a queue that was set aside is free again, if that is after
// an instant.
func (tx *txn) retryKeys(ctx context.Context, w *want, l *limits, since int64, queue string) error {
	var free *int64
	err := tx.QueryRow(ctx, "SELECT min(free) FROM gq.limit_key WHERE queue = $1 AND aside AND free > $2", queue, since).Scan(&free)
	if free != nil {
		w.retry = wake.Earlier(w.retry, instant(*free))
	}
	w.retry = wake.Earlier(w.retry, l.queues[queue].free)
	w.keyRate = w.keyRate || free != nil || !l.queues[queue].free.IsZero()
	return err
}

// writeKeys stores what keys owe.
func (l *queueLimits) writeKeys(tx *txn) {
	var names []string
	var dues, frees []int64
	var asides []bool
	for name, k := range l.keys {
		if !k.moved {
			continue
		}
		_, rate := l.keyLimits(name)
		free := int64(0) // equal in all keys with units left, because an index has it
		if k.aside {
			free = nanoseconds(machine.KeyRateAt(rate, k.due, tx.now))
		}
		names, dues = append(names, name), append(dues, nanoseconds(k.due))
		frees, asides = append(frees, free), append(asides, k.aside)
		k.moved = false
	}
	if len(names) == 0 {
		return
	}
	tx.more.Queue(`
		INSERT INTO gq.limit_key AS k (queue, key, due, free, aside)
		SELECT $1, unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::boolean[])
		ON CONFLICT (queue, key) DO UPDATE SET due = excluded.due, free = excluded.free, aside = excluded.aside`,
		l.config.Name, names, dues, frees, asides)
	if tx.s.keyWrites.add(l.config.Name, len(names)) {
		tx.more.Queue(forgetKeys, l.config.Name, nanoseconds(tx.now))
		tx.more.Queue("SELECT count(*) FROM gq.limit_key WHERE queue = $1", l.config.Name).QueryRow(func(row pgx.Row) error {
			var n int
			err := row.Scan(&n)
			tx.s.keyWrites.left(l.config.Name, n)
			return err
		})
	}
}

// forgetKeys deletes the rows of keys that owe nothing and have no limits of their own.
const forgetKeys = `
	DELETE FROM gq.limit_key
	WHERE ctid = ANY (ARRAY (
		SELECT ctid FROM gq.limit_key
		WHERE queue = $1 AND due <= $2 AND config IS NULL AND NOT lined
		FOR UPDATE SKIP LOCKED
	))`

// keyWrites counts the rows of limit keys that this node wrote, to delete idle ones once it
// has written as many as there were after the last time.
type keyWrites struct {
	mu     sync.Mutex
	queues map[string]*keyCount // guarded by mu
}

type keyCount struct{ written, left int }

// fewKeys is the number of rows below which idle ones are not looked for.
const fewKeys = 1000

// add counts rows that are written and reports whether it is time to delete idle ones.
func (w *keyWrites) add(queue string, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queues == nil {
		w.queues = make(map[string]*keyCount)
	}
	c := w.queues[queue]
	if c == nil {
		c = &keyCount{}
		w.queues[queue] = c
	}
	if c.written += n; c.written < fewKeys+c.left {
		return false
	}
	c.written = 0
	return true
}

func (w *keyWrites) left(queue string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.queues[queue]; c != nil {
		c.left = n
	}
}

// rerateKeys converts what the keys of a queue owe after its configuration changed. The
// queue is locked.
func (tx *txn) rerateKeys(ctx context.Context, was, q gq.Queue) error {
	if was.KeyRate == q.KeyRate {
		return nil
	}
	if err := tx.showAll(ctx, q.Name, nil); err != nil {
		return err
	}
	before, after := &queueLimits{config: was}, &queueLimits{config: q}
	names, err := collect[string](tx.Query(ctx, "SELECT key FROM gq.limit_key WHERE queue = $1 AND due > $2", q.Name, nanoseconds(tx.now)))
	if err != nil {
		return err
	}
	if err := tx.readKeys(ctx, before, names); err != nil {
		return err
	}
	after.keys = before.keys
	for name, k := range before.keys {
		_, from := before.keyLimits(name)
		if _, to := after.keyLimits(name); from != to {
			k.due, k.moved = machine.ChangeKeyRate(from, to, k.due, tx.now), true
		}
	}
	after.writeKeys(tx)
	return nil
}

// PutKey implements [store.Store].
func (s *Store) PutKey(ctx context.Context, k gq.QueueKey) error {
	if err := machine.CheckQueueKey(k); err != nil {
		return err
	}
	return s.write(ctx, func(tx *txn) error {
		queues, err := tx.readQueues(ctx, "SELECT name, config FROM gq.queue WHERE name = $1 AND config IS NOT NULL FOR UPDATE", k.Queue)
		if err != nil {
			return err
		}
		q, ok := queues[k.Queue]
		if !ok {
			return store.NoQueue(k.Queue)
		}
		if _, err := tx.stamp(ctx, 0); err != nil {
			return err
		}
		if err := tx.showAll(ctx, k.Queue, &k.Key); err != nil {
			return err
		}
		l := &queueLimits{config: q}
		if err := tx.readKeys(ctx, l, []string{k.Key}); err != nil {
			return err
		}
		state := l.keys[k.Key]
		k.UpdatedAt, k.FreeAt = tx.now, time.Time{}
		own := &k
		if k.Limit == 0 && !k.Rate.Limited() {
			own = nil
		}
		switch {
		case own == nil && state.own == nil:
			return store.NoKey(k)
		case own == nil:
			q.OwnKeys--
		case state.own == nil && q.OwnKeys >= gq.MaxQueueKeys:
			return store.TooManyKeys(k.Queue)
		case state.own == nil:
			q.OwnKeys++
		}
		_, from := l.keyLimits(k.Key)
		state.own = own
		if _, to := l.keyLimits(k.Key); from != to {
			state.due = machine.ChangeKeyRate(from, to, state.due, tx.now)
		}
		state.moved = true
		l.writeKeys(tx)
		var encoded []byte
		if own != nil {
			if encoded, err = json.Marshal(own); err != nil {
				return err
			}
		}
		config, err := json.Marshal(q)
		if err != nil {
			return err
		}
		tx.more.Queue("UPDATE gq.limit_key SET config = $3 WHERE queue = $1 AND key = $2", k.Queue, k.Key, encoded)
		tx.more.Queue("DELETE FROM gq.limit_key WHERE queue = $1 AND key = $2 AND config IS NULL AND due <= $3", k.Queue, k.Key, nanoseconds(tx.now))
		tx.more.Queue("UPDATE gq.queue SET config = $2 WHERE name = $1", k.Queue, config)
		tx.changes.open(k.Queue)
		return tx.flush(ctx)
	})
}

// Keys implements [store.Store].
func (s *Store) Keys(ctx context.Context, asked store.KeyQuery) ([]gq.QueueKey, error) {
	if err := store.CheckKeys(&asked); err != nil {
		return nil, err
	}
	var out []gq.QueueKey
	err := s.read(ctx, func(tx *txn) error {
		queues, err := tx.readQueues(ctx, queuesByName, []string{asked.Queue})
		if err != nil {
			return err
		}
		names := asked.Names
		if names == nil {
			names, err = collect[string](tx.Query(ctx, "SELECT key FROM gq.limit_key WHERE queue = $1 AND config IS NOT NULL AND key > $2 ORDER BY key LIMIT $3", asked.Queue, asked.After, asked.Limit))
			if err != nil {
				return err
			}
		}
		l := &queueLimits{config: queues[asked.Queue]}
		l.config.Name = asked.Queue
		if err := tx.readKeys(ctx, l, slices.Clone(names)); err != nil {
			return err
		}
		out = nil
		for _, name := range names {
			k := gq.QueueKey{Queue: asked.Queue, Key: name}
			if own := l.keys[name].own; own != nil {
				k = *own
			}
			_, rate := l.keyLimits(name)
			if at := machine.KeyRateAt(rate, l.keys[name].due, tx.now); at.After(tx.now) {
				k.FreeAt = at
			}
			out = append(out, k)
		}
		return nil
	})
	return out, err
}
