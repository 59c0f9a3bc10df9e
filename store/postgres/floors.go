package postgres

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Floors keep claims from scanning dead index entries. Entries of jobs that were claimed
// or settled stay in the indexes as long as any older snapshot is open, and they are
// exactly where every claim begins its scan. A floor is a position in a band below which
// there is no live row, except those listed in gq.early. It rises in three steps, each a
// transaction:
//
//  1. The next floor is announced. From then on a transaction that sees it and writes a
//     row below it also adds the row's position to gq.early.
//  2. The floor is marked with the id of a transaction that began after the announcement.
//     A transaction that missed the announcement has a smaller id.
//  3. Once all transactions with smaller ids have ended, one snapshot contains every row
//     that was written below without an entry. The floor becomes the announced position,
//     or the first live row if that is lower. The entries of gq.early in this snapshot are
//     part of that and are removed. Rows that the snapshot does not see have entries.
//
// No step locks anything that a writer needs, so an open transaction delays only the
// third step. Until then claims scan as far as they would without floors. A read-only
// transaction has no id and delays nothing. docs/storage.md has the whole argument.

// raiseEvery is the number of claims from a queue after which its floors are raised. So
// claims scan at most about twice as many dead entries.
const raiseEvery = 2000

// bandKey names a sequence of rows that is searched from its start: the claimable jobs of
// a queue and a priority, in claim order; the held jobs of a queue, by due time; or the
// jobs of all queues that are not held, by due time.
type bandKey struct {
	queue string      // "" for all
	band  gq.Priority // a priority, heldBand or dueBand
}

const (
	heldBand gq.Priority = 0
	dueBand  gq.Priority = 6
)

// position is a place in a band: order_hi and order_lo, or due and 0.
type position struct{ hi, lo int64 }

func (p position) below(o position) bool { return p.hi < o.hi || p.hi == o.hi && p.lo < o.lo }

// beginnings joins bands n (queue, band) with the positions where they begin: e.at, NULL
// for the first row. f is the floor. The newest version of a floor is at the end of its
// index, where a backward scan reads it before any dead version. The entries of gq.early
// that matter are at the end likewise.
const beginnings = `
	LEFT JOIN LATERAL (
		SELECT f.ctid AS row, f.* FROM gq.floor AS f
		WHERE f.queue = n.queue AND f.band = n.band
		ORDER BY f.version DESC
		LIMIT 1
	) AS f ON true
	CROSS JOIN LATERAL (
		SELECT least(f.at, min(e.at)) AS at
		FROM gq.early AS e
		WHERE e.queue = n.queue AND e.band = n.band AND e.xid >= f.seen
	) AS e`

// lowest is where band n begins if it has no floor. The next band begins at pastBand.
const (
	lowest   = lowestHi + ", -9223372036854775808"
	lowestHi = "(n.band - 128)::bigint << 56"
	pastBand = "(n.band - 127)::bigint << 56"
)

// Conditions for a row s of gq.ready or gq.held to be in band n, not below its floor.
const (
	claimable = `
		s.queue = n.queue AND s.status IN (2, 3, 6) AND s.aside IS NULL AND s.order_hi < ` + pastBand + `
		AND (s.order_hi, s.order_lo) >= (coalesce(e.at[1], ` + lowestHi + `), coalesce(e.at[2], -9223372036854775808))`
	leased = "s.queue = n.queue AND s.due >= coalesce(e.at[1], " + lowestHi + ")"
	unheld = "NOT s.far AND s.due + 0 >= coalesce(e.at[1], " + lowestHi + ")"
)

// telling adds to gq.early the lowest row that was written to each band, if it is below
// an announced floor. A transaction with an old snapshot may not see the announcement and
// always adds an entry. The statement follows the rows: by then the transaction has an
// id, which tells the third step that it is running.
const telling = `
	INSERT INTO gq.early (queue, band, at)
	SELECT n.queue, n.band, n.at
	FROM (
		SELECT unnest($1::text[]) AS queue, unnest($2::smallint[]) AS band,
			ARRAY [unnest($3::bigint[]), unnest($4::bigint[])] AS at
	) AS n ` + whereBelow

// tellingFast is telling for new jobs whose numbers are not known yet. None is lower than
// the first one, which insertedFast has left in gopherqueue.first after the time. In band 6, hi is
// how long after that time the first job is due. If nothing was written it adds nothing.
const tellingFast = `
	INSERT INTO gq.early (queue, band, at)
	SELECT n.queue, n.band, n.at
	FROM (
		SELECT l.queue, l.band, CASE l.band WHEN 6 THEN ARRAY [l.hi + n.time, 0] ELSE ARRAY [l.hi, ` + orderLo + `] END AS at
		FROM (
			SELECT unnest($1::text[]) AS queue, unnest($2::smallint[]) AS band, unnest($3::bigint[]) AS hi
		) AS l
		CROSS JOIN (
			SELECT split_part(first, ' ', 1)::bigint AS time, split_part(first, ' ', 2)::bigint AS seq
			FROM (SELECT current_setting('gopherqueue.first', true) AS first) AS s
			WHERE first <> ''
		) AS n
	) AS n ` + whereBelow

const whereBelow = `
	LEFT JOIN LATERAL (
		SELECT next FROM gq.floor AS f WHERE f.queue = n.queue AND f.band = n.band ORDER BY f.version DESC LIMIT 1
	) AS f ON true
	WHERE n.at < f.next OR current_setting('transaction_isolation') <> 'read committed'`

// raising is the third step for floors whose older transactions have all ended, and the
// first step for these and for bands without a floor, all in one snapshot. It announces
// no position beyond where claims have got, so that new jobs are above it, and it does
// not search further up. It deletes rows by ctid, since nobody else changes them: raise
// holds a lock, and marking changes only floors that are not marked.
const raising = `
	WITH bands AS MATERIALIZED (
		SELECT n.queue, n.band, n.reached, f.row, f.version, f.next, f.seen, s.at AS first,
			f.marked <= pg_snapshot_xmin(pg_current_snapshot()) AS settled, ARRAY [` + lowest + `] AS lowest
		FROM (
			SELECT unnest($1::text[]) AS queue, unnest($2::smallint[]) AS band,
				ARRAY [unnest($3::bigint[]), unnest($4::bigint[])] AS reached
		) AS n ` + beginnings + `
		LEFT JOIN LATERAL (
			(
				SELECT ARRAY [s.order_hi, s.order_lo] AS at
				FROM gq.ready AS s
				WHERE n.band BETWEEN 1 AND 5 AND ` + claimable + `
				ORDER BY s.order_hi, s.order_lo
				LIMIT 1
			) UNION ALL (
				SELECT ARRAY [s.due, 0]
				FROM gq.held AS s
				WHERE n.band = 0 AND ` + leased + ` AND s.due <= greatest(n.reached[1], f.next[1])
				ORDER BY s.due
				LIMIT 1
			) UNION ALL (
				SELECT ARRAY [s.due, 0]
				FROM gq.ready AS s
				WHERE n.band = 6 AND ` + unheld + ` AND s.due + 0 <= greatest(n.reached[1], f.next[1])
				ORDER BY s.due + 0, s.seq
				LIMIT 1
			)
		) AS s ON true
	), gone AS (
		DELETE FROM gq.floor WHERE ctid = ANY (ARRAY (SELECT row FROM bands WHERE settled))
	), told AS (
		DELETE FROM gq.early WHERE ctid = ANY (ARRAY (
			SELECT e.row
			FROM bands AS l
			CROSS JOIN LATERAL (
				SELECT ctid AS row FROM gq.early WHERE queue = l.queue AND band = l.band AND xid >= l.seen OFFSET 0
			) AS e
			WHERE l.settled
		))
	)
	INSERT INTO gq.floor (queue, band, version, at, next, seen)
	SELECT queue, band, coalesce(version, 0) + 1,
		CASE WHEN settled THEN least(next, first) ELSE lowest END,
		greatest(next, least(first, reached)),
		CASE WHEN settled THEN pg_snapshot_xmin(pg_current_snapshot()) ELSE '0' END
	FROM bands
	WHERE settled OR version IS NULL`

// marking is the second step. It assigns the transaction its id, after its snapshot has
// seen the announcement.
const marking = `
	UPDATE gq.floor SET marked = pg_current_xact_id()
	WHERE marked IS NULL AND ctid = ANY (ARRAY (
		SELECT f.row
		FROM unnest($1::text[], $2::smallint[]) AS n (queue, band) ` + beginnings + `
		WHERE f.row IS NOT NULL
	))`

// forgetting resets floors and rounds that were restored on a server whose transaction
// ids are behind: there, the stored ids would be in the future.
const forgetting = `
	WITH floors AS (
		DELETE FROM gq.floor WHERE greatest(seen, marked) >= pg_snapshot_xmax(pg_current_snapshot())
	)
	UPDATE gq.round SET numbered = '0', folded = '0'
	WHERE greatest(numbered, folded) >= pg_snapshot_xmax(pg_current_snapshot())`

// minimums are the lowest positions that a transaction has written to, by band.
type minimums map[bandKey]position

// note adds a row that is about to be written.
func (l *minimums) note(r *row, to home, now time.Time) {
	s := &r.state
	due := position{nanoseconds(machine.Due(s)), 0}
	switch to {
	case inHeld:
		l.low(bandKey{r.queue, heldBand}, due)
	case inReady:
		if due.hi != 0 && due.hi < farFrom(now) {
			l.low(bandKey{"", dueBand}, due)
		}
		if s.Status == gq.StatusDelayed || s.Status == gq.StatusScheduled || s.Status == gq.StatusRetrying {
			order := machine.Order(s)
			l.low(bandKey{r.queue, order.Band()}, position{signed(order.Hi), signed(order.Lo)})
		}
	case nowhere, inDone, inHand: // no band
	}
}

func (l *minimums) low(band bandKey, at position) {
	if *l == nil {
		*l = make(minimums)
	}
	if low, known := (*l)[band]; !known || at.below(low) {
		(*l)[band] = at
	}
}

// writeMinimums queues telling for the rows that were queued before.
func (tx *txn) writeMinimums() {
	if len(tx.minimums) == 0 {
		return
	}
	var a bandArrays
	for band, at := range tx.minimums {
		a.add(band, at)
	}
	tx.minimums = nil
	tx.more.Queue(telling, a.queues, a.bands, a.his, a.los).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() > 0 {
			tx.s.floors.passAll(&a)
		}
		return nil
	})
}

// passAll notes that rows were written below floors. Like claims, they are a reason to
// raise the floors.
func (f *floors) passAll(a *bandArrays) {
	for i := range a.queues {
		f.pass(bandKey{a.queues[i], gq.Priority(a.bands[i])}, position{a.his[i], a.los[i]}, 1)
	}
}

// writeMinimumsFast is writeMinimums for the new jobs of a segment. numbers is set once
// the statement before has been answered.
func (tx *txn) writeMinimumsFast(batch *pgx.Batch, numbers *[]int64) {
	var a bandArrays
	for band, at := range tx.minimums {
		a.add(band, at)
	}
	tx.minimums = nil
	batch.Queue(tellingFast, a.queues, a.bands, a.his).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() > 0 && len(*numbers) > 0 {
			for i := range a.queues {
				if band := (bandKey{a.queues[i], gq.Priority(a.bands[i])}); band.band != dueBand {
					tx.s.floors.pass(band, position{a.his[i], signed(uint64((*numbers)[0]))}, 1)
				}
			}
		}
		return nil
	})
}

// bandArrays are bands and positions, column by column.
type bandArrays struct {
	queues   []string
	bands    []int16
	his, los []int64
}

func (a *bandArrays) add(band bandKey, at position) {
	a.queues, a.bands = append(a.queues, band.queue), append(a.bands, int16(band.band))
	a.his, a.los = append(a.his, at.hi), append(a.los, at.lo)
}

// floors counts the claims of this node since it last raised a floor.
type floors struct {
	every atomic.Int64 // see raiseEvery

	mu     sync.Mutex
	passed map[string]int       // claims by queue; guarded by mu
	got    map[bandKey]position // how far claims have got; guarded by mu
}

// pass notes n claimed jobs of a band and how far claims have got. In claim order that is
// the last job. In a band by due time it is the earliest due time: jobs that are claimed
// later are due later, unless their terms are shorter.
func (f *floors) pass(band bandKey, at position, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.passed == nil {
		f.passed, f.got = make(map[string]int), make(map[bandKey]position)
	}
	f.passed[band.queue] += n
	got, known := f.got[band]
	further := got.below(at)
	if band.band == heldBand || band.band == dueBand {
		further = at.below(got)
	}
	if !known || further {
		f.got[band] = at
	}
}

// passWant notes the jobs of the last round.
func (f *floors) passWant(w *want) {
	n, jobs, ends := 0, w.round, minimums(nil)
	for i := range jobs {
		order := machine.Order(&jobs[i].State)
		band := bandKey{jobs[i].Spec.Queue, order.Band()}
		ends.low(bandKey{band.queue, heldBand}, position{nanoseconds(machine.Due(&jobs[i].State)), 0})
		n++
		if next := i + 1; next < len(jobs) && band == (bandKey{jobs[next].Spec.Queue, machine.Order(&jobs[next].State).Band()}) {
			continue // only the last job of a band counts: they are in claim order
		}
		f.pass(band, position{signed(order.Hi), signed(order.Lo)}, n)
		n = 0
	}
	for band, at := range ends {
		f.pass(band, at, 0)
	}
	if w.waited != 0 {
		f.pass(bandKey{"", dueBand}, position{w.waited, 0}, len(jobs))
	}
}

// ripe returns, and forgets, the bands of queues with at least that many claims.
func (f *floors) ripe(every int) (a bandArrays) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for band, at := range f.got {
		if f.passed[band.queue] >= every {
			a.add(band, at)
			delete(f.got, band)
		}
	}
	for _, queue := range slices.Compact(slices.Sorted(slices.Values(a.queues))) {
		delete(f.passed, queue)
	}
	return a
}

// raise raises floors. It need not be durable: whatever relies on it commits later.
func (s *Store) raise(ctx context.Context, a bandArrays) error {
	if len(a.queues) == 0 {
		return nil
	}
	raise := func(batch *pgx.Batch) {
		batch.Queue("SELECT pg_advisory_xact_lock($1, 0)", lockFloors)
		batch.Queue(raising, a.queues, a.bands, a.his, a.los)
	}
	mark := func(batch *pgx.Batch) { batch.Queue(marking, a.queues, a.bands) }
	for _, step := range []func(*pgx.Batch){raise, mark} {
		err := s.transact(ctx, s.begins.write+"; SET LOCAL synchronous_commit = off", func(tx *txn) error {
			var batch pgx.Batch // a new one for each try: a batch keeps its connection
			step(&batch)
			batch.Queue("COMMIT")
			err := tx.SendBatch(ctx, &batch).Close()
			tx.written, tx.committed = true, err == nil
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
