package engine_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// TestExplain puts a job into every situation and asks why it does not run.
func TestExplain(t *testing.T) {
	type answer struct {
		cause   gq.Cause
		summary string // a part of it
		remedy  string // a part of it
		until   time.Duration
		never   bool
		jobs    int
		also    []gq.Cause

		alsoNever bool // the first of them
	}
	serve := func(f *fixture, more ...func(*gq.ClaimRequest)) { // a live worker that finds nothing
		f.claim(0, append([]func(*gq.ClaimRequest){as("idle")}, more...)...)
	}
	queue := func(f *fixture, change func(*gq.Queue)) {
		q := machine.NewQueue(gq.DefaultQueue)
		change(&q)
		f.putQueue(q)
	}
	for _, test := range []struct {
		name string
		make func(f *fixture) gq.JobID
		want answer
	}{
		{"Dependency", func(f *fixture) gq.JobID {
			serve(f)
			parent := f.submit(gq.Spec{Type: "parent"})
			return f.submit(gq.Spec{DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent}}})
		}, answer{cause: gq.CauseDependency, summary: "(AFTER), which is SCHEDULED", remedy: "gq job explain", jobs: 1}},
		{"Dependencies", func(f *fixture) gq.JobID {
			serve(f)
			var deps []gq.Dependency
			for range 15 {
				deps = append(deps, gq.Dependency{Kind: gq.DependencyFanIn, Job: f.submit(gq.Spec{Type: "parent"})})
			}
			_, lease := f.take()
			must[gq.State](f.T)(f.Complete(f.Context(), lease, nil))
			return f.submit(gq.Spec{DependsOn: deps})
		}, answer{cause: gq.CauseDependency, summary: "waits for 14 jobs", jobs: 10}},
		{"AnyDependency", func(f *fixture) gq.JobID {
			serve(f)
			return f.submit(gq.Spec{DependsOn: []gq.Dependency{
				{Kind: gq.DependencyAfterAny, Job: f.submit(gq.Spec{})}, {Kind: gq.DependencyAfterAny, Job: f.submit(gq.Spec{})},
			}})
		}, answer{cause: gq.CauseDependency, summary: "any of 2 jobs", jobs: 2}},
		{"StartDeadline", func(f *fixture) gq.JobID {
			return f.submit(gq.Spec{Delay: time.Hour}, gq.StartWithin(3*time.Hour))
		}, answer{cause: gq.CauseDelay, until: time.Hour, also: []gq.Cause{gq.CauseNoWorker, gq.CauseLifetime}}},
		{"StartDeadlineOver", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{}, gq.StartWithin(time.Minute))
			time.Sleep(time.Minute)
			f.sweep()
			return id
		}, answer{cause: gq.CauseFinished, summary: "no worker started it within 1m0s of its submission", remedy: "gq job replay"}},
		{"Delay", func(f *fixture) gq.JobID {
			return f.submit(gq.Spec{Delay: time.Hour})
		}, answer{cause: gq.CauseDelay, summary: "delayed until 2000-01-01T01:00:00Z (in 1h0m0s)", until: time.Hour, also: []gq.Cause{gq.CauseNoWorker}}},
		{"Backoff", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			_, lease := f.take()
			must[gq.State](f.T)(f.Engine.Fail(f.Context(), lease, gq.Failure{Category: gq.CategoryTemporary, Code: "smtp_451", Message: "try later\nstack", RetryAfter: time.Minute}))
			return id
		}, answer{cause: gq.CauseBackoff, summary: "attempt 2 of 3 starts in 1m0s, at 2000-01-01T00:01:00Z; the last one failed: TEMPORARY smtp_451: try later", until: time.Minute}},
		{"Paused", func(f *fixture) gq.JobID {
			queue(f, func(q *gq.Queue) { q.Paused = true })
			return f.submit(gq.Spec{})
		}, answer{cause: gq.CausePaused, summary: "queue default is paused", remedy: "gq queue resume default", also: []gq.Cause{gq.CauseNoWorker}}},
		{"Concurrency", func(f *fixture) gq.JobID {
			queue(f, func(q *gq.Queue) { q.MaxRunning = 2 })
			f.submit(gq.Spec{})
			f.submit(gq.Spec{})
			id := f.submit(gq.Spec{})
			f.claim(2)
			return id
		}, answer{cause: gq.CauseConcurrency, summary: "has reached max_running: 2 running", remedy: "raise max_running", jobs: 2}},
		{"KeyLimit", func(f *fixture) gq.JobID {
			queue(f, func(q *gq.Queue) { q.KeyLimit = 1 })
			f.submit(gq.Spec{LimitKey: "acme"})
			id := f.submit(gq.Spec{LimitKey: "acme"})
			f.claim(1)
			return id
		}, answer{cause: gq.CauseKeyLimit, summary: "key_limit for key acme: 1 running", remedy: "raise key_limit", jobs: 1}},
		{"KeyRate", func(f *fixture) gq.JobID {
			queue(f, func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 1, Per: time.Minute} })
			f.submit(gq.Spec{LimitKey: "acme", Weight: 2})
			id := f.submit(gq.Spec{LimitKey: "acme"})
			f.claim(1)
			time.Sleep(20 * time.Second)
			return id
		}, answer{cause: gq.CauseKeyRate, summary: "key acme of queue default has reached its rate of 1 per 1m0s; its next job starts at 2000-01-01T00:02:00Z", remedy: "gq queue key set", until: 100 * time.Second}},
		{"Rate", func(f *fixture) gq.JobID {
			queue(f, func(q *gq.Queue) { q.Rate = gq.Rate{Count: 1, Per: time.Minute} })
			f.submit(gq.Spec{})
			id := f.submit(gq.Spec{})
			f.claim(1)
			time.Sleep(20 * time.Second)
			f.claim(0)
			return id
		}, answer{cause: gq.CauseRate, summary: "has reached its rate of 1 job per 1m0s; the next one starts at 2000-01-01T00:01:00Z", remedy: "raise the rate", until: 40 * time.Second}},
		{"Pool", func(f *fixture) gq.JobID {
			must[struct{}](f.T)(struct{}{}, f.PutPool(f.Context(), gq.Pool{Name: "gpu", Capacity: 10}))
			f.putQueue(gq.Queue{Name: "other", Pool: "gpu"})
			queue(f, func(q *gq.Queue) { q.Pool = "gpu" })
			f.submit(gq.Spec{Queue: "other", CostUnits: 7})
			f.claim(1, on("other"))
			serve(f)
			return f.submit(gq.Spec{CostUnits: 4})
		}, answer{cause: gq.CausePool, summary: "costs 4 units; pool gpu has 3 of 10 left", jobs: 1}},
		{"PoolUsedUp", func(f *fixture) gq.JobID {
			must[struct{}](f.T)(struct{}{}, f.PutPool(f.Context(), gq.Pool{Name: "gpu", Capacity: 1}))
			queue(f, func(q *gq.Queue) { q.Pool = "gpu" })
			f.submit(gq.Spec{CostUnits: 1})
			f.claim(1)
			serve(f)
			return f.submit(gq.Spec{CostUnits: 1})
		}, answer{cause: gq.CausePool, summary: "costs 1 unit; pool gpu has 0 of 1 left", jobs: 1}},
		{"PoolTooSmall", func(f *fixture) gq.JobID {
			must[struct{}](f.T)(struct{}{}, f.PutPool(f.Context(), gq.Pool{Name: "gpu", Capacity: 10}))
			queue(f, func(q *gq.Queue) { q.Pool = "gpu" })
			serve(f)
			return f.submit(gq.Spec{CostUnits: 11})
		}, answer{cause: gq.CausePool, summary: "costs 11 units, more than the whole capacity of pool gpu (10)", never: true}},
		{"PoolTooSmallForADelayedJob", func(f *fixture) gq.JobID {
			must[struct{}](f.T)(struct{}{}, f.PutPool(f.Context(), gq.Pool{Name: "gpu", Capacity: 10}))
			queue(f, func(q *gq.Queue) { q.Pool = "gpu" })
			serve(f)
			return f.submit(gq.Spec{CostUnits: 11, Delay: time.Hour})
		}, answer{cause: gq.CauseDelay, until: time.Hour, also: []gq.Cause{gq.CausePool}, alsoNever: true}},
		{"NoWorker", func(f *fixture) gq.JobID {
			serve(f, on("elsewhere"))
			return f.submit(gq.Spec{Type: "report"})
		}, answer{cause: gq.CauseNoWorker, summary: "no live worker claims type report of queue default", remedy: "start a worker"}},
		{"NoWorkerForType", func(f *fixture) gq.JobID {
			serve(f, func(r *gq.ClaimRequest) { r.Types = []string{"email"} })
			return f.submit(gq.Spec{Type: "report"})
		}, answer{cause: gq.CauseNoWorker}},
		{"Constraint", func(f *fixture) gq.JobID {
			serve(f, func(r *gq.ClaimRequest) { r.Offers = []string{"gpu"} })
			return f.submit(gq.Spec{Requires: []string{"gpu", "avx"}})
		}, answer{cause: gq.CauseConstraint, summary: "idle lacks avx"}},
		{"Cost", func(f *fixture) gq.JobID {
			serve(f, func(r *gq.ClaimRequest) { r.MaxCost = 3 })
			return f.submit(gq.Spec{CostUnits: 5})
		}, answer{cause: gq.CauseCost, summary: "costs 5 units; no live worker accepts more than 3"}},
		{"Lifetime", func(f *fixture) gq.JobID {
			p := machine.DefaultPolicy()
			p.Lifetime = 10 * time.Minute
			id := f.submit(gq.Spec{Policy: p})
			time.Sleep(9*time.Minute + 30*time.Second)
			return id
		}, answer{cause: gq.CauseNoWorker, also: []gq.Cause{gq.CauseLifetime}}},
		{"LifetimeBeforeDelay", func(f *fixture) gq.JobID {
			return f.runAt(f.submit(gq.Spec{Delay: time.Hour}), 240*time.Hour)
		}, answer{
			cause: gq.CauseLifetime, summary: "may start no earlier than 2000-01-11T00:00:00Z, but its lifetime ends at 2000-01-08T00:00:00Z",
			remedy: "longer lifetime", never: true, until: 168 * time.Hour, also: []gq.Cause{gq.CauseDelay, gq.CauseNoWorker},
		}},
		{"LifetimeBeforeRetry", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			_, lease := f.take()
			must[gq.State](f.T)(f.Fail(f.Context(), lease, gq.Failure{Category: gq.CategoryTemporary, Code: "busy", RetryAfter: 240 * time.Hour}))
			return id
		}, answer{cause: gq.CauseFinished, summary: "it could not run before 2000-01-11T00:00:00Z, but its lifetime ended at 2000-01-08T00:00:00Z; the last attempt failed: TEMPORARY busy"}},
		{"Next", func(f *fixture) gq.JobID {
			serve(f)
			return f.submit(gq.Spec{})
		}, answer{cause: gq.CauseNext, summary: "is the next job of queue default"}},
		{"InLine", func(f *fixture) gq.JobID {
			serve(f)
			for range 3 {
				f.submit(gq.Spec{})
			}
			return f.submit(gq.Spec{})
		}, answer{cause: gq.CauseNext, summary: "jobs ahead of it in queue default: 3"}},
		{"Held", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			f.take(holding)
			return id
		}, answer{cause: gq.CauseHeld, summary: "worker w has held it", until: time.Minute, jobs: 1}},
		{"Running", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			_, lease := f.take()
			time.Sleep(time.Minute)
			must[[]gq.LeaseResult](f.T)(f.Heartbeat(f.Context(), []gq.Heartbeat{{Lease: lease, Progress: 0.25}}))
			time.Sleep(10 * time.Second)
			return id
		}, answer{cause: gq.CauseRunning, summary: "attempt 1 of 3 has run on worker w for 1m10s; last heartbeat 10s ago; 25% done", until: 290 * time.Second, jobs: 1}},
		{"CancelRequested", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			f.take()
			must[gq.State](f.T)(f.Cancel(f.Context(), id, ""))
			return id
		}, answer{cause: gq.CauseCancelling, summary: "cancelled 0s ago, and the worker has not confirmed it yet", remedy: "a Go worker and gq work learn of it at once", until: 5 * time.Minute, jobs: 1}},
		{"CancelIgnored", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			_, lease := f.take()
			must[gq.State](f.T)(f.Cancel(f.Context(), id, ""))
			must[[]gq.LeaseResult](f.T)(f.Heartbeat(f.Context(), []gq.Heartbeat{{Lease: lease}}))
			time.Sleep(time.Minute)
			return id
		}, answer{cause: gq.CauseCancelling, summary: "learned of the cancellation 1m0s ago and has not stopped", until: 4 * time.Minute, jobs: 1}},
		{"Lost", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			f.take()
			time.Sleep(6 * time.Minute)
			return id
		}, answer{cause: gq.CauseLost, summary: "worker w sent its last heartbeat 6m0s ago", until: -time.Minute, jobs: 1}},
		{"Completed", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			_, lease := f.take()
			must[gq.State](f.T)(f.Complete(f.Context(), lease, nil))
			return id
		}, answer{cause: gq.CauseFinished, summary: "COMPLETED at 2000-01-01T00:00:00Z in attempt 1"}},
		{"Failed", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			_, lease := f.take()
			must[gq.State](f.T)(f.Engine.Fail(f.Context(), lease, gq.Failure{Category: gq.CategoryPermanent, Code: "bad_address", Message: "no such host"}))
			return id
		}, answer{cause: gq.CauseFinished, summary: "FAILED at 2000-01-01T00:00:00Z after 1 of 3 attempts: PERMANENT bad_address: no such host", remedy: "gq job replay"}},
		{"Cancelled", func(f *fixture) gq.JobID {
			id := f.submit(gq.Spec{})
			must[gq.State](f.T)(f.Cancel(f.Context(), id, "not needed"))
			return id
		}, answer{cause: gq.CauseFinished, summary: "CANCELLED at 2000-01-01T00:00:00Z after 0 of 3 attempts: not needed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				id := test.make(f)
				x := must[gq.Explanation](t)(f.Explain(t.Context(), id))
				t.Logf("%s\n%s", x.Summary, x.Remedy)
				until := time.Duration(0)
				if !x.Until.IsZero() {
					until = time.Until(x.Until)
				}
				if x.Cause != test.want.cause || !strings.Contains(x.Summary, test.want.summary) || !strings.Contains(x.Remedy, test.want.remedy) ||
					x.Never != test.want.never || until != test.want.until || len(x.Jobs) != test.want.jobs || strings.Contains(x.Summary, "\n") {
					t.Errorf("%s: %q, remedy %q, until %v, never %t, %d jobs\nwant %+v", x.Cause, x.Summary, x.Remedy, until, x.Never, len(x.Jobs), test.want)
				}
				if len(test.want.also) > 0 && (len(x.Also) != len(test.want.also) || x.Also[0].Cause != test.want.also[0] || x.Also[0].Never != test.want.alsoNever) {
					t.Errorf("also %+v, want %v", x.Also, test.want.also)
				}
				if x.Job != id || x.Status != f.get(id).State.Status || len(x.Timeline) == 0 || x.Timeline[0].Type != gq.EventSubmitted {
					t.Errorf("explanation %+v", x)
				}
			})
		})
	}
}

// TestExplainAll: with every obstacle at once, the first blocking one comes first.
func TestExplainAll(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "q", MaxRunning: 1, KeyLimit: 1})
		f.submit(gq.Spec{Queue: "q", LimitKey: "k"})
		f.claim(1, on("q"), func(r *gq.ClaimRequest) { r.Types = []string{"t"} })
		must[gq.Queue](t)(f.Pause(t.Context(), "q"))
		parent := f.submit(gq.Spec{Queue: "q"})
		id := f.submit(gq.Spec{Type: "u", Queue: "q", LimitKey: "k", Delay: time.Hour, DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent}}})
		x := must[gq.Explanation](t)(f.Explain(t.Context(), id))
		causes := []gq.Cause{x.Cause}
		for _, r := range x.Also {
			causes = append(causes, r.Cause)
		}
		want := []gq.Cause{gq.CauseDependency, gq.CauseDelay, gq.CausePaused, gq.CauseConcurrency, gq.CauseKeyLimit, gq.CauseNoWorker}
		if len(causes) != len(want) {
			t.Fatalf("causes %v, want %v", causes, want)
		}
		for i := range want {
			if causes[i] != want[i] {
				t.Errorf("causes %v, want %v", causes, want)
				break
			}
		}
		_, err := f.Explain(t.Context(), machine.NewJobID([16]byte{1}))
		wantErr(t, "no job", err, gq.ErrNotFound)
	})
}

// TestRateWakesWaiter: a waiting claim gets a job when the rate allows it.
func TestRateWakesWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "q", Rate: gq.Rate{Count: 6, Per: time.Minute}})
		for range 4 {
			f.submit(gq.Spec{Queue: "q"})
		}
		began := time.Now()
		var wg sync.WaitGroup
		got := make(chan time.Duration, 4)
		for range 4 {
			wg.Go(func() {
				f.claim(1, on("q"), waiting(5*time.Minute))
				got <- time.Since(began)
			})
			synctest.Wait()
		}
		wg.Wait()
		for n := range 4 {
			if at := <-got; at < time.Duration(n)*10*time.Second || at > time.Duration(n)*10*time.Second+20*time.Millisecond {
				t.Errorf("job %d came after %v", n, at)
			}
		}
	})
}
