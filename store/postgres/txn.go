package postgres

import (
	"context"
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
	book   *turnBook // nil until someone needs a turn
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
	limit   string // limit key; known of new jobs only
	fair    string // fair key
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
	tx.now = tx.s.time(now, persisted)
	return nil
}

// glance reads the clock without the lock, for those that write nothing.
func (tx *txn) glance(ctx context.Context) error {
	var persisted, now int64
	if err := tx.QueryRow(ctx, "SELECT time, "+clock+" FROM gq.head").Scan(&persisted, &now); err != nil {
		return err
	}
	tx.now = tx.s.time(now, persisted)
	return nil
}

const clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

// columns of gq.state that make a row; the alias is s.
const columns = "s.job, s.seq, s.queue, s.fair, s.data"

// scanRows reads rows of the columns, and the spec where there is one more.
func scanRows(rows pgx.Rows, err error) ([]*row, error) {
	if err != nil {
		return nil, err
	}
	withSpec := len(rows.FieldDescriptions()) > 5
	return pgx.CollectRows(rows, func(from pgx.CollectableRow) (*row, error) {
		var id [16]byte
		var seq int64
		var data []byte
		r := &row{}
		into := []any{&id, &seq, &r.queue, &r.fair, &data}
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
