package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func TestWait(t *testing.T) {
	for name, wrap := range map[string]func(store.Store) store.Store{
		"News":        nil,
		"WithoutNews": func(s store.Store) store.Store { return silent{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, engine.Options{}, wrap)
				id := f.submit(gq.Spec{})
				var working sync.WaitGroup
				working.Go(func() {
					time.Sleep(10 * time.Second)
					_, lease := f.take()
					time.Sleep(10 * time.Second)
					must[gq.State](t)(f.Complete(t.Context(), lease, []byte("done")))
				})
				began := time.Now()
				j := must[gq.Job](t)(f.Wait(t.Context(), id))
				took := time.Since(began)
				if j.State.Status != gq.StatusCompleted || string(j.Result) != "done" || took < 20*time.Second || took > 21*time.Second ||
					wrap == nil && took != 20*time.Second {
					t.Errorf("%s %q after %v", j.State.Status, j.Result, took)
				}
				working.Wait()
				if j := must[gq.Job](t)(f.Wait(t.Context(), id)); string(j.Result) != "done" {
					t.Errorf("a second wait: %q", j.Result)
				}

				live := f.submit(gq.Spec{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				j, err := f.Wait(ctx, live)
				if errs.KindOf(err) != gq.KindTimeout || !errors.Is(err, context.DeadlineExceeded) || j.State.Status != gq.StatusScheduled {
					t.Errorf("a deadline: %s, %v", j.State.Status, err)
				}
				stopped, stop := context.WithCancel(t.Context())
				stop()
				if _, err := f.Wait(stopped, live); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
				_, err = f.Wait(t.Context(), machine.NewJobID([16]byte{1}))
				wantErr(t, "no job", err, gq.ErrNotFound)
			})
		})
	}
}

// TestManyWait: two callers each wait for five hundred jobs. The cost must grow with the
// jobs, not with commits times waiters.
func TestManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *counting
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { c = &counting{Store: s}; return c })
		const n = 500
		specs := make([]gq.Spec, n)
		for i := range specs {
			specs[i].Type = "t"
		}
		out := must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), specs))
		var wg sync.WaitGroup
		for i := range 2 * n {
			wg.Go(func() {
				j, err := f.Wait(t.Context(), out[i%n].ID())
				if err != nil || j.State.Status != gq.StatusCompleted || string(j.Result) != j.State.ID.String() {
					t.Errorf("%s %q, %v", j.State.Status, j.Result, err)
				}
			})
		}
		synctest.Wait()
		began := c.gets.Load()
		if began > 4*2*n {
			t.Errorf("%d jobs were read before anything happened", began)
		}
		for done := 0; done < n; {
			jobs := must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 10}))
			for _, j := range jobs {
				must[gq.State](t)(f.Complete(t.Context(), j.State.Lease.Ref(), []byte(j.State.ID.String())))
				synctest.Wait()
			}
			done += len(jobs)
		}
		wg.Wait()
		// Each waiter reads its job once; the watch reads the jobs at first and the last
		// few.
		if reads := c.gets.Load() - began; reads > 2*n+n+32*33*2 {
			t.Errorf("%d jobs were read for %d waiters", reads, 2*n)
		}
		t.Logf("%d jobs and %d pages of events were read", c.gets.Load()-began, c.events.Load())
	})
}

// TestWaitUntilDeadLetter: the end of its lifetime ends the job, without a worker.
func TestWaitUntilDeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		p := machine.DefaultPolicy()
		p.Lifetime = time.Hour
		id := f.submit(gq.Spec{Policy: p})
		began := time.Now()
		j := must[gq.Job](t)(f.Wait(t.Context(), id))
		if j.State.Status != gq.StatusDeadLetter || j.State.Reason != "lifetime" || time.Since(began) > time.Hour+time.Second {
			t.Errorf("%s (%s) after %v", j.State.Status, j.State.Reason, time.Since(began))
		}
	})
}

func TestRunSweeps(t *testing.T) {
	for name, wrap := range map[string]func(store.Store) store.Store{
		"News":        nil,
		"WithoutNews": func(s store.Store) store.Store { return silent{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, engine.Options{}, wrap)
				f.run()
				time.Sleep(time.Second) // it is idle by then
				delayed := f.submit(gq.Spec{Delay: 30 * time.Second})
				f.submit(gq.Spec{Queue: "q"})
				lost, _ := f.take(on("q"), func(r *gq.ClaimRequest) { r.TTL = 20 * time.Second })
				recorded := func(id gq.JobID, typ gq.EventType) (found bool) {
					for _, e := range must[[]gq.Event](t)(f.History(t.Context(), id)) {
						found = found || e.Type == typ
					}
					return found
				}
				time.Sleep(18 * time.Second)
				if recorded(delayed, gq.EventScheduled) || recorded(lost.State.ID, gq.EventRetrying) {
					t.Error("too early")
				}
				time.Sleep(14 * time.Second)
				if !recorded(delayed, gq.EventScheduled) || !recorded(lost.State.ID, gq.EventRetrying) {
					t.Error("time has passed and nobody recorded it")
				}
			})
		})
	}
}

func TestSweepIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openKept(t, time.Hour)
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{Batch: 10}), store: s}
		specs := make([]gq.Spec, 25)
		for i := range specs {
			specs[i] = gq.Spec{Type: fmt.Sprint(i), Delay: time.Minute}
		}
		must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), specs))
		if r := f.sweep(); r.Advanced != 0 || r.More || time.Until(r.Next) != time.Minute {
			t.Errorf("before: %+v", r)
		}
		time.Sleep(time.Minute)
		for _, want := range []struct {
			n    int
			more bool
		}{{10, true}, {10, true}, {5, false}, {0, false}} {
			if r := f.sweep(); r.Advanced != want.n || r.More != want.more {
				t.Errorf("%+v, want %+v", r, want)
			}
		}
		for _, j := range f.claim(25) {
			must[gq.State](t)(f.Complete(t.Context(), j.State.Lease.Ref(), nil))
		}
		time.Sleep(2 * time.Hour)
		total := 0
		for r := f.sweep(); r.Collected > 0; r = f.sweep() {
			if r.Collected > 10 {
				t.Errorf("%d jobs were collected in one step", r.Collected)
			}
			total += r.Collected
		}
		if total != 25 {
			t.Errorf("%d jobs were collected", total)
		}
	})
}
