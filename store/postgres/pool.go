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
			INSERT INTO gq.pool (name, capacity, updated)
			VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET capacity = excluded.capacity, updated = excluded.updated`,
			p.Name, p.Capacity, nanoseconds(tx.now))
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

// pools reads all pools.
func (tx *txn) pools(ctx context.Context) (map[string]gq.Pool, error) {
	rows, err := tx.Query(ctx, "SELECT name, capacity, updated FROM gq.pool")
	if err != nil {
		return nil, err
	}
	pools := make(map[string]gq.Pool)
	var p gq.Pool
	var updated int64
	_, err = pgx.ForEachRow(rows, []any{&p.Name, &p.Capacity, &updated}, func() error {
		p.UpdatedAt = instant(updated)
		pools[p.Name] = p
		return nil
	})
	return pools, err
}
