package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/tracing"
)

// traced returns the parent of a handler's context: it has the span of the submission, or with
// Config.TracerProvider that of this attempt.
func (w *Worker) traced(r *Run) context.Context {
	if w.tracer == nil {
		return tracing.FromJob(w.values, &r.job.Spec)
	}
	ctx, span := tracing.Start(w.values, w.tracer, &r.job)
	r.span = span
	return ctx
}

// endSpan ends the span of an attempt.
func (r *Run) endSpan(ended ended, o *gq.Outcome) {
	if r.span == nil {
		return
	}
	defer r.span.End()
	switch {
	case o == nil || ended.lost:
		r.span.SetStatus(codes.Error, "lease_lost")
	case o.Verdict == gq.VerdictComplete:
		r.span.SetStatus(codes.Ok, "")
	case o.Verdict == gq.VerdictRelease:
		r.span.SetAttributes(attribute.String("gq.released", o.Reason))
	default:
		tracing.Failed(r.span, &o.Failure)
	}
}

// traced sets the trace context of child jobs to the span of ctx; see [Run.Spawn].
func traced(ctx context.Context, children []gq.Spec) []gq.Spec {
	if !tracing.Traced(ctx) {
		return children
	}
	for i := range children {
		tracing.Adopt(ctx, &children[i])
	}
	return children
}

// tracerOf returns the tracer of a configuration; nil if it names no provider.
func tracerOf(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		return nil
	}
	return p.Tracer(tracing.Library)
}
