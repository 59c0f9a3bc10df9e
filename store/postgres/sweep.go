package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// What is due, and when the first of the others is, along the index live_due: the
// leases that will run out some day are many, and nobody asks for them.
const (
	dueBy   = "SELECT seq, due FROM gq.live WHERE due + 0 <= $1 ORDER BY due + 0, seq LIMIT $2"
	dueNext = "SELECT due FROM gq.live WHERE due + 0 > $1 ORDER BY due + 0, seq LIMIT 1"
)

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	var due store.Due
	err := s.readOnce(ctx, "due", func(tx *txn) error {
		if err := tx.glance(ctx); err != nil {
			return err
		}
		due = store.Due{Now: tx.now}
		rows, err := tx.Query(ctx, `
			SELECT j.id, s.due
			FROM (`+dueBy+`) AS s
			JOIN gq.job AS j USING (seq)
			ORDER BY s.due, s.seq`, nanoseconds(tx.now), max(limit, 0)+1)
		if err != nil {
			return err
		}
		var id [16]byte
		var at int64
		_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
			switch {
			case len(due.Jobs) < limit:
				due.Jobs = append(due.Jobs, id)
			case due.Next.IsZero():
				due.Next = instant(at)
			}
			return nil
		})
		if err != nil || !due.Next.IsZero() {
			return err
		}
		err = tx.QueryRow(ctx, dueNext, nanoseconds(tx.now)).Scan(&at)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		due.Next = instant(at)
		return err
	})
	if err != nil {
		return store.Due{}, err
	}
	return due, nil
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, limit int) (int, error) {
	told := 0
	waits := false
	err := s.readOnce(ctx, "release", func(tx *txn) error {
		return tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM gq.ended)").Scan(&waits)
	})
	if err != nil || !waits {
		return 0, err
	}
	err = s.write(ctx, "release", func(tx *txn) error {
		told = 0
		if limit < 1 {
			return nil
		}
		// One at a time, so that "none is left" is true and not just "others
		// are at it".
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockRelease); err != nil {
			return err
		}
		waiting, err := tx.waiting(ctx, limit)
		if err != nil || len(waiting) == 0 {
			return err
		}
		children := make([]int64, len(waiting))
		for i, w := range waiting {
			children[i] = w.child
		}
		rows, err := tx.lock(ctx, children, "UPDATE")
		if err != nil {
			return err
		}
		if _, err := tx.stamp(ctx, 0); err != nil {
			return err
		}
		known := make(map[int64]*row, len(rows))
		for _, r := range rows {
			known[int64(r.state.Sequence)] = r
		}
		var parents []int64
		for _, w := range waiting {
			parents = append(parents, w.parent)
			told++
			r, ok := known[w.child]
			if !ok {
				continue
			}
			next, events, err := r.state.DependencyEnded(w.end, tx.now)
			if err != nil {
				return err
			}
			if err := tx.turned(ctx, r, &next, known); err != nil {
				return err
			}
			tx.record(r, next, events)
		}
		tx.more.Queue(`
			DELETE FROM gq.edge AS e
			USING unnest($1::bigint[], $2::bigint[]) AS n (parent, child)
			WHERE e.parent = n.parent AND e.child = n.child`, parents, children)
		tx.more.Queue(`
			DELETE FROM gq.ended AS e
			WHERE e.parent = ANY ($1) AND NOT EXISTS (SELECT FROM gq.edge WHERE parent = e.parent)`, parents)
		return tx.flush(ctx)
	})
	return told, err
}

// wait is a child whose parent has ended.
type wait struct {
	parent, child int64
	end           gq.Ended
}

// waiting reads children that have not been told yet.
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
		w.end = gq.Ended{Kind: gq.DependencyKind(kind), Status: gq.Status(status), Priority: gq.Priority(priority)}
		return w, err
	})
}
