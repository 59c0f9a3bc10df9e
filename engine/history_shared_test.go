package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/simple"
)

// The store that is made of maps counts like the others.
func TestHistoryMemory(t *testing.T) {
	s, err := simple.Open(store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
	f.work("mail")
	f = f.stored()
	f.work("mail")
	sameAsLog(t, f.Engine, s)
}

// Several engines on two handles of one database store the history at the same time while others
// work: nothing is lost or counted twice, and nobody ever reads more than there is.
func TestHistoryShared(t *testing.T) {
	url := pgtest.Own(t).Database(t)
	var stores [2]store.Store
	for i := range stores {
		s, err := postgres.Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		stores[i] = s
	}
	var submitted atomic.Int64
	var busy, storing sync.WaitGroup
	stop := make(chan struct{})
	for i, s := range stores {
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		busy.Go(func() {
			for round := range 6 {
				queue := fmt.Sprintf("q%d-%d", (i+round)%3, i)
				submitted.Add(workJobs)
				f.work(queue)
			}
		})
		storing.Go(func() {
			reader := newEngine(t, s, engine.Options{})
			for {
				select {
				case <-stop:
					return
				default:
				}
				e := newEngine(t, s, engine.Options{})
				if _, err := e.Sweep(t.Context(), time.Now()); err != nil {
					t.Error(err)
				}
				list, err := reader.QueueHistory(t.Context(), gq.HistoryQuery{})
				most := submitted.Load()
				var n int64
				for j := range list {
					n += list[j].Submitted
				}
				if err != nil || n > most {
					t.Errorf("%d of %d jobs, %v", n, most, err)
				}
			}
		})
	}
	busy.Wait()
	close(stop)
	storing.Wait()
	sameAsLog(t, newEngine(t, stores[0], engine.Options{}), stores[0])
	sameAsLog(t, newEngine(t, stores[1], engine.Options{}), stores[0])
}

// killed is a store that fails from the nth write of documents on, before or after it was done.
type killed struct {
	store.Store
	left  int
	after bool
}

var errStopped = errors.New("stopped")

func (k *killed) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	if k.left--; k.left >= 0 {
		return k.Store.PutDocs(ctx, docs)
	}
	if k.after && k.left == -1 {
		if _, err := k.Store.PutDocs(ctx, docs); err != nil {
			return nil, err
		}
	}
	return nil, errStopped
}

// The counts of more queues than one commit can change are stored in several. An engine that
// stops in between, wherever it is, loses and doubles nothing.
func TestHistoryManyQueues(t *testing.T) {
	s := openKept(t, time.Microsecond) // so that each sweep stores the counts
	f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
	const queues = 1300
	specs := make([]gq.Spec, queues)
	for i := range specs {
		specs[i] = gq.Spec{Type: "t", Queue: fmt.Sprintf("q%04d", i)}
	}
	rounds := int64(0)
	check := func(e *engine.Engine) {
		t.Helper()
		list := must[[]gq.QueueActivity](t)(e.QueueActivity(t.Context()))
		if len(list) != queues {
			t.Fatalf("%d queues", len(list))
		}
		for _, a := range list {
			if a.Submitted != rounds {
				t.Fatalf("queue %s has %d jobs, want %d", a.Queue, a.Submitted, rounds)
			}
		}
		var all int64
		for _, p := range must[[]gq.HistoryPoint](t)(e.QueueHistory(t.Context(), gq.HistoryQuery{})) {
			all += p.Submitted
		}
		if all != queues*rounds {
			t.Fatalf("%d jobs, want %d", all, queues*rounds)
		}
	}
	for left := range 5 {
		for _, after := range []bool{false, true} {
			must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), specs[:queues/2]))
			must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), specs[queues/2:]))
			rounds++
			dies := newEngine(t, &killed{s, left, after}, engine.Options{})
			if _, err := dies.Sweep(t.Context(), time.Now()); !errors.Is(err, errStopped) && left < 4 {
				t.Fatalf("it was not killed at write %d: %v", left, err)
			}
			check(newEngine(t, s, engine.Options{}))
		}
	}
}

// A sweep counts events before they can be deleted. An engine that starts on a backlog has more
// urgent work while none is near that.
func TestSweepCountsWhatMayBeDeleted(t *testing.T) {
	for kept, stores := range map[time.Duration]bool{24 * time.Hour: false, time.Microsecond: true} {
		s := openKept(t, kept)
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		f.submit(gq.Spec{})
		k := &killed{Store: s, left: 1000}
		if _, err := newEngine(t, k, engine.Options{}).Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := k.left < 1000; got != stores {
			t.Errorf("kept for %v: stored: %t, want %t", kept, got, stores)
		}
	}
}

// The history of an embedded store survives a restart, stored or not.
func TestHistoryReopen(t *testing.T) {
	dir := t.TempDir()
	var want int64
	for range 4 {
		s, err := local.Open(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		sameAsLog(t, f.Engine, s)
		f.work("mail")
		f = f.stored()
		f.work("mail")
		want += 2 * workJobs
		sameAsLog(t, f.Engine, s)
		if got := must[[]gq.QueueActivity](t)(f.QueueActivity(t.Context(), "mail"))[0].Submitted; got != want {
			t.Errorf("%d jobs, want %d", got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
