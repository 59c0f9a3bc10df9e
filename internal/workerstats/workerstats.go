// Package workerstats adds up the statistics of the workers of a process.
package workerstats

import (
	"maps"
	"slices"
	"sync"

	"github.com/gopherqueue/gq/worker"
)

// Sum is the sum over workers. Its zero value has none.
type Sum struct {
	mu       sync.Mutex
	workers  map[*byte]func() worker.Stats // guarded by mu
	detached worker.Stats                  // counters of workers that have stopped; guarded by mu
}

// Attach implements a method of [worker.Metrics].
func (m *Sum) Attach(stats func() worker.Stats) (detach func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := new(byte)
	if m.workers == nil {
		m.workers = map[*byte]func() worker.Stats{}
	}
	m.workers[id] = stats
	return func() {
		last := stats()
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.workers, id)
		addCounters(&m.detached, &last)
	}
}

// Stats adds up the attached workers and the counters of those that have stopped.
func (m *Sum) Stats() worker.Stats {
	m.mu.Lock()
	sum := m.detached
	attached := slices.Collect(maps.Values(m.workers))
	m.mu.Unlock()
	for _, stats := range attached {
		s := stats()
		addCounters(&sum, &s)
		sum.Slots += s.Slots
		sum.Used += s.Used
		sum.Free += s.Free
		sum.Running += s.Running
		sum.Unsettled += s.Unsettled
		sum.Ignoring += s.Ignoring
	}
	return sum
}

func addCounters(to, s *worker.Stats) {
	to.LeasesLost += s.LeasesLost
	to.Refused += s.Refused
	to.Undelivered += s.Undelivered
	to.Claims += s.Claims
	to.Heartbeats += s.Heartbeats
	to.Settles += s.Settles
	to.FailedClaims += s.FailedClaims
	to.FailedHeartbeats += s.FailedHeartbeats
	to.FailedSettles += s.FailedSettles
}
