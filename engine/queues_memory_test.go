package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// liveHeap returns the bytes in use after a garbage collection.
func liveHeap() int64 {
	for range 3 { // a later collection frees what cleanups released
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A queue whose jobs have ended costs the engine nothing, and costs a store that keeps its
// jobs elsewhere little more than its name. The embedded store has its own test.
func TestIdleQueuesTakeLittleMemory(t *testing.T) {
	const (
		queues = 4000
		most   = 512 // bytes per queue
	)
	url := pgtest.Database(t)
	// use opens the store, calls f and measures the live heap.
	use := func(f func(e *engine.Engine)) int64 {
		t.Helper()
		before := liveHeap()
		s, err := postgres.Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		e := newEngine(t, s, engine.Options{})
		f(e)
		if _, err := e.Submit(t.Context(), gq.Spec{Type: "t", Queue: "always"}); err != nil { // fills the engine's caches
			t.Fatal(err)
		}
		if _, err := e.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.QueuesAfter(t.Context(), "", 10); err != nil {
			t.Fatal(err)
		}
		used := liveHeap() - before
		runtime.KeepAlive(e)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return used
	}
	nothing := func(*engine.Engine) {}
	use(nothing) // allocate what a process allocates once
	empty := use(nothing)
	worked := use(func(e *engine.Engine) {
		specs := make([]gq.Spec, 500)
		for sent := 0; sent < queues; sent += len(specs) {
			for i := range specs {
				specs[i] = gq.Spec{Type: "t", Queue: fmt.Sprintf("queue-of-a-tenant-%06d", sent+i)}
			}
			if _, err := e.SubmitBatch(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := e.CancelWhere(t.Context(), gq.Query{}, "over"); err != nil || r.Cancelled < queues {
			t.Fatalf("cancelled %+v, %v", r, err)
		}
		if _, err := e.Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	})
	reopened := use(nothing)
	before, after := (worked-empty)/queues, (reopened-empty)/queues
	t.Logf("an idle queue takes %d bytes, and %d after a restart", before, after)
	if before > most || after > most {
		t.Errorf("an idle queue takes %d bytes, and %d after a restart; want at most %d", before, after, most)
	}
}
