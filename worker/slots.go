package worker

import (
	"sync"
	"time"
)

// slots counts what may still be claimed: for every lane, for the worker, and
// with regard to outcomes that the queue has not taken yet. An execution gives
// its slot back when its handler returns, so that the next claim overlaps with
// settling; but not without end.
type slots struct {
	shared bool // the lanes compete for the worker's slots
	lanes  []*lane

	mu        sync.Mutex
	free      int
	unsettled int // outcomes on their way
	backlog   int // as many of them as there may be before claiming stops
}

// lane is a [Lane] at work.
type lane struct {
	Lane
	wake chan struct{} // room for one: something may have become free

	free int // guarded by slots.mu

	// Owned by the fetcher.
	eager bool          // there may be more at once, so a claim need not wait
	busy  bool          // the last claim got all that it asked for
	took  time.Duration // how long it took
}

func newSlots(c Config) *slots {
	s := &slots{shared: c.shared(), free: c.Slots, backlog: max(2*c.Slots, 16)}
	for _, l := range c.Lanes {
		s.lanes = append(s.lanes, &lane{Lane: l, wake: make(chan struct{}, 1), free: l.Slots, eager: true})
	}
	return s
}

// take reserves up to most slots of a lane and returns how many.
func (s *slots) take(l *lane, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(most, s.availableLocked(l))
	l.free -= n
	s.free -= n
	return n
}

func (s *slots) availableLocked(l *lane) int {
	return max(min(l.free, s.free, s.backlog-s.unsettled), 0)
}

func (s *slots) available(l *lane) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.availableLocked(l)
}

// give returns slots of a lane.
func (s *slots) give(l *lane, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	l.free += n
	s.free += n
	s.mu.Unlock()
	l.signal()
	if s.shared {
		s.signalAll()
	}
}

// settling counts outcomes that are on their way, or with a negative number no
// longer.
func (s *slots) settling(n int) {
	s.mu.Lock()
	full := s.unsettled >= s.backlog
	s.unsettled += n
	s.mu.Unlock()
	if n < 0 && full {
		s.signalAll()
	}
}

func (s *slots) counts() (free, unsettled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free, s.unsettled
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (s *slots) signalAll() {
	for _, l := range s.lanes {
		l.signal()
	}
}
