package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// PutPool implements [store.Store].
func (s *Store) PutPool(ctx context.Context, p gq.Pool) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("put pool: %w", err)
	}
	return s.write(ctx, "put pool", func(tx *txn) error {
		if err := tx.stamp(ctx); err != nil {
			return err
		}
		var others int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM gq.pool WHERE name <> $1", p.Name).Scan(&others); err != nil {
			return err
		}
		if others >= gq.MaxPools {
			return fmt.Errorf("pool %s would be one more than %d: %w", p.Name, gq.MaxPools, gq.ErrTooMany)
		}
		tx.more.Queue(`
			INSERT INTO gq.pool (name, capacity, at_start, updated)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE SET
				capacity = excluded.capacity, at_start = excluded.at_start, updated = excluded.updated`,
			p.Name, p.Capacity, p.AtStart, nanoseconds(tx.now))
		return tx.flush(ctx)
	})
}

// Pools implements [store.Store].
func (s *Store) Pools(ctx context.Context) ([]gq.Pool, error) {
	var out []gq.Pool
	err := s.read(ctx, "pools", func(tx *txn) error {
		pools, err := tx.pools(ctx)
		for _, p := range pools {
			out = append(out, p)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b gq.Pool) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// pools reads the pools with those names, or all, and what is in use of them.
func (tx *txn) pools(ctx context.Context, names ...string) (map[string]gq.Pool, error) {
	// 4 and 5 are CLAIMED and RUNNING. A lease that has run out occupies nothing.
	rows, err := tx.Query(ctx, `
		SELECT p.name, p.capacity, p.at_start, p.updated, (
			SELECT coalesce(sum(j.cost), 0)::bigint
			FROM gq.queue AS q
			JOIN gq.state AS s ON s.queue = q.name
			JOIN gq.job AS j ON j.id = s.job
			WHERE q.config ->> 'Pool' = p.name AND s.status IN (4, 5) AND s.due > $2
				AND (s.status = 5 OR NOT p.at_start)
		)
		FROM gq.pool AS p
		WHERE $1::text[] IS NULL OR p.name = ANY ($1)`,
		names, nanoseconds(tx.now))
	if err != nil {
		return nil, err
	}
	pools := make(map[string]gq.Pool)
	var p gq.Pool
	var updated int64
	_, err = pgx.ForEachRow(rows, []any{&p.Name, &p.Capacity, &p.AtStart, &updated, &p.Used}, func() error {
		p.UpdatedAt = instant(updated)
		pools[p.Name] = p
		return nil
	})
	return pools, err
}

// makeRoom refuses a move by which a job would occupy more than its pool has. The
// caller has the row of gq.head, so that nobody else takes anything meanwhile.
func (tx *txn) makeRoom(ctx context.Context, r *row, to gq.Status) (refused, err error) {
	if to != gq.Running || r.state.Status != gq.Claimed {
		return nil, nil
	}
	queues, err := tx.readQueues(ctx, "SELECT name, config FROM gq.queue WHERE name = $1 AND config IS NOT NULL", r.queue)
	if err != nil || queues[r.queue].Pool == "" {
		return nil, err
	}
	if err := tx.flush(ctx); err != nil { // what this call has changed before counts
		return nil, err
	}
	pools, err := tx.pools(ctx, queues[r.queue].Pool)
	if err != nil {
		return nil, err
	}
	p := pools[queues[r.queue].Pool]
	if p.Counts(r.state.Status) {
		return nil, nil
	}
	return p.Admit(r.state.Lease.CostUnits), nil
}
