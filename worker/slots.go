package worker

import (
	"sync"
	"time"

	"github.com/gopherqueue/gq/internal/wake"
)

// slots counts how many jobs may still be claimed: per queue set, per worker, and limited by
// the number of outcomes that the queue has not accepted yet. An execution frees its slot when
// its handler returns, so the next claim overlaps with settling.
type slots struct {
	shared   bool // the queue sets compete for the worker's slots
	fetchers []*fetcher

	mu        sync.Mutex
	free      int
	unsettled int // outcomes that the queue has not accepted yet
	backlog   int // claiming stops at this many unsettled outcomes
}

// fetcher claims jobs for one [QueueSet].
type fetcher struct {
	QueueSet
	wake chan struct{} // buffered; signals that slots may be free
	more chan struct{} // buffered; signals that a second claim would get jobs

	free int // guarded by slots.mu

	// Owned by the goroutine of Worker.fetch.
	eager bool          // more jobs are likely available, so the next claim does not wait
	busy  bool          // the last claim got as many jobs as it requested
	took  time.Duration // duration of the last claim
}

func newSlots(c Config) *slots {
	s := &slots{shared: c.shared(), free: c.Slots, backlog: max(2*c.Slots, 16)}
	for _, f := range c.QueueSets {
		s.fetchers = append(s.fetchers, &fetcher{QueueSet: f, wake: make(chan struct{}, 1), more: make(chan struct{}, 1), free: f.Slots, eager: true})
	}
	return s
}

// take reserves up to most slots and returns how many.
func (s *slots) take(f *fetcher, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(most, s.availableLocked(f))
	f.free -= n
	s.free -= n
	return n
}

// takeAll reserves n slots and reports whether that many were available.
func (s *slots) takeAll(f *fetcher, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.availableLocked(f) < n {
		return false
	}
	f.free -= n
	s.free -= n
	return true
}

func (s *slots) availableLocked(f *fetcher) int {
	return max(min(f.free, s.free, s.backlog-s.unsettled), 0)
}

func (s *slots) available(f *fetcher) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.availableLocked(f)
}

// give frees slots.
func (s *slots) give(f *fetcher, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	f.free += n
	s.free += n
	s.mu.Unlock()
	f.signal()
	if s.shared {
		s.signalAll()
	}
}

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

func (s *slots) counts() (free, unsettled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free, s.unsettled
}

func (f *fetcher) signal() { wake.Up(f.wake) }

func (s *slots) signalAll() {
	for _, f := range s.fetchers {
		f.signal()
	}
}
