package worker_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

// traced is an embedded queue and a provider that records spans.
func tracedQueue(t *testing.T) (*engine.Running, *tracetest.SpanRecorder, trace.TracerProvider) {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Start(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	spans := tracetest.NewSpanRecorder()
	return e, spans, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
}

// The span in the context of a handler is that of the submission, through a retry and in the
// jobs that the handler spawns; so is the one in the events.
func TestTraceReachesTheHandler(t *testing.T) {
	e, _, provider := tracedQueue(t)
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	want := span.SpanContext()
	seen := make(chan trace.SpanContext, 10)
	w := worker.New(e, worker.Config{Logger: discard()})
	w.HandleFunc("parent", func(ctx context.Context, run *worker.Run) error {
		seen <- trace.SpanContextFromContext(ctx)
		if run.Attempt() == 1 {
			return gq.RetryAfter(errors.New("busy"), time.Millisecond)
		}
		run.SpawnOnSuccess(gq.Spec{Type: "child"})
		_, err := run.Spawn(ctx, nil, gq.Spec{Type: "child"})
		return err
	})
	w.HandleFunc("child", func(ctx context.Context, _ *worker.Run) error {
		seen <- trace.SpanContextFromContext(ctx)
		return nil
	})
	w.HandleFunc("untraced", func(ctx context.Context, _ *worker.Run) error {
		seen <- trace.SpanContextFromContext(ctx)
		return nil
	})
	w.Start(trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})))
	defer w.Stop() //nolint:errcheck // the test has seen what it wants
	r, err := e.Submit(ctx, gq.Spec{Type: "parent"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if got := <-seen; got.TraceID() != want.TraceID() || got.SpanID() != want.SpanID() || !got.IsRemote() || !got.IsSampled() {
			t.Errorf("execution %d: %v, want %v", i, got, want)
		}
	}
	events, err := e.History(t.Context(), r.ID())
	if err != nil || len(events) < 4 {
		t.Fatal(events, err)
	}
	for _, event := range events {
		if event.TraceParent != "00-"+want.TraceID().String()+"-"+want.SpanID().String()+"-01" {
			t.Errorf("event %s is of %q", event.Type, event.TraceParent)
		}
	}
	if _, err := e.Submit(t.Context(), gq.Spec{Type: "untraced"}); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got.IsValid() {
		t.Errorf("a job without a trace: %v", got)
	}
}

// With a provider each execution has a span for its wait and one for its run, which are children
// of the submission; the handler's spans are children of the run.
func TestWorkerSpans(t *testing.T) {
	e, spans, provider := tracedQueue(t)
	tracer := provider.Tracer("test")
	ctx, request := tracer.Start(t.Context(), "request")
	w := worker.New(e, worker.Config{Logger: discard(), TracerProvider: provider})
	w.HandleFunc("t", func(ctx context.Context, run *worker.Run) error {
		_, inner := tracer.Start(ctx, "inner")
		inner.End()
		if run.Attempt() == 1 {
			return gq.RetryAfter(errors.New("busy"), time.Millisecond)
		}
		return nil
	})
	w.Start(t.Context())
	r, err := e.Submit(ctx, gq.Spec{Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if j, err := e.Wait(t.Context(), r.ID()); err != nil || j.State.Status != gq.StatusCompleted {
		t.Fatal(j.State, err)
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	by := map[string][]sdktrace.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		by[s.Name()] = append(by[s.Name()], s)
	}
	if len(by["wait t"]) != 2 || len(by["run t"]) != 2 || len(by["inner"]) != 2 {
		t.Fatalf("spans %v", slices.Collect(maps.Keys(by)))
	}
	for i := range 2 {
		wait, run, inner := by["wait t"][i], by["run t"][i], by["inner"][i]
		if wait.Parent().SpanID() != request.SpanContext().SpanID() || run.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("attempt %d: the parents are %v and %v, want %v", i+1, wait.Parent(), run.Parent(), request.SpanContext())
		}
		if run.SpanKind() != trace.SpanKindConsumer || len(run.Links()) != 1 {
			t.Errorf("attempt %d: %v with links %v", i+1, run.SpanKind(), run.Links())
		}
		if inner.Parent().SpanID() != run.SpanContext().SpanID() {
			t.Errorf("attempt %d: the parent in the handler is %v, want %v", i+1, inner.Parent(), run.SpanContext())
		}
		if wait.EndTime().Before(wait.StartTime()) || run.EndTime().Before(inner.EndTime()) {
			t.Errorf("attempt %d: waited from %v to %v, ran until %v", i+1, wait.StartTime(), wait.EndTime(), run.EndTime())
		}
	}
	first, second := by["run t"][0], by["run t"][1]
	if first.Status().Code != codes.Error || second.Status().Code != codes.Ok {
		t.Errorf("the attempts ended with %v and %v", first.Status(), second.Status())
	}
	if len(first.Events()) != 0 || len(second.Events()) != 1 || second.Events()[0].Name != "retry" {
		t.Errorf("the events are %v and %v", first.Events(), second.Events())
	}
}
