package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
)

// Library is the name under which spans and metrics are reported.
const Library = "github.com/gopherqueue/gq"

// attributeServer marks a claimed job whose attempt the server traces. It is never stored.
const attributeServer = "gq.server_span"

// Start begins the spans of an attempt: one for the time that the job waited to be claimed,
// which has passed, and one for the attempt itself, which the caller ends. Both are children of
// the submission; if the server that gave out the job has already begun them, the second one is
// a child of the server's and the first is left out.
func Start(ctx context.Context, tracer trace.Tracer, j *gq.Job) (context.Context, trace.Span) {
	ctx = FromJob(ctx, &j.Spec)
	if j.Spec.Attributes[attributeServer] != "" {
		return tracer.Start(ctx, "handle "+j.Spec.Type, trace.WithAttributes(attributes(j)...))
	}
	l := j.State.Lease
	if from := j.State.ScheduledAt; l != nil && !from.IsZero() && !l.GrantedAt.Before(from) {
		_, wait := tracer.Start(ctx, "wait "+j.Spec.Type, trace.WithTimestamp(from), trace.WithAttributes(attributes(j)...))
		wait.End(trace.WithTimestamp(l.GrantedAt))
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes(j)...)}
	if submitted := trace.SpanContextFromContext(ctx); submitted.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: submitted}))
	}
	ctx, span := tracer.Start(ctx, "run "+j.Spec.Type, options...)
	if l != nil && l.Previous != "" {
		about := []attribute.KeyValue{attribute.String("gq.previous_attempt", string(l.Previous))}
		if f := j.State.Failure; f != nil {
			about = append(about, failure(f)...)
		}
		span.AddEvent("retry", trace.WithAttributes(about...))
	}
	return ctx, span
}

// Mark says that a server traces the attempt in whose span ctx is.
func Mark(ctx context.Context, s *gq.Spec) {
	if len(s.Attributes) >= gq.MaxAttributes-2 {
		return
	}
	IntoJob(ctx, s) // a copy of the attributes
	s.Attributes[attributeServer] = "1"
}

func attributes(j *gq.Job) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("gq.job", j.State.ID.String()), attribute.String("gq.queue", j.Spec.Queue), attribute.String("gq.type", j.Spec.Type),
		attribute.Int("gq.attempt", j.State.Attempt),
	}
	if l := j.State.Lease; l != nil {
		all[3] = attribute.Int("gq.attempt", max(l.Attempt, j.State.Attempt))
		all = append(all, attribute.String("gq.worker", l.Worker), attribute.String("gq.lease", string(l.ID)))
	}
	return all
}

func failure(f *gq.Failure) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("gq.failure.category", f.Category.String()), attribute.String("gq.failure.code", f.Code)}
}

// Failed records on a span that its attempt failed.
func Failed(span trace.Span, f *gq.Failure) {
	span.SetStatus(codes.Error, f.Code)
	span.SetAttributes(failure(f)...)
}

// Retries records on the span of an attempt that another one follows at a time.
func Retries(span trace.Span, at, now time.Time) {
	span.AddEvent("retry scheduled", trace.WithAttributes(
		attribute.String("gq.retry_at", at.UTC().Format(time.RFC3339Nano)), attribute.Float64("gq.retry_delay_seconds", max(0, at.Sub(now)).Seconds())))
}
