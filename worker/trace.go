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

// endSpan ends the span of an execution. The outcome is nil if it is not sent.
func (r *Run) endSpan(how RunOutcome, o *gq.Outcome) {
	r.span.SetAttributes(attribute.String("gq.outcome", how.String()))
	switch {
	case o == nil:
		r.span.SetStatus(codes.Error, "lease_lost")
	case o.Verdict == gq.VerdictComplete:
		r.span.SetStatus(codes.Ok, "")
	case o.Verdict == gq.VerdictFail:
		tracing.Failed(r.span, &o.Failure)
	}
	r.span.End()
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
