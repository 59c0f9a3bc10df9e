package local

import (
	"encoding/binary"
	"math"

	"github.com/gopherqueue/gq"
)

// idFilter remembers the ids of finished jobs in ten bits each, so that inserting a new
// id rarely reads the disk. It may say "perhaps" for an id that was never used; then
// the disk decides.
type idFilter struct {
	blocks [][8]uint64 // a cache line each
	count  int
	room   int
}

const (
	filterLeast = 1 << 20 // smallest capacity: 1.3 MB
	filterMost  = 1 << 26 // largest: 84 MB; with more finished jobs every insert reads the disk
)

// newFilter makes a filter with room to grow, or nil if it would be too large.
func newFilter(ids int) *idFilter {
	room := filterLeast
	for room < 2*ids {
		room *= 2
	}
	if room > filterMost {
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

// filterBuild is a filter that a background goroutine fills from disk.
type filterBuild struct {
	done chan *idFilter
	stop chan struct{}
	late []gq.JobID // finished since the build began
}

// buildFilter starts to fill a filter with the ids of all finished jobs.
func (s *Store) buildFilter() {
	s.filter = nil
	total := int64(0)
	for _, q := range s.table.numbers[1:] {
		for st := gq.StatusCompleted; st <= gq.StatusCancelled; st++ {
			total += q.counts[st]
		}
	}
	f := newFilter(int(min(total, math.MaxInt32)))
	if f == nil {
		return
	}
	if total == 0 {
		s.filter = f
		return
	}
	b := &filterBuild{done: make(chan *idFilter, 1), stop: make(chan struct{})}
	s.building = b
	snapshot := s.db.NewSnapshot()
	s.background.Go(func() {
		defer func() { _ = snapshot.Close() }() // nothing to do about an error
		it, err := snapshot.NewIter(iterOptions(prefixID))
		if err != nil {
			return
		}
		defer func() { _ = it.Close() }() // it.Error reports errors below
		for ok := it.First(); ok && len(it.Key()) == 17; ok = it.Next() {
			f.add(gq.JobID(it.Key()[1:]))
			if f.count%4096 == 0 {
				select {
				case <-b.stop:
					return
				default:
				}
			}
		}
		if it.Error() == nil {
			b.done <- f
		}
	})
}

// dropFilter removes the filter: from here on every insert reads the disk.
func (s *Store) dropFilter() {
	if s.building != nil {
		close(s.building.stop)
	}
	s.filter, s.building = nil, nil
}

// noteFinished adds this commit's finished jobs to the filter in one go, so that their
// cache misses overlap.
func (tx *txn) noteFinished() {
	s, finished := tx.s, tx.here().finished
	late := func(b *filterBuild) {
		for _, j := range finished {
			b.late = append(b.late, j.id)
		}
	}
	if b := s.building; b != nil {
		late(b)
		select {
		case s.filter = <-b.done:
			for _, id := range b.late {
				s.filter.add(id)
			}
			s.building = nil
		default:
		}
		return
	}
	if s.filter == nil {
		return
	}
	for _, j := range finished {
		s.filter.add(j.id)
	}
	if s.filter.full() {
		tx.awaitDisk()
		s.buildFilter()
		if s.building != nil { // jobs that end in this commit are not on disk yet
			late(s.building)
		}
	}
}
