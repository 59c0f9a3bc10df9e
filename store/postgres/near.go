package postgres

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/store"
)

// Nearly every waiting job is due in days, when its lifetime ends, and leaves long before.
// An entry of ready_due for each would cost a fifth of an insert. So a job that is due in
// farAway or later is marked as far and has no entry. Twice a day comeNear reads gq.ready
// from end to end and marks those that will be due within a day as near. A job is marked far
// a day before that could miss it: a transaction that takes as long to commit makes a job
// expire late, when gq.ready is read the next time.
const (
	farAway    = 48 * time.Hour
	nearAhead  = 24 * time.Hour   // how far comeNear looks ahead
	nearAtMost = store.DueExactly // it runs when less than this is left of that
)

// farOff is farAway in SQL.
var farOff = strconv.FormatInt(int64(farAway), 10)

// farFrom is the due time from which a job that is written now is far. A transaction that
// does not know the time writes no such job.
func farFrom(now time.Time) int64 {
	if now.IsZero() {
		return math.MaxInt64
	}
	return now.UnixNano() + int64(farAway)
}

// nearPages is how many pages of gq.ready comeNear reads in one transaction, in which other
// transactions cannot claim the jobs that it marks.
const nearPages = 256

// nearing marks the far jobs on pages $1 to $2 that are due by $3 and that nobody has locked.
// It returns how many are left.
const nearing = `
	WITH free AS MATERIALIZED (
		SELECT ctid AS row FROM gq.ready
		WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND far AND due <= $3
		FOR UPDATE SKIP LOCKED
	), marked AS (
		UPDATE gq.ready SET far = false WHERE ctid = ANY (ARRAY (SELECT row FROM free)) RETURNING due
	)
	SELECT (
			SELECT count(*) FROM gq.ready WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND far AND due <= $3
		) - count(*), coalesce(min(due), 0)
	FROM marked`

// isNear reports whether this node knows that no job is far that will be due soon.
func (s *Store) isNear(now time.Time) bool { return s.near.Load() >= now.Add(nearAtMost).UnixNano() }

// keepNear makes isNear true, unless the jobs are locked.
func (s *Store) keepNear(ctx context.Context, now time.Time) error {
	var until int64
	err := s.readOnce(ctx, func(tx *txn) error {
		return tx.QueryRow(ctx, "SELECT until FROM gq.near").Scan(&until)
	})
	if err == nil && until < now.Add(nearAtMost).UnixNano() {
		until, err = s.comeNear(ctx, now)
	}
	if err == nil {
		s.near.Store(until)
	}
	return err
}

// comeNear marks the jobs that will be due within nearAhead as near, and returns the time
// up to which none is far. If other transactions have locked some of these jobs, it is
// called again in a minute.
func (s *Store) comeNear(ctx context.Context, now time.Time) (until int64, err error) {
	until = now.Add(nearAhead).UnixNano()
	var pages, left int64
	err = s.readOnce(ctx, func(tx *txn) error {
		return tx.QueryRow(ctx, "SELECT pg_relation_size('gq.ready') / current_setting('block_size')::bigint").Scan(&pages)
	})
	for from := int64(0); err == nil && from < pages; from += nearPages {
		locked := int64(0)
		err = s.write(ctx, func(tx *txn) (err error) {
			locked, err = tx.comeNear(ctx, from, until)
			return err
		})
		left += locked
	}
	if err != nil {
		return 0, err
	}
	if left > 0 {
		until = now.Add(nearAtMost + time.Minute).UnixNano()
	}
	return until, s.write(ctx, func(tx *txn) error {
		tx.written = true
		return tx.QueryRow(ctx, "UPDATE gq.near SET until = greatest(until, $1) RETURNING until", until).Scan(&until)
	})
}

// comeNear is [Store.comeNear] for the pages from one on. It returns how many jobs are locked.
func (tx *txn) comeNear(ctx context.Context, page, until int64) (locked int64, err error) {
	var first int64 // when the first of the jobs is due
	pages := []any{fmt.Sprintf("(%d,0)", page), fmt.Sprintf("(%d,0)", page+nearPages)}
	if err := tx.QueryRow(ctx, nearing, append(pages, until)...).Scan(&locked, &first); err != nil || first == 0 {
		return locked, err
	}
	tx.minimums.low(bandKey{"", dueBand}, position{first, 0})
	tx.writeMinimums()
	batch := tx.more
	tx.more, tx.written = pgx.Batch{}, true
	return locked, tx.SendBatch(ctx, &batch).Close()
}
