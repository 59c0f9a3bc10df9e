package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gopherqueue/gq"
)

// sequenceStep is how many segments one transaction numbers.
const sequenceStep = 500

// sequence numbers the events of committed segments, and folds the counts in gq.delta into
// gq.tally. Any node may do so at any time: the node that holds the head lock does the
// work, and the next one finds it done. An event of an open transaction gets its number
// later and delays no other.
//
// A reader that calls sequence first sees everything committed before the call.
func (s *Store) sequence(ctx context.Context) (last int64, err error) {
	var more bool
	err = s.transact(ctx, s.begins.single, func(tx *txn) error {
		return tx.QueryRow(ctx, unsequenced).Scan(&last, &more)
	})
	if err != nil || !more {
		return last, err
	}
	return s.number(ctx)
}

// number is sequence without asking first whether there is anything to do.
func (s *Store) number(ctx context.Context) (last int64, err error) {
	for more := true; more; {
		err = s.transact(ctx, s.begins.write, func(tx *txn) error {
			last, more, err = tx.sequence(ctx)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return last, nil
}

// fresh selects segments without numbers, using the index segment_fresh. It skips the
// entries of segments numbered before, which stay in the index as long as a transaction
// has an old snapshot.
const fresh = `
	SELECT id, place, events, time FROM gq.segment
	WHERE seq IS NULL AND xid >= (SELECT numbered FROM gq.head)
	ORDER BY place, id
	LIMIT $1`

// numbering gives the next numbers to the fresh segments. An earlier statement must have
// taken the head lock, so that the snapshot of this one includes what the previous holder
// wrote. It looks each segment up by a list of one: a join might read a whole partition that the
// planner believes to be empty. If it numbers fewer than $1, only segments of transactions
// open at its snapshot remain, and head.numbered advances to that snapshot's xmin.
const numbering = `
	WITH head AS MATERIALIZED (SELECT * FROM gq.head),
	fresh AS MATERIALIZED (
		SELECT s.id, s.events, s.time, h.event + 1 - s.events + sum(s.events) OVER (ORDER BY s.place, s.id) AS seq
		FROM (` + fresh + `) AS s
		CROSS JOIN head AS h
	), numbered AS (
		UPDATE gq.segment AS s SET seq = n.seq FROM fresh AS n WHERE s.id = ANY (ARRAY [n.id])
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

// foldStep is how many rows gq.delta must have before they are folded. Each fold leaves
// dead rows in gq.tally; each count reads all rows that are not folded.
const foldStep = 500

// foldLeft is the same when the store is quiet.
const foldLeft = 20

// unfolded selects the counts appended since the last fold.
const unfolded = "gq.delta WHERE xid >= (SELECT folded FROM gq.head)"

// folding adds the appended counts to gq.tally if there are at least $1 of them. The
// caller holds the head lock.
const folding = `
	WITH ripe AS MATERIALIZED (
		SELECT number FROM gq.head WHERE (SELECT count(*) FROM (SELECT FROM ` + unfolded + ` LIMIT $1) AS d) >= $1
	), folded AS (
		DELETE FROM ` + unfolded + ` AND EXISTS (SELECT FROM ripe)
		RETURNING queue, status, jobs, units
	), head AS (
		UPDATE gq.round SET folded = pg_snapshot_xmin(pg_current_snapshot()) WHERE number = (SELECT number FROM ripe)
	)
	INSERT INTO gq.tally AS t (queue, status, jobs, units)
	SELECT queue, status, sum(jobs), sum(units) FROM folded GROUP BY queue, status
	ON CONFLICT (queue, status) DO UPDATE SET jobs = t.jobs + excluded.jobs, units = t.units + excluded.units`

// unsequenced selects the last number given, and whether there are segments to number.
const unsequenced = `
	SELECT event, EXISTS (SELECT FROM gq.segment WHERE seq IS NULL AND xid >= h.numbered)
	FROM gq.head AS h`

// unheard is unsequenced plus whether submissions wait in the inbox.
const unheard = `
	SELECT event, EXISTS (SELECT FROM gq.segment WHERE seq IS NULL AND xid >= h.numbered), EXISTS (SELECT FROM gq.inbox)
	FROM gq.head AS h`

// headLock must be held to write to gq.round. reached advances the persisted time to an
// instant.
const (
	headLock = "SELECT pg_advisory_xact_lock($1, 0)"
	reached  = "UPDATE gq.round SET time = greatest(time, $1) WHERE number = (SELECT number FROM gq.head)"
)

// sequence numbers up to sequenceStep fresh segments, in one round trip with its commit. A
// lost answer does no harm: the next call finds the work done.
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

// fold folds the counts if there are at least n, in one round trip with its commit.
func (tx *txn) fold(ctx context.Context, n int) error {
	var batch pgx.Batch
	batch.Queue(headLock, lockHead)
	batch.Queue(folding, n)
	batch.Queue("COMMIT")
	err := tx.SendBatch(ctx, &batch).Close()
	tx.written, tx.committed = true, err == nil
	return err
}

// tally is gq.tally plus the counts not folded yet, in one snapshot.
const tally = `
	(
		SELECT queue, status, jobs, units FROM gq.tally
		UNION ALL
		SELECT queue, status, jobs, units FROM ` + unfolded + `
	) AS t`

// Events implements [store.Store].
func (s *Store) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	var out []gq.Event
	last, err := s.sequenced(ctx)
	if err != nil || after >= uint64(last) {
		return nil, err // no newer events
	}
	err = s.read(ctx, func(tx *txn) error {
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

// segmentStep is how many segments are read at a time. Each has at least one event, so the
// number needed is not known beforehand.
const segmentStep = 64

// eventsAfter returns up to limit events after a number. It starts with the segment that
// may contain the first of them.
func (tx *txn) eventsAfter(ctx context.Context, after int64, limit int) (out []gq.Event, err error) {
	var jobs []int64
	err = tx.segmentsAfter(ctx, after, limit, ", l.jobs", []any{&jobs}, func(seq, at int64, data []byte) (int64, error) {
		events, err := tx.s.ids.decodeLog(data, jobs, seq, instant(at))
		for _, e := range events {
			if e.Seq > uint64(after) && len(out) < limit {
				out = append(out, e)
			}
			seq = int64(e.Seq)
		}
		return seq, err
	}, func() bool { return len(out) < limit })
	return out, err
}

// logAfter reads up to $2 segments from a number on, and no more of them than have $3 events.
const logAfter = `
	SELECT s.seq, s.time, s.before + s.events >= $3, l.data%s
	FROM (
		SELECT id, seq, time, events, sum(events) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - events AS before
		FROM (SELECT id, seq, time, events FROM gq.segment WHERE seq >= $1 ORDER BY seq LIMIT $2) AS n
	) AS s
	CROSS JOIN LATERAL (SELECT * FROM gq.log WHERE id = s.id LIMIT 1) AS l
	WHERE s.before < $3
	ORDER BY s.seq`

// segmentsAfter calls f for the segments with events after a number, as long as wanted reports
// that some of limit events are missing. It reads no more segments than can have that many. f
// gets the number of the first event and returns that of the last one that it found; data is
// valid during the call. columns are further ones, into which more points. Both queries use the
// index segment_seq.
func (tx *txn) segmentsAfter(ctx context.Context, after int64, limit int, columns string, more []any, f func(seq, at int64, data []byte) (int64, error), wanted func() bool) error {
	var from int64
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(seq), 0) FROM gq.segment WHERE seq <= $1", after+1).Scan(&from); err != nil {
		return err
	}
	for full := true; full && wanted(); {
		rows, err := tx.Query(ctx, fmt.Sprintf(logAfter, columns), from, segmentStep, limit)
		if err != nil {
			return err
		}
		var seq, at int64
		var data []byte
		segments := 0
		_, err = pgx.ForEachRow(rows, append([]any{&seq, &at, &full, (*pgtype.DriverBytes)(&data)}, more...), func() error {
			segments++
			last, err := f(seq, at, data)
			from = max(from, last+1)
			return err
		})
		if err != nil {
			return err
		}
		full = segments > 0 && full || segments == segmentStep
	}
	return nil
}

// readLog decodes segments from rows of number, time, data, and the numbers of new jobs.
func (tx *txn) readLog(rows pgx.Rows, err error) (out []gq.Event, _ error) {
	if err != nil {
		return nil, err
	}
	var seq, at int64
	var data []byte
	var jobs []int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &at, &data, &jobs}, func() error {
		events, err := tx.s.ids.decodeLog(data, jobs, seq, instant(at))
		out = append(out, events...)
		return err
	})
	return out, err
}

// sequenced numbers all events committed before the call and returns the last number.
func (s *Store) sequenced(ctx context.Context) (last int64, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	return s.sequence(ctx)
}

// LastEvent implements [store.Store].
func (s *Store) LastEvent(ctx context.Context) (uint64, error) {
	last, err := s.sequenced(ctx)
	return uint64(last), err
}

// History implements [store.Store].
func (s *Store) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	var out []gq.Event
	if _, err := s.sequenced(ctx); err != nil {
		return nil, err
	}
	err := s.read(ctx, func(tx *txn) error {
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
		// A segment without a number was committed after sequenced: it is left out.
		events, err := tx.readLog(tx.Query(ctx, `
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
