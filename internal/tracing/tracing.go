// Package tracing carries the W3C trace context between Go contexts, job attributes, headers and
// environment variables.
package tracing

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
)

var w3c = propagation.TraceContext{}

// Carrier reads and writes the fields traceparent and tracestate.
type Carrier = propagation.MapCarrier

// Traced reports whether ctx has a span.
func Traced(ctx context.Context) bool { return trace.SpanContextFromContext(ctx).IsValid() }

// Fields returns the trace context of ctx, or nil if it has none.
func Fields(ctx context.Context) Carrier {
	if !Traced(ctx) {
		return nil
	}
	fields := make(Carrier, 2)
	w3c.Inject(ctx, fields)
	return fields
}

// Extract returns ctx with the span that get reads from the fields traceparent and tracestate.
// It returns ctx if there is none.
func Extract(ctx context.Context, get func(name string) string) context.Context {
	return w3c.Extract(ctx, getter(get))
}

type getter func(string) string

func (g getter) Get(name string) string { return g(name) }
func (getter) Set(string, string)       {}
func (getter) Keys() []string           { return []string{gq.AttributeTraceParent, gq.AttributeTraceState} }

// FromJob returns ctx with the span that the attributes of a job name.
func FromJob(ctx context.Context, s *gq.Spec) context.Context {
	if s.Attributes[gq.AttributeTraceParent] == "" {
		return ctx
	}
	return w3c.Extract(ctx, Carrier(s.Attributes))
}

// IntoJob sets the attributes of a job to the span of ctx, replacing another one. It leaves a job
// without room for two more attributes as it is.
func IntoJob(ctx context.Context, s *gq.Spec) {
	if !Traced(ctx) || len(s.Attributes) > gq.MaxAttributes-2 && s.Attributes[gq.AttributeTraceParent] == "" {
		return
	}
	attributes := maps.Clone(s.Attributes)
	if attributes == nil {
		attributes = make(map[string]string, 2)
	}
	delete(attributes, gq.AttributeTraceState)
	w3c.Inject(ctx, Carrier(attributes))
	s.Attributes = attributes
}

// Adopt is IntoJob for jobs that do not name a span themselves.
func Adopt(ctx context.Context, s *gq.Spec) {
	if s.Attributes[gq.AttributeTraceParent] == "" {
		IntoJob(ctx, s)
	}
}

// Without returns ctx without its span.
func Without(ctx context.Context) context.Context {
	if !Traced(ctx) {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}
