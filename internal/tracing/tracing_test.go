package tracing_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/tracing"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func spanOf(fields map[string]string) context.Context {
	return tracing.Extract(context.Background(), func(name string) string { return fields[name] })
}

// A trace context survives the way through attributes and fields; invalid ones are ignored.
func TestRoundTrip(t *testing.T) {
	fields := map[string]string{"traceparent": parent, "tracestate": "a=1,b=2"}
	ctx := spanOf(fields)
	s := gq.Spec{Attributes: map[string]string{"own": "x"}}
	given := s.Attributes
	tracing.IntoJob(ctx, &s)
	if want := map[string]string{"own": "x", "traceparent": parent, "tracestate": "a=1,b=2"}; !maps.Equal(s.Attributes, want) || len(given) != 1 {
		t.Errorf("attributes %v, and the caller's %v", s.Attributes, given)
	}
	if got := tracing.Fields(tracing.FromJob(context.Background(), &s)); !maps.Equal(got, fields) {
		t.Errorf("fields %v", got)
	}
	for _, bad := range []string{"", "00-xyz", parent[:50], "ff" + parent[2:]} {
		if tracing.Traced(spanOf(map[string]string{"traceparent": bad})) {
			t.Errorf("%q is taken for a trace", bad)
		}
	}
	if tracing.Fields(context.Background()) != nil || tracing.Traced(tracing.Without(ctx)) {
		t.Error("a trace out of nothing")
	}
}

// A job keeps a trace context that its program set, and its own attributes if there is no room.
func TestAdopt(t *testing.T) {
	other := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	s := gq.Spec{Attributes: map[string]string{"traceparent": parent}}
	if tracing.Adopt(other, &s); s.Attributes["traceparent"] != parent {
		t.Errorf("adopted %v", s.Attributes)
	}
	full := gq.Spec{Attributes: map[string]string{}}
	for i := range gq.MaxAttributes - 1 {
		full.Attributes[fmt.Sprint(i)] = "x"
	}
	if tracing.Adopt(other, &full); len(full.Attributes) != gq.MaxAttributes-1 {
		t.Errorf("%d attributes", len(full.Attributes))
	}
	untraced := gq.Spec{}
	if tracing.Adopt(context.Background(), &untraced); untraced.Attributes != nil {
		t.Errorf("attributes %v", untraced.Attributes)
	}
}
