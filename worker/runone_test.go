package worker_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

// singly returns an engine and a worker that only runs single jobs.
func singly(t *testing.T) (*engine.Engine, *worker.Worker) {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e, worker.New(e, worker.Config{Logger: discard()})
}

// Each call runs one job to its end before it returns, in the order of the queue.
func TestRunOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := singly(t)
		kind := gq.NewKind[int, int]("double")
		var ran []int
		worker.HandleResult(w, kind, func(_ context.Context, job *worker.Job[int]) (int, error) {
			ran = append(ran, job.Args)
			return 2 * job.Args, nil
		})
		ids, err := kind.SubmitMany(t.Context(), e, []int{3, 1, 2})
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if found, err := w.RunOne(t.Context()); !found || err != nil {
				t.Fatalf("call %d: %v, %v", i, found, err)
			}
			if j, err := e.Get(t.Context(), id, gq.WithResult); err != nil || j.State.Status != gq.StatusCompleted || len(j.Result) != 1 {
				t.Errorf("after call %d job %d is %v with result %q: %v", i, i, j.State.Status, j.Result, err)
			}
		}
		if found, err := w.RunOne(t.Context()); found || err != nil {
			t.Errorf("a call without a job: %v, %v", found, err)
		}
		if !slices.Equal(ran, []int{3, 1, 2}) {
			t.Errorf("ran %v", ran)
		}
	})
}

// A handler that runs longer than its lease keeps it, and a cancelled one is told.
func TestRunOneRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := singly(t)
		w.HandleFunc("slow", func(ctx context.Context, run *worker.Run) error {
			if string(run.Payload().Data) == "1" {
				time.Sleep(time.Hour)
				return ctx.Err()
			}
			if _, err := e.Cancel(ctx, run.ID(), "enough"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		for _, payload := range []string{"2", "1", "1"} {
			want := map[string]gq.Status{"1": gq.StatusCompleted, "2": gq.StatusCancelled}[payload]
			spec := gq.Spec{Type: "slow", Payload: gq.Payload{Data: []byte(payload)}}
			spec.Policy = gq.PresetJobModel.Policy()
			spec.Policy.LeaseTTL, spec.Policy.ExecutionTimeout = time.Minute, 2*time.Hour
			a, err := e.Submit(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if found, err := w.RunOne(t.Context()); !found || err != nil {
				t.Fatalf("call: %v, %v", found, err)
			}
			if j, err := e.Get(t.Context(), a.ID(), 0); err != nil || j.State.Status != want {
				t.Errorf("%q ended %v, want %v: %v", payload, j.State.Status, want, err)
			}
		}
	})
}

// A handler that exits the goroutine of the call, as t.FailNow does, has failed when the
// goroutine ends.
func TestRunOneExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := singly(t)
		w.HandleFunc("exit", func(context.Context, *worker.Run) error { runtime.Goexit(); return nil })
		a, err := e.Submit(t.Context(), gq.Spec{Type: "exit"})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = w.RunOne(t.Context())
			t.Error("the call returned")
		}()
		<-done
		if j, err := e.Get(t.Context(), a.ID(), 0); err != nil || j.State.Failure == nil || j.State.Failure.Code != "goexit" {
			t.Errorf("job %+v, %v", j.State, err)
		}
	})
}

// A worker that cannot start says so, and one that runs does not run single jobs.
func TestRunOneRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, w := singly(t)
		if _, err := w.RunOne(t.Context()); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("a call without handlers: %v", err)
		}
		_, w = singly(t)
		w.HandleFunc("any", func(context.Context, *worker.Run) error { return nil })
		w.Start(t.Context())
		synctest.Wait()
		if _, err := w.RunOne(t.Context()); err == nil {
			t.Error("a running worker ran one")
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}
