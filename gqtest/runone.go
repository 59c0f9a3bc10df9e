package gqtest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/steps"
	"github.com/gopherqueue/gq/worker"
)

// RunOne runs a handler once, as the first attempt of a job with these arguments, on a queue
// of its own. It returns the job after the attempt, with its result and the handler's own
// checkpoint (without recorded steps), and the error that the handler returned. If the handler panicked, the error says so.
func RunOne[A, R any](t testing.TB, k gq.Kind[A, R], handler func(context.Context, *worker.Job[A]) error, args A, options ...gq.Option) (gq.Job, error) {
	t.Helper()
	ctx := context.Background()
	spec, err := k.Spec(args, options...)
	if err != nil {
		t.Fatalf("gqtest: %v", err)
	}
	q := New(t)
	out, err := q.Submit(ctx, spec)
	if err != nil {
		t.Fatalf("gqtest: %v", err)
	}
	q.clock.set(out.State.RunAt)
	if spec.Queue == "" {
		spec.Queue = gq.DefaultQueue
	}
	w := worker.New(q, worker.Config{
		QueueSets: []worker.QueueSet{{Queues: []string{spec.Queue}}}, Offers: spec.Requires, Logger: slog.New(slog.DiscardHandler),
	})
	var returned bool
	var failure error
	worker.Handle(w, gq.NewKind[A, gq.None](k.Name()), func(ctx context.Context, job *worker.Job[A]) error {
		failure = handler(ctx, job)
		returned = true
		return failure
	})
	if ran, err := w.RunOne(ctx); err != nil || !ran {
		t.Fatalf("gqtest: job %s did not run: %v", out.ID(), err)
	}
	job, err := q.Get(ctx, out.ID(), gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
	if err != nil {
		t.Fatalf("gqtest: %v", err)
	}
	if c, err := steps.Parse(job.Checkpoint); err == nil {
		job.Checkpoint = c.Own
	}
	if !returned {
		failure = fmt.Errorf("the handler did not return: %s", job.State.Failure.Message)
	}
	return job, failure
}

// RunOneResult is [RunOne] for a handler that returns a result. It returns the result as a
// caller of [gq.Kind.Wait] gets it.
func RunOneResult[A, R any](t testing.TB, k gq.Kind[A, R], handler func(context.Context, *worker.Job[A]) (R, error), args A, options ...gq.Option) (R, error) {
	t.Helper()
	job, err := RunOne(t, k, func(ctx context.Context, job *worker.Job[A]) error {
		result, err := handler(ctx, job)
		if err != nil {
			return err
		}
		return job.SetResult(result)
	}, args, options...)
	if err != nil {
		return *new(R), err
	}
	return k.Result(job)
}
