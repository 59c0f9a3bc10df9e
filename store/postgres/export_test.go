package postgres

import (
	"context"
	"math"
	"slices"

	"github.com/gopherqueue/gq"
)

// RaiseEvery has a store raise the floors of a queue after n claims from it.
func (s *Store) RaiseEvery(n int) { s.floors.every.Store(int64(n)) }

// Raise takes a step with the floors of every queue from which was claimed since.
func (s *Store) Raise(ctx context.Context) error { return s.raise(ctx, s.floors.ripe(1)) }

// Pass counts a claim of nothing from a queue.
func (s *Store) Pass(queue string) {
	s.floors.pass(bandKey{queue, gq.PriorityNormal}, position{math.MinInt64, math.MinInt64}, 1)
}

// Drop drops the partitions that can go and reports whether all of them went.
func (s *Store) Drop(ctx context.Context) (bool, error) { return s.drop(ctx) }

// URL is where the database is.
func (s *Store) URL() string { return s.pool.Config().ConnString() }

// MigrateFurther migrates a database as a later program would, which has a step more.
func MigrateFurther(ctx context.Context, url string, to int, sql string) error {
	return connected(ctx, url, func(conn connection) error {
		_, err := migrate(ctx, conn, append(slices.Clone(migrations), migration{to, "made-up.sql", sql}))
		return err
	})
}
