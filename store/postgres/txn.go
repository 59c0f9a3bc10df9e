package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// txn is a transaction of the store, with the changes it is about to write.
type txn struct {
	pgx.Tx
	s       *Store
	now     time.Time // the time of everything in the transaction
	segment int64     // the id under which the next events are written; 0 if not taken yet
	mark    mark      // identifies the commit if its outcome is in doubt
	written bool      // there is something to commit
	relies  bool      // an answer depends on an earlier commit
	careful bool      // check for conflicts first rather than let a statement fail
	again   bool      // a retry: jobs may have moved during the first try
	ours    bool      // the store commits it, not the application
	shared  bool      // it waits for a lock no longer than lockWait

	committed bool // finish has committed it
	unheard   bool // finish has committed it, but some answers were lost

	// Gathered by record and written by flush.
	work     *workspace // only in a transaction that inserts
	rows     []*row
	inHand   int      // rows that were deleted from their tables and not written again yet
	packs    []*pack  // rows of gq.held that lose jobs
	known    *heldRow // the only one of these, if it was not read: see prepareKnown
	apart    bool     // jobs get rows of their own
	leases   []lease
	ended    []ending
	kept     []keptJob // with a retention shorter than that of their status
	events   eventLog
	moves    map[place]*count
	lately   [2]countOf // the last two of moves: most transactions have no more
	report   reports
	changes  effects
	minimums minimums  // the lowest position written in each band
	book     *turnBook // nil until a job needs a turn
	starts   starts    // see lockStarts
	more     pgx.Batch // statements to send before those of flush
}

// mark identifies a segment that was written.
type mark struct {
	id    int64
	token [16]byte
}

type lease struct {
	id  gq.LeaseID
	seq int64
}

// ending is how a job ended, for the jobs that depend on it.
type ending struct {
	seq              int64
	status, priority int16
}

// place is the queue and status under which a job is counted.
type place struct {
	queue  string
	status gq.Status
}

// count is a number of jobs, and the cost units of those that are held.
type count struct {
	jobs, units int64
	entered     bool // effects has it
}

type countOf struct {
	place
	*count
}

// row is a row of gq.ready, gq.held or gq.done.
type row struct {
	queue    string
	fair     string   // fair key
	body     []byte   // the part that never changes: see appendBody
	parsed   *gq.Spec // the decoded spec, nil until it is needed
	segments []int64  // segments that have events of the job
	state    gq.State
	changed  bool  // it is in txn.rows
	told     bool  // txn.events has events of it
	reported bool  // the views show it: see reports
	native   bool  // its id encodes its number: see idKey
	shares   bool  // it may share a row of gq.held although it has a limit key
	owes     int64 // until when its limit key owes units of its rate; only known to takeFast
	home     home  // the table it is in
	pack     *pack // the row of gq.held or gq.done that it shares; nil if it has its own
}

// home is the table that has a job's row.
type home int

const (
	nowhere home = iota // not in the database yet
	inReady
	inHeld
	inDone
	inHand // deleted from its table by this transaction, which must write it again
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

// stamp reads the clock, reserves sequence numbers for n jobs and takes a segment id.
// Call it while the transaction holds its locks. The numbers of refused jobs are never
// used. The segment id is taken last: see startDay.
func (tx *txn) stamp(ctx context.Context, n int) (numbers []int64, err error) {
	return tx.stampFrom(tx.QueryRow(ctx, stamps, n))
}

const stamps = `
	SELECT time, ` + clock + `, ARRAY (SELECT nextval('gq.submission') FROM generate_series(1, $1)),
		nextval('gq.segment_id')
	FROM gq.head`

// stampFrom is stamp for a query that returns more columns after those of stamps.
func (tx *txn) stampFrom(row pgx.Row, more ...any) (numbers []int64, err error) {
	var persisted, now int64
	if err := row.Scan(append([]any{&persisted, &now, &numbers, &tx.segment}, more...)...); err != nil {
		return nil, err
	}
	tx.now = tx.s.time(now, persisted)
	return numbers, nil
}

// readClock reads the clock only, for transactions that write nothing or do not know yet
// what they will write.
func (tx *txn) readClock(ctx context.Context) error {
	return tx.clockFrom(tx.QueryRow(ctx, readingClock))
}

const readingClock = "SELECT time, " + clock + " FROM gq.head"

func (tx *txn) clockFrom(row pgx.Row) error {
	var persisted, now int64
	if err := row.Scan(&persisted, &now); err != nil {
		return err
	}
	tx.now = tx.s.time(now, persisted)
	return nil
}

const clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

// columns are the columns of a row, with the alias s.
// readyColumns are the same of gq.ready, where each job has its own row.
const (
	columns      = "s.seq, s.members, s.queue, s.fair, s.body, s.data"
	readyColumns = "s.seq, NULL::bigint AS members, s.queue, s.fair, s.body, s.data"
)

// columnsOf are the columns of a table of live jobs.
func columnsOf(table string) string {
	if table == "gq.ready" {
		return readyColumns
	}
	return columns
}

// scanRows reads the jobs of rows that have these columns, optionally followed by what the
// limit key of each owes.
func (tx *txn) scanRows(rows pgx.Rows, err error) ([]*row, error) {
	return tx.scanSome(nil)(rows, err)
}

// scanSome is scanRows for the jobs that are wanted.
func (tx *txn) scanSome(wanted numbers) func(pgx.Rows, error) ([]*row, error) {
	return func(rows pgx.Rows, err error) (out []*row, _ error) {
		if err == nil {
			err = rows.Err() // set if the batch failed at an earlier query
		}
		if err != nil {
			return nil, err
		}
		var (
			seq     int64
			members *int64
			body    pgtype.DriverBytes // of the row; the next one overwrites it
			data    pgtype.DriverBytes
			now     row
			policy  policies
			into    = []any{&seq, &members, &now.queue, &now.fair, &body, &data}
		)
		if len(rows.FieldDescriptions()) > len(into) { // a failed query describes no fields
			into = append(into, &now.owes)
		}
		var slab []row // several rows take one allocation
		add := func(seq int64, body, data []byte) (*row, error) {
			if len(slab) == cap(slab) {
				slab = make([]row, 0, min(2*cap(slab)+1, blockSize))
			}
			r, err := tx.s.decodeRow(data, seq, &policy)
			r.queue, r.fair, r.body, r.owes = now.queue, now.fair, body, now.owes
			slab = append(slab, r)
			out = append(out, &slab[len(slab)-1])
			return out[len(out)-1], err
		}
		_, err = pgx.ForEachRow(rows, into, func() error {
			if members == nil {
				_, err := add(seq, bytes.Clone(body), data)
				return err
			}
			p := &pack{seq: seq, members: uint64(*members)}
			return eachMember(seq, members, body, data, wanted, func(seq int64, body, data []byte) error {
				r, err := add(seq, body, data)
				r.pack, r.shares = p, true
				return err
			})
		})
		return out, err
	}
}

// decodeRow decodes the data column of a row: flags, segments and state.
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

// take reads rows that a DELETE from gq.ready returned. A DELETE also locks, so rows that would
// be locked now and deleted later are deleted at once; that saves a second lookup and a second
// write. Each of them must be written again, by record or by putBack.
func (tx *txn) take(from pgx.Rows) ([]*row, error) {
	rows, err := tx.scanRows(from, nil)
	for _, r := range rows {
		r.home = inHand
	}
	tx.inHand += len(rows)
	return rows, err
}

// putBack writes rows in hand back unchanged, except those that were recorded.
func (tx *txn) putBack(rows []*row) {
	for _, r := range rows {
		if r.home == inHand && !r.changed {
			r.changed = true
			tx.rows = append(tx.rows, r)
		}
	}
}

// whole checks that every row in hand was written again, so that the commit loses no job.
func (tx *txn) whole() error {
	if tx.inHand != 0 {
		return fmt.Errorf("%d jobs were taken out of their tables and not written: %w", tx.inHand, gq.ErrCorrupt)
	}
	return nil
}

// policies lets consecutive rows share equal policies, which never change.
type policies struct{ last *gq.Policy }

func (p *policies) of(policy gq.Policy) *gq.Policy {
	if p.last == nil || *p.last != policy {
		p.last = &policy
	}
	return p.last
}

// Flags of a job, in the lowest bits of its list of segments: it is reported, and its id
// encodes its number.
const (
	flagReported = 1 << iota
	flagNative
	flagBits = iota
)

func (r *row) flags() (f uint64) {
	if r.reported {
		f |= flagReported
	}
	if r.native {
		f |= flagNative
	}
	return f
}

// encode appends the data column of a row.
func (r *row) encode(to []byte) ([]byte, error) {
	return codec.AppendState(&r.state, appendSegments(to, r.segments, r.flags()))
}

// appendSegments encodes an ascending list of ids: the count, above the flag bits, then
// for each id its distance from the one before.
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

// errMoved reports a job that moved to another table during the search and is locked by
// another transaction now. Waiting for it would mean waiting for a row of gq.held while
// holding rows of gq.ready, so the transaction releases all its locks and starts again.
var errMoved = errors.New("a job went to another table while it was looked for")

// lock reads and locks jobs, by number in each table. It also finds a job that is
// claimed, released or finished meanwhile, in the table it has moved to.
func (tx *txn) lock(ctx context.Context, seqs []int64, strength string) (rows []*row, err error) {
	missing := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(seqs))), func(seq int64) bool { return seq == 0 })
	if !tx.ours && len(missing) > 0 {
		if err := tx.s.unpack(ctx, missing); err != nil && !held(err) {
			return nil, err
		}
	}
	look := func(table, how, which string) error {
		if len(missing) == 0 {
			return nil
		}
		wanted := numbersIn(missing)
		blocks, masks := wanted.arrays()
		found, err := tx.scanSome(wanted)(tx.Query(ctx, rowsIn(table, "FOR "+strength+" OF s"+how)+which, blocks, masks))
		rows = append(rows, found...)
		known := make(map[int64]bool, len(found))
		for _, r := range found {
			known[int64(r.state.Sequence)] = true
		}
		missing = slices.DeleteFunc(missing, func(seq int64) bool { return known[seq] })
		return err
	}
	for i, table := range livingIn {
		if err := look(table, waiting(i), ""); err != nil {
			return nil, err
		}
	}
	if len(missing) == 0 {
		return rows, nil
	}
	var living bool
	blocks, masks := numbersIn(missing).arrays()
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+rowsWith("gq.live", "OFFSET 0")+")", blocks, masks).Scan(&living); err != nil {
		return nil, err
	}
	if living {
		return nil, errMoved
	}
	// A job that is not live never becomes live again.
	return rows, look("gq.done", "", " WHERE "+kept)
}

// livingIn are the tables of live jobs in the order in which they are searched and
// locked. The second pass over gq.held finds jobs that were claimed during the first two.
var livingIn = []string{"gq.held", "gq.ready", "gq.held"}

// waiting completes the locking clause for the nth of livingIn. The last one must not
// wait: its rows come before rows of gq.ready that are locked already.
func waiting(n int) string {
	if n == 2 {
		return " SKIP LOCKED"
	}
	return ""
}

// lockFree locks the jobs that no other transaction has locked, and returns the live jobs
// that another transaction has locked.
func (tx *txn) lockFree(ctx context.Context, seqs []int64) (busy map[int64]bool, err error) {
	busy = make(map[int64]bool)
	mine := make(map[int64]bool)
	blocks, masks := numbersIn(seqs).arrays()
	read := func(sql string, into map[int64]bool) error {
		rows, err := tx.Query(ctx, sql, blocks, masks)
		if err != nil {
			return err
		}
		var block, found int64
		_, err = pgx.ForEachRow(rows, []any{&block, &found}, func() error {
			for _, seq := range seqs {
				if blockOf(seq) == block && uint64(found)&bitOf(seq) != 0 {
					into[seq] = true
				}
			}
			return nil
		})
		return err
	}
	const which = "SELECT n.block, " + membersOf + " & n.mask FROM "
	for _, table := range livingIn {
		if err := read(which+rowsWith(table, skipping), mine); err != nil {
			return nil, err
		}
	}
	err = read(which+rowsWith("gq.live", "OFFSET 0"), busy)
	maps.DeleteFunc(busy, func(seq int64, _ bool) bool { return mine[seq] })
	return busy, err
}

// record notes the next state and the events of a job. flush writes them.
func (tx *txn) record(r *row, next gq.State, events []gq.Event) {
	old := &r.state
	if l := next.Lease; l != nil && (old.Lease == nil || old.Lease.ID != l.ID) {
		if seq, ok := leaseSequence(l.ID); !ok || seq != next.Sequence {
			tx.leases = append(tx.leases, lease{l.ID, int64(next.Sequence)})
		}
	}
	if old.Live() && !next.Live() {
		tx.stepOut(old)
		tx.ended = append(tx.ended, ending{int64(next.Sequence), int16(next.Status), int16(next.Priority())})
	}
	tx.countJob(r.queue, old, -1)
	tx.countJob(r.queue, &next, 1)
	tx.addEvents(r, events)
	r.told = r.told || len(events) > 0
	r.state = next
	tx.leave(r)
	if r.reported {
		tx.report.job(r.queue, nil, &next)
	}
	if !r.changed {
		r.changed = true
		tx.rows = append(tx.rows, r)
	}
}

// recordInsert is record for a new job. Its row already has its state.
func (tx *txn) recordInsert(r *row, events []gq.Event) {
	if !r.state.Live() {
		tx.ended = append(tx.ended, ending{int64(r.state.Sequence), int16(r.state.Status), int16(r.state.Priority())})
	}
	tx.countJob(r.queue, &r.state, 1)
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
		tx.events.add(r.queue, r.typ(tx.events.typ), &events[i])
		if events[i].Type == gq.EventCancelRequested {
			tx.changes.cancels = append(tx.changes.cancels, events[i].Job)
		}
	}
}

// countJob counts a job that enters its queue and status (1) or leaves them (-1).
func (tx *txn) countJob(queue string, s *gq.State, n int64) {
	var units int64
	if s.Status.Held() && s.Lease != nil {
		units = n * s.Lease.CostUnits
	}
	tx.count(place{queue, s.Status}, n, units)
}

func (tx *txn) count(at place, n, units int64) {
	c := tx.counted(at)
	c.jobs += n
	c.units += units
	if n <= 0 || c.entered {
		return
	}
	c.entered = true
	switch {
	case at.status.Held(): // a held job cannot be claimed and frees no capacity
	case at.status.Terminal():
		tx.changes.free(at.queue)
	default:
		tx.changes.open(at.queue)
	}
}

// counted returns the count of a place.
func (tx *txn) counted(at place) *count {
	for i := range tx.lately {
		if l := &tx.lately[i]; l.count != nil && l.place == at {
			return l.count
		}
	}
	if tx.moves == nil {
		tx.moves = make(map[place]*count)
	}
	c := tx.moves[at]
	if c == nil {
		c = new(count)
		tx.moves[at] = c
	}
	tx.lately[1], tx.lately[0] = tx.lately[0], countOf{at, c}
	return c
}

// forgetCounts drops the counts, which were written or do not apply.
func (tx *txn) forgetCounts() { tx.moves, tx.lately = nil, [2]countOf{} }

// signed maps unsigned numbers to bigint and keeps their order.
func signed(n uint64) int64 { return int64(n ^ 1<<63) }

// nanoseconds is an instant as it is stored; the zero instant is 0.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(n int64) time.Time { return time.Unix(0, n).UTC() }

// storable drops names that a PostgreSQL text cannot hold. No job has such a name,
// because specs are checked, but callers may ask for one. The result is never nil,
// because nil would be NULL.
func storable(names []string) []string {
	kept := make([]string, 0, len(names))
	for _, name := range names {
		if utf8.ValidString(name) && !strings.Contains(name, "\x00") {
			kept = append(kept, name)
		}
	}
	return kept
}
