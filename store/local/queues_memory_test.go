package local

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// tableBytes is how much memory is let go with the table of a store, which is what it
// keeps of queues and live jobs. The store cannot be used any more.
func tableBytes(s *Store) int64 {
	live := func() int64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := live()
	empty, t := newTable(), s.table
	t.jobs, t.slots, t.foreign, t.queues, t.numbers, t.lanes = empty.jobs, empty.slots, empty.foreign, empty.queues, empty.numbers, empty.lanes
	t.names.Store(empty.names.Load())
	t.pools, t.toRun, t.toDue, t.promoted, t.kids, t.ended = empty.pools, empty.toRun, empty.toDue, empty.promoted, empty.kids, empty.ended
	s.byName.Store(nil)
	return before - live()
}

// A queue whose jobs have ended costs no more than its place in a few tables: 100,000
// of them must fit beside anything. Files and caches do not count: they have limits.
func TestIdleQueuesTakeLittleMemory(t *testing.T) {
	const (
		queues = 10_000
		most   = 512 // bytes of each
	)
	name := func(i int) string { return fmt.Sprintf("queue-of-a-tenant-%06d", i) }
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for kind, fill := range map[string]func(t *testing.T, s *Store){
		"configured": func(t *testing.T, s *Store) {
			for i := range queues {
				q := gq.NewQueue(name(i))
				q.MaxRunning, q.Policy.MaxAttempts = 7, 9
				must(t, s.PutQueue(t.Context(), q))
			}
		},
		"after a job": func(t *testing.T, s *Store) {
			for i := range queues {
				job := gq.Spec{
					ID: gq.NewJobID([16]byte{1, byte(i), byte(i >> 8)}), Type: "t", Queue: name(i), Metadata: gq.Metadata{Priority: gq.Normal},
					Payload: gq.Payload{ContentType: gq.JSON}, Policy: gq.Default(),
				}
				placed, err := s.Insert(t.Context(), []store.Group{store.One(job)})
				must(t, err)
				must(t, placed[0].Err)
				claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{name(i)}}, N: 1, Worker: "w"}})
				must(t, err)
				ref := claimed[0].Jobs[0].State.Lease.Ref()
				done, err := s.Update(t.Context(), []store.Update{{Ref: store.Ref{Job: job.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return s.Complete(ref, nil, now)
				}}})
				must(t, err)
				must(t, done[0].Err)
			}
			_, err := s.Collect(t.Context(), 1)
			must(t, err)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			open := func(dir string) *Store {
				t.Helper()
				s, err := Open(dir, Options{})
				must(t, err)
				if all, err := s.Queues(t.Context(), store.QueueQuery{Limit: 1}); err != nil || len(all) > 1 { // which sorts them
					t.Fatal(all, err)
				}
				return s
			}
			measure := func(fill func(*testing.T, *Store)) (worked, reopened int64) {
				t.Helper()
				dir := t.TempDir()
				s := open(dir)
				fill(t, s)
				must(t, s.Close())
				worked = tableBytes(s)
				s = open(dir)
				must(t, s.Close())
				return worked, tableBytes(s)
			}
			none, noneAgain := measure(func(*testing.T, *Store) {})
			some, someAgain := measure(fill)
			before, after := (some-none)/queues, (someAgain-noneAgain)/queues
			t.Logf("an idle queue takes %d bytes, and %d after a restart", before, after)
			if before > most || after > most {
				t.Errorf("an idle queue takes %d bytes, and %d after a restart; want at most %d", before, after, most)
			}
		})
	}
}
