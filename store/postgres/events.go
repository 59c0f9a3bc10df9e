package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// Events implements [store.Store].
func (s *Store) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	var out []gq.Event
	err := s.read(ctx, "events", func(tx *txn) error {
		var gone int64
		if err := tx.QueryRow(ctx, "SELECT gone FROM gq.head").Scan(&gone); err != nil {
			return err
		}
		if after < uint64(gone) {
			return fmt.Errorf("after %d: not all events up to %d are there: %w", after, gone, gq.ErrGone)
		}
		if after > math.MaxInt64 || limit < 1 {
			return nil
		}
		var err error
		out, err = scanEvents(tx.Query(ctx, `
			SELECT seq, job, queue, time, data
			FROM gq.event
			WHERE seq > $1
			ORDER BY seq
			LIMIT $2`,
			int64(after), limit))
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LastEvent implements [store.Store].
func (s *Store) LastEvent(ctx context.Context) (uint64, error) {
	var last int64
	err := s.read(ctx, "last event", func(tx *txn) error {
		return tx.QueryRow(ctx, "SELECT event FROM gq.head").Scan(&last)
	})
	if err != nil {
		return 0, err
	}
	return uint64(last), nil
}

// History implements [store.Store].
func (s *Store) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	var out []gq.Event
	err := s.read(ctx, "history", func(tx *txn) error {
		var err error
		out, err = scanEvents(tx.Query(ctx, `
			SELECT seq, job, queue, time, data
			FROM gq.event
			WHERE job = $1
			ORDER BY seq`,
			[16]byte(id)))
		if err == nil && len(out) == 0 { // every job has at least its submission
			return fmt.Errorf("job %s: %w", id, gq.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func scanEvents(rows pgx.Rows, err error) ([]gq.Event, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(from pgx.CollectableRow) (gq.Event, error) {
		var (
			seq, at int64
			job     [16]byte
			queue   string
			data    []byte
		)
		if err := from.Scan(&seq, &job, &queue, &at, &data); err != nil {
			return gq.Event{}, err
		}
		e, rest, err := gq.DecodeEvent(data)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("bytes behind event %d: %w", seq, gq.ErrCorrupt)
		}
		e.Seq, e.Job, e.Queue, e.Time = uint64(seq), job, queue, instant(at)
		return e, err
	})
}
