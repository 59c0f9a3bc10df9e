package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// Collect implements [store.Store]. One at a time does it; others wait, and find
// what is left.
func (s *Store) Collect(ctx context.Context, limit int) (int, error) {
	removed := 0
	// Their events have numbers before they go.
	err := s.sequenced(ctx, "collect", func(*txn) error { return nil })
	if err != nil {
		return 0, err
	}
	err = s.write(ctx, "collect", func(tx *txn) error {
		removed = 0
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockCollect); err != nil {
			return err
		}
		if err := tx.glance(ctx); err != nil {
			return err
		}
		seqs, err := tx.expired(ctx, limit)
		if err != nil || len(seqs) == 0 {
			return err
		}
		// Whoever is about to depend on one of them finishes first.
		slices.Sort(seqs)
		rows, err := tx.lock(ctx, seqs, "UPDATE")
		if err != nil {
			return err
		}
		removed = len(rows)
		return tx.remove(ctx, rows)
	})
	return removed, err
}

// expired lists jobs that are past their retention. One that has dependents to
// tell stays until they know.
func (tx *txn) expired(ctx context.Context, limit int) (seqs []int64, err error) {
	for _, status := range []gq.Status{gq.Completed, gq.Failed, gq.DeadLetter, gq.Cancelled} {
		rows, err := tx.Query(ctx, `
			SELECT s.seq
			FROM gq.done AS s
			WHERE s.status = $1 AND s.ended <= $2
				AND NOT EXISTS (SELECT FROM gq.ended AS e WHERE e.parent = s.seq)
			ORDER BY s.ended
			LIMIT $3`,
			int16(status), nanoseconds(tx.now.Add(-tx.s.cfg.Retention.Of(status))), max(limit-len(seqs), 0))
		if err != nil {
			return nil, err
		}
		more, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, more...)
	}
	return seqs, nil
}

// remove deletes finished jobs with all that belongs to them. A segment goes when
// the last of its jobs does.
func (tx *txn) remove(ctx context.Context, rows []*row) error {
	gone := make([]int64, len(rows))
	last := make(map[gq.JobID]bool, len(rows))
	var newest []int64 // the last segment of each job
	fewer := make(map[int64]int32)
	for i, r := range rows {
		gone[i] = int64(r.state.Sequence)
		last[r.state.ID] = true
		tx.count(place{r.queue, r.state.Status}, -1)
		for _, id := range r.segments {
			fewer[id]++
		}
		if n := len(r.segments); n > 0 {
			newest = append(newest, r.segments[n-1])
		}
	}
	_, events, err := readLog(tx.Query(ctx, `
		SELECT s.seq, s.time, l.data
		FROM gq.segment AS s
		JOIN gq.log AS l USING (id)
		WHERE s.id = ANY ($1) AND s.seq IS NOT NULL`,
		newest))
	if err != nil {
		return err
	}
	until := int64(0)
	for i := range events {
		if last[events[i].Job] {
			until = max(until, int64(events[i].Seq))
		}
	}
	ids, counts := make([]int64, 0, len(fewer)), make([]int32, 0, len(fewer))
	for id, n := range fewer {
		ids, counts = append(ids, id), append(counts, n)
	}
	tx.more.Queue("UPDATE gq.head SET gone = greatest(gone, $1), time = greatest(time, $2)", until, nanoseconds(tx.now))
	tx.more.Queue(`
		UPDATE gq.segment AS s SET jobs = s.jobs - n.fewer
		FROM unnest($1::bigint[], $2::integer[]) AS n (id, fewer)
		WHERE s.id = n.id`, ids, counts)
	tx.more.Queue(`
		WITH empty AS (DELETE FROM gq.segment WHERE id = ANY ($1) AND jobs <= 0 RETURNING id)
		DELETE FROM gq.log WHERE id IN (SELECT id FROM empty)`, ids)
	for _, statement := range []string{
		"DELETE FROM gq.done WHERE seq = ANY ($1)",
		"DELETE FROM gq.job WHERE seq = ANY ($1)",
		"DELETE FROM gq.blob WHERE seq = ANY ($1)",
		"DELETE FROM gq.lease WHERE seq = ANY ($1)",
		"DELETE FROM gq.edge WHERE child = ANY ($1)",
		"DELETE FROM gq.idempotency WHERE seq = ANY ($1)",
	} {
		tx.more.Queue(statement, gone)
	}
	return tx.flush(ctx)
}
