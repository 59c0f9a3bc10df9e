package postgres

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// The views of this program.
var (
	ViewsSource = viewsSource
	ViewsNumber = viewsNumber
)

// RaiseEvery makes the store raise the floors of a queue after every n claims from it.
func (s *Store) RaiseEvery(n int) { s.floors.every.Store(int64(n)) }

// AsideEvery makes the store set jobs aside after every n claims that may have skipped some.
func (s *Store) AsideEvery(n int) { s.asides.every.Store(int64(n)) }

// Raise takes one step with the floors of every queue that had claims since the last one.
func (s *Store) Raise(ctx context.Context) error { return s.raise(ctx, s.floors.ripe(1)) }

// RaiseDue takes one step with the floor of the jobs of all queues, up to a due time.
func (s *Store) RaiseDue(ctx context.Context, to time.Time) error {
	var a bandArrays
	a.add(bandKey{"", dueBand}, position{to.UnixNano(), 0})
	return s.raise(ctx, a)
}

// Pass counts an empty claim from a queue.
func (s *Store) Pass(queue string) {
	s.floors.pass(bandKey{queue, gq.PriorityNormal}, position{math.MinInt64, math.MinInt64}, 1)
}

// Drop drops the partitions that can be dropped, and reports whether it dropped them all.
func (s *Store) Drop(ctx context.Context) (bool, error) { return s.drop(ctx) }

// Fold adds all counts that were appended to the totals, however few they are.
func (s *Store) Fold(ctx context.Context) error {
	return s.write(ctx, func(tx *txn) error {
		if _, err := tx.Exec(ctx, headLock, lockHead); err != nil {
			return err
		}
		tx.written = true
		_, err := tx.Exec(ctx, folding, 1)
		return err
	})
}

// URL returns the URL of the database.
func (s *Store) URL() string { return s.pool.Config().ConnString() }

// MigrateFurther migrates a database as a later version with one more step would.
func MigrateFurther(ctx context.Context, url string, to int, sql string) error {
	return connected(ctx, url, func(conn connection) error {
		_, err := migrateAll(ctx, conn, append(slices.Clone(migrations), migration{to: to, name: "made-up.sql", sql: sql}))
		return err
	})
}
