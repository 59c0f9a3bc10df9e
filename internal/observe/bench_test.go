package observe

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// instant is an engine whose submissions cost nothing.
type instant struct{ engine.API }

func (instant) Submit(context.Context, gq.Spec) (gq.SubmitResult, error) {
	return gq.SubmitResult{}, nil
}

// BenchmarkSubmit measures what observing adds to a submission, without and with trace
// export.
func BenchmarkSubmit(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	submit := func(t trace.Tracer) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			o := New(instant{}, t)
			spec := gq.Spec{Type: "t"}
			for b.Loop() {
				if _, err := o.Submit(b.Context(), spec); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("exporters=0", submit(nil))
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracer, stop, err := Tracing(b.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer stop(b.Context()) //nolint:errcheck // nothing is asked of it
	b.Run("exporters=1", submit(tracer))
}
