package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/worker"
)

// statusError is an HTTP status.
type statusError int

func (e statusError) Error() string   { return "unexpected answer" }
func (e statusError) StatusCode() int { return int(e) }

func TestVerdicts(t *testing.T) {
	spec.Covers(t, "Q-45", "Q-49")
	for _, c := range []struct {
		name   string
		answer func() error
		status gq.Status
		want   gq.Failure // compared without its message
		says   string     // part of the message
	}{
		{name: "success", answer: func() error { return nil }, status: gq.StatusCompleted},
		{
			name: "untyped error", answer: func() error { return errors.New("odd") },
			status: gq.StatusRetrying, want: gq.Failure{Category: gq.CategoryTemporary}, says: "odd",
		},
		{
			name: "classified error", answer: func() error { return fmt.Errorf("fetch: %w", statusError(404)) },
			status: gq.StatusFailed, want: gq.Failure{Category: gq.CategoryPermanent, Code: "http_404"},
		},
		{
			name:   "retry after",
			answer: func() error { return fmt.Errorf("x: %w", gq.RetryAfter(net.ErrClosed, time.Hour)) },
			status: gq.StatusRetrying, want: gq.Failure{Category: gq.CategoryTemporary, RetryAfter: time.Hour},
		},
		{
			name: "permanent", answer: func() error { return gq.Permanent(errors.New("no such street"), "bad_address") },
			status: gq.StatusFailed, want: gq.Failure{Category: gq.CategoryPermanent, Code: "bad_address"}, says: "no such street",
		},
		{name: "snooze", answer: func() error { return fmt.Errorf("not yet: %w", worker.Snooze(time.Hour)) }, status: gq.StatusRetrying},
		{
			name: "cancel", answer: func() error { return worker.Cancel("not needed") },
			status: gq.StatusCancelled, want: gq.Failure{Category: gq.CategoryCancelled, Code: "cancelled"}, says: "not needed",
		},
		{
			name: "panic", answer: func() error { panic("at the disco") },
			status: gq.StatusRetrying, want: gq.Failure{Category: gq.CategorySystem, Code: "panic"}, says: "verdict_test.go",
		},
		{
			name:   "run-time error",
			answer: func() error { return fmt.Errorf("%d", []int{}[len(os.Args)]) },
			status: gq.StatusRetrying, want: gq.Failure{Category: gq.CategorySystem, Code: "panic"}, says: "index out of range",
		},
		{
			name: "exit", answer: func() error { runtime.Goexit(); return nil },
			status: gq.StatusRetrying, want: gq.Failure{Category: gq.CategorySystem, Code: "goexit"},
		},
		{
			name: "error that panics", answer: func() error { return brokenError{} },
			status: gq.StatusRetrying, want: gq.Failure{Category: gq.CategoryTemporary}, says: "cannot print itself",
		},
		{
			name: "error that panics when unwrapped", answer: func() error { return brokenWrapError{} },
			status: gq.StatusRetrying, want: gq.Failure{Category: gq.CategorySystem, Code: "panic"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				f.handle(func(context.Context, *worker.Run) error { return c.answer() })
				f.run()
				id := f.work(nil)
				synctest.Wait()
				j := f.wantStatus(id, c.status)
				got := gq.Failure{}
				if j.State.Failure != nil {
					got = *j.State.Failure
				}
				if !strings.Contains(got.Message, c.says) || len(got.Message) > gq.MaxMessageBytes {
					t.Errorf("the message %q does not say %q", got.Message, c.says)
				}
				if got.Message = ""; got != c.want {
					t.Errorf("failure %+v, want %+v", got, c.want)
				}
				if s := f.worker.Stats(); s.Running != 0 || s.Unsettled != 0 || s.Succeeded+s.Failed+s.Released != 1 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// Under the preset resilient only the handler's own verdict is final.
func TestResilientVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status gq.Status
	}{
		"untyped":      {errors.New("odd"), gq.StatusRetrying},
		"by its words": {errors.New("unexpected status 404: not found"), gq.StatusRetrying},
		"of the queue": {gq.ErrNotFound.Errorf("job"), gq.StatusRetrying},
		"permanent":    {gq.Permanent(errors.New("declined"), "card_declined"), gq.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				f.handle(func(context.Context, *worker.Run) error { return c.err })
				f.run()
				id := f.work(func(p *gq.Policy) {
					*p = gq.PresetResilient.Policy()
					p.Backoff.Jitter = gq.JitterNone
				})
				synctest.Wait()
				f.wantStatus(id, c.status)
			})
		})
	}
}

// By default the type of an error counts and its text does not. A worker can go by the text too.
func TestVerdictsByType(t *testing.T) {
	misleading := errors.New("row not found in replica, retry later")
	for name, c := range map[string]struct {
		err      error
		classify func(error) gq.Failure
		status   gq.Status
	}{
		"a text":            {misleading, nil, gq.StatusRetrying},
		"a type":            {fmt.Errorf("read: %w", fs.ErrNotExist), nil, gq.StatusFailed},
		"a text, on demand": {misleading, classify.Words, gq.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				f.config.Classify = c.classify
				f.handle(func(context.Context, *worker.Run) error { return c.err })
				f.run()
				id := f.work(nil)
				synctest.Wait()
				f.wantStatus(id, c.status)
			})
		})
	}
}

// A worker asks for short leases, unless a job sets its own.
func TestLeaseTime(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, _ *worker.Run) error {
			time.Sleep(time.Minute)
			return nil
		})
		f.run()
		plain := f.work(nil)
		own := f.work(func(p *gq.Policy) { p.LeaseTTL = time.Hour })
		synctest.Wait()
		for id, want := range map[gq.JobID]time.Duration{plain: 30 * time.Second, own: time.Hour} {
			if got := f.wantStatus(id, gq.StatusRunning).State.Lease.TTL; got != want {
				t.Errorf("the lease lasts %v, want %v", got, want)
			}
		}
		after(2 * time.Minute)
		if j := f.wantStatus(plain, gq.StatusCompleted); j.State.Attempt != 1 {
			t.Errorf("it ran %d times", j.State.Attempt)
		}
	})
}

type brokenError struct{}

func (brokenError) Error() string { panic("no text") }

type brokenWrapError struct{}

func (brokenWrapError) Error() string { return "broken" }
func (brokenWrapError) Unwrap() error { panic("no wrap") }

func TestSnoozeUsesUpNoAttempt(t *testing.T) {
	bubble(t, func(f *fixture) {
		var times []time.Time
		f.handle(func(_ context.Context, run *worker.Run) error {
			times = append(times, time.Now())
			if run.Attempt() <= 5 {
				return worker.Snooze(time.Minute)
			}
			return nil
		})
		f.run()
		id := f.work(nil)
		after(5 * time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap != time.Minute {
				t.Errorf("it ran again after %v", gap)
			}
		}
	})
}

func TestNextAttemptSeesTheLast(t *testing.T) {
	bubble(t, func(f *fixture) {
		var ids []gq.LeaseID
		f.handle(func(ctx context.Context, run *worker.Run) error {
			ids = append(ids, run.LeaseID())
			if run.Attempt() == 1 {
				if err := run.Checkpoint(ctx, []byte("half")); err != nil {
					t.Error(err)
				}
				return errors.New("odd")
			}
			if run.PreviousAttempt() != ids[0] || run.LeaseVersion() != 2 || string(run.LastCheckpoint()) != "half" ||
				run.Failure() == nil || run.Failure().Message != "odd" {
				t.Errorf("the second attempt saw %v, %d, %q", run.PreviousAttempt(), run.LeaseVersion(), run.LastCheckpoint())
			}
			return nil
		})
		f.run()
		id := f.work(nil)
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
	})
}

func TestClassifier(t *testing.T) {
	bubble(t, func(f *fixture) {
		boom := errors.New("boom")
		f.config.Classify = func(err error) gq.Failure {
			switch {
			case errors.Is(err, boom):
				return gq.Failure{Category: gq.CategoryPermanent, Code: "mine", Message: err.Error()}
			case err.Error() == "panic":
				panic("classifier")
			default:
				return gq.Failure{}
			}
		}
		worker.Handle(f.mux, gq.NewKind[string, gq.None]("fail"), func(_ context.Context, job *worker.Job[string]) error {
			if job.Args == "boom" {
				return boom
			}
			return errors.New(job.Args)
		})
		f.run()
		for arg, want := range map[string]gq.Failure{
			"boom":        {Category: gq.CategoryPermanent, Code: "mine", Message: "boom"},
			"panic":       {Category: gq.CategoryTemporary, Message: "panic"},
			"not decided": {Category: gq.CategoryTemporary, Message: "not decided"},
		} {
			id := f.submit(gq.Spec{Type: "fail", Payload: gq.Payload{Data: []byte(`"` + arg + `"`)}})
			synctest.Wait()
			if got := f.job(id).State.Failure; got == nil || *got != want {
				t.Errorf("%s: %+v, want %+v", arg, got, want)
			}
		}
	})
}

func TestResultsThatCannotBeKept(t *testing.T) {
	bubble(t, func(f *fixture) {
		worker.HandleResult(f.mux, gq.NewKind[any, any]("encode"), func(context.Context, *worker.Job[any]) (any, error) { return make(chan int), nil })
		worker.HandleResult(f.mux, gq.NewKind[any, []byte]("limit"), func(context.Context, *worker.Job[any]) ([]byte, error) { return make([]byte, 2<<20), nil })
		worker.HandleResult(f.mux, gq.NewKind[any, []byte]("absurd"), func(context.Context, *worker.Job[any]) ([]byte, error) {
			return make([]byte, gq.MaxPayloadBytes+1), nil
		})
		worker.Handle(f.mux, gq.NewKind[any, gq.None]("spawn"), func(_ context.Context, job *worker.Job[any]) error {
			job.SpawnOnSuccess(gq.Spec{Type: "child"}, gq.Spec{Queue: "no such name"})
			return nil
		})
		f.run()
		for typ, code := range map[string]string{
			"encode": "invalid_result", "limit": "result_too_large", "absurd": "result_too_large", "spawn": "invalid_spawn",
		} {
			id := f.submit(gq.Spec{Type: typ})
			synctest.Wait()
			j := f.wantStatus(id, gq.StatusFailed)
			if e := j.State.Failure; e == nil || e.Category != gq.CategoryPermanent || e.Code != code {
				t.Errorf("%s: %+v, want code %s", typ, e, code)
			}
		}
		if n := len(f.jobs); n != 4 {
			t.Errorf("%d jobs: a child was submitted without its parent", n)
		}
	})
}

func TestSpawn(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, run *worker.Run) error {
			children, err := run.Spawn(ctx, []byte("spawned"), gq.Spec{Type: "other"}, gq.Spec{Type: "other"})
			if err != nil || len(children) != 2 || f.job(children[1].ID()).Spec.Type != "other" {
				t.Errorf("Spawn: %v, %v", children, err)
			}
			run.SpawnOnSuccess(gq.Spec{Type: "other"})
			if n := len(f.jobs); n != 3 {
				t.Errorf("%d jobs before the end, want 3", n)
			}
			if _, err := run.Spawn(ctx, []byte("bad"), gq.Spec{Queue: "no such name"}); !errors.Is(err, gq.ErrInvalid) {
				t.Errorf("a child without a type: %v", err)
			}
			return nil
		})
		f.run()
		id := f.work(nil)
		synctest.Wait()
		if j := f.wantStatus(id, gq.StatusCompleted); string(j.Checkpoint) != "spawned" || len(f.jobs) != 4 {
			t.Errorf("checkpoint %q, %d jobs", j.Checkpoint, len(f.jobs))
		}
	})
}

func TestReportsThatAreRefused(t *testing.T) {
	bubble(t, func(f *fixture) {
		var kept *worker.Run
		f.handle(func(ctx context.Context, run *worker.Run) error {
			kept = run
			if err := run.Checkpoint(ctx, nil); !errors.Is(err, gq.ErrInvalid) {
				t.Errorf("an empty checkpoint: %v", err)
			}
			if err := run.Progress(ctx, 1.5, ""); !errors.Is(err, gq.ErrInvalid) {
				t.Errorf("too much progress: %v", err)
			}
			f.link.setCut("heartbeat", gq.ErrStoreFailed)
			if err := run.Checkpoint(ctx, []byte("x")); !errors.Is(err, gq.ErrStoreFailed) {
				t.Errorf("a checkpoint while the queue is away: %v", err)
			}
			f.link.setCut("heartbeat", nil)
			return nil
		})
		f.run()
		id := f.work(nil)
		synctest.Wait()
		f.wantStatus(id, gq.StatusCompleted)
		if err := kept.Checkpoint(f.Context(), []byte("late")); !errors.Is(err, worker.ErrLeaseLost) {
			t.Errorf("a checkpoint after the end: %v", err)
		}
	})
}
