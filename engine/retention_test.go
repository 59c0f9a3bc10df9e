package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// A queue sets how long its jobs are kept, and a job can set it for itself.
func TestRetentionOfAQueueAndOfAJob(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		q := machine.NewQueue(gq.DefaultQueue)
		q.Policy.Retention = gq.KeepNone
		f.putQueue(q)
		gone, short := f.submit(gq.Spec{}), f.submit(gq.Spec{}, gq.KeepFor(time.Minute))
		usual := f.submit(gq.Spec{}, gq.KeepFor(gq.Unlimited))
		for range 3 {
			_, lease := f.take()
			must[gq.State](f.T)(f.Complete(f.Context(), lease, nil))
		}
		exists := func(when string, id gq.JobID, want bool) {
			t.Helper()
			f.sweep()
			if _, err := f.Get(f.Context(), id, 0); (err == nil) != want || err != nil && !errors.Is(err, gq.ErrNotFound) {
				t.Errorf("%v: %v, want it kept: %v", when, err, want)
			}
		}
		time.Sleep(1)
		exists("not kept", gone, false)
		exists("kept for a minute", short, true)
		time.Sleep(time.Minute)
		exists("after a minute", short, false)
		exists("kept as the store is configured", usual, true)
	})
}

// A job with a key is kept until the key is free, so that a repeated submission still finds it. A
// key that a client generated for one call matters only for a short time.
func TestRetentionLastsAsLongAsTheKey(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for key, window := range map[gq.IdempotencyKey]time.Duration{{Name: "invoice-7"}: 24 * time.Hour, {Scope: machine.RetryScope, Name: "x"}: time.Minute} {
			first := f.submit(gq.Spec{Key: key}, gq.KeepFor(gq.KeepNone))
			must[gq.State](f.T)(f.Cancel(f.Context(), first, ""))
			time.Sleep(window - time.Second)
			f.sweep()
			if again := f.submit(gq.Spec{Key: key}, gq.KeepFor(gq.KeepNone)); again != first {
				t.Errorf("%v: repeated within its window: job %s, want %s", key, again, first)
			}
			time.Sleep(time.Second)
			f.sweep()
			if again := f.submit(gq.Spec{Key: key}, gq.KeepFor(gq.KeepNone)); again == first {
				t.Errorf("%v: the key still finds a job that is not kept", key)
			}
		}
	})
}

// Jobs of a workflow are kept: its status and the inputs of its steps need them.
func TestRetentionSparesWorkflows(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		flow := gq.NewWorkflow("order")
		flow.Add("charge", gq.Draft{Spec: gq.Spec{Type: "t"}}, gq.KeepFor(gq.KeepNone))
		id, err := f.SubmitWorkflow(f.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		_, lease := f.take()
		must[gq.State](f.T)(f.Complete(f.Context(), lease, nil))
		time.Sleep(time.Hour)
		f.sweep()
		got, err := f.Workflow(f.Context(), id)
		if err != nil || len(got.Jobs) != 1 || got.Jobs[0].Job.State.Status != gq.StatusCompleted {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A retention that cannot be is refused.
func TestRetentionRefused(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for _, d := range []time.Duration{-2, gq.MaxDuration + 1} {
			s := gq.Spec{Type: "t"}
			gq.KeepFor(d)(&s)
			_, err := f.Submit(f.Context(), s)
			var invalid *gq.InvalidError
			if !errors.As(err, &invalid) || len(invalid.Faults) != 1 || invalid.Faults[0].Field != "policy.retention" {
				t.Errorf("a retention of %v: %v", d, err)
			}
		}
	})
}
