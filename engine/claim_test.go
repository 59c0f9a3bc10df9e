package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store"
)

func TestClaimFaults(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		_, err := f.Claim(t.Context(), gq.ClaimRequest{
			N: 5000, Wait: -1, TTL: -1, MaxCost: -1, Queues: []string{"a b"}, Types: []string{""}, Offers: []string{"\x00"},
		})
		want := []string{"worker", "n", "wait", "ttl", "max_cost", "queues[0]", "types[0]", "offers[0]"}
		for _, w := range want {
			if !slices.Contains(fields(err), w) {
				t.Errorf("no fault of %s in %v", w, err)
			}
		}
	})
}

func TestClaimBringsPayloadAndCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{Payload: payload("1")})
		_, lease := f.take()
		must[[]gq.LeaseResult](t)(f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease, Progress: 0.5, Checkpoint: []byte("half")}}))
		must[gq.State](t)(f.Release(t.Context(), lease, 0, "shutdown"))
		j, _ := f.take()
		if j.State.ID != id || string(j.Spec.Payload.Data) != "1" || string(j.Checkpoint) != "half" {
			t.Errorf("claimed %s with payload %s and checkpoint %s", j.State.ID, j.Spec.Payload.Data, j.Checkpoint)
		}
	})
}

// TestLongPoll wakes a waiting claim by everything that can make a job claimable.
func TestLongPoll(t *testing.T) {
	type world struct {
		*fixture
		start time.Time
	}
	for _, test := range []struct {
		name string
		prep func(w world)          // before the claim
		act  func(w world)          // while it waits, 10 s later; may be nil
		want time.Duration          // when the claim gets a job
		slow bool                   // without notifications it may take a second longer
		req  func(*gq.ClaimRequest) // may be nil
	}{
		{name: "Submit", act: func(w world) { w.submit(gq.Spec{}) }, want: 10 * time.Second, slow: true},
		{
			name: "OtherQueueFirst", act: func(w world) { w.submit(gq.Spec{Queue: "b"}) }, want: 10 * time.Second, slow: true,
			req: func(r *gq.ClaimRequest) { r.Queues = []string{"a", "b"} },
		},
		{name: "DelayOver", prep: func(w world) { w.submit(gq.Spec{Delay: 7 * time.Second}) }, want: 7 * time.Second},
		{name: "DelayedWhileWaiting", act: func(w world) { w.submit(gq.Spec{Delay: 5 * time.Second}) }, want: 15 * time.Second, slow: true},
		{name: "LeaseExpires", prep: func(w world) {
			w.submit(gq.Spec{})
			w.take(as("other"), func(r *gq.ClaimRequest) { r.TTL = 8 * time.Second })
		}, want: 8 * time.Second},
		{name: "BackoffOver", prep: func(w world) {
			w.submit(gq.Spec{})
			_, lease := w.take(as("other"))
			must[gq.State](w.T)(w.Fail(w.Context(), lease, gq.Failure{Category: gq.CategoryTemporary, RetryAfter: 9 * time.Second}))
		}, want: 9 * time.Second},
		{name: "Release", prep: func(w world) { w.submit(gq.Spec{}); w.take(as("other")) }, act: func(w world) {
			page := must[gq.Page](w.T)(w.List(w.Context(), gq.Query{}))
			must[gq.State](w.T)(w.Engine.Release(w.Context(), page.Jobs[0].State.Lease.Ref(), 0, ""))
		}, want: 10 * time.Second, slow: true},
		{name: "Resume", prep: func(w world) {
			must[gq.Queue](w.T)(w.Pause(w.Context(), gq.DefaultQueue))
			w.submit(gq.Spec{})
		}, act: func(w world) { must[gq.Queue](w.T)(w.Resume(w.Context(), gq.DefaultQueue)) }, want: 10 * time.Second, slow: true},
		{name: "DependencyEnds", prep: func(w world) {
			must[[]gq.SubmitResult](w.T)(w.SubmitGraph(w.Context(), []gq.GraphJob{
				{Spec: gq.Spec{Type: "t"}, Ref: "a"}, {Spec: gq.Spec{Type: "t"}, Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "a"}}},
			}))
			w.take(as("other"))
		}, act: func(w world) {
			page := must[gq.Page](w.T)(w.List(w.Context(), gq.Query{Statuses: []gq.Status{gq.StatusRunning}}))
			must[gq.State](w.T)(w.Complete(w.Context(), page.Jobs[0].State.Lease.Ref(), nil))
		}, want: 10 * time.Second, slow: true},
		{name: "Nothing", want: time.Minute},
		{
			name: "WrongType", act: func(w world) { w.submit(gq.Spec{Type: "other"}) }, want: time.Minute,
			req: func(r *gq.ClaimRequest) { r.Types = []string{"t"} },
		},
	} {
		for _, mute := range []bool{false, true} {
			name := test.name
			if mute {
				name += "/WithoutNews"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wrap := func(s store.Store) store.Store { return s }
					if mute {
						wrap = func(s store.Store) store.Store { return silent{s} }
					}
					w := world{newFixture(t, engine.Options{}, wrap), time.Now()}
					if test.prep != nil {
						test.prep(w)
					}
					var acting sync.WaitGroup
					defer acting.Wait()
					if test.act != nil {
						acting.Go(func() {
							time.Sleep(10 * time.Second)
							test.act(w)
						})
					}
					r := gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1}
					if test.req != nil {
						test.req(&r)
					}
					jobs, err := w.Claim(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					took, most := time.Since(w.start), test.want
					if mute && test.slow {
						most += time.Second
					}
					if wantNone := test.want == time.Minute; took < test.want || took > most+20*time.Millisecond || (len(jobs) == 0) != wantNone {
						t.Errorf("%d jobs after %v, want them after %v", len(jobs), took, test.want)
					}
				})
			})
		}
	}
}

// TestNoHerd: ten thousand claims wait for one job at a time.
func TestNoHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *counting
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { c = &counting{Store: s}; return c })
		const waiters, jobs = 10_000, 200
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan gq.Job, waiters)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				found, err := f.Claim(ctx, gq.ClaimRequest{Worker: fmt.Sprint("w", i), Wait: 10 * time.Minute, N: 1})
				if err != nil {
					t.Error(err)
				}
				for _, j := range found {
					got <- j
				}
			})
		}
		synctest.Wait()
		if n := c.claims.Load(); n > waiters/2 {
			t.Errorf("%d claims before there was any job", n)
		}
		before := c.claims.Load()
		for range jobs {
			f.submit(gq.Spec{})
			synctest.Wait()
		}
		if len(got) != jobs {
			t.Fatalf("%d of %d jobs were claimed", len(got), jobs)
		}
		// For each job: the claim that gets it, the claims that it makes retry, and one for
		// the news of the claim itself.
		if n := c.claims.Load() - before; n > 8*jobs {
			t.Errorf("%d claims for %d jobs", n, jobs)
		}
		before, calls := c.claims.Load(), c.claimCalls.Load()
		for range 5 {
			specs := make([]gq.Spec, 1000)
			for i := range specs {
				specs[i].Type = "t"
			}
			must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), specs))
			synctest.Wait()
		}
		if len(got) != jobs+5000 {
			t.Fatalf("%d of %d jobs were claimed", len(got), jobs+5000)
		}
		if n, m := c.claims.Load()-before, c.claimCalls.Load()-calls; n > 2*5000 || m > 500 {
			t.Errorf("%d claims in %d calls for 5000 jobs", n, m)
		}
		cancel()
		wg.Wait()
		if n := len(must[[]gq.LiveWorker](t)(f.Workers(t.Context()))); n != waiters {
			t.Errorf("%d workers are known", n)
		}
	})
}

// TestNoClaimsInVain: a worker with many free slots gets a job now and then, and does not
// claim again when there are no more.
func TestNoClaimsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *counting
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { c = &counting{Store: s}; return c })
		const jobs = 100
		got := make(chan struct{}, jobs)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				for range must[[]gq.Job](t)(f.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 16, Wait: time.Hour})) {
					got <- struct{}{}
				}
			}
		})
		synctest.Wait()
		before := c.claims.Load()
		for range jobs {
			time.Sleep(time.Second)
			f.submit(gq.Spec{})
			<-got
		}
		if n := c.claims.Load() - before; n != jobs {
			t.Errorf("%d claims for %d jobs", n, jobs)
		}
		cancel()
		wg.Wait()
	})
}

// hinted is a store whose news the test makes up.
type hinted struct {
	store.Store
	claims, dues atomic.Int64
	unlimited    bool
	tell         func(store.News)
}

func (h *hinted) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	h.claims.Add(1)
	out, err := h.Store.Claim(ctx, claims)
	for i := range out {
		out[i].Unlimited = h.unlimited
	}
	return out, err
}

func (h *hinted) Due(ctx context.Context, limit int) (store.Due, error) {
	h.dues.Add(1)
	return h.Store.Due(ctx, limit)
}

func (h *hinted) Notify(_ bool, f func(store.News)) (stop func()) {
	h.tell = f
	return func() {}
}

// TestClaimAbandonedAtTheLastMoment has callers leave while their jobs arrive. None of the
// jobs stays leased to nobody.
func TestClaimAbandonedAtTheLastMoment(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	rounds := 3000
	if race.Share() {
		rounds = 600
	}
	for range rounds {
		f.submit(gq.Spec{})
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		for _, j := range must[[]gq.Job](t)(f.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 10, Wait: time.Minute})) {
			must[gq.State](t)(f.Complete(t.Context(), j.State.Lease.Ref(), nil))
		}
		cancel()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		for _, j := range must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1000})) {
			must[gq.State](t)(f.Complete(t.Context(), j.State.Lease.Ref(), nil))
		}
		count := must[[]gq.Count](t)(f.Counts(t.Context(), gq.DefaultQueue))[0]
		if count.Live() == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("jobs are left behind: %v", count)
		}
	}
}

// TestNewsOfEndsAndTimes has a claim wait. That a job has ended makes it try again only
// where there is a limit, and news that says when something is due saves asking for it.
func TestNewsOfEndsAndTimes(t *testing.T) {
	for _, unlimited := range []bool{true, false} {
		t.Run(fmt.Sprintf("unlimited=%t", unlimited), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hinted{unlimited: unlimited}
				f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { h.Store = s; return h })
				ctx, cancel := context.WithCancel(t.Context())
				got := make(chan gq.Job, 2)
				var wg sync.WaitGroup
				wg.Go(func() {
					for ctx.Err() == nil {
						for _, j := range must[[]gq.Job](t)(f.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 16, Wait: time.Hour})) {
							got <- j
						}
					}
				})
				f.submit(gq.Spec{})
				synctest.Wait()
				h.tell(store.News{Queues: []string{gq.DefaultQueue}, DueKnown: true})
				<-got
				time.Sleep(time.Second)
				synctest.Wait()
				claims, dues := h.claims.Load(), h.dues.Load()
				for range 10 {
					h.tell(store.News{Freed: []string{gq.DefaultQueue}, DueKnown: true})
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if n := h.claims.Load() - claims; unlimited && n != 0 || !unlimited && n != 10 {
					t.Errorf("%d claims after 10 jobs have ended", n)
				}
				if n := h.dues.Load() - dues; n != 0 {
					t.Errorf("it was asked %d times what is due", n)
				}

				delay := 20 * time.Second // before it would look by itself
				f.submit(gq.Spec{Delay: delay})
				began := time.Now()
				h.tell(store.News{DueKnown: true, Due: began.Add(delay)})
				<-got
				if late := time.Since(began) - delay; late < 0 || late > time.Second {
					t.Errorf("a delayed job was claimed %v after it was due", late)
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

// TestDueAmidNews has a job become due right after a claim has looked, while something
// else is committed all the time.
func TestDueAmidNews(t *testing.T) {
	for _, every := range []time.Duration{7 * time.Millisecond, time.Millisecond, 300 * time.Microsecond} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				f.submit(gq.Spec{Queue: "other"})
				_, other := f.take(func(r *gq.ClaimRequest) { r.Queues = []string{"other"} })
				for i := range 20 {
					began := time.Now()
					got := make(chan []gq.Job, 1)
					go func() {
						got <- must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Hour, N: 1}))
					}()
					synctest.Wait()
					f.submit(gq.Spec{Delay: time.Duration(i) * time.Millisecond})
					for beats := 0; len(got) == 0 && beats < 1000; beats++ {
						must[[]gq.LeaseResult](t)(f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: other}}))
						time.Sleep(every)
					}
					if len(got) == 0 {
						t.Fatalf("a job with a delay of %d ms is not claimed after %v", i, time.Since(began))
					}
					<-got
					if late := time.Since(began); late > 100*time.Millisecond {
						t.Errorf("a job with a delay of %d ms is claimed after %v", i, late)
					}
				}
			})
		})
	}
}

// TestJobsBetweenTryingAndWaiting: a job arrives after a claim came back empty and before
// it waits, for the first claim and for later ones.
func TestJobsBetweenTryingAndWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *gate
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { g = &gate{Store: s}; return g })
		for i := range 5 {
			release := g.hold()
			began := time.Now()
			got := make(chan []gq.Job)
			go func() {
				got <- must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1 + i%2, Wait: time.Hour}))
			}()
			synctest.Wait() // it came back empty, and its answer is held
			f.submit(gq.Spec{})
			time.Sleep(time.Second)
			release()
			if jobs := <-got; len(jobs) != 1 || time.Since(began) > 2*time.Second {
				t.Errorf("claim %d got %d jobs after %v", i, len(jobs), time.Since(began))
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestJobsBeforeTheFirstNews: a job arrives after a claim came back empty and before the
// engine subscribes to news, which a claim of another queue then causes.
func TestJobsBeforeTheFirstNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *gate
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { g = &gate{Store: s}; return g })
		release := g.hold()
		began := time.Now()
		got := make(chan []gq.Job)
		go func() {
			got <- must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Hour, N: 1}))
		}()
		synctest.Wait() // it came back empty, and its answer is held
		f.submit(gq.Spec{})
		g.pass()
		ctx, cancel := context.WithCancel(t.Context())
		var other sync.WaitGroup
		other.Go(func() {
			must[[]gq.Job](t)(f.Claim(ctx, gq.ClaimRequest{Worker: "v", Queues: []string{"other"}, Wait: time.Hour, N: 1}))
		})
		synctest.Wait()
		release()
		if jobs := <-got; len(jobs) != 1 || time.Since(began) > time.Second {
			t.Errorf("%d jobs after %v", len(jobs), time.Since(began))
		}
		cancel()
		other.Wait()
	})
}

// TestAbandonedClaim ends the context of a claim whose answer is on its way: the job must
// be released.
func TestAbandonedClaim(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint("Wait", wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g *gate
				f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { g = &gate{Store: s}; return g })
				ctx, cancel := context.WithCancel(t.Context())
				type answer struct {
					jobs []gq.Job
					err  error
				}
				answers := make(chan answer, 1)
				ask := func() {
					go func() {
						jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "gone", Wait: wait, N: 1})
						answers <- answer{jobs, err}
					}()
					synctest.Wait()
				}
				var release func()
				var id gq.JobID
				if wait == 0 {
					id, release = f.submit(gq.Spec{}), g.hold()
					ask()
				} else {
					ask()
					release = g.hold()
					id = f.submit(gq.Spec{})
					synctest.Wait()
				}
				f.status(id, gq.StatusRunning)
				cancel()
				a := <-answers
				if len(a.jobs) != 0 || (a.err != nil) != (wait == 0) {
					t.Errorf("a cancelled claim got %d jobs, error %v", len(a.jobs), a.err)
				}
				release()
				synctest.Wait()
				f.status(id, gq.StatusScheduled)
				if j, _ := f.take(); j.State.ID != id || j.State.Attempt != 2 || j.State.Bound != 4 {
					t.Errorf("attempt %d of %d: giving back must not use up an attempt", j.State.Attempt, j.State.Bound)
				}
			})
		})
	}
}

// TestWaitsForRate: claims wait, one after the other, until a rate allows the next job.
func TestWaitsForRate(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		must[gq.Queue](t)(f.ChangeQueue(t.Context(), gq.DefaultQueue, func(q *gq.Queue) { q.Rate = gq.Rate{Count: 1, Per: 10 * time.Second} }))
		for range 5 {
			f.submit(gq.Spec{})
		}
		began := time.Now()
		for i := range 5 {
			jobs := must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1}))
			if want := time.Duration(i) * 10 * time.Second; len(jobs) != 1 || time.Since(began).Round(time.Second) != want {
				t.Fatalf("claim %d got %d jobs after %v, want one after %v", i, len(jobs), time.Since(began), want)
			}
		}
	})
}

// TestHoldPassesStart: a claim that starts jobs waits because the pool has no room. A claim
// that only holds the job gets it.
func TestHoldPassesStart(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		if err := f.PutPool(t.Context(), gq.Pool{Name: "p", Capacity: 1, AtStart: true}); err != nil {
			t.Fatal(err)
		}
		must[gq.Queue](t)(f.ChangeQueue(t.Context(), gq.DefaultQueue, func(q *gq.Queue) { q.Pool = "p" }))
		f.submit(gq.Spec{CostUnits: 1})
		f.take()
		id := f.submit(gq.Spec{CostUnits: 1})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = f.Claim(ctx, gq.ClaimRequest{Worker: "starts", Wait: time.Hour, N: 1}) }()
		synctest.Wait()
		began := time.Now()
		jobs := must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "holds", Hold: true, Wait: time.Minute, N: 1}))
		if len(jobs) != 1 || jobs[0].State.ID != id || time.Since(began) != 0 {
			t.Errorf("%d jobs after %v, want the one that nobody has at once", len(jobs), time.Since(began))
		}
	})
}

func TestEndOfWait(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1})
		if err != nil || len(jobs) != 0 || time.Since(began) != 5*time.Second {
			t.Errorf("%d jobs, error %v after %v", len(jobs), err, time.Since(began))
		}
		if jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1}); err != nil || len(jobs) != 0 {
			t.Errorf("after the end: %d jobs, error %v", len(jobs), err)
		}
		if _, err := f.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without waiting: %v", err)
		}
	})
}

// TestClosedStoreEndsWaits: waits end when the store is closed.
func TestClosedStoreEndsWaits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		claimed, waited, ran := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		id := f.submit(gq.Spec{Queue: "elsewhere"})
		go func() {
			_, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: 10 * time.Minute, N: 1})
			claimed <- err
		}()
		go func() {
			_, err := f.Wait(t.Context(), id)
			waited <- err
		}()
		go func() { ran <- f.Engine.Run(t.Context()) }()
		synctest.Wait()
		f.store.Close()
		for name, ch := range map[string]chan error{"claim": claimed, "wait": waited, "run": ran} {
			if err := <-ch; !errors.Is(err, gq.ErrClosed) {
				t.Errorf("%s: %v, want closed", name, err)
			}
		}
	})
}

// heldUp is a store whose claims from a queue, after the first, block until they are
// released.
type heldUp struct {
	store.Store
	queue string
	calls atomic.Int64
	begun chan struct{} // receives when such a claim starts
	let   chan struct{} // closed to release them
}

func (h *heldUp) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	if slices.ContainsFunc(claims, func(c store.Claim) bool { return slices.Contains(c.Queues, h.queue) }) && h.calls.Add(1) > 1 {
		h.begun <- struct{}{}
		<-h.let
	}
	return h.Store.Claim(ctx, claims)
}

func (h *heldUp) Notify(events bool, f func(store.News)) (stop func()) {
	return h.Store.(store.Notifier).Notify(events, f)
}

// TestALineThatIsHeldUpHoldsUpNoOther: claims wait for two queues, and the jobs of one are
// locked.
func TestALineThatIsHeldUpHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heldUp{queue: "slow", begun: make(chan struct{}, 100), let: make(chan struct{})}
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { h.Store = s; return h })
		claim := func(queue string) <-chan []gq.Job {
			got := make(chan []gq.Job, 1)
			go func() {
				jobs, err := f.Claim(context.Background(), gq.ClaimRequest{Worker: queue, Queues: []string{queue}, Wait: 10 * time.Minute, N: 1})
				if err != nil {
					t.Error(err)
				}
				got <- jobs
			}()
			return got
		}
		fast, slow := claim("fast"), claim("slow")
		<-h.begun
		for range 3 {
			synctest.Wait()
			f.submit(gq.Spec{Queue: "slow"})
			began := time.Now()
			f.submit(gq.Spec{Queue: "fast"})
			if jobs := <-fast; len(jobs) != 1 || time.Since(began) > time.Second {
				t.Fatalf("%d jobs after %v", len(jobs), time.Since(began))
			}
			fast = claim("fast")
		}
		close(h.let)
		if jobs := <-slow; len(jobs) != 1 {
			t.Errorf("%d jobs of the queue that was held up", len(jobs))
		}
		f.submit(gq.Spec{Queue: "fast"})
		<-fast
	})
}

// A claim that waits in front of one with other offers does not keep its job from it.
func TestWaitWithOtherOffers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ctx, leave := context.WithCancel(t.Context())
		var plain sync.WaitGroup
		plain.Go(func() {
			if jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "plain", N: 1, Wait: time.Hour}); len(jobs) > 0 || err != nil {
				t.Errorf("the plain worker got %d jobs, %v", len(jobs), err)
			}
		})
		synctest.Wait()
		start := time.Now()
		time.AfterFunc(time.Second, func() { f.submit(gq.Spec{Requires: []string{"gpu"}}) })
		f.claim(1, as("gpu"), waiting(time.Hour), func(r *gq.ClaimRequest) { r.Offers = []string{"gpu"} })
		if took := time.Since(start); took != time.Second {
			t.Errorf("the job came after %v", took)
		}
		leave()
		plain.Wait()
	})
}
