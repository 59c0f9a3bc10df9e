package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// sequenceStep is how many segments are numbered in one transaction.
const sequenceStep = 500

// sequence gives numbers to the events of committed segments, and folds the
// counts that were appended. Any node may do so at any time: whoever has the lock
// of the head does it, and the next one finds it done. An event whose transaction
// is still open gets its number later, and holds up nobody.
//
// A reader that calls it first reads everything that was committed before.
func (s *Store) sequence(ctx context.Context) (last int64, err error) {
	var more bool
	err = s.transact(ctx, "look for events", s.begins.single, func(tx *txn) error {
		return tx.QueryRow(ctx, unsequenced).Scan(&last, &more)
	})
	if err != nil || !more {
		return last, err
	}
	return s.number(ctx)
}

// number is sequence for whoever knows that there is something to do.
func (s *Store) number(ctx context.Context) (last int64, err error) {
	for more := true; more; {
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

// fresh are the segments without numbers, along the index segment_fresh. It begins
// behind what was numbered before, which is still in the index while somebody holds
// an old snapshot.
const fresh = `
	SELECT id, place, events, time FROM gq.segment
	WHERE seq IS NULL AND xid >= (SELECT numbered FROM gq.head)
	ORDER BY place, id
	LIMIT $1`

// numbering gives the next numbers to the fresh ones. Whoever runs it has taken the
// lock of the head with a statement before, and sees what others did until then. It
// looks the segments up by a list, because a join reads all of a partition that the
// planner believes to be empty. Where none is left, all that were not seen are of
// transactions that were under way.
const numbering = `
	WITH head AS MATERIALIZED (SELECT * FROM gq.head),
	fresh AS MATERIALIZED (
		SELECT s.id, s.events, s.time, h.event + 1 - s.events + sum(s.events) OVER (ORDER BY s.place, s.id) AS seq
		FROM (` + fresh + `) AS s
		CROSS JOIN head AS h
	), numbered AS (
		UPDATE gq.segment AS s SET seq = (SELECT n.seq FROM fresh AS n WHERE n.id = s.id)
		WHERE s.id = ANY (ARRAY (SELECT id FROM fresh))
	), gone AS (
		DELETE FROM gq.round WHERE number = (SELECT number FROM head) AND EXISTS (SELECT FROM fresh)
	)
	INSERT INTO gq.round (number, event, gone, time, numbered, folded)
	SELECT h.number + 1, h.event + n.events, h.gone, greatest(h.time, n.time),
		CASE WHEN n.segments < $1 THEN pg_snapshot_xmin(pg_current_snapshot()) ELSE h.numbered END, h.folded
	FROM head AS h
	CROSS JOIN (SELECT count(*) AS segments, sum(events) AS events, max(time) AS time FROM fresh) AS n
	WHERE n.segments > 0
	RETURNING event, (SELECT count(*) FROM fresh)`

// foldStep is from how many appended counts on they are folded. Each time leaves
// dead rows of gq.tally behind, and everyone who counts reads what is not folded.
const foldStep = 500

// unfolded are the counts that were appended since the last time.
const unfolded = "gq.delta WHERE xid >= (SELECT folded FROM gq.head)"

// folding adds up the counts that were appended, where there are enough of them.
// Whoever runs it has the lock of the head.
const folding = `
	WITH ripe AS MATERIALIZED (
		SELECT number FROM gq.head WHERE (SELECT count(*) FROM (SELECT FROM ` + unfolded + ` LIMIT $1) AS d) >= $1
	), folded AS (
		DELETE FROM ` + unfolded + ` AND EXISTS (SELECT FROM ripe)
		RETURNING queue, status, jobs
	), head AS (
		UPDATE gq.round SET folded = pg_snapshot_xmin(pg_current_snapshot()) WHERE number = (SELECT number FROM ripe)
	)
	INSERT INTO gq.tally AS t (queue, status, jobs)
	SELECT queue, status, sum(jobs) FROM folded GROUP BY queue, status
	ON CONFLICT (queue, status) DO UPDATE SET jobs = t.jobs + excluded.jobs`

// unsequenced is the last number given, and whether there is anything to do.
const unsequenced = `
	SELECT event, EXISTS (SELECT FROM gq.segment WHERE seq IS NULL AND xid >= h.numbered)
	FROM gq.head AS h`

// headLock is taken by whoever writes to gq.round; reached writes that time has
// reached an instant.
const (
	headLock = "SELECT pg_advisory_xact_lock($1, 0)"
	reached  = "UPDATE gq.round SET time = greatest(time, $1) WHERE number = (SELECT number FROM gq.head)"
)

// sequence numbers a step of the fresh segments. All of it travels at once: losing
// the answer loses nothing, since it is found done the next time.
func (tx *txn) sequence(ctx context.Context) (last int64, more bool, err error) {
	var batch pgx.Batch
	batch.Queue(headLock, lockHead)
	batch.Queue("SELECT event FROM gq.head").QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
	batch.Queue(numbering, sequenceStep).Query(func(rows pgx.Rows) error {
		var n int
		_, err := pgx.ForEachRow(rows, []any{&last, &n}, func() error { return nil })
		more = n == sequenceStep
		return err
	})
	batch.Queue(folding, foldStep)
	batch.Queue("COMMIT")
	err = tx.SendBatch(ctx, &batch).Close()
	tx.written, tx.committed = true, err == nil
	return last, more, err
}

// tally is gq.tally with what has not been folded yet, in one snapshot.
const tally = `
	(
		SELECT queue, status, jobs FROM gq.tally
		UNION ALL
		SELECT queue, status, jobs FROM ` + unfolded + `
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
		segments, events, err = tx.readLog(tx.Query(ctx, `
			SELECT s.seq, s.time, l.data, l.jobs
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

// readLog reads segments: their numbers, times and records, and the numbers of their jobs.
func (tx *txn) readLog(rows pgx.Rows, err error) (segments int, out []gq.Event, _ error) {
	if err != nil {
		return 0, nil, err
	}
	var seq, at int64
	var data []byte
	var jobs []int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &at, &data, &jobs}, func() error {
		segments++
		events, err := tx.s.ids.decodeLog(data, jobs, seq, instant(at))
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
		numbers, err := tx.numbered(ctx, [][16]byte{id})
		if err != nil {
			return err
		}
		rows, err := tx.statesOf(ctx, []int64{numbers[id]})
		if err != nil {
			return err
		}
		if len(rows) == 0 || rows[0].state.ID != id {
			return fmt.Errorf("job %s: %w", id, gq.ErrNotFound)
		}
		// A segment without a number was committed since: what it tells is not
		// history yet.
		_, events, err := tx.readLog(tx.Query(ctx, `
			SELECT s.seq, s.time, l.data, l.jobs
			FROM unnest($1::bigint[]) AS n (id)
			CROSS JOIN LATERAL (SELECT seq, time FROM gq.segment WHERE id = n.id OFFSET 0) AS s
			CROSS JOIN LATERAL (SELECT data, jobs FROM gq.log WHERE id = n.id OFFSET 0) AS l
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
