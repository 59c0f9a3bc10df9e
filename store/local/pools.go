package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// pool is capacity that queues share.
type pool struct {
	config gq.Pool
	used   int64    // what the held jobs of its queues cost
	queues []*queue // that share it
}

// free is what may still be used; jobs that cost nothing need none.
func (p *pool) free() int64 { return max(0, p.config.Capacity-p.used) }

// join makes a queue share a pool, nil for none, and no other.
func (q *queue) join(p *pool) {
	if q.pool != nil {
		q.pool.queues = slices.DeleteFunc(q.pool.queues, func(o *queue) bool { return o == q })
	}
	if q.pool = p; p != nil {
		p.queues = append(p.queues, q)
	}
}

func poolKey(name string) []byte { return append([]byte{prefixPool}, name...) }

func encodePool(p gq.Pool) []byte {
	b, err := json.Marshal(p)
	must(err)
	return b
}

func decodePool(b []byte) (p gq.Pool, err error) {
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("pool: %w", errors.Join(gq.ErrCorrupt, err))
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("pool: %w: %v", gq.ErrCorrupt, err)
	}
	return p, nil
}

func (s *Store) recoverPools() error {
	return s.each(prefixPool, func(key, value []byte) error {
		config, err := decodePool(value)
		if err != nil {
			return err
		}
		if config.Name != string(key[1:]) {
			return fmt.Errorf("pool %s: %w", config.Name, gq.ErrCorrupt)
		}
		s.table.pools[config.Name] = &pool{config: config}
		return nil
	})
}

// PutPool implements [store.Store].
func (s *Store) PutPool(ctx context.Context, config gq.Pool) error {
	if err := config.Validate(); err != nil {
		return fmt.Errorf("put pool: %w", err)
	}
	var refused error
	err := s.do(ctx, 1, func(tx *txn) {
		if refused = s.disk.room(forChanges, tx.batch.Len()); refused != nil {
			return
		}
		p := tx.t.pools[config.Name]
		if p == nil && len(tx.t.pools) >= gq.MaxPools {
			refused = fmt.Errorf("pool %s would be one more than %d: %w", config.Name, gq.MaxPools, gq.ErrTooMany)
			return
		}
		if p == nil {
			p = &pool{}
			tx.t.pools[config.Name] = p
		}
		config.UpdatedAt = tx.now
		p.config = config
		tx.set(poolKey(config.Name), encodePool(config))
		for _, q := range p.queues {
			tx.change(q)
		}
	})
	if err == nil && refused != nil {
		err = fmt.Errorf("put pool: %w", refused)
	}
	return err
}

// Pools implements [store.Store].
func (s *Store) Pools(ctx context.Context) ([]gq.Pool, error) {
	var out []gq.Pool
	err := s.view(ctx, oneByOne, func(time.Time) (then, error) {
		for _, p := range s.table.pools {
			out = append(out, p.config)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b gq.Pool) int { return compare(a.Name, b.Name) })
	return out, nil
}
