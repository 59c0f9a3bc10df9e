package local

import (
	"encoding/binary"
	"math"

	"github.com/gopherqueue/gq"
)

// idFilter remembers which ids belong to finished jobs, in ten bits each, so
// that the insert of a new id need not look on disk to see that it is new. It
// may say "perhaps" for an id that was never used; then the disk decides.
type idFilter struct {
	blocks [][8]uint64 // of a cache line each
	count  int
	room   int
}

const (
	filterLeast = 1 << 20 // smallest room: 1.3 MB
	filterMost  = 1 << 26 // largest: 84 MB; with more finished jobs every insert looks on disk
)

// newFilter makes a filter with room to grow, nil if that would be too large.
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

// mix spreads what differs in one bit over all of them.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// filterBuild is a filter that is being filled from disk beside the writer.
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
		defer func() { _ = snapshot.Close() }() // nothing to do about it
		it, err := snapshot.NewIter(iterOptions(prefixID))
		if err != nil {
			return
		}
		defer func() { _ = it.Close() }() // Error tells below
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

// dropFilter does without the filter of used ids: from here on the disk is asked.
func (s *Store) dropFilter() {
	if s.building != nil {
		close(s.building.stop)
	}
	s.filter, s.building = nil, nil
}

// noteFinished tells the filter of the jobs that end in this commit, all at once:
// each costs a few looks at memory far apart, which then overlap.
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
		if s.building != nil { // what ends in this commit is not on disk yet
			late(s.building)
		}
	}
}
