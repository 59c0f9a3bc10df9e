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
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

func TestLeaseRefusedEndsTheContext(t *testing.T) {
	bubble(t, func(f *fixture) {
		var cause, late error
		f.handle(func(ctx context.Context, run *worker.Run) error {
			if run.Attempt() > 1 {
				return nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			late = run.Checkpoint(context.WithoutCancel(ctx), []byte("x"))
			return nil // a success that no longer counts
		})
		f.run()
		id := f.work(semantics)
		synctest.Wait()
		f.memory.mu.Lock() // another worker has it by now
		j := f.jobs[0]
		j.State, _, _ = machine.Advance(j.State, machine.Draw{}, j.State.Lease.ExpiresAt)
		f.changedLocked()
		f.memory.mu.Unlock()
		after(5 * time.Second / 3)
		if !errors.Is(cause, worker.ErrLeaseLost) || !errors.Is(cause, gq.ErrStaleLease) || !errors.Is(late, worker.ErrLeaseLost) {
			t.Errorf("cause %v, checkpoint %v", cause, late)
		}
		for _, c := range f.link.made("settle") {
			for _, o := range c.ends {
				if o.Lease.Version == 1 {
					t.Errorf("the outcome of a lost lease was sent: %+v", o)
				}
			}
		}
		if len(f.log.lines("handler returned after its lease was lost; the outcome is not sent")) != 1 || len(f.log.lines("lease lost")) != 1 {
			t.Errorf("log:\n%s", f.log)
		}
		f.wantStatus(id, gq.StatusCompleted)
		if s := f.worker.Stats(); s.LeasesLost != 1 || s.Refused != 1 || s.TimedOut != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// While the queue is unreachable, a handler continues until its lease may have expired,
// and no longer. After a waiting claim, the start of the lease is estimated
// conservatively until its first renewal.
func TestUnreachableQueueEndsTheContextWithTheLease(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  time.Duration // after the start
		want time.Duration // from the start to the end of the context
	}{
		{"never renewed", 0, 5 * time.Second * 2 / 3},
		{"renewed once", 2 * time.Second, 5*time.Second/3 + 5*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				var cause error
				var lasted time.Duration
				f.handle(func(ctx context.Context, run *worker.Run) error {
					if run.Attempt() > 1 {
						return nil
					}
					start := time.Now()
					<-ctx.Done()
					cause, lasted = context.Cause(ctx), time.Since(start)
					return cause
				})
				f.run()
				after(10 * time.Second) // the claim waits
				id := f.work(semantics)
				after(c.cut)
				f.link.setCut("", errors.New("no route to host"))
				after(20 * time.Second)
				if !errors.Is(cause, worker.ErrLeaseLost) || (lasted-c.want).Abs() > time.Millisecond {
					t.Errorf("ended after %v with %v, want %v", lasted, cause, c.want)
				}
				if n := len(f.log.lines("call to the queue failed; retrying")); n != 2 { // claim and heartbeat
					t.Errorf("%d lines about the outage:\n%s", n, f.log)
				}
				f.link.setCut("", nil)
				after(time.Minute)
				f.wantStatus(id, gq.StatusCompleted)
				if n := len(f.log.lines("calls to the queue succeed again")); n < 1 {
					t.Errorf("no line about the end of the outage:\n%s", f.log)
				}
			})
		})
	}
}

// A call that never returns does not keep the worker from noticing the end of a lease,
// nor from retrying before that.
func TestHangingHeartbeat(t *testing.T) {
	bubble(t, func(f *fixture) {
		hang := make(chan struct{})
		var hung atomic.Bool
		f.link.during = func(c call) {
			if c.verb == "heartbeat" && !hung.Swap(true) {
				<-hang
			}
		}
		f.handle(sleepFor(30 * time.Second))
		f.run()
		id := f.work(semantics)
		after(time.Minute)
		if j := f.wantStatus(id, gq.StatusCompleted); j.State.Attempt != 1 {
			t.Errorf("%d attempts", j.State.Attempt)
		}
		close(hang)
	})
}

// Exactly-once execution is not promised: a job whose handler succeeded runs again if its
// worker cannot report that, and each run takes effect.
func TestLostAcknowledgementRunsTheJobAgain(t *testing.T) {
	spec.Covers(t, "Q-13")
	bubble(t, func(f *fixture) {
		var effects []gq.JobID
		f.handle(func(_ context.Context, run *worker.Run) error {
			effects = append(effects, run.ID())
			return nil
		})
		f.run()
		f.link.setCut("settle", errors.New("connection refused"))
		id := f.work(semantics)
		after(time.Second)
		if !slices.Equal(effects, []gq.JobID{id}) {
			t.Fatalf("the handler ran for %v", effects)
		}
		f.wantStatus(id, gq.StatusRunning) // although its handler has ended
		after(time.Minute)                 // the lease expires
		f.link.setCut("settle", nil)
		after(time.Minute)
		if j := f.wantStatus(id, gq.StatusCompleted); len(effects) < 2 || effects[1] != id || j.State.Attempt < 2 {
			t.Errorf("the handler ran for %v, attempt %d; want the same job again", effects, j.State.Attempt)
		}
	})
}

// During a partition a second worker runs the job concurrently with the first; the first
// one's outcome has no effect, and in the end every job has ended.
func TestPartition(t *testing.T) {
	spec.Covers(t, "Q-14", "Q-67", "Q-68")
	bubble(t, func(f *fixture) {
		const jobs = 20
		running, overlaps, executions := make(map[gq.JobID]int), make(map[gq.JobID]bool), 0
		lock := make(chan struct{}, 1)
		f.config.Grace = time.Hour
		f.handle(func(_ context.Context, run *worker.Run) error {
			lock <- struct{}{}
			executions++
			running[run.ID()]++
			overlaps[run.ID()] = overlaps[run.ID()] || running[run.ID()] > 1
			<-lock
			time.Sleep(10 * time.Second) // ignores its context
			lock <- struct{}{}
			running[run.ID()]--
			<-lock
			return nil
		})
		other, err := worker.NewWith(f.memory, f.mux, worker.Config{Name: "other", Slots: jobs, Logger: f.config.Logger})
		if err != nil {
			t.Fatal(err)
		}
		f.config.Name, f.config.Slots = "cut off", jobs/2
		f.run()
		var ids []gq.JobID
		for range jobs {
			ids = append(ids, f.work(semantics))
		}
		after(time.Second)
		f.link.setCut("", errors.New("partition"))
		ctx, cancel := context.WithCancel(f.Context())
		ended := make(chan error)
		go func() { ended <- other.Run(ctx) }()
		after(30 * time.Second)
		f.link.setCut("", nil)
		after(time.Minute)
		for _, id := range ids {
			if j := f.wantStatus(id, gq.StatusCompleted); j.State.Lease.Worker != "other" {
				t.Errorf("%s was completed by %q", id, j.State.Lease.Worker)
			}
		}
		if len(overlaps) != jobs || executions != jobs+jobs/2 {
			t.Errorf("%d jobs, %d executions", len(overlaps), executions)
		}
		twice := 0
		for _, o := range overlaps {
			if o {
				twice++
			}
		}
		if twice != jobs/2 {
			t.Errorf("%d jobs ran side by side, want the %d of the worker that was cut off", twice, jobs/2)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestExecutionTimeout(t *testing.T) {
	spec.Covers(t, "Q-103", "Q-107", "J-51", "J-59")
	for name, c := range map[string]struct {
		policy func(*gq.Policy)
		want   time.Duration
	}{
		"default":                  {func(*gq.Policy) {}, 30 * time.Minute},
		"5 m with heartbeats":      {func(p *gq.Policy) { p.LeaseTTL, p.ExecutionTimeout = 30*time.Second, 5*time.Minute }, 5 * time.Minute},
		"shorter than the lease":   {func(p *gq.Policy) { p.ExecutionTimeout = 3 * time.Second }, 3 * time.Second},
		"shorter than a long poll": {func(p *gq.Policy) { p.ExecutionTimeout = time.Second }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				var cause, end error
				var lasted time.Duration
				f.handle(func(ctx context.Context, run *worker.Run) error {
					if run.Attempt() > 1 {
						return nil
					}
					start := time.Now()
					if d, ok := ctx.Deadline(); !ok || d.Sub(start) != c.want {
						t.Errorf("deadline in %v", d.Sub(start))
					}
					<-ctx.Done()
					cause, end, lasted = context.Cause(ctx), ctx.Err(), time.Since(start)
					return nil // too late to succeed
				})
				f.run()
				after(15 * time.Second)
				id := f.work(c.policy)
				after(c.want + time.Millisecond)
				if !errors.Is(cause, worker.ErrExecutionTimeout) || !errors.Is(end, context.DeadlineExceeded) || lasted != c.want {
					t.Errorf("ended after %v with %v, %v", lasted, cause, end)
				}
				j := f.job(id)
				if e := j.State.Failure; e == nil || e.Category != gq.CategoryTimeout || e.Code != "execution_timeout" {
					t.Errorf("failure %+v", e)
				}
				after(time.Minute)
				f.wantStatus(id, gq.StatusCompleted)
				if s := f.worker.Stats(); s.TimedOut != 1 || s.LeasesLost != 0 || s.Ignored != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func TestHandlerShortensItsTimeoutAndCannotLengthenIt(t *testing.T) {
	spec.Covers(t, "J-58")
	for name, c := range map[string]struct{ ask, want time.Duration }{
		"shorter": {10 * time.Minute, 10 * time.Minute},
		"longer":  {60 * time.Minute, 30 * time.Minute},
	} {
		for how, limit := range map[string]worker.Middleware{
			"middleware": worker.Timeout(c.ask),
			"context": func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, run *worker.Run) error {
					ctx, cancel := context.WithTimeout(ctx, c.ask)
					defer cancel()
					return next(ctx, run)
				}
			},
		} {
			t.Run(name+" by "+how, func(t *testing.T) {
				bubble(t, func(f *fixture) {
					var lasted time.Duration
					f.mux.Use(limit)
					f.handle(func(ctx context.Context, _ *worker.Run) error {
						start := time.Now()
						<-ctx.Done()
						lasted = time.Since(start)
						return ctx.Err()
					})
					f.run()
					id := f.work(func(p *gq.Policy) { p.RetryTimeout = false })
					after(2 * time.Hour)
					if lasted != c.want {
						t.Errorf("it ran for %v, want %v", lasted, c.want)
					}
					if e := f.wantStatus(id, gq.StatusFailed).State.Failure; e.Category != gq.CategoryTimeout {
						t.Errorf("failure %+v", e)
					}
				})
			})
		}
	}
}

// A dead worker, a job over its deadline and a handler that ignores its context can be
// distinguished.
func TestHandlerThatIgnoresItsContextIsSeen(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots, f.config.Grace = 2, 3*time.Second
		release := make(chan struct{})
		f.handle(func(context.Context, *worker.Run) error {
			<-release
			return nil
		})
		f.run()
		id := f.work(func(p *gq.Policy) { p.ExecutionTimeout, p.RetryTimeout = time.Minute, false })
		after(time.Minute + 2*time.Second)
		if s := f.worker.Stats(); s.Ignoring != 0 || s.TimedOut != 1 {
			t.Errorf("within the grace: %+v", s)
		}
		after(time.Second)
		if s := f.worker.Stats(); s.Ignoring != 1 || s.Ignored != 1 || s.Running != 1 || s.Free != 0 {
			t.Errorf("after the grace: %+v", s) // the other slot is reserved by the claim
		}
		lines := f.log.lines("handler ignores the end of its context")
		if len(lines) != 1 || lines[0]["job"] != id.String() {
			t.Errorf("log:\n%s", f.log)
		}
		if e := f.job(id).State.Failure; e == nil || e.Category != gq.CategoryTimeout { // the queue's own verdict
			t.Errorf("failure %+v", e)
		}
		after(time.Hour)
		close(release)
		synctest.Wait()
		if s := f.worker.Stats(); s.Ignoring != 0 || s.Running != 0 || s.Refused != 1 {
			t.Errorf("after it returned: %+v", s)
		}
	})
}
