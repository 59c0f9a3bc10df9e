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
)

// pool is capacity that queues share.
type pool struct {
	config gq.Pool
	used   int64    // total cost of the held jobs of its queues
	queues []*queue // those that share it
}

// free returns the unused capacity; jobs that cost nothing need none.
func (p *pool) free() int64 { return max(0, p.config.Capacity-p.used) }

// lacksRoom reports whether a change of status needs more capacity than the pool has.
func (j *job) lacksRoom(from, to gq.Status) bool {
	p := j.bucket.queue.pool
	return p != nil && machine.CountsInPool(p.config, to) && !machine.CountsInPool(p.config, from) && j.cost > p.free()
}

// makeRoom takes back expired leases, and returns an error if the pool has no room for
// the job even then.
func (tx *txn) makeRoom(j *job) error {
	tx.catchUp()
	return machine.AdmitToPool(j.bucket.queue.pool.now(), j.cost)
}

// now returns the pool with its current use.
func (p *pool) now() gq.Pool {
	now := p.config
	now.Used = p.used
	return now
}

// put configures the pool.
func (p *pool) put(t *table, config gq.Pool) {
	p.config, p.used = config, 0
	for _, q := range p.queues {
		for _, s := range []gq.Status{gq.StatusClaimed, gq.StatusRunning} {
			if machine.CountsInPool(config, s) {
				q.live(s).ascend(0, func(seq uint64) bool {
					p.used += t.jobs.at(seq).cost
					return true
				})
			}
		}
	}
}

// lost returns the capacity held by expired leases that were not taken back yet.
func (t *table) lost(now int64) map[*pool]int64 {
	lost := map[*pool]int64{}
	for w := t.toDue.walk(); ; w.pop() {
		d, ok := w.peek()
		if !ok || d.at > now {
			return lost
		}
		if p := d.job.bucket.queue.pool; p != nil && machine.CountsInPool(p.config, d.job.status) {
			lost[p] += d.job.cost
		}
	}
}

// join moves a queue into a pool, out of any other; nil is no pool.
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
	p.Used = 0 // computed from the jobs
	b, err := json.Marshal(p)
	must(err)
	return b
}

func decodePool(b []byte) (p gq.Pool, err error) {
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("pool: %w", errors.Join(gq.ErrCorrupt, err))
	}
	if err := machine.CheckPool(p); err != nil {
		return p, fmt.Errorf("pool: %w: %w", gq.ErrCorrupt, err)
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
	if err := machine.CheckPool(config); err != nil {
		return err
	}
	var refused error
	err := s.do(ctx, 1, func(tx *txn) {
		if refused = s.fits(forChanges, tx.size()); refused != nil {
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
		config.UpdatedAt, config.Used = tx.now, 0
		if config.AtStart != p.config.AtStart {
			p.put(tx.t, config)
		}
		p.config = config
		tx.set(poolKey(config.Name), encodePool(config))
		for _, q := range p.queues {
			tx.change(q)
		}
	})
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

// Pools implements [store.Store].
func (s *Store) Pools(ctx context.Context) ([]gq.Pool, error) {
	var out []gq.Pool
	err := s.view(ctx, oneByOne, func(now time.Time) (then, error) {
		lost := s.table.lost(now.UnixNano())
		for _, p := range s.table.pools {
			pool := p.now()
			pool.Used -= lost[p]
			out = append(out, pool)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b gq.Pool) int { return compare(a.Name, b.Name) })
	return out, nil
}
