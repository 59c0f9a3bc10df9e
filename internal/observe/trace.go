package observe

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/tracing"
)

// Extract reads the caller's trace context; get returns the value of a header.
func Extract(ctx context.Context, get func(name string) string) context.Context {
	return tracing.Extract(ctx, get)
}

// traces joins everything done for a job into one trace. The context travels in the job's
// attributes: a submission stores its own there, and a claim replaces it with that of the
// attempt.
type traces struct {
	tracer  trace.Tracer
	enabled bool

	mu      sync.Mutex
	running map[gq.LeaseID]*attempt // guarded by mu
	swept   time.Time               // guarded by mu
}

// attempt is an execution that this process handed out.
type attempt struct {
	span    trace.Span
	expires time.Time
}

const (
	maxAttempts = 100_000     // limit of open spans; attempts beyond it have none
	lostAfter   = time.Minute // an attempt counts as lost this long after its lease expired
)

func newTraces(t trace.Tracer) *traces {
	enabled := t != nil
	if !enabled {
		t = noop.NewTracerProvider().Tracer("")
	}
	return &traces{tracer: t, enabled: enabled, running: map[gq.LeaseID]*attempt{}}
}

// touches reports whether submits may do something for one of the specs. Without traces a batch
// need not be copied.
func (t *traces) touches(ctx context.Context, specs []gq.Spec) bool {
	if t.enabled || tracing.Traced(ctx) {
		return true
	}
	for i := range specs {
		if specs[i].Attributes[gq.AttributeTraceParent] != "" {
			return true
		}
	}
	return false
}

// submits starts the span of a submission and stores its context in the job. A caller's
// trace context is passed on even if this server does not trace.
func (t *traces) submits(ctx context.Context, s *gq.Spec) (context.Context, func(gq.SubmitResult, error)) {
	if !tracing.Traced(ctx) {
		ctx = tracing.FromJob(ctx, s)
	}
	if !t.enabled && !tracing.Traced(ctx) {
		return ctx, func(gq.SubmitResult, error) {}
	}
	ctx, span := t.tracer.Start(ctx, "submit "+s.Type, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("gq.queue", cmp.Or(s.Queue, gq.DefaultQueue)), attribute.String("gq.type", s.Type)))
	tracing.IntoJob(ctx, s)
	return ctx, func(out gq.SubmitResult, err error) {
		if err != nil {
			span.SetStatus(codes.Error, errs.CodeOf(err))
		} else {
			span.SetAttributes(attribute.String("gq.job", out.ID().String()), attribute.Bool("gq.existing", out.Existing))
		}
		span.End()
	}
}

// claimed starts the spans of an attempt and passes its context to the worker.
func (t *traces) claimed(j *gq.Job) {
	l := j.State.Lease
	if !t.enabled || l == nil {
		return
	}
	now := time.Now()
	t.sweep(now)
	t.mu.Lock()
	full := len(t.running) >= maxAttempts
	t.mu.Unlock()
	if full {
		return
	}
	ctx, span := tracing.Start(context.Background(), t.tracer, j)
	tracing.Mark(ctx, &j.Spec)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[l.ID] = &attempt{span: span, expires: now.Add(l.TTL)}
}

// alive records a heartbeat.
func (t *traces) alive(s *gq.State) {
	if !t.enabled || s.Lease == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.running[s.Lease.ID]; a != nil {
		a.expires = time.Now().Add(s.Lease.TTL)
	}
}

// settled ends the span of an attempt.
func (t *traces) settled(lease gq.LeaseID, s *gq.State, err error) {
	if !t.enabled || errors.Is(err, gq.ErrDenied) { // the attempt continues
		return
	}
	t.mu.Lock()
	a := t.running[lease]
	delete(t.running, lease)
	t.mu.Unlock()
	if a == nil {
		return
	}
	defer a.span.End()
	if err != nil {
		a.span.SetStatus(codes.Error, errs.CodeOf(err))
		return
	}
	a.span.SetAttributes(attribute.String("gq.state", s.Status.String()))
	if s.Status == gq.StatusCompleted {
		a.span.SetStatus(codes.Ok, "")
	} else if f := s.Failure; f != nil {
		tracing.Failed(a.span, f)
	}
	if s.Status == gq.StatusRetrying {
		tracing.Retries(a.span, s.RunAt, s.UpdatedAt)
	}
}

// sweep ends the spans of attempts whose lease expired long ago.
func (t *traces) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.swept) < lostAfter {
		return
	}
	t.swept = now
	for id, a := range t.running {
		if now.Sub(a.expires) > lostAfter {
			a.span.SetStatus(codes.Error, "lease_lost")
			a.span.End()
			delete(t.running, id)
		}
	}
}
