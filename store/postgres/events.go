package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// sequenceStep is how many segments are numbered in one transaction.
const sequenceStep = 10_000

// sequence gives numbers to the events of committed segments, and folds the
// counts that were appended. Any node may do so at any time: whoever has the row
// of gq.head does it, and the next one finds it done. An event whose transaction
// is still open gets its number later, and holds up nobody.
//
// A reader that calls it first reads everything that was committed before.
func (s *Store) sequence(ctx context.Context) (last int64, err error) {
	var more bool
	err = s.transact(ctx, "look for events", s.begins.single, func(tx *txn) error {
		return tx.QueryRow(ctx, unsequenced).Scan(&last, &more)
	})
	if err != nil {
		return 0, err
	}
	for more {
		err = s.transact(ctx, "number events", s.begins.write, func(tx *txn) error {
			last, more, err = tx.sequence(ctx)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return last, nil
}

// fresh are the segments without numbers, which is what the index segment_fresh
// has.
const fresh = "SELECT id, events, time FROM gq.segment WHERE seq IS NULL ORDER BY id LIMIT $1"

// unsequenced is the last number given, and whether there is anything to do.
const unsequenced = `
	SELECT event, EXISTS (SELECT FROM gq.segment WHERE seq IS NULL) OR EXISTS (SELECT FROM gq.delta)
	FROM gq.head`

func (tx *txn) sequence(ctx context.Context) (last int64, more bool, err error) {
	if err := tx.QueryRow(ctx, "SELECT event FROM gq.head FOR UPDATE").Scan(&last); err != nil {
		return 0, false, err
	}
	var ids, seqs []int64
	var id, at, newest int64
	var events int64
	rows, err := tx.Query(ctx, fresh, sequenceStep)
	if err != nil {
		return 0, false, err
	}
	if _, err := pgx.ForEachRow(rows, []any{&id, &events, &at}, func() error {
		ids, seqs = append(ids, id), append(seqs, last+1)
		last += events
		newest = max(newest, at)
		return nil
	}); err != nil {
		return 0, false, err
	}
	if len(ids) > 0 {
		tx.more.Queue(`
			UPDATE gq.segment AS s SET seq = n.seq
			FROM unnest($1::bigint[], $2::bigint[]) AS n (id, seq)
			WHERE s.id = n.id`, ids, seqs)
		tx.more.Queue("UPDATE gq.head SET event = $1, time = greatest(time, $2)", last, newest)
	}
	tx.more.Queue(`
		WITH folded AS (DELETE FROM gq.delta RETURNING queue, status, jobs)
		INSERT INTO gq.tally AS t (queue, status, jobs)
		SELECT queue, status, sum(jobs) FROM folded GROUP BY queue, status
		ON CONFLICT (queue, status) DO UPDATE SET jobs = t.jobs + excluded.jobs`)
	return last, len(ids) == sequenceStep, tx.flush(ctx)
}

// tally is gq.tally with what has not been folded yet, in one snapshot.
const tally = `
	(
		SELECT queue, status, jobs FROM gq.tally
		UNION ALL
		SELECT queue, status, jobs FROM gq.delta
	) AS t`

// Events implements [store.Store].
func (s *Store) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	var out []gq.Event
	last, err := s.sequenced(ctx, "events")
	if err != nil || after >= uint64(last) {
		return nil, err // nothing has happened since; nothing beyond the last is gone
	}
	err = s.read(ctx, "events", func(tx *txn) error {
		var gone int64
		if err := tx.QueryRow(ctx, "SELECT greatest(gone, (SELECT max(gone) FROM gq.partition)) FROM gq.head").Scan(&gone); err != nil {
			return err
		}
		if after < uint64(gone) {
			return fmt.Errorf("after %d: not all events up to %d are there: %w", after, gone, gq.ErrGone)
		}
		if after >= math.MaxInt64 || limit < 1 {
			return nil
		}
		events, err := tx.eventsAfter(ctx, int64(after), limit)
		out = events
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// segmentStep is how many segments are read at a time, since nobody knows how
// many it takes: each has at least one event.
const segmentStep = 64

// eventsAfter begins with the segment in whose middle the first event may stand.
// Both parts follow the index segment_seq.
func (tx *txn) eventsAfter(ctx context.Context, after int64, limit int) (out []gq.Event, err error) {
	var from int64
	err = tx.QueryRow(ctx, "SELECT coalesce(max(seq), 0) FROM gq.segment WHERE seq <= $1", after+1).Scan(&from)
	for more := true; more && err == nil && len(out) < limit; {
		var segments int
		var events []gq.Event
		segments, events, err = readLog(tx.Query(ctx, `
			SELECT s.seq, s.time, l.data
			FROM gq.segment AS s
			JOIN gq.log AS l USING (id)
			WHERE s.seq >= $1
			ORDER BY s.seq
			LIMIT $2`,
			from, segmentStep))
		for _, e := range events {
			if e.Seq > uint64(after) && len(out) < limit {
				out = append(out, e)
			}
			from = int64(e.Seq) + 1
		}
		more = segments == segmentStep
	}
	return out, err
}

// readLog reads segments: their numbers, times and records.
func readLog(rows pgx.Rows, err error) (segments int, out []gq.Event, _ error) {
	if err != nil {
		return 0, nil, err
	}
	var seq, at int64
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&seq, &at, &data}, func() error {
		segments++
		events, err := decodeLog(data, seq, instant(at))
		out = append(out, events...)
		return err
	})
	return segments, out, err
}

// sequenced has all events numbered that were committed before, and returns the
// number of the last.
func (s *Store) sequenced(ctx context.Context, verb string) (last int64, err error) {
	if err := s.enter(); err != nil {
		return 0, fmt.Errorf("%s: %w", verb, err)
	}
	defer s.leave()
	if last, err = s.sequence(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", verb, err)
	}
	return last, nil
}

// LastEvent implements [store.Store].
func (s *Store) LastEvent(ctx context.Context) (uint64, error) {
	last, err := s.sequenced(ctx, "last event")
	return uint64(last), err
}

// History implements [store.Store].
func (s *Store) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	var out []gq.Event
	if _, err := s.sequenced(ctx, "history"); err != nil {
		return nil, err
	}
	err := s.read(ctx, "history", func(tx *txn) error {
		var seq int64
		err := tx.QueryRow(ctx, "SELECT seq FROM gq.name WHERE id = $1", [16]byte(id)).Scan(&seq)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("job %s: %w", id, gq.ErrNotFound)
		}
		if err != nil {
			return err
		}
		rows, err := tx.statesOf(ctx, []int64{seq})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("job %s: %w", id, gq.ErrNotFound)
		}
		// A segment without a number was committed since: what it tells is not
		// history yet.
		_, events, err := readLog(tx.Query(ctx, `
			SELECT s.seq, s.time, l.data
			FROM unnest($1::bigint[]) AS n (id)
			CROSS JOIN LATERAL (SELECT seq, time FROM gq.segment WHERE id = n.id OFFSET 0) AS s
			CROSS JOIN LATERAL (SELECT data FROM gq.log WHERE id = n.id OFFSET 0) AS l
			WHERE s.seq IS NOT NULL
			ORDER BY s.seq`,
			rows[0].segments))
		for _, e := range events {
			if e.Job == id {
				out = append(out, e)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
