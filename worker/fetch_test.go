package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/worker"
)

func TestFetcherRetriesAtGrowingIntervals(t *testing.T) {
	spec.Covers(t, "Q-41", "Q-65")
	bubble(t, func(f *fixture) {
		var ran atomic.Int32
		f.handle(func(context.Context, *worker.Run) error {
			ran.Add(1)
			return nil
		})
		f.link.setCut("claim", errors.New("connection refused"))
		f.run()
		id := f.work(nil)
		after(10 * time.Minute)
		claims := f.link.made("claim")
		var gaps []time.Duration
		for i := 1; i < len(claims); i++ {
			gaps = append(gaps, claims[i].at.Sub(claims[i-1].at))
		}
		growing := gaps[:9]
		if !slices.IsSorted(growing) || growing[0] > 100*time.Millisecond || growing[8] < 10*time.Second {
			t.Errorf("gaps %v do not grow", growing)
		}
		for _, gap := range gaps[9:] {
			if gap < 15*time.Second || gap > 30*time.Second {
				t.Errorf("a gap of %v later on", gap)
			}
		}
		if len(slices.Compact(slices.Clone(gaps[9:]))) < 2 {
			t.Errorf("gaps %v have no jitter", gaps[9:])
		}
		if n := len(f.log.lines("call to the queue failed; retrying")); n != 1 {
			t.Errorf("%d lines about one outage", n)
		}
		if ran.Load() != 0 { // it could not run in any other way
			t.Error("a job ran that was not claimed")
		}
		f.link.setCut("claim", nil)
		after(30 * time.Second)
		f.wantStatus(id, gq.StatusCompleted)
		if n := len(f.log.lines("calls to the queue succeed again")); n != 1 {
			t.Errorf("%d lines about the end of the outage", n)
		}
	})
}

func TestClaimsNoMoreThanItHasSlots(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 3
		var running, most atomic.Int32
		f.handle(func(context.Context, *worker.Run) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return nil
		})
		for range 30 {
			f.work(nil)
		}
		f.run()
		after(100 * time.Millisecond)
		if held := f.counts()[gq.StatusRunning]; held != 3 {
			t.Errorf("%d jobs are held, want 3", held)
		}
		if n := f.link.made("claim")[0].claim.N; n != 3 {
			t.Errorf("asked for %d", n)
		}
		after(time.Minute)
		if n := f.counts()[gq.StatusCompleted]; n != 30 || most.Load() != 3 {
			t.Errorf("%d completed, %d at once", n, most.Load())
		}
		for _, c := range f.link.made("claim") {
			if c.claim.N < 1 || c.claim.N > 3 {
				t.Errorf("asked for %d", c.claim.N)
			}
		}
	})
}

func TestQueueSets(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 4
		f.config.QueueSets = []worker.QueueSet{{Queues: []string{"slow"}, Slots: 2}, {Queues: []string{"urgent", "normal"}}}
		most, running := map[string]int{}, map[string]int{}
		total, mostTotal := 0, 0
		lock := make(chan struct{}, 1)
		f.handle(func(_ context.Context, run *worker.Run) error {
			lock <- struct{}{}
			running[run.Queue()]++
			total++
			most[run.Queue()] = max(most[run.Queue()], running[run.Queue()])
			mostTotal = max(mostTotal, total)
			<-lock
			time.Sleep(time.Second)
			lock <- struct{}{}
			running[run.Queue()]--
			total--
			<-lock
			return nil
		})
		f.run()
		for range 12 {
			for _, q := range []string{"slow", "urgent", "normal"} {
				f.submit(gq.Spec{Type: "work", Queue: q})
			}
		}
		after(5 * time.Minute)
		if n := f.counts()[gq.StatusCompleted]; n != 36 {
			t.Errorf("%d completed", n)
		}
		if most["slow"] > 2 || mostTotal != 4 {
			t.Errorf("at once: %v, %d in all", most, mostTotal)
		}
		// A waiting queue set leaves slots to the others.
		for range 3 {
			f.submit(gq.Spec{Type: "work", Queue: "normal"})
		}
		after(time.Second + time.Millisecond)
		if n := f.counts()[gq.StatusCompleted]; n != 39 {
			t.Errorf("%d completed: the idle queue set holds slots", n)
		}
	})
}

func TestTypesWithoutHandlerAreLeftForOthers(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(context.Context, *worker.Run) error { return nil })
		f.run()
		id := f.submit(gq.Spec{Type: "foreign"})
		after(time.Hour)
		f.wantStatus(id, gq.StatusScheduled)
		for _, c := range f.link.made("claim") {
			if !slices.Equal(c.claim.Types, []string{"work"}) {
				t.Errorf("asked for %v", c.claim.Types)
			}
		}
	})
}

// careless is a queue that returns jobs that were not requested.
type careless struct{ *memory }

func (q careless) Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error) {
	req.N += 2
	req.Types = append(slices.Clone(req.Types), "foreign")
	jobs, err := q.memory.Claim(ctx, req)
	return append(jobs, gq.Job{}), err
}

func TestJobsThatWereNotAskedForAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, mux := newMemory(), worker.NewMux()
		var running, most atomic.Int32
		mux.HandleFunc("work", func(context.Context, *worker.Run) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return nil
		})
		foreign := m.submit(gq.Spec{Type: "foreign"})
		for range 5 {
			m.submit(gq.Spec{Type: "work"})
		}
		w, err := worker.NewWith(careless{m}, mux, worker.Config{Slots: 1, Logger: discard()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := m.counts()[gq.StatusCompleted]; n != 5 || most.Load() != 1 {
			t.Errorf("%d completed, %d at once", n, most.Load())
		}
		if s := m.job(foreign).State; s.Faults != 0 || s.Status.Terminal() || s.Attempt > 10 {
			t.Errorf("the foreign job: %v after %d attempts and %d faults", s.Status, s.Attempt, s.Faults)
		}
	})
}
