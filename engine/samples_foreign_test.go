package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

// logReads counts reads of the event log, and fails after too many.
type logReads struct {
	store.Store
	reads, events, most atomic.Int64
}

var errTooManyReads = errors.New("the log is read again and again")

func (r *logReads) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	if r.reads.Add(1) > r.most.Load() {
		return nil, errTooManyReads
	}
	events, err := r.Store.Events(ctx, after, limit)
	r.events.Add(int64(len(events)))
	return events, err
}

// eachStore runs a test on a new store of every kind, outside a bubble.
func eachStore(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Helper()
	closing := func(t *testing.T, s store.Store, err error) store.Store {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	t.Run("memory", func(t *testing.T) {
		s, err := local.OpenMemory(local.Options{})
		test(t, closing(t, s, err))
	})
	t.Run("file", func(t *testing.T) {
		s, err := local.Open(t.TempDir(), local.Options{})
		test(t, closing(t, s, err))
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
		test(t, closing(t, s, err))
	})
}

// A pool's cursor passes the events of queues outside the pool: they are read once, however
// many there are, and not again with every sample.
func TestSamplesPassForeignEvents(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		log := &logReads{Store: s}
		f := &fixture{T: t, Engine: newEngine(t, log, engine.Options{}), store: s}
		f.pooled("mine", 5)
		sample := func(reads, events int64) {
			t.Helper()
			log.reads.Store(0)
			log.events.Store(0)
			log.most.Store(reads)
			if err := f.Sample(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			if got := log.events.Load(); got != events {
				t.Errorf("a sample read %d events, want %d", got, events)
			}
		}
		sample(1, 0)

		passed := uint64(0)
		all := func() (pages, events int64) { // since the last call
			t.Helper()
			last, err := s.LastEvent(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			events = int64(last - passed)
			passed = last
			return events/1000 + 1, events
		}
		specs := make([]gq.Spec, 500)
		for i := range specs {
			specs[i] = gq.Spec{Type: "t", Queue: "foreign"}
		}
		foreign := func() {
			t.Helper()
			for range 7 { // several full pages and a partial one
				if _, err := f.SubmitBatch(t.Context(), specs); err != nil {
					t.Fatal(err)
				}
			}
		}
		foreign()
		sample(all())
		sample(1, 0)

		// The cursor passes a partial page too, and the pool's events are still counted.
		f.submit(gq.Spec{Queue: "foreign"})
		sample(all())
		sample(1, 0)
		f.submit(gq.Spec{Queue: "mine"})
		foreign()
		log.reads.Store(0)
		log.most.Store(40)
		samples, err := f.Samples(t.Context(), "p", time.Now().Add(-time.Hour))
		if err != nil || len(samples) == 0 {
			t.Fatalf("samples: %v, %v", samples, err)
		}
		var submitted int64
		for i := range samples {
			submitted += samples[i].Values[machine.SubmittedCount]
		}
		if queued := samples[len(samples)-1].Values[machine.QueuedLevel]; submitted != 1 || queued != 1 {
			t.Errorf("%d jobs were submitted to the pool and %d wait, want 1 and 1", submitted, queued)
		}
	})
}

// While a pool has no queues, its samples read no events. A queue that joins it is counted
// from then on.
func TestSamplesOfAnEmptyPoolReadNoEvents(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		log := &logReads{Store: s}
		log.most.Store(40)
		f := &fixture{T: t, Engine: newEngine(t, log, engine.Options{}), store: s}
		for range 3 {
			f.submit(gq.Spec{Queue: "foreign"})
			if err := f.Sample(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
		}
		if n := log.events.Load(); n != 0 {
			t.Errorf("samples of an empty pool read %d events", n)
		}
		f.pooled("mine", 5)
		f.submit(gq.Spec{Queue: "mine"})
		samples, err := f.Samples(t.Context(), "p", time.Now().Add(-time.Hour))
		if err != nil || len(samples) == 0 {
			t.Fatalf("samples: %v, %v", samples, err)
		}
		var submitted int64
		for i := range samples {
			submitted += samples[i].Values[machine.SubmittedCount]
		}
		if submitted != 1 {
			t.Errorf("%d jobs were counted after the queue joined the pool, want 1", submitted)
		}
	})
}
