package postgres

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// txn is a transaction of the store and what it is about to write.
type txn struct {
	pgx.Tx
	s       *Store
	now     time.Time // of everything in the transaction
	event   int64     // number of the last event
	written bool      // there is something to commit

	// Gathered by record and written by flush.
	rows   []*row
	leases []lease
	ended  []gq.State
	events []gq.Event
	moves  map[place]int64
	more   pgx.Batch // statements that go before those of flush
}

type lease struct {
	id  gq.LeaseID
	job gq.JobID
}

// place is where a job is counted.
type place struct {
	queue  string
	status gq.Status
}

// row is a row of gq.state.
type row struct {
	queue   string
	spec    []byte // of gq.job, where it was read along
	state   gq.State
	changed bool // among txn.rows
}

// stamp takes the last lock of a transaction and then reads the clock. The
// clock stands outside the part that waits, or it would be read before.
//
// An answer means that it is durable, whatever a database or role has set for
// other applications.
func (tx *txn) stamp(ctx context.Context) error {
	const query = `
		WITH head AS MATERIALIZED (SELECT event, time FROM gq.head FOR UPDATE)
		SELECT event, time, ` + clock + `,
			CASE current_setting('synchronous_commit')
				WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
				ELSE ''
			END
		FROM head`
	var persisted, now int64
	var setting string
	if err := tx.QueryRow(ctx, query).Scan(&tx.event, &persisted, &now, &setting); err != nil {
		return err
	}
	tx.now = tx.s.tell(now, persisted)
	return nil
}

// glance reads the clock without the lock, for those that write nothing.
func (tx *txn) glance(ctx context.Context) error {
	var persisted, now int64
	if err := tx.QueryRow(ctx, "SELECT time, "+clock+" FROM gq.head").Scan(&persisted, &now); err != nil {
		return err
	}
	tx.now = tx.s.tell(now, persisted)
	return nil
}

const clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

// columns of gq.state that make a row; the alias is s.
const columns = "s.job, s.seq, s.queue, s.data"

// scanRows reads rows of the columns, and the spec where there is one more.
func scanRows(rows pgx.Rows, err error) ([]*row, error) {
	if err != nil {
		return nil, err
	}
	withSpec := len(rows.FieldDescriptions()) > 4
	return pgx.CollectRows(rows, func(from pgx.CollectableRow) (*row, error) {
		var id [16]byte
		var seq int64
		var data []byte
		r := &row{}
		into := []any{&id, &seq, &r.queue, &data}
		if withSpec {
			into = append(into, &r.spec)
		}
		if err := from.Scan(into...); err != nil {
			return nil, err
		}
		var err error
		r.state, err = gq.DecodeState(data, uint64(seq), func(p gq.Policy) *gq.Policy { return &p })
		return r, err
	})
}

// byJob finds rows by their job.
func byJob(rows []*row) map[gq.JobID]*row {
	m := make(map[gq.JobID]*row, len(rows))
	for _, r := range rows {
		m[r.state.ID] = r
	}
	return m
}

// lock reads and locks rows in the order that everyone locks them.
func (tx *txn) lock(ctx context.Context, ids [][16]byte, strength string) ([]*row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return scanRows(tx.Query(ctx,
		"SELECT "+columns+" FROM gq.state AS s WHERE s.job = ANY ($1) ORDER BY s.seq FOR "+strength, ids))
}

// jobsOf finds the jobs that leases belong to. Leases never move.
func (tx *txn) jobsOf(ctx context.Context, leases []string) (map[gq.LeaseID]gq.JobID, error) {
	found := make(map[gq.LeaseID]gq.JobID)
	if len(leases) == 0 {
		return found, nil
	}
	rows, err := tx.Query(ctx, "SELECT id, job FROM gq.lease WHERE id = ANY ($1)", leases)
	if err != nil {
		return nil, err
	}
	var id string
	var job [16]byte
	_, err = pgx.ForEachRow(rows, []any{&id, &job}, func() error {
		found[gq.LeaseID(id)] = job
		return nil
	})
	return found, err
}

// record takes down what a verb has made of a job. flush writes it.
func (tx *txn) record(r *row, next gq.State, events []gq.Event) {
	old := r.state
	if next.Lease != nil && (old.Lease == nil || old.Lease.ID != next.Lease.ID) {
		tx.leases = append(tx.leases, lease{next.Lease.ID, next.ID})
	}
	if old.Live() && !next.Live() {
		tx.ended = append(tx.ended, next)
	}
	tx.count(place{r.queue, old.Status}, -1)
	tx.count(place{r.queue, next.Status}, 1)
	tx.note(r.queue, events)
	r.state = next
	if !r.changed {
		r.changed = true
		tx.rows = append(tx.rows, r)
	}
}

func (tx *txn) count(at place, n int64) {
	if tx.moves == nil {
		tx.moves = make(map[place]int64)
	}
	tx.moves[at] += n
}

func (tx *txn) note(queue string, events []gq.Event) {
	for _, e := range events {
		tx.event++
		e.Seq, e.Time, e.Queue = uint64(tx.event), tx.now, queue
		tx.events = append(tx.events, e)
	}
}

// flush writes what was recorded, so that the statements that follow see it.
func (tx *txn) flush(ctx context.Context) error {
	if len(tx.rows) == 0 && tx.more.Len() == 0 {
		return nil
	}
	err := errors.Join(
		tx.writeRows(), tx.writeLeases(), tx.writeEnded(), tx.writeEvents(), tx.writeMoves(), tx.writeHead(),
	)
	if err != nil {
		return err
	}
	batch := tx.more
	tx.rows, tx.leases, tx.ended, tx.events, tx.moves, tx.more = nil, nil, nil, nil, nil, pgx.Batch{}
	tx.written = true
	return tx.SendBatch(ctx, &batch).Close()
}

func (tx *txn) writeRows() error {
	n := len(tx.rows)
	var (
		jobs     = make([][16]byte, n)
		seqs     = make([]int64, n)
		queues   = make([]string, n)
		statuses = make([]int16, n)
		his, los = make([]int64, n), make([]int64, n)
		runs     = make([]int64, n)
		dues     = make([]*int64, n)
		ends     = make([]*int64, n)
		datas    = make([][]byte, n)
	)
	for i, r := range tx.rows {
		r.changed = false
		s, order := &r.state, r.state.Order()
		data, err := s.AppendBinary(nil)
		if err != nil {
			return err
		}
		jobs[i], seqs[i], queues[i], statuses[i] = s.ID, int64(s.Sequence), r.queue, int16(s.Status)
		his[i], los[i] = signed(order.Hi), signed(order.Lo)
		runs[i], dues[i], ends[i], datas[i] = nanoseconds(s.RunAt), optional(s.Due()), optional(s.CompletedAt), data
	}
	tx.more.Queue(`
		INSERT INTO gq.state (job, seq, queue, status, order_hi, order_lo, run_at, due, ended, data)
		SELECT *
		FROM unnest(
			$1::uuid[], $2::bigint[], $3::text[], $4::smallint[], $5::bigint[],
			$6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[]
		)
		ON CONFLICT (job) DO UPDATE SET
			status = excluded.status, order_hi = excluded.order_hi, order_lo = excluded.order_lo,
			run_at = excluded.run_at, due = excluded.due, ended = excluded.ended, data = excluded.data`,
		jobs, seqs, queues, statuses, his, los, runs, dues, ends, datas)
	return nil
}

func (tx *txn) writeLeases() error {
	if len(tx.leases) == 0 {
		return nil
	}
	ids, jobs := make([]string, len(tx.leases)), make([][16]byte, len(tx.leases))
	for i, l := range tx.leases {
		ids[i], jobs[i] = string(l.id), l.job
	}
	tx.more.Queue("INSERT INTO gq.lease (id, job) SELECT * FROM unnest($1::text[], $2::uuid[])", ids, jobs)
	return nil
}

// writeEnded leaves a marker for Release, where a child waits.
func (tx *txn) writeEnded() error {
	for _, s := range tx.ended {
		tx.more.Queue(`
			INSERT INTO gq.ended (parent, seq, status, priority)
			SELECT $1, $2, $3, $4
			WHERE EXISTS (SELECT FROM gq.edge WHERE parent = $1)`,
			[16]byte(s.ID), int64(s.Sequence), int16(s.Status), int16(s.Priority()))
	}
	return nil
}

func (tx *txn) writeEvents() error {
	n := len(tx.events)
	if n == 0 {
		return nil
	}
	var (
		seqs   = make([]int64, n)
		jobs   = make([][16]byte, n)
		queues = make([]string, n)
		datas  = make([][]byte, n)
	)
	for i, e := range tx.events {
		data, err := e.AppendBinary(nil)
		if err != nil {
			return err
		}
		seqs[i], jobs[i], queues[i], datas[i] = int64(e.Seq), e.Job, e.Queue, data
	}
	tx.more.Queue(`
		INSERT INTO gq.event (seq, job, queue, time, data)
		SELECT n.seq, n.job, n.queue, $5, n.data
		FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::bytea[]) AS n (seq, job, queue, data)`,
		seqs, jobs, queues, datas, nanoseconds(tx.now))
	return nil
}

func (tx *txn) writeMoves() error {
	var (
		queues   []string
		statuses []int16
		counts   []int64
	)
	for at, n := range tx.moves {
		if n != 0 && at.status.Valid() {
			queues, statuses, counts = append(queues, at.queue), append(statuses, int16(at.status)), append(counts, n)
		}
	}
	if len(counts) == 0 {
		return nil
	}
	tx.more.Queue(`
		INSERT INTO gq.tally AS t (queue, status, jobs)
		SELECT * FROM unnest($1::text[], $2::smallint[], $3::bigint[])
		ON CONFLICT (queue, status) DO UPDATE SET jobs = t.jobs + excluded.jobs`,
		queues, statuses, counts)
	return nil
}

func (tx *txn) writeHead() error {
	tx.more.Queue("UPDATE gq.head SET event = $1, time = $2", tx.event, nanoseconds(tx.now))
	return nil
}

// signed maps numbers so that their order survives in a bigint.
func signed(n uint64) int64 { return int64(n ^ 1<<63) }

// nanoseconds is an instant as it is stored. The zero instant is the smallest.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func optional(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

func instant(n int64) time.Time { return time.Unix(0, n).UTC() }

// storable keeps the names that a text can hold. No job has another one, since
// specs are checked, but callers may well ask for them. The result is never nil,
// which would be NULL.
func storable(names []string) []string {
	kept := make([]string, 0, len(names))
	for _, name := range names {
		if utf8.ValidString(name) && !strings.Contains(name, "\x00") {
			kept = append(kept, name)
		}
	}
	return kept
}
