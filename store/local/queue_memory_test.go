package local

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// tableBytes returns the memory that a store's table takes for queues and live jobs. It
// frees the table, so the store is unusable afterwards.
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
	t.jobs, t.foreign, t.queues, t.numbers, t.buckets = empty.jobs, empty.foreign, empty.queues, empty.numbers, empty.buckets
	t.names.Store(empty.names.Load())
	t.pools, t.toRun, t.toDue, t.promoted, t.kids, t.ended = empty.pools, empty.toRun, empty.toDue, empty.promoted, empty.kids, empty.ended
	s.byName.Store(nil)
	return before - live()
}

// A queue whose jobs have ended costs only its entries in a few tables, so that 100,000
// fit easily. Files and caches do not count: they have their own limits.
func TestIdleQueuesTakeLittleMemory(t *testing.T) {
	const most = 512 // bytes per queue
	queues := 10_000
	if race.Share() {
		queues = 2_500
	}
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
				q := machine.NewQueue(name(i))
				q.MaxRunning, q.Policy.MaxAttempts = 7, 9
				must(t, s.PutQueue(t.Context(), q))
			}
		},
		"after a job": func(t *testing.T, s *Store) {
			const at = 100 // jobs per call, or the test takes half a minute
			for first := 0; first < queues; first += at {
				var groups []store.Group
				var claims []store.Claim
				for i := first; i < first+at; i++ {
					groups = append(groups, store.One(gq.Spec{
						ID: machine.NewJobID([16]byte{1, byte(i), byte(i >> 8)}), Type: "t", Queue: name(i), Metadata: gq.Metadata{Priority: gq.PriorityNormal},
						Payload: gq.Payload{Data: []byte("{}"), ContentType: gq.JSON}, Policy: machine.DefaultPolicy(),
					}))
					claims = append(claims, store.Claim{Filter: store.Filter{Queues: []string{name(i)}}, N: 1, Worker: "w"})
				}
				placed, err := s.Insert(t.Context(), groups)
				must(t, err)
				claimed, err := s.Claim(t.Context(), claims)
				must(t, err)
				var updates []store.Update
				for i := range groups {
					must(t, placed[i].Err)
					must(t, claimed[i].Err)
					ref := claimed[i].Jobs[0].State.Lease.Ref()
					updates = append(updates, store.Update{Ref: store.Ref{Job: claimed[i].Jobs[0].State.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
						return machine.Complete(s, ref, nil, now)
					}})
				}
				done, err := s.Update(t.Context(), updates)
				must(t, err)
				for _, d := range done {
					must(t, d.Err)
				}
			}
			_, _, err := s.Collect(t.Context(), 1)
			must(t, err)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			open := func(disk vfs.FS) *Store {
				t.Helper()
				s, err := Open("db", Options{fs: disk})
				must(t, err)
				if all, err := s.Queues(t.Context(), store.QueueQuery{Limit: 1}); err != nil || len(all) > 1 { // sorts the queues
					t.Fatal(all, err)
				}
				return s
			}
			measure := func(fill func(*testing.T, *Store)) (worked, reopened int64) {
				t.Helper()
				disk := vfs.NewMem()
				s := open(disk)
				fill(t, s)
				must(t, s.Close())
				worked = tableBytes(s)
				s = open(disk)
				must(t, s.Close())
				return worked, tableBytes(s)
			}
			none, noneAgain := measure(func(*testing.T, *Store) {})
			some, someAgain := measure(fill)
			before, after := (some-none)/int64(queues), (someAgain-noneAgain)/int64(queues)
			t.Logf("an idle queue takes %d bytes, and %d after a restart", before, after)
			if before > most || after > most {
				t.Errorf("an idle queue takes %d bytes, and %d after a restart; want at most %d", before, after, most)
			}
		})
	}
}

// Queued jobs that were submitted together share their state.
func TestQueuedJobsTakeLittleMemory(t *testing.T) {
	const most = 180 // bytes per job
	jobs, at := 20_000, 200
	if race.Share() {
		jobs = 4_000
	}
	disk := vfs.NewMem()
	open := func() *Store {
		t.Helper()
		s, err := Open("db", Options{fs: disk})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	measure := func(s *Store) int64 {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return tableBytes(s) / int64(jobs)
	}
	s := open()
	for first := 0; first < jobs; first += at {
		groups := make([]store.Group, at)
		for i := range groups {
			n := uint64(first + i)
			groups[i] = store.One(gq.Spec{
				ID: idOf(mix(n), mix(n+1<<40)), Type: "t", Queue: "q",
				Payload: gq.Payload{Data: []byte("{}"), ContentType: gq.JSON},
			}.WithDefaults())
		}
		answers, err := s.Insert(t.Context(), groups)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	before := measure(s)
	after := measure(open())
	t.Logf("a queued job takes %d bytes, and %d after a restart", before, after)
	if before > most || after > most || before < 90 || after < 90 {
		t.Errorf("a queued job takes %d bytes, and %d after a restart; want at most %d and at least the size of a job", before, after, most)
	}
}
