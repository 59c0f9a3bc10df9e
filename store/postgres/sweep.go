package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	var due store.Due
	err := s.read(ctx, "due", func(tx *txn) error {
		rows, err := tx.Query(ctx, "SELECT job, due FROM gq.state WHERE due IS NOT NULL ORDER BY due, seq LIMIT $1", max(limit, 0)+1)
		if err != nil {
			return err
		}
		var id [16]byte
		var at int64
		_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
			switch {
			case at <= nanoseconds(tx.now) && len(due.Jobs) < limit:
				due.Jobs = append(due.Jobs, id)
			case due.Next.IsZero():
				due.Next = instant(at)
			}
			return nil
		})
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
	err := s.write(ctx, "release", func(tx *txn) error {
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
		children := make([][16]byte, len(waiting))
		for i, w := range waiting {
			children[i] = w.child
		}
		rows, err := tx.lock(ctx, children, "UPDATE")
		if err != nil {
			return err
		}
		if err := tx.stamp(ctx); err != nil {
			return err
		}
		known := byJob(rows)
		for _, w := range waiting {
			tx.more.Queue("DELETE FROM gq.edge WHERE parent = $1 AND child = $2", w.parent, w.child)
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
			DELETE FROM gq.ended AS e
			WHERE NOT EXISTS (SELECT FROM gq.edge WHERE parent = e.parent)`)
		return tx.flush(ctx)
	})
	return told, err
}

// wait is a child whose parent has ended.
type wait struct {
	parent, child [16]byte
	end           gq.Ended
}

// waiting reads children that have not been told yet.
func (tx *txn) waiting(ctx context.Context, limit int) ([]wait, error) {
	rows, err := tx.Query(ctx, `
		SELECT e.parent, c.child, c.kind, e.status, e.priority
		FROM gq.ended AS e
		JOIN gq.edge AS c USING (parent)
		ORDER BY e.seq, c.child
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

// Collect implements [store.Store]. Rows go one by one in this version.
func (s *Store) Collect(ctx context.Context, limit int) (int, error) {
	removed := 0
	err := s.write(ctx, "collect", func(tx *txn) error {
		removed = 0
		if err := tx.glance(ctx); err != nil {
			return err
		}
		ids, err := tx.expired(ctx, limit)
		if err != nil || len(ids) == 0 {
			return err
		}
		// Whoever is about to depend on one of them finishes first.
		rows, err := tx.lock(ctx, ids, "UPDATE")
		if err != nil {
			return err
		}
		if err := tx.stamp(ctx); err != nil {
			return err
		}
		gone := make([][16]byte, len(rows))
		for i, r := range rows {
			gone[i] = r.state.ID
			tx.count(place{r.queue, r.state.Status}, -1)
		}
		removed = len(gone)
		tx.more.Queue("UPDATE gq.head SET gone = greatest(gone, (SELECT max(seq) FROM gq.event WHERE job = ANY ($1)))", gone)
		tx.more.Queue("DELETE FROM gq.event WHERE job = ANY ($1)", gone)
		tx.more.Queue("DELETE FROM gq.job WHERE id = ANY ($1)", gone) // and with it the rest
		return tx.flush(ctx)
	})
	return removed, err
}

// expired lists jobs that are past their retention. One that has dependents to
// tell stays until they know.
func (tx *txn) expired(ctx context.Context, limit int) (ids [][16]byte, err error) {
	for _, status := range []gq.Status{gq.Completed, gq.Failed, gq.DeadLetter, gq.Cancelled} {
		rows, err := tx.Query(ctx, `
			SELECT s.job
			FROM gq.state AS s
			WHERE s.status = $1 AND s.ended <= $2
				AND NOT EXISTS (SELECT FROM gq.ended AS e WHERE e.parent = s.job)
			ORDER BY s.ended
			LIMIT $3`,
			int16(status), nanoseconds(tx.now.Add(-tx.s.cfg.Retention.Of(status))), max(limit-len(ids), 0))
		if err != nil {
			return nil, err
		}
		more, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	return ids, nil
}
