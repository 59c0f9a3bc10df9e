package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// txn is a transaction of the store and what it is about to write.
type txn struct {
	pgx.Tx
	s       *Store
	now     time.Time // of everything in the transaction
	segment int64     // under which the next events are written, 0 for none yet
	mark    mark      // by which the outcome of the commit can be found out
	written bool      // there is something to commit
	relies  bool      // an answer says that something was committed before
	careful bool      // nothing is left to be found out by a failing statement
	again   bool      // it was begun before, and jobs were not where they were looked for
	ours    bool      // it is ours to commit
	shared  bool      // it waits for no lock longer than lockWait

	committed bool // by finish
	unheard   bool // and the answers that came with it were lost, or some of them

	// Gathered by record and written by flush.
	work     *workspace // of a transaction that inserts
	rows     []*row
	inHand   int // rows that were taken out of their tables and not written yet
	leases   []lease
	ended    []ending
	events   eventLog
	moves    map[place]int64
	report   reports
	changes  effects
	minimums minimums  // to which the rows are written
	book     *turnBook // nil until someone needs a turn
	starts   starts    // see lockStarts
	more     pgx.Batch // statements that go before those of flush
}

// mark is a segment that was written.
type mark struct {
	id    int64
	token [16]byte
}

type lease struct {
	id  gq.LeaseID
	seq int64
}

// ending is how a job has ended, for those that depend on it.
type ending struct {
	seq              int64
	status, priority int16
}

// place is where a job is counted.
type place struct {
	queue  string
	status gq.Status
}

// row is a row of gq.ready, gq.held or gq.done.
type row struct {
	queue    string
	limit    string   // limit key; known of jobs that are new or in hand
	fair     string   // fair key
	body     []byte   // what never changes: see appendBody
	parsed   *gq.Spec // its spec, once it was decoded
	segments []int64  // that tell of the job
	state    gq.State
	changed  bool // among txn.rows
	told     bool // there are events of it among txn.events
	reported bool // the views show it: see reports
	native   bool // its id tells its number: see idKey
	home     home // where it is in the database
}

// home is the table that has the row of a job.
type home int

const (
	nowhere home = iota // not in the database yet
	inReady
	inHeld
	inDone
	inHand // taken out of its table by this transaction, which writes it anew
)

func homeOf(s gq.Status) home {
	switch {
	case s.Held():
		return inHeld
	case s.Terminal():
		return inDone
	default:
		return inReady
	}
}

// stamp reads the clock and takes a segment, after the locks of the transaction
// are held, and reserves sequence numbers for n jobs. Those of a refused job are
// never used. The segment comes last: see startDay.
func (tx *txn) stamp(ctx context.Context, n int) (numbers []int64, err error) {
	return tx.stampFrom(tx.QueryRow(ctx, stamps, n))
}

const stamps = `
	SELECT time, ` + clock + `, ARRAY (SELECT nextval('gq.submission') FROM generate_series(1, $1)),
		nextval('gq.segment_id')
	FROM gq.head`

// stampFrom is stamp for those that ask together with something else, in columns
// that follow.
func (tx *txn) stampFrom(row pgx.Row, more ...any) (numbers []int64, err error) {
	var persisted, now int64
	if err := row.Scan(append([]any{&persisted, &now, &numbers, &tx.segment}, more...)...); err != nil {
		return nil, err
	}
	tx.now = tx.s.time(now, persisted)
	return numbers, nil
}

// readClock reads the clock, for those that write nothing or have yet to find what
// they write.
func (tx *txn) readClock(ctx context.Context) error {
	var persisted, now int64
	if err := tx.QueryRow(ctx, "SELECT time, "+clock+" FROM gq.head").Scan(&persisted, &now); err != nil {
		return err
	}
	tx.now = tx.s.time(now, persisted)
	return nil
}

const clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

// columns that make a row; the alias is s.
const columns = "s.seq, s.queue, s.fair, s.body, s.data"

// scanRows reads rows of the columns, and the limit key where there is one more.
func (tx *txn) scanRows(rows pgx.Rows, err error) ([]*row, error) {
	if err == nil {
		err = rows.Err() // of a batch that has failed before
	}
	if err != nil {
		return nil, err
	}
	var (
		seq    int64
		data   pgtype.DriverBytes // decoded before the next row is read
		now    row
		policy policies
		into   = []any{&seq, &now.queue, &now.fair, &now.body, &data}
	)
	if len(rows.FieldDescriptions()) > len(into) { // there are none where the query has failed
		into = append(into, &now.limit)
	}
	return pgx.CollectRows(rows, func(from pgx.CollectableRow) (*row, error) {
		now = row{}
		if err := from.Scan(into...); err != nil {
			return nil, err
		}
		r, err := tx.s.decodeRow(data, seq, &policy)
		r.queue, r.fair, r.body, r.limit = now.queue, now.fair, now.body, now.limit
		return &r, err
	})
}

// decodeRow reads the data of a row: what tells of the job, and its state.
func (s *Store) decodeRow(data []byte, seq int64, policy *policies) (r row, err error) {
	flags, segments, rest, err := decodeSegments(data)
	if err == nil {
		r.segments, r.reported, r.native = segments, flags&flagReported != 0, flags&flagNative != 0
		r.state, err = codec.DecodeState(rest, uint64(seq), policy.of)
	}
	if err != nil {
		return r, fmt.Errorf("job %d: %w", seq, err)
	}
	if r.native {
		r.state.ID = s.ids.id(seq, r.state.ID)
	}
	r.home = homeOf(r.state.Status)
	return r, nil
}

// returned are the columns of rows that are taken out of their table, with the alias
// s. Whatever is deleted is locked, so that what would be locked and deleted later is
// deleted at once: that saves looking it up and writing to it a second time.
const returned = columns + ", coalesce(s.limited, '') AS limited"

// take reads rows that were taken out of their tables. Each of them is written again,
// by record or by putBack.
func (tx *txn) take(from pgx.Rows) ([]*row, error) {
	rows, err := tx.scanRows(from, nil)
	for _, r := range rows {
		r.home = inHand
	}
	tx.inHand += len(rows)
	return rows, err
}

// putBack has rows in hand written as they are, where nothing was recorded of them.
func (tx *txn) putBack(rows []*row) {
	for _, r := range rows {
		if r.home == inHand && !r.changed {
			r.changed = true
			tx.rows = append(tx.rows, r)
		}
	}
}

// whole makes sure that nothing is lost with a commit.
func (tx *txn) whole() error {
	if tx.inHand != 0 {
		return fmt.Errorf("%d jobs were taken out of their tables and not written: %w", tx.inHand, gq.ErrCorrupt)
	}
	return nil
}

// policies lets neighbours share a policy, which never changes.
type policies struct{ last *gq.Policy }

func (p *policies) of(policy gq.Policy) *gq.Policy {
	if p.last == nil || *p.last != policy {
		p.last = &policy
	}
	return p.last
}

// What the lowest bits of a list of segments say about a job: that it is reported, and that
// its id tells its number.
const (
	flagReported = 1 << iota
	flagNative
	flagBits = iota
)

// flags are those of a row.
func (r *row) flags() (f uint64) {
	if r.reported {
		f |= flagReported
	}
	if r.native {
		f |= flagNative
	}
	return f
}

// appendSegments writes a growing list of numbers: how many, above the flags, then each as the
// distance from the one before.
func appendSegments(b []byte, segments []int64, flags uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(segments))<<flagBits|flags)
	last := int64(0)
	for _, id := range segments {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return b
}

func decodeSegments(b []byte) (flags uint64, segments []int64, rest []byte, err error) {
	count, n := binary.Uvarint(b)
	flags, count = count&(1<<flagBits-1), count>>flagBits
	if n <= 0 || count > uint64(len(b)) {
		return 0, nil, nil, fmt.Errorf("its list of segments is broken: %w", gq.ErrCorrupt)
	}
	b = b[n:]
	segments = make([]int64, 0, count+1)
	last := int64(0)
	for range count {
		d, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, nil, nil, fmt.Errorf("its list of segments is broken: %w", gq.ErrCorrupt)
		}
		b = b[n:]
		last += int64(d)
		segments = append(segments, last)
	}
	return flags, segments, b, nil
}

// errMoved is a job that was claimed or given back while it was looked for, and
// that somebody else has locked by now. To wait for that would be to wait for a row
// of gq.held with rows of gq.ready locked, so everything is let go of first.
var errMoved = errors.New("a job went to another table while it was looked for")

// lock reads and locks jobs, by number in each table. One that is claimed, given
// back or ends meanwhile is found where it has gone.
func (tx *txn) lock(ctx context.Context, seqs []int64, strength string) (rows []*row, err error) {
	missing := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(seqs))), func(seq int64) bool { return seq == 0 })
	look := func(from, how string) error {
		if len(missing) == 0 {
			return nil
		}
		found, err := tx.scanRows(tx.Query(ctx, "SELECT "+columns+" FROM "+from+" ORDER BY s.seq FOR "+strength+" OF s"+how, missing))
		rows = append(rows, found...)
		known := make(map[int64]bool, len(found))
		for _, r := range found {
			known[int64(r.state.Sequence)] = true
		}
		missing = slices.DeleteFunc(missing, func(seq int64) bool { return known[seq] })
		return err
	}
	for i, table := range livingIn {
		if err := look(table+" AS s WHERE s.seq = ANY ($1)", waiting(i)); err != nil {
			return nil, err
		}
	}
	if len(missing) == 0 {
		return rows, nil
	}
	var living bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM gq.live WHERE seq = ANY ($1))", missing).Scan(&living); err != nil {
		return nil, err
	}
	if living {
		return nil, errMoved
	}
	// What does not live will not live again.
	return rows, look(finished+" WHERE "+kept, "")
}

// livingIn are the tables in which jobs are looked for that live, in the order in
// which they are locked. What was claimed in between is found the second time.
var livingIn = []string{"gq.held", "gq.ready", "gq.held"}

// waiting is how rows of the nth of them are locked: one that stands before another
// that is locked already must not be waited for.
func waiting(n int) string {
	if n == 2 {
		return " SKIP LOCKED"
	}
	return ""
}

// lockFree locks the jobs that nobody else has locked, and tells which live that somebody
// has.
func (tx *txn) lockFree(ctx context.Context, seqs []int64) (busy map[int64]bool, err error) {
	busy = make(map[int64]bool)
	mine := make(map[int64]bool)
	for _, table := range livingIn {
		free, err := collect[int64](tx.Query(ctx, "SELECT seq FROM "+table+" WHERE seq = ANY ($1) ORDER BY seq "+skipping, seqs))
		if err != nil {
			return nil, err
		}
		for _, seq := range free {
			mine[seq] = true
		}
	}
	living, err := collect[int64](tx.Query(ctx, "SELECT seq FROM gq.live WHERE seq = ANY ($1)", seqs))
	for _, seq := range living {
		if !mine[seq] {
			busy[seq] = true
		}
	}
	return busy, err
}

// record takes down what a verb has made of a job. flush writes it.
func (tx *txn) record(r *row, next gq.State, events []gq.Event) {
	old := &r.state
	if l := next.Lease; l != nil && (old.Lease == nil || old.Lease.ID != l.ID) {
		if seq, ok := leaseSequence(l.ID); !ok || seq != next.Sequence {
			tx.leases = append(tx.leases, lease{l.ID, int64(next.Sequence)})
		}
	}
	if old.Live() && !next.Live() {
		tx.ended = append(tx.ended, ending{int64(next.Sequence), int16(next.Status), int16(next.Priority())})
	}
	tx.count(place{r.queue, old.Status}, -1)
	tx.count(place{r.queue, next.Status}, 1)
	tx.addEvents(r, events)
	r.told = r.told || len(events) > 0
	r.state = next
	if r.reported {
		tx.report.job(r.queue, nil, &next)
	}
	if !r.changed {
		r.changed = true
		tx.rows = append(tx.rows, r)
	}
}

// recordInsert is record for a new job, whose row has its state already.
func (tx *txn) recordInsert(r *row, events []gq.Event) {
	if !r.state.Live() {
		tx.ended = append(tx.ended, ending{int64(r.state.Sequence), int16(r.state.Status), int16(r.state.Priority())})
	}
	tx.count(place{r.queue, r.state.Status}, 1)
	tx.addEvents(r, events)
	if r.reported {
		tx.report.job(r.queue, r.parsed, &r.state)
	}
	r.told, r.changed = len(events) > 0, true
	tx.rows = append(tx.rows, r)
}

func (tx *txn) addEvents(r *row, events []gq.Event) {
	for i := range events {
		if r.reported {
			tx.report.event(0, tx.events.n, r.queue, r.parsed, &events[i])
		}
		tx.events.add(r.queue, &events[i])
	}
}

func (tx *txn) count(at place, n int64) {
	if tx.moves == nil {
		tx.moves = make(map[place]int64)
	}
	tx.moves[at] += n
	switch {
	case n <= 0 || at.status.Held(): // a held job is not claimable and leaves no room
	case at.status.Terminal():
		tx.changes.free(at.queue)
	default:
		tx.changes.open(at.queue)
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
