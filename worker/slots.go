package worker

import (
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq/internal/wake"
)

// slots counts how many jobs may still be claimed: per queue set, per worker, and limited by
// the number of outcomes that the queue has not accepted yet. An execution frees its slot when
// its handler returns, so the next claim overlaps with settling.
//
// Jobs for handlers of many jobs are claimed separately and need no slot while they wait for
// others. A group of them takes one when its handler is called, even if all free slots are
// reserved by a claim. If that claim then gets more jobs than there are slots, the worker gives
// them back.
type slots struct {
	shared   bool // the queue sets compete for the worker's slots
	fetchers []*fetcher
	most     int // of the worker

	mu        sync.Mutex
	free      int // neither in use nor reserved by a claim; negative if groups use reserved slots
	used      int
	turns     []*turn // of groups that wait for a slot, in this order
	unsettled int     // outcomes that the queue has not accepted yet
	backlog   int     // claiming stops at this many unsettled outcomes
}

// fetcher claims jobs for one [QueueSet]: either those for ordinary handlers, which need a slot
// each, or those for handlers of many jobs, of which a limited number can wait for others.
type fetcher struct {
	QueueSet
	types []string
	many  bool          // for handlers of many jobs; Slots and free then count waiting jobs
	set   *setUse       // shared by the fetchers of a queue set
	wake  chan struct{} // buffered; signals that slots may be free
	more  chan struct{} // buffered; signals that a second claim would get jobs

	free int // guarded by slots.mu

	// Owned by the goroutine of Worker.fetch.
	eager bool          // more jobs are likely available, so the next claim does not wait
	busy  bool          // the last claim got as many jobs as it requested
	took  time.Duration // duration of the last claim
}

// setUse counts the slots of a queue set that run handlers.
type setUse struct {
	most, used int
	fetcher    *fetcher // the one for ordinary handlers; nil if there is none
}

// turn is a group of jobs that waits for a slot.
type turn struct {
	set   *setUse
	comes chan struct{} // closed when it has the slot
}

// newSlots returns the slots of a worker that handles jobs of the types one by one, and those of
// gathered together, of which room can wait for others.
func newSlots(c Config, types, gathered []string, room int) *slots {
	s := &slots{shared: c.shared(), most: c.Slots, free: c.Slots, backlog: max(2*c.Slots, 16) + room}
	for _, set := range c.QueueSets {
		use := &setUse{most: set.Slots}
		add := func(types []string, many bool, n int) *fetcher {
			f := &fetcher{
				QueueSet: QueueSet{Queues: set.Queues, Slots: n}, types: types, many: many, set: use, free: n, eager: true,
				wake: make(chan struct{}, 1), more: make(chan struct{}, 1),
			}
			s.fetchers = append(s.fetchers, f)
			return f
		}
		if len(types) > 0 {
			use.fetcher = add(types, false, set.Slots)
		}
		if len(gathered) > 0 {
			add(gathered, true, room)
		}
	}
	return s
}

// take reserves up to most slots and returns how many.
func (s *slots) take(f *fetcher, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(most, s.availableLocked(f))
	s.addLocked(f, -n)
	return n
}

// takeAll reserves n slots and reports whether that many were available.
func (s *slots) takeAll(f *fetcher, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.availableLocked(f) < n {
		return false
	}
	s.addLocked(f, -n)
	return true
}

func (s *slots) availableLocked(f *fetcher) int {
	n := min(f.free, s.backlog-s.unsettled)
	if !f.many {
		n = min(n, s.free)
	}
	return max(n, 0)
}

func (s *slots) addLocked(f *fetcher, n int) {
	f.free += n
	if !f.many {
		s.free += n
	}
}

func (s *slots) available(f *fetcher) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.availableLocked(f)
}

// give frees reserved slots.
func (s *slots) give(f *fetcher, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.addLocked(f, n)
	s.mu.Unlock()
	s.signalFree(f)
}

// begin turns a reserved slot into one that runs a handler. It reports false if groups have
// taken all slots meanwhile.
func (s *slots) begin(f *fetcher) bool {
	if f.many {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unusedLocked(f.set) {
		return false
	}
	s.used++
	f.set.used++
	return true
}

// release frees what an execution holds: its slot, or its place among the jobs that wait for
// others. It has no effect the second time.
func (s *slots) release(r *Run) {
	f := r.fetcher
	s.mu.Lock()
	if r.released {
		s.mu.Unlock()
		return
	}
	r.released = true
	s.addLocked(f, 1)
	if !f.many {
		s.leaveLocked(f.set)
	}
	s.mu.Unlock()
	s.signalFree(f)
}

// enter takes a slot for a group, whether a claim has reserved it or not, as soon as one is not in
// use. It reports false if gone was closed first.
func (s *slots) enter(set *setUse, gone <-chan struct{}) bool {
	t := &turn{set: set, comes: make(chan struct{})}
	s.mu.Lock()
	s.turns = append(s.turns, t)
	s.admitLocked()
	s.mu.Unlock()
	select {
	case <-t.comes:
		return true
	case <-gone:
	}
	s.mu.Lock()
	i := slices.Index(s.turns, t)
	if i >= 0 {
		s.turns = slices.Delete(s.turns, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // it got the slot at the same time
		s.exit(set)
	}
	return false
}

// exit frees the slot of a group.
func (s *slots) exit(set *setUse) {
	s.mu.Lock()
	s.addGroupLocked(set, 1)
	s.leaveLocked(set)
	s.mu.Unlock()
	if set.fetcher != nil {
		s.signalFree(set.fetcher)
	}
}

// leaveLocked records that a handler has returned.
func (s *slots) leaveLocked(set *setUse) {
	s.used--
	set.used--
	s.admitLocked()
}

// admitLocked gives unused slots to the groups that wait for one.
func (s *slots) admitLocked() {
	s.turns = slices.DeleteFunc(s.turns, func(t *turn) bool {
		if !s.unusedLocked(t.set) {
			return false
		}
		s.used++
		t.set.used++
		s.addGroupLocked(t.set, -1)
		close(t.comes)
		return true
	})
}

func (s *slots) addGroupLocked(set *setUse, n int) {
	s.free += n
	if set.fetcher != nil {
		set.fetcher.free += n
	}
}

func (s *slots) unusedLocked(set *setUse) bool { return s.used < s.most && set.used < set.most }

// settling adds n, which may be negative, to the number of unsettled outcomes.
func (s *slots) settling(n int) {
	s.mu.Lock()
	full := s.unsettled >= s.backlog
	s.unsettled += n
	s.mu.Unlock()
	if n < 0 && full {
		s.signalAll()
	}
}

func (s *slots) counts() (free, used, unsettled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.free, 0), s.used, s.unsettled
}

// signalFree wakes the fetchers that may use a slot of f that became free.
func (s *slots) signalFree(f *fetcher) {
	f.signal()
	if s.shared && !f.many {
		s.signalAll()
	}
}

func (f *fetcher) signal() { wake.Up(f.wake) }

func (s *slots) signalAll() {
	for _, f := range s.fetchers {
		f.signal()
	}
}
