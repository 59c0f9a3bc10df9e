package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// dueBy selects the jobs that are due; dueNext is when the next one is, or earlier if that is
// a far one. Jobs that are not held are found along the index ready_due, and held jobs along
// held_due in each queue that has any: one entry of a claimed job serves both the claims of
// its queue and the sweeps.
const (
	dueBy = `
		SELECT h.seq, NULL::bigint, h.due, h.data
		FROM ` + anywhere + beginnings + `
		CROSS JOIN LATERAL (
			SELECT seq, due, data FROM gq.ready AS s WHERE ` + unheld + ` AND due + 0 <= $1 ORDER BY due + 0, seq LIMIT $2
		) AS h
		UNION ALL
		SELECT h.seq, h.members, h.due, h.data
		FROM ` + holding + beginnings + `
		CROSS JOIN LATERAL (SELECT seq, members, due, data FROM gq.held AS s WHERE ` + leased + ` AND due <= $1 ORDER BY due LIMIT $2) AS h`
	dueNext = `
		SELECT least(
			(
				SELECT h.due
				FROM ` + anywhere + beginnings + `
				CROSS JOIN LATERAL (
					SELECT due FROM gq.ready AS s WHERE ` + unheld + ` AND due + 0 > $1 ORDER BY due + 0, seq LIMIT 1
				) AS h
			),
			(
				SELECT min(h.due)
				FROM ` + holding + beginnings + `
				CROSS JOIN LATERAL (SELECT due FROM gq.held AS s WHERE ` + leased + ` AND due > $1 ORDER BY due LIMIT 1) AS h
			),
			(SELECT until FROM gq.near WHERE EXISTS (SELECT FROM ` + tally + ` WHERE status IN (1, 2, 3, 6) AND jobs <> 0))
		)`
	// anywhere is the band of the jobs that are not held.
	anywhere = "(SELECT ''::text AS queue, 6::smallint AS band) AS n"
	// holding are the queues that may have held jobs: if a queue has any, at least one of
	// the counts that make up the sum is not zero.
	holding = "(SELECT DISTINCT queue, 0::smallint AS band FROM " + tally + " WHERE status IN (4, 5) AND jobs <> 0) AS n"
)

// Now implements [store.Timekeeper].
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.readOnce(ctx, func(tx *txn) error {
		err := tx.readClock(ctx)
		now = tx.now
		return err
	})
	return now, err
}

var _ store.LateLister = (*Store)(nil)

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	return s.due(ctx, limit, true)
}

// Late implements [store.LateLister].
func (s *Store) Late(ctx context.Context, limit int) (store.Due, error) {
	return s.due(ctx, limit, false)
}

// due is Due, with or without the time of the next change.
func (s *Store) due(ctx context.Context, limit int, next bool) (due store.Due, err error) {
	near, err := s.readDue(ctx, max(limit, 1), &due, false, next)
	if err == nil && !near {
		if err = s.keepNear(ctx, due.Now); err == nil {
			_, err = s.readDue(ctx, max(limit, 1), &due, true, next)
		}
	}
	if err != nil {
		return store.Due{}, err
	}
	return due, nil
}

// readDue is due without the far jobs. It reports whether none of these may be due, and does
// nothing else if one may be, unless it is told that they are near.
func (s *Store) readDue(ctx context.Context, limit int, due *store.Due, near, next bool) (_ bool, err error) {
	err = s.readOnce(ctx, func(tx *txn) error {
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		*due = store.Due{Now: tx.now}
		if near = near || s.isNear(tx.now); !near {
			return nil
		}
		late, err := tx.late(ctx, limit+1)
		if err != nil {
			return err
		}
		for _, l := range late[:min(len(late), limit)] {
			due.Jobs = append(due.Jobs, l.job)
		}
		if len(late) > len(due.Jobs) {
			due.Next = instant(late[len(due.Jobs)].due)
			return nil
		}
		if !next {
			return nil
		}
		var at *int64
		if err := tx.QueryRow(ctx, dueNext, nanoseconds(tx.now)).Scan(&at); err != nil || at == nil {
			return err
		}
		due.Next = instant(*at)
		return nil
	})
	return near, err
}

// lateness is a job that is due, and since when.
type lateness struct {
	due, seq int64
	job      gq.JobID
}

// late finds jobs that are due, in order of due time: the first n, and possibly more.
func (tx *txn) late(ctx context.Context, n int) ([]lateness, error) {
	rows, err := tx.Query(ctx, dueBy, nanoseconds(tx.now), n)
	if err != nil {
		return nil, err
	}
	var late []lateness
	var policy policies
	var seq, due int64
	var members *int64
	var data pgtype.DriverBytes
	_, err = pgx.ForEachRow(rows, []any{&seq, &members, &due, &data}, func() error {
		return eachMember(seq, members, nil, data, nil, func(seq int64, _, data []byte) error {
			r, err := tx.s.decodeRow(data, seq, &policy)
			late = append(late, lateness{due, seq, r.state.ID})
			return err
		})
	})
	slices.SortFunc(late, func(a, b lateness) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) })
	return late, err
}

// releaseWait is how long ReleaseDependents waits for a locked dependent before it leaves
// that for the next time.
const releaseWait = "500ms"

// ReleaseDependents implements [store.Store].
func (s *Store) ReleaseDependents(ctx context.Context, limit int) (told int, err error) {
	waits := false
	err = s.readOnce(ctx, func(tx *txn) error {
		return tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM gq.ended)").Scan(&waits)
	})
	if err != nil || !waits {
		return 0, err
	}
	for _, patient := range []bool{true, false} {
		err = s.write(ctx, func(tx *txn) error {
			told, err = tx.release(ctx, max(limit, 1), patient)
			return err
		})
		if !held(err) {
			break
		}
	}
	return told, err
}

// release tells dependents that their parents have ended. If patient it waits for locked
// dependents, otherwise it skips them.
func (tx *txn) release(ctx context.Context, limit int, patient bool) (told int, err error) {
	// One at a time, so that an answer of 0 means that none is left, not that another
	// call has them.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockRelease); err != nil {
		return 0, err
	}
	waiting, err := tx.waiting(ctx, limit)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+releaseWait+"'"); err != nil {
		return 0, err
	}
	if !patient {
		busy, err := tx.lockFree(ctx, childrenOf(waiting))
		if err != nil {
			return 0, err
		}
		waiting = slices.DeleteFunc(waiting, func(w wait) bool { return busy[w.child] })
	}
	if len(waiting) == 0 {
		return 0, nil
	}
	children := childrenOf(waiting)
	rows, err := tx.lock(ctx, children, "UPDATE")
	if err != nil {
		return 0, err
	}
	if _, err := tx.stamp(ctx, 0); err != nil {
		return 0, err
	}
	known := make(map[int64]*row, len(rows))
	for _, r := range rows {
		known[int64(r.state.Sequence)] = r
	}
	parents, kinds := make([]int64, len(waiting)), make([]int16, len(waiting))
	for i, w := range waiting {
		parents[i], kinds[i] = w.parent, int16(w.end.Kind)
		r, ok := known[w.child]
		if !ok {
			continue
		}
		next, events, err := machine.DependencyEnded(r.state, w.end, tx.now)
		if err != nil {
			return 0, err
		}
		if err := tx.turned(ctx, r, &next, known); err != nil {
			return 0, err
		}
		tx.record(r, next, events)
	}
	tx.more.Queue(`
		DELETE FROM gq.edge AS e
		USING unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS n (parent, child, kind)
		WHERE e.parent = n.parent AND e.child = n.child AND e.kind = n.kind`, parents, children, kinds)
	tx.more.Queue(`
		DELETE FROM gq.ended AS e
		WHERE e.parent = ANY ($1) AND NOT EXISTS (SELECT FROM gq.edge WHERE parent = e.parent)`, parents)
	return len(waiting), tx.flush(ctx)
}

// wait is a child that has not been told that its parent has ended.
type wait struct {
	parent, child int64
	end           machine.EndedDependency
}

func childrenOf(waiting []wait) []int64 {
	children := make([]int64, len(waiting))
	for i, w := range waiting {
		children[i] = w.child
	}
	return children
}

// waiting reads children that have not been told yet, in order.
func (tx *txn) waiting(ctx context.Context, limit int) ([]wait, error) {
	rows, err := tx.Query(ctx, `
		SELECT e.parent, c.child, c.kind, e.status, e.priority
		FROM gq.ended AS e
		JOIN gq.edge AS c USING (parent)
		ORDER BY e.parent, c.child
		LIMIT $1`,
		limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(from pgx.CollectableRow) (w wait, err error) {
		var kind, status, priority int16
		err = from.Scan(&w.parent, &w.child, &kind, &status, &priority)
		w.end = machine.EndedDependency{Kind: gq.DependencyKind(kind), Status: gq.Status(status), Priority: gq.Priority(priority)}
		return w, err
	})
}
