package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/promptly"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

var _ worker.Queue = (*engine.Engine)(nil)

// A worker that has stopped is no longer listed.
func TestStoppedWorkerIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := local.OpenMemory(local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e, err := engine.New(s, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		listed := func(when string, want int) {
			t.Helper()
			if workers, err := e.Workers(t.Context()); err != nil || len(workers) != want {
				t.Errorf("%s: %+v, %v; want %d", when, workers, err, want)
			}
		}
		w := worker.New(e, worker.Config{Name: "w", Logger: discard()})
		w.HandleFunc("t", func(context.Context, *worker.Run) error { return nil })
		w.Start(t.Context())
		synctest.Wait()
		listed("it runs", 1)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		listed("it has stopped", 0)
	})
}

// On the real engine: results, retries, oversized results and cancels.
func TestOnAnEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := local.OpenMemory(local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e, err := engine.New(s, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		mux := worker.NewMux()
		worker.HandleResult(mux, gq.NewKind[int, int]("double"), func(_ context.Context, job *worker.Job[int]) (int, error) {
			if job.Attempt() == 1 {
				return 0, errors.New("odd")
			}
			return 2 * job.Args, nil
		})
		mux.HandleFunc("huge", func(_ context.Context, run *worker.Run) error { return run.SetResult(make([]byte, 2<<20)) })
		mux.HandleFunc("endless", func(ctx context.Context, _ *worker.Run) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		w, err := worker.NewWith(e, mux, worker.Config{Logger: discard(), HeartbeatEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- e.Run(ctx) }()
		go func() { ended <- w.Run(ctx) }()

		submit := func(typ, payload string) gq.JobID {
			t.Helper()
			a, err := e.Submit(ctx, gq.Spec{Type: typ, Payload: gq.Payload{Data: []byte(payload)}})
			if err := errors.Join(err, a.Err); err != nil {
				t.Fatal(err)
			}
			return a.ID()
		}
		double, huge, endless := submit("double", "21"), submit("huge", "null"), submit("endless", "null")
		after(2 * time.Second)
		if _, err := e.Cancel(ctx, endless, "enough"); err != nil {
			t.Error(err)
		}
		after(10 * time.Second)

		j, err := e.Get(ctx, double, 0)
		if err != nil || j.State.Status != gq.StatusCompleted || j.State.Attempt != 2 || j.State.ResultBytes != 2 {
			t.Errorf("double: %+v, %v", j.State, err)
		}
		if j, err = e.Get(ctx, huge, 0); err != nil || j.State.Status != gq.StatusFailed || j.State.Failure.Code != "result_too_large" {
			t.Errorf("huge: %+v, %v", j.State, err)
		}
		if j, err = e.Get(ctx, endless, 0); err != nil || j.State.Status != gq.StatusCancelled || j.State.Cancellation.HonouredAt.IsZero() {
			t.Errorf("endless: %+v, %v", j.State, err)
		}
		if got := w.Stats(); got.Succeeded != 1 || got.Failed != 3 || got.Running != 0 {
			t.Errorf("stats %+v", got)
		}
		stop()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
}

// A handler learns at once that somebody has asked its job to stop, and not with the next
// heartbeat, and the queue knows that it has.
func TestCancelReachesTheHandlerAtOnce(t *testing.T) {
	for name, wrap := range map[string]func(*engine.Engine) worker.Queue{
		"engine": func(e *engine.Engine) worker.Queue { return e },
		"client": func(e *engine.Engine) worker.Queue {
			return (&gq.Client{Driver: e}).With(gq.Middleware{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cancelAtOnce(t, wrap) })
		})
	}
}

// The same by the clock of the machine, with a store on disk.
func TestCancelByTheClockOfTheMachine(t *testing.T) {
	s, err := local.Open(t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}), make(chan time.Time, 1)
	w := worker.New(e, worker.Config{Logger: discard(), HeartbeatEvery: time.Minute})
	w.HandleFunc("endless", func(ctx context.Context, _ *worker.Run) error {
		began <- struct{}{}
		<-ctx.Done()
		ended <- time.Now()
		return context.Cause(ctx)
	})
	w.Start(t.Context())
	promptly.Median(t, 100*time.Millisecond, 21, func() time.Duration {
		a, err := e.Submit(t.Context(), gq.Spec{Type: "endless"})
		if err := errors.Join(err, a.Err); err != nil {
			t.Fatal(err)
		}
		<-began
		asked := time.Now()
		if _, err := e.Cancel(t.Context(), a.ID(), "enough"); err != nil {
			t.Fatal(err)
		}
		return (<-ended).Sub(asked)
	})
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}

func cancelAtOnce(t *testing.T, wrap func(*engine.Engine) worker.Queue) {
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan time.Time, 1)
	w := worker.New(wrap(e), worker.Config{Logger: discard(), HeartbeatEvery: time.Minute})
	w.HandleFunc("endless", func(ctx context.Context, _ *worker.Run) error {
		<-ctx.Done()
		ended <- time.Now()
		if cause := context.Cause(ctx); !errors.Is(cause, worker.ErrCancelRequested) {
			t.Errorf("the context ended with %v", cause)
		}
		return context.Cause(ctx)
	})
	w.Start(t.Context())
	limited := gq.PresetAI.Policy() // a heartbeat would use up a renewal
	for name, policy := range map[string]gq.Policy{"unlimited heartbeats": {}, "limited heartbeats": limited} {
		a, err := e.Submit(t.Context(), gq.Spec{Type: "endless", Policy: policy})
		if err := errors.Join(err, a.Err); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		asked := time.Now()
		if _, err := e.Cancel(t.Context(), a.ID(), "enough"); err != nil {
			t.Fatal(err)
		}
		if late := (<-ended).Sub(asked); late > 10*time.Millisecond {
			t.Errorf("%s: the handler learned it after %v", name, late)
		}
		j, err := e.Wait(t.Context(), a.ID())
		if err != nil || j.State.Status != gq.StatusCancelled || j.State.Cancellation.HonouredAt.IsZero() {
			t.Errorf("%s: %+v, %v", name, j.State, err)
		}
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}
