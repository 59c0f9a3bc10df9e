package observe

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// w3c encodes the trace context, both in headers and in job attributes.
var w3c = propagation.TraceContext{}

// Job attributes that carry the trace context.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// Extract reads the caller's trace context; get returns the value of a header.
func Extract(ctx context.Context, get func(name string) string) context.Context {
	return w3c.Extract(ctx, getter(get))
}

type getter func(string) string

func (g getter) Get(name string) string { return g(name) }
func (getter) Set(string, string)       {}
func (getter) Keys() []string           { return []string{traceParent, traceState} }

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

// submits starts the span of a submission and stores its context in the job. A caller's
// trace context is passed on even if this server does not trace.
func (t *traces) submits(ctx context.Context, s *gq.Spec) (context.Context, func(gq.SubmitResult, error)) {
	traced := trace.SpanContextFromContext(ctx).IsValid()
	if !traced && s.Attributes[traceParent] != "" {
		ctx = w3c.Extract(ctx, propagation.MapCarrier(s.Attributes))
		traced = trace.SpanContextFromContext(ctx).IsValid()
	}
	if !t.enabled && !traced {
		return ctx, func(gq.SubmitResult, error) {}
	}
	ctx, span := t.tracer.Start(ctx, "submit "+s.Type, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("gq.queue", s.Queue), attribute.String("gq.type", s.Type)))
	if len(s.Attributes) < gq.MaxAttributes-1 || s.Attributes[traceParent] != "" {
		s.Attributes = maps.Clone(s.Attributes)
		if s.Attributes == nil {
			s.Attributes = map[string]string{}
		}
		delete(s.Attributes, traceState)
		w3c.Inject(ctx, propagation.MapCarrier(s.Attributes))
	}
	return ctx, func(out gq.SubmitResult, err error) {
		if err != nil {
			span.SetStatus(codes.Error, errs.CodeOf(err))
		} else {
			span.SetAttributes(attribute.String("gq.job", out.ID().String()), attribute.Bool("gq.existing", out.Existing))
		}
		span.End()
	}
}

// claimed starts the span of an attempt and passes its context to the worker.
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
	ctx := w3c.Extract(context.Background(), propagation.MapCarrier(j.Spec.Attributes))
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("gq.job", j.Spec.ID.String()), attribute.String("gq.queue", j.Spec.Queue), attribute.String("gq.type", j.Spec.Type),
		attribute.String("gq.worker", l.Worker), attribute.String("gq.lease", string(l.ID)), attribute.Int("gq.attempt", max(l.Attempt, j.State.Attempt)))}
	if submitted := trace.SpanContextFromContext(ctx); submitted.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: submitted}))
	}
	ctx, span := t.tracer.Start(ctx, "run "+j.Spec.Type, options...)
	if len(j.Spec.Attributes) < gq.MaxAttributes-1 || j.Spec.Attributes[traceParent] != "" {
		j.Spec.Attributes = maps.Clone(j.Spec.Attributes)
		if j.Spec.Attributes == nil {
			j.Spec.Attributes = map[string]string{}
		}
		w3c.Inject(ctx, propagation.MapCarrier(j.Spec.Attributes))
	}
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
		a.span.SetStatus(codes.Error, f.Code)
		a.span.SetAttributes(attribute.String("gq.failure.category", f.Category.String()))
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
