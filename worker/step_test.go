package worker_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

type receipt struct{ ID string }

// onEngine runs a worker on a real engine until the job has ended, in a bubble.
func onEngine(t *testing.T, limits gq.Limits, spec gq.Spec, h worker.Handler) (j gq.Job) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := local.Options{}
		o.Config.Limits = limits
		s, err := local.OpenMemory(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e, err := engine.New(s, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := worker.New(e, worker.Config{Logger: discard()})
		w.HandleFunc(spec.Type, h)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- e.Run(ctx) }()
		go func() { ended <- w.Run(ctx) }()
		r, err := e.Submit(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = e.Wait(ctx, r.ID()); err != nil {
			t.Fatal(err)
		}
		if j, err = e.Get(ctx, r.ID(), gq.WithResult|gq.WithCheckpoint); err != nil {
			t.Fatal(err)
		}
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return j
}

// A retry goes on after the last recorded step, and the handler's own checkpoint is kept
// beside the steps.
func TestStepRunsOnce(t *testing.T) {
	var charges, packs, attempts atomic.Int32
	j := onEngine(t, gq.Limits{}, gq.Spec{Type: "order"}, func(ctx context.Context, run *worker.Run) error {
		attempt := attempts.Add(1)
		if got := string(run.LastCheckpoint()); attempt > 1 && got != "half" {
			t.Errorf("attempt %d has checkpoint %q", attempt, got)
		}
		r, err := worker.Step(ctx, run, "charge", func(context.Context) (receipt, error) {
			charges.Add(1)
			return receipt{"r-1"}, nil
		})
		if err != nil || r.ID != "r-1" {
			t.Errorf("charge: %v, %v", r, err)
		}
		if attempt == 1 {
			if err := run.Checkpoint(ctx, []byte("half")); err != nil {
				t.Error(err)
			}
		}
		if _, err := worker.Step(ctx, run, "pack", func(context.Context) ([]byte, error) {
			if packs.Add(1) == 1 {
				return nil, gq.Temporary(errors.New("no boxes"))
			}
			return nil, nil
		}); err != nil {
			return err
		}
		if attempt == 2 {
			return gq.Temporary(errors.New("once more"))
		}
		return run.SetResult(r)
	})
	if j.State.Status != gq.StatusCompleted || string(j.Result) != `{"ID":"r-1"}` {
		t.Errorf("%v with result %q: %+v", j.State.Status, j.Result, j.State.Failure)
	}
	if charges.Load() != 1 || packs.Load() != 2 || attempts.Load() != 3 {
		t.Errorf("charged %d times, packed %d times in %d attempts", charges.Load(), packs.Load(), attempts.Load())
	}
}

// Concurrent steps are all recorded, and one name runs once.
func TestStepConcurrent(t *testing.T) {
	var runs atomic.Int32
	attempts := 0
	j := onEngine(t, gq.Limits{}, gq.Spec{Type: "order"}, func(ctx context.Context, run *worker.Run) error {
		attempts++
		errs := make(chan error)
		names := []string{"a", "b", "c", "a", "b", "c"}
		for _, name := range names {
			go func() {
				got, err := worker.Step(ctx, run, name, func(context.Context) (string, error) {
					runs.Add(1)
					time.Sleep(time.Millisecond)
					return name, nil
				})
				if err == nil && got != name {
					err = errors.New("step " + name + " returned " + got)
				}
				errs <- err
			}()
		}
		for range names {
			if err := <-errs; err != nil {
				return err
			}
		}
		if attempts == 1 {
			return gq.Temporary(errors.New("again"))
		}
		return nil
	})
	if j.State.Status != gq.StatusCompleted || runs.Load() != 3 {
		t.Errorf("%v after %d runs: %+v", j.State.Status, runs.Load(), j.State.Failure)
	}
}

// Steps that do not fit end the job with an error that names the limit.
func TestStepTooLarge(t *testing.T) {
	runs := 0
	j := onEngine(t, gq.Limits{PayloadBytes: 100, ResultBytes: 100, CheckpointBytes: 100}, gq.Spec{Type: "order"}, func(ctx context.Context, run *worker.Run) error {
		runs++
		_, err := worker.Step(ctx, run, "large", func(context.Context) ([]byte, error) { return bytes.Repeat([]byte("x"), 100), nil })
		return err
	})
	f := j.State.Failure
	if f == nil || f.Code != "steps_too_large" || !strings.Contains(f.Message, "Limits.CheckpointBytes") || runs != 1 {
		t.Errorf("%v after %d runs: %+v", j.State.Status, runs, f)
	}
}

// A step whose result could not be recorded does not run again in the same execution.
func TestStepRecordsLater(t *testing.T) {
	bubble(t, func(f *fixture) {
		runs := 0
		f.mux.HandleFunc("order", func(ctx context.Context, run *worker.Run) error {
			charge := func(context.Context) (int, error) { runs++; return 7, nil }
			f.link.setCut("", gq.ErrUnavailable)
			if _, err := worker.Step(ctx, run, "charge", charge); !errors.Is(err, gq.ErrUnavailable) {
				t.Errorf("cut off: %v", err)
			}
			f.link.setCut("", nil)
			got, err := worker.Step(ctx, run, "charge", charge)
			if got != 7 {
				t.Errorf("the step returned %d", got)
			}
			return err
		})
		f.run()
		id := f.submit(gq.Spec{Type: "order"})
		after(time.Second)
		f.wantStatus(id, gq.StatusCompleted)
		if runs != 1 {
			t.Errorf("ran %d times", runs)
		}
	})
}

// What was recorded after a failure is durable: another execution of the job returns it, also the result of a step
// that came between.
func TestStepRecordsLaterForRetries(t *testing.T) {
	bubble(t, func(f *fixture) {
		runs := make(map[string]int)
		f.mux.HandleFunc("order", func(ctx context.Context, run *worker.Run) error {
			step := func(name string, want int) error {
				got, err := worker.Step(ctx, run, name, func(context.Context) (int, error) { runs[name]++; return want, nil })
				if err == nil && got != want {
					t.Errorf("step %s returned %d", name, got)
				}
				return err
			}
			if run.Attempt() == 1 {
				f.link.setCut("", gq.ErrUnavailable)
				if err := step("charge", 7); !errors.Is(err, gq.ErrUnavailable) {
					t.Errorf("cut off: %v", err)
				}
				f.link.setCut("", nil)
			}
			for name, want := range map[string]int{"pack": 8, "charge": 7, "mail": 9} {
				if err := step(name, want); err != nil {
					t.Error(err)
				}
			}
			if run.Attempt() == 1 {
				return errors.New("later")
			}
			return nil
		})
		f.run()
		id := f.submit(gq.Spec{Type: "order"})
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		for name, n := range runs {
			if n != 1 {
				t.Errorf("step %s ran %d times", name, n)
			}
		}
	})
}

// A name that no record can have is refused before the step runs.
func TestStepNames(t *testing.T) {
	j := onEngine(t, gq.Limits{}, gq.Spec{Type: "order"}, func(ctx context.Context, run *worker.Run) error {
		_, err := worker.Step(ctx, run, "", func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		return err
	})
	if f := j.State.Failure; f == nil || f.Code != "invalid_step" || j.State.Status != gq.StatusFailed {
		t.Errorf("%v: %+v", j.State.Status, f)
	}
}
