package postgres

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// A job that this node claimed alone is usually settled by this node, alone and unchanged. Such
// a settlement takes one round trip: the node computes the next state from the row that it
// wrote, at the time that the database's clock must have reached, and the transaction fails if
// the row has changed or the time has not come. Then the settlement is tried again in two round
// trips, of which the first reads the row and the clock.

// heldRow is a row of gq.held as this node wrote it. It has one job.
type heldRow struct {
	seq         int64
	queue, fair string
	body, data  []byte
}

// heldRows are rows that this node wrote lately: at most one for each place, which the number of
// the job determines.
type heldRows [256]atomic.Pointer[heldRow]

func (h *heldRows) place(seq int64) *atomic.Pointer[heldRow] { return &h[uint64(seq)%uint64(len(h))] }

// take returns the row of a job and forgets it; nil if it is not known.
func (h *heldRows) take(seq int64) *heldRow {
	place := h.place(seq)
	if r := place.Load(); r != nil && r.seq == seq && place.CompareAndSwap(r, nil) {
		return r
	}
	return nil
}

// remember keeps the row that a committed transaction wrote for a job that it claimed alone.
func (tx *txn) remember(r *row) {
	if r.state.Status != gq.StatusRunning || len(r.segments) == 0 {
		return
	}
	if data, err := r.encode(nil); err == nil {
		seq := int64(r.state.Sequence)
		tx.s.lately.place(seq).Store(&heldRow{seq, r.queue, r.fair, bytes.Clone(r.body), data})
	}
}

// clockReading is the database's clock, and when this node got to know it.
type clockReading struct {
	clock int64
	at    time.Time
}

// readingAge is for how long a node relies on a reading of the database's clock.
const readingAge = 10 * time.Second

// reckon returns a time that the store's clock has reached, as far as this node can tell without
// asking.
func (s *Store) reckon() (now time.Time, ok bool) {
	if s.cfg.Clock != nil {
		return s.time(0, 0), true
	}
	r := s.reading.Load()
	if r == nil {
		return time.Time{}, false
	}
	age := time.Since(r.at)
	if age > readingAge {
		return time.Time{}, false
	}
	return instant(max(r.clock+age.Nanoseconds(), s.latest.Load())), true
}

// leaving deletes the row of the job $1 if it is still as this node wrote it, and the store has
// reached the time $3. Otherwise it fails with a division by zero, and the transaction with it.
// It returns a spare segment id.
const leaving = `
	WITH gone AS (
		DELETE FROM gq.held WHERE seq = $1 AND members IS NULL AND data = $2 RETURNING seq
	)
	SELECT nextval('gq.segment_id') / (EXISTS (SELECT FROM gone) AND $3 >= time AND ($4 OR $3 <= ` + clock + `))::integer
	FROM gq.head`

// prepareKnown is prepareLeased without a round trip, for the settlement of a job whose row this
// node knows. In any other case c has no rows afterwards.
func (tx *txn) prepareKnown(ctx context.Context, c *changes, updates []store.Update) ([]int64, error) {
	u := &updates[0]
	seq, ok := leaseSequence(u.Lease)
	if !ok {
		return nil, nil
	}
	known := tx.s.lately.take(int64(seq))
	if known == nil || len(updates) > 1 || !u.Settles || !u.Job.IsZero() || len(u.Spawn) > 0 || !tx.ours || !tx.shared {
		return nil, nil
	}
	now, ok := tx.s.reckon()
	if !ok {
		return nil, nil
	}
	segment, err := tx.spare(ctx)
	if err != nil || segment>>dayBits < max(known.seq>>dayBits, tx.s.startedDay.Load()) {
		return nil, err
	}
	var p policies
	r, err := tx.s.decodeRow(known.data, known.seq, &p)
	if err != nil || r.state.Lease == nil || r.state.Lease.ID != u.Lease {
		return nil, err
	}
	r.queue, r.fair, r.body = known.queue, known.fair, known.body
	r.share()
	tx.now, tx.segment, tx.known = now, segment, known
	tx.starts = starts{}
	c.rows = map[int64]*row{known.seq: &r}
	return []int64{known.seq}, nil
}

// spare returns a segment id, without a round trip if this node has kept one.
func (tx *txn) spare(ctx context.Context) (segment int64, err error) {
	select {
	case segment = <-tx.s.spares:
	default: // no spare yet
		conn := tx.Tx.(*connTx)
		err = conn.conn.QueryRow(ctx, conn.dialect.of("SELECT nextval('gq.segment_id')")).Scan(&segment)
	}
	return segment, err
}

// leaveKnown queues the deletion of the known row.
func (tx *txn) leaveKnown() {
	var spare int64
	tx.more.Queue(leaving, tx.known.seq, tx.known.data, nanoseconds(tx.now), tx.s.cfg.Clock != nil).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&spare)
		if err == nil {
			tx.s.keepSpare(spare)
		}
		return err
	})
}

// divided reports whether leaving found something else than this node knew.
func divided(err error) bool {
	const divisionByZero = "22012"
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == divisionByZero
}
