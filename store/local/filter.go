package local

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
)

// idFilter remembers ids, or hashes of keys, in ten bits each, so that inserting a new job
// rarely reads the disk. It may say "perhaps" for an id that was never used; then the disk
// decides.
type idFilter struct {
	blocks [][8]uint64 // a cache line each
	count  int
	room   int
}

const (
	filterLeast = 1 << 14 // smallest capacity: many stores have no foreign ids, or no keys
	filterMost  = 1 << 26 // largest: 84 MB; with more ids every insert of a foreign one reads the disk
)

// newFilter makes a filter with room for four times as many ids, at least for twice as many, or nil
// if it would be too large.
func newFilter(ids int) *idFilter {
	room := filterLeast
	for room < 4*ids && room < filterMost {
		room *= 2
	}
	if room < 2*ids {
		return nil
	}
	return &idFilter{blocks: make([][8]uint64, room*10/512), room: room}
}

func (f *idFilter) full() bool { return f.count >= f.room }

func (f *idFilter) add(id gq.JobID) {
	f.count++
	block, bits := f.place(id)
	for range 6 {
		block[bits>>6&7] |= 1 << (bits & 63)
		bits >>= 9
	}
}

// has reports false only for ids that were not added.
func (f *idFilter) has(id gq.JobID) bool {
	block, bits := f.place(id)
	for range 6 {
		if block[bits>>6&7]&(1<<(bits&63)) == 0 {
			return false
		}
		bits >>= 9
	}
	return true
}

func (f *idFilter) place(id gq.JobID) (*[8]uint64, uint64) {
	a := mix(binary.LittleEndian.Uint64(id[:]))
	b := mix(a ^ binary.LittleEndian.Uint64(id[8:]))
	return &f.blocks[a%uint64(len(f.blocks))], b
}

// mix spreads a difference in one bit over all bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// onDisk tells which records of a kind may be on disk: ids from elsewhere, or keys by hash. The
// writer owns it.
type onDisk struct {
	prefix   byte
	from     gq.JobID     // records before it are not in the filter
	filter   *idFilter    // nil while there is none
	building *filterBuild // nil unless one is being built
}

// filterBuild is a filter that a background goroutine fills from disk.
type filterBuild struct {
	done chan *idFilter
	stop chan struct{}
	late []gq.JobID // added since the build began
}

// has reports false only for an id without a record on disk.
func (d *onDisk) has(id gq.JobID) bool {
	return d.filter == nil || bytes.Compare(id[:], d.from[:]) < 0 || d.filter.has(id)
}

// build starts to fill a filter with the ids of all records, of which a new store has none.
func (d *onDisk) build(s *Store, none bool) {
	d.filter = nil
	if none {
		d.filter = newFilter(0)
		return
	}
	b := &filterBuild{done: make(chan *idFilter, 1), stop: make(chan struct{})}
	d.building = b
	snapshot := s.db.NewSnapshot()
	s.background.Go(func() {
		defer func() { _ = snapshot.Close() }() // nothing to do about an error
		count := 0
		if !b.scan(snapshot, d.prefix, d.from, func(gq.JobID) { count++ }) {
			return
		}
		f := newFilter(count)
		if f != nil && b.scan(snapshot, d.prefix, d.from, f.add) {
			b.done <- f
		}
	})
}

// scan visits the ids of all records from one on and reports whether it reached the end.
func (b *filterBuild) scan(snapshot *pebble.Snapshot, prefix byte, from gq.JobID, visit func(gq.JobID)) bool {
	it, err := snapshot.NewIter(iterOptions(prefix))
	if err != nil {
		return false
	}
	defer func() { _ = it.Close() }() // it.Error reports errors below
	n := 0
	for ok := it.SeekGE(append([]byte{prefix}, from[:]...)); ok; ok = it.Next() {
		if len(it.Key()) == 17 { // damage does not hide the records behind it
			visit(gq.JobID(it.Key()[1:]))
		}
		if n++; n%4096 == 0 {
			select {
			case <-b.stop:
				return false
			default:
			}
		}
	}
	return it.Error() == nil
}

// drop removes the filter: from here on every look-up reads the disk.
func (d *onDisk) drop() {
	d.stop()
	d.filter, d.building = nil, nil
}

// stop ends a build.
func (d *onDisk) stop() {
	if d.building != nil {
		close(d.building.stop)
	}
}

// note adds the records of this commit in one go, so that their cache misses overlap. If the
// filter is full it builds another one.
func (d *onDisk) note(tx *txn, added func(yield func(gq.JobID) bool)) {
	if b := d.building; b != nil {
		b.late = slices.AppendSeq(b.late, added)
		select {
		case d.filter = <-b.done:
			for _, id := range b.late {
				d.filter.add(id)
			}
			d.building = nil
		default:
		}
		return
	}
	if d.filter == nil {
		return
	}
	for id := range added {
		d.filter.add(id)
	}
	if d.filter.full() {
		if d.prefix == prefixRetry {
			d.from = retriesFrom(tx.now.UnixNano())
		}
		tx.awaitDisk()
		d.build(tx.s, false)
		if d.building != nil { // records of this commit are not on disk yet
			d.building.late = slices.AppendSeq(d.building.late, added)
		}
	}
}

// buildFilters starts to fill the filters.
func (s *Store) buildFilters() {
	s.foreign.build(s, s.table.lastJob == 0)
	s.keys.build(s, s.table.lastJob == 0)
	s.retries.build(s, s.table.lastJob == 0)
}

func (s *Store) dropFilters() {
	s.foreign.drop()
	s.keys.drop()
	s.retries.drop()
}

// onDisk returns what tells which keys of a kind may be on disk.
func (s *Store) onDisk(kind byte) *onDisk {
	if kind == prefixRetry {
		return &s.retries
	}
	return &s.keys
}

// noteRecords adds this commit's ids from elsewhere and keys to the filters.
func (tx *txn) noteRecords() {
	if len(tx.ids) > 0 || tx.s.foreign.building != nil {
		tx.s.foreign.note(tx, func(yield func(gq.JobID) bool) {
			for i := range tx.ids {
				if !yield(tx.ids[i].id) {
					return
				}
			}
		})
	}
	for _, kind := range []byte{prefixKey, prefixRetry} {
		d := tx.s.onDisk(kind)
		if len(tx.keyed) == 0 && d.building == nil {
			continue
		}
		d.note(tx, func(yield func(gq.JobID) bool) {
			for i := range tx.keyed {
				if tx.keyed[i][0] == kind && !yield(tx.keyed[i].bytes()) {
					return
				}
			}
		})
	}
}
