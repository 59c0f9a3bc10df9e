package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// A row of gq.held or gq.done may have several jobs: those that were claimed or that ended
// in one transaction, in one queue, with neighbouring numbers. Such a row costs little
// more to write than the row of one job. A job leaves its row when something is said about
// it alone.
//
// The jobs of a row are in the same block: their numbers differ in the last blockBits bits
// only. The column members has a bit for each number of the block, and is NULL in the row
// of one job. The column seq has the lowest number of the members, so it is unique. The
// column limited is NULL if the jobs have no limit keys; otherwise it has one of their keys, and
// the others are in their specs: see heldByKey. The columns body and data have one item for each job that the row was written with: see
// appendItem.

const (
	blockBits = 6
	blockSize = 1 << blockBits
)

// blockOf is the first number of the block of a number.
func blockOf(seq int64) int64 { return seq &^ (blockSize - 1) }

// bitOf is the bit of a number in members.
func bitOf(seq int64) uint64 { return 1 << (seq & (blockSize - 1)) }

// numbers are jobs to look for, by block.
type numbers map[int64]uint64

func numbersIn(seqs []int64) numbers {
	n := make(numbers, len(seqs)/8+1)
	for _, seq := range seqs {
		n[blockOf(seq)] |= bitOf(seq)
	}
	return n
}

// arrays returns the blocks in order, and the bits in each of them.
func (n numbers) arrays() (blocks, masks []int64) {
	blocks = make([]int64, 0, len(n))
	for block := range n {
		blocks = append(blocks, block)
	}
	slices.Sort(blocks)
	masks = make([]int64, len(blocks))
	for i, block := range blocks {
		masks[i] = int64(n[block])
	}
	return blocks, masks
}

// membersOf are the members of a row s, and oneOf those of a row of gq.ready.
const (
	membersOf = "coalesce(s.members, " + oneOf + ")"
	oneOf     = "1::bigint << (s.seq & 63)::integer"

	membersCount = "CASE WHEN s.members IS NULL THEN 1 ELSE bit_count(s.members::bit(64)) END"
)

// rowsWith selects the rows s of a table that have any of the numbers, which are given as
// arrays of blocks and masks. They come in order of their numbers. more is a locking clause
// or OFFSET 0: both keep the planner from reading a whole table that it believes to be empty.
func rowsWith(table, more string) string {
	members, also := membersOf, ""
	if table == "gq.ready" {
		members, also = oneOf, ", NULL::bigint AS members"
	}
	return `
		unnest($1::bigint[], $2::bigint[]) AS n (block, mask)
		CROSS JOIN LATERAL (
			SELECT s.*` + also + `
			FROM ` + table + ` AS s
			WHERE s.seq >= n.block AND s.seq < n.block + 64 AND (` + members + `) & n.mask <> 0
			ORDER BY s.seq
			` + more + `
		) AS s`
}

// rowsIn selects these rows with their columns.
func rowsIn(table, more string) string { return "SELECT " + columns + " FROM " + rowsWith(table, more) }

// pack is a row that several jobs were read from, or one that is written like that.
type pack struct {
	seq     int64
	members uint64 // when it was read
	left    uint64 // the members that leave it in this transaction
}

// share treats the row of one job like one that it shares, so that it is deleted and
// written again when the job changes.
func (r *row) share() {
	if r.pack == nil {
		seq := int64(r.state.Sequence)
		r.pack = &pack{seq: seq, members: bitOf(seq)}
	}
}

// leave takes a job out of the row that it shares.
func (tx *txn) leave(r *row) {
	if r.pack == nil {
		return
	}
	if r.pack.left == 0 {
		tx.packs = append(tx.packs, r.pack)
	}
	r.pack.left |= bitOf(int64(r.state.Sequence))
	r.pack, r.home = nil, inHand
	tx.inHand++
}

// writePacks queues what rows of gq.held or gq.done lose. It must come before new rows: a
// job may get a row with the number that the shared one had.
func (tx *txn) writePacks(table string, packs []*pack) {
	var gone, seqs, left, lowest []int64
	for _, p := range packs {
		rest := p.members &^ p.left
		if rest == 0 {
			gone = append(gone, p.seq)
			continue
		}
		first := blockOf(p.seq) + int64(bits.TrailingZeros64(rest))
		seqs, left, lowest = append(seqs, p.seq), append(left, int64(p.left)), append(lowest, first)
		p.seq, p.members, p.left = first, rest, 0 // others may leave it later in the transaction
	}
	switch {
	case len(gone) > 0 && tx.known != nil:
		tx.leaveKnown()
	case len(gone) > 0:
		tx.more.Queue("DELETE FROM gq."+table+" AS s WHERE s.seq = ANY ($1)", gone)
	}
	if len(seqs) > 0 {
		tx.more.Queue(fmt.Sprintf(shrink, table), seqs, left, lowest)
	}
}

// rowsOf counts the rows that jobs were read from.
func rowsOf(jobs []*row) (n int) {
	for i, r := range jobs {
		if r.pack == nil || i == 0 || r.pack != jobs[i-1].pack {
			n++
		}
	}
	return n
}

// numbersOfRow lists the jobs of a row.
func numbersOfRow(seq int64, members *int64) []int64 {
	if members == nil {
		return []int64{seq}
	}
	var seqs []int64
	for rest := uint64(*members); rest != 0; rest &= rest - 1 {
		seqs = append(seqs, blockOf(seq)+int64(bits.TrailingZeros64(rest)))
	}
	return seqs
}

// shrink takes members out of rows.
const shrink = `
	UPDATE gq.%s AS s
	SET members = s.members & ~n.gone, seq = n.lowest
	FROM (SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS gone, unnest($3::bigint[]) AS lowest) AS n
	WHERE s.seq = ANY (ARRAY [n.seq])`

// unpack gives jobs rows of their own, in a transaction of its own. An application's
// transaction may lock these for long, and must not lock other jobs with them.
func (s *Store) unpack(ctx context.Context, seqs []int64) error {
	return s.transact(ctx, s.begins.shared, func(tx *txn) error {
		blocks, masks := numbersIn(seqs).arrays()
		found, err := tx.Query(ctx, `
			SELECT n.block, s.members & n.mask
			FROM `+rowsWith("gq.held", "OFFSET 0")+`
			WHERE bit_count(s.members::bit(64)) > 1`, blocks, masks)
		if err != nil {
			return err
		}
		shared := make(numbers) // others are not locked: the application may have done that
		var block, mask int64
		_, err = pgx.ForEachRow(found, []any{&block, &mask}, func() error {
			shared[block] |= uint64(mask)
			return nil
		})
		if err != nil || len(shared) == 0 {
			return err
		}
		blocks, masks = shared.arrays()
		rows, err := tx.scanSome(shared)(tx.Query(ctx, rowsIn("gq.held", "FOR UPDATE"), blocks, masks))
		if err != nil {
			return err
		}
		tx.apart = true
		for _, r := range rows {
			if tx.leave(r); r.home == inHand {
				tx.putBack([]*row{r})
			}
		}
		return tx.flush(ctx)
	})
}

// maxPacked is about how large the items of a row get, in bytes, so that the row fits into
// a page of the table.
const maxPacked = 6000

// packRows merges rows that may share one in the table that they enter.
func (a *rowArrays) packRows(to home) {
	n := len(a.seqs)
	a.members = make([]*int64, n)
	if n < 2 {
		return
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if !slices.IsSorted(a.seqs) {
		slices.SortFunc(order, func(i, k int) int { return cmp.Compare(a.seqs[i], a.seqs[k]) })
	}
	var merged rowArrays
	merged.grow(n)
	merged.members = a.members[:0]
	space := make([]byte, 0, packGuess(a))
	for first := 0; first < n; {
		i := order[first]
		past := first + 1
		for past < n && a.share(i, order[past], to) {
			past++
		}
		group := order[first:past]
		if len(group) > 1 {
			var took int
			space, took = a.packItems(&merged, group, space, to)
			first += took
			continue
		}
		merged.copyRow(a, i, to)
		first++
	}
	merged.demanding = a.demanding
	*a = merged
}

func packGuess(a *rowArrays) int {
	size := 0
	for i := range a.datas {
		size += len(a.datas[i])/2 + len(a.bodies[i])/4 + 16
	}
	return size + maxPacked
}

// share reports whether two rows may be one.
func (a *rowArrays) share(i, k int, to home) bool {
	if blockOf(a.seqs[i]) != blockOf(a.seqs[k]) || a.statuses[i] != a.statuses[k] || a.queues[i] != a.queues[k] || a.fairs[i] != a.fairs[k] {
		return false
	}
	if to == inDone {
		return a.ends[i] == a.ends[k]
	}
	if keyed := a.limited[i] != ""; keyed != (a.limited[k] != "") || keyed && !(a.shares[i] && a.shares[k]) {
		return false
	}
	return a.costs[i] == a.costs[k] &&
		a.dues[i] != nil && a.dues[k] != nil && *a.dues[i] == *a.dues[k]
}

// packItems appends to merged one row that has the first jobs of a group, as many as fit,
// and returns how many. The row of a single job is as it was. The items are in space, the
// bodies before the data.
func (a *rowArrays) packItems(merged *rowArrays, group []int, space []byte, to home) ([]byte, int) {
	i := group[0]
	merged.copyRow(a, i, to)
	datas := append(a.scratch[:0], make([]byte, 8)...) // begins with the mask
	datas = appendFirst(datas, a.datas[i])
	from := len(space)
	space = appendFirst(space, a.bodies[i])
	mask, took := bitOf(a.seqs[i]), 1
	for _, k := range group[1:] {
		body, data := len(space), len(datas)
		space, datas = appendItem(space, a.bodies[i], a.bodies[k]), appendItem(datas, a.datas[i], a.datas[k])
		if len(space)-from+len(datas) > maxPacked {
			space, datas = space[:body], datas[:data]
			break
		}
		mask |= bitOf(a.seqs[k])
		took++
	}
	a.scratch = datas
	if took == 1 {
		return space[:from], 1
	}
	last := len(merged.seqs) - 1
	merged.bodies[last] = space[from:len(space):len(space)]
	from = len(space)
	binary.BigEndian.PutUint64(datas, mask)
	space = append(space, datas...)
	merged.datas[last] = space[from:len(space):len(space)]
	members := int64(mask)
	merged.members[last] = &members
	return space, took
}

// copyRow appends row i of b.
func (a *rowArrays) copyRow(b *rowArrays, i int, to home) {
	a.seqs, a.created, a.statuses = append(a.seqs, b.seqs[i]), append(a.created, b.created[i]), append(a.statuses, b.statuses[i])
	a.queues, a.fairs = append(a.queues, b.queues[i]), append(a.fairs, b.fairs[i])
	a.bodies, a.datas = append(a.bodies, b.bodies[i]), append(a.datas, b.datas[i])
	a.ends, a.dues, a.limited = append(a.ends, b.ends[i]), append(a.dues, b.dues[i]), append(a.limited, b.limited[i])
	a.members = append(a.members, nil)
	if to == inHeld {
		a.costs, a.shares = append(a.costs, b.costs[i]), append(a.shares, b.shares[i])
	}
}

// Items are stored as their differences from the first one, since the bodies and states of
// jobs that are submitted or claimed together are nearly equal: the length of the end that
// they have in common, the length of the rest, and for the rest, alternately, how many
// bytes are as in the first item at the same position, how many are not, and these.

// minCopy is how many equal bytes are worth an entry of their own.
const minCopy = 4

func appendFirst(b, item []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(item))), item...)
}

func appendItem(b, first, item []byte) []byte {
	end := commonEnd(first, item)
	rest := item[:len(item)-end]
	b = binary.AppendUvarint(b, uint64(end))
	b = binary.AppendUvarint(b, uint64(len(rest)))
	for at := 0; at < len(rest); {
		equal := equalFrom(first, rest, at)
		lit := at + equal
		stop := lit
		for stop < len(rest) && equalFrom(first, rest, stop) < minCopy {
			stop++
		}
		b = binary.AppendUvarint(b, uint64(equal))
		b = binary.AppendUvarint(b, uint64(stop-lit))
		b = append(b, rest[lit:stop]...)
		at = stop
	}
	return b
}

// commonEnd is how many bytes at their ends a and b have in common.
func commonEnd(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// equalFrom is how many bytes from a position on a and b have in common.
func equalFrom(a, b []byte, at int) int {
	n := at
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n - at
}

// itemReader reads what appendFirst and appendItem have written.
type itemReader struct {
	b     []byte
	first []byte
	begun bool
}

var errItems = fmt.Errorf("the row is broken: %w", gq.ErrCorrupt)

func (r *itemReader) length() (int, error) {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > 1<<30 {
		return 0, errItems
	}
	r.b = r.b[size:]
	return int(n), nil
}

func (r *itemReader) bytes(n int) ([]byte, error) {
	if n > len(r.b) {
		return nil, errItems
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b, nil
}

// next appends the next item to b.
func (r *itemReader) next(b []byte) ([]byte, error) {
	end, err := r.length()
	if err != nil {
		return nil, err
	}
	if !r.begun {
		r.begun = true
		r.first, err = r.bytes(end)
		return append(b, r.first...), err
	}
	size, err := r.length()
	if err != nil || end > len(r.first) {
		return nil, errItems
	}
	for from := len(b); len(b)-from < size; {
		equal, err := r.length()
		if err != nil {
			return nil, err
		}
		other, err := r.length()
		if err != nil {
			return nil, err
		}
		at := len(b) - from
		if at+equal > len(r.first) || equal+other == 0 || at+equal+other > size {
			return nil, errItems
		}
		lit, err := r.bytes(other)
		if err != nil {
			return nil, err
		}
		b = append(append(b, r.first[at:at+equal]...), lit...)
	}
	return append(b, r.first[len(r.first)-end:]...), nil
}

// eachMember calls f for the jobs of a row that are wanted, nil for all, in order of their
// numbers. If members is not nil, f may keep body and data. A nil body is not read.
func eachMember(seq int64, members *int64, body, data []byte, wanted numbers, f func(seq int64, body, data []byte) error) error {
	if members == nil {
		return f(seq, body, data)
	}
	if len(data) < 8 {
		return errItems
	}
	all := binary.BigEndian.Uint64(data)
	asked := uint64(*members)
	if wanted != nil {
		asked &= wanted[blockOf(seq)]
	}
	datas, bodies := itemReader{b: data[8:]}, itemReader{b: body}
	space := make([]byte, 0, bits.OnesCount64(all)*(len(data)/8+len(body)/8+64))
	for rest := all; rest != 0; rest &= rest - 1 {
		number := blockOf(seq) + int64(bits.TrailingZeros64(rest))
		from := len(space)
		var err error
		if space, err = datas.next(space); err != nil {
			return err
		}
		to := len(space)
		if body != nil {
			if space, err = bodies.next(space); err != nil {
				return err
			}
		}
		if asked&bitOf(number) == 0 {
			space = space[:from]
			continue
		}
		if err := f(number, space[to:len(space):len(space)], space[from:to:to]); err != nil {
			return err
		}
	}
	return nil
}
