package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	out := make([]store.Found, len(refs))
	err := s.read(ctx, "get", func(tx *txn) error {
		seqs, err := tx.sequences(ctx, refs)
		if err != nil {
			return err
		}
		rows, err := tx.statesOf(ctx, seqs)
		if err != nil {
			return err
		}
		jobs, err := tx.assemble(ctx, rows, parts)
		if err != nil {
			return err
		}
		found := make(map[int64]gq.Job, len(jobs))
		for _, j := range jobs {
			j.State = j.State.At(tx.now)
			found[int64(j.State.Sequence)] = j
		}
		handed := make(map[int64]bool, len(refs))
		for i, r := range refs {
			j, ok := found[seqs[i]]
			if ok && !r.Job.IsZero() {
				ok = j.State.ID == r.Job
			} else if ok {
				if ok, err = tx.had(ctx, &j.State, rows, r.Lease); err != nil {
					return err
				}
			}
			if ok && handed[seqs[i]] {
				j = store.CopyJob(j)
			}
			if ok {
				out[i].Job, handed[seqs[i]] = j, true
				continue
			}
			if r.Job.IsZero() {
				out[i].Err = fmt.Errorf("get lease %.80q: %w", r.Lease, gq.ErrNotFound)
			} else {
				out[i].Err = fmt.Errorf("get job %s: %w", r.Job, gq.ErrNotFound)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// had reports whether a job, one of rows, ever had a lease. The number in a lease id
// proves nothing, so had searches the events of the job.
func (tx *txn) had(ctx context.Context, s *gq.State, rows []*row, lease gq.LeaseID) (bool, error) {
	if s.Lease == nil || s.Lease.ID == lease || s.PreviousLease == lease {
		return s.Lease != nil, nil
	}
	at := slices.IndexFunc(rows, func(r *row) bool { return r.state.ID == s.ID })
	_, events, err := tx.readLog(tx.Query(ctx, `
		SELECT coalesce(s.seq, 0), s.time, l.data, l.jobs
		FROM unnest($1::bigint[]) AS n (id)
		CROSS JOIN LATERAL (SELECT seq, time FROM gq.segment WHERE id = n.id OFFSET 0) AS s
		CROSS JOIN LATERAL (SELECT data, jobs FROM gq.log WHERE id = n.id OFFSET 0) AS l`,
		rows[at].segments))
	return slices.ContainsFunc(events, func(e gq.Event) bool { return e.Job == s.ID && e.Lease == lease }), err
}

// List implements [store.Store]. It follows the index on seq, and also reads the jobs
// that the query does not select.
func (s *Store) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	if err := store.CheckQuery(&q); err != nil {
		return gq.Page{}, fmt.Errorf("list: %w", err)
	}
	from, to := int64(math.MinInt64), int64(math.MaxInt64) // sequence numbers, exclusive
	direction, last := "DESC", &to
	if q.OldestFirst {
		direction, last = "ASC", &from
	}
	cursor, err := store.ParseCursor(q.Cursor)
	if err != nil {
		return gq.Page{}, fmt.Errorf("list: %w", err)
	}
	if cursor > 0 {
		*last = int64(cursor)
	}
	statuses := make([]int16, len(q.Statuses))
	for i, s := range q.Statuses {
		statuses[i] = int16(s)
	}
	var page gq.Page
	err = s.read(ctx, "list", func(tx *txn) error {
		part := func(table, kept string) string {
			return `
			(
				SELECT ` + columns + `
				FROM ` + table + ` AS s
				WHERE s.seq >= $1 AND s.seq < $2
					AND ($3 = '' OR s.queue = $3)
					AND (cardinality($4::smallint[]) = 0 OR s.status = ANY ($4))
					AND (s.members IS NOT NULL OR s.created >= $5 AND s.created < $6)
					AND ` + kept + `
				ORDER BY s.seq ` + direction + `
				LIMIT $7
			)`
		}
		after, before := bound(q.CreatedAfter, math.MinInt64), bound(q.CreatedBefore, math.MaxInt64)
		sql := part("gq.live", "true") + " UNION ALL " + part("gq.done", kept) + " ORDER BY seq " + direction + " LIMIT $7"
		most := q.Limit + 1 + blockSize
		var rows []*row
		for from, to, more := from, to, true; more && len(rows) <= q.Limit; {
			some, err := tx.scanRows(tx.Query(ctx, sql, blockOf(max(from, math.MinInt64+blockSize)+1), to, q.Queue, statuses, after, before, most))
			if err != nil {
				return err
			}
			more = rowsOf(some) == most // then rows of the last block may be missing
			var last int64
			if len(some) > 0 {
				last = blockOf(int64(some[len(some)-1].state.Sequence))
			}
			for _, r := range some {
				seq, created := int64(r.state.Sequence), nanoseconds(r.state.CreatedAt)
				if seq > from && seq < to && created >= after && created < before && !(more && blockOf(seq) == last) {
					rows = append(rows, r)
				}
			}
			if q.OldestFirst {
				from = last - 1
			} else {
				to = last + blockSize
			}
		}
		slices.SortFunc(rows, func(a, b *row) int {
			if q.OldestFirst {
				a, b = b, a
			}
			return cmp.Compare(b.state.Sequence, a.state.Sequence)
		})
		if len(rows) > q.Limit {
			rows = rows[:q.Limit]
			page.Next = store.Cursor(rows[q.Limit-1].state.Sequence)
		}
		for _, r := range rows {
			r.state = r.state.At(tx.now)
		}
		page.Jobs, err = tx.assemble(ctx, rows, 0)
		return err
	})
	if err != nil {
		return gq.Page{}, err
	}
	return page, nil
}

// bound is t in nanoseconds, clamped to the range of int64, or zero if t is zero.
func bound(t time.Time, zero int64) int64 {
	switch {
	case t.IsZero():
		return zero
	case t.Year() < 1700:
		return math.MinInt64
	case t.Year() > 2200:
		return math.MaxInt64
	default:
		return t.UnixNano()
	}
}
