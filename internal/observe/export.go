package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq/internal/tracing"
	"github.com/gopherqueue/gq/internal/version"
)

// Tracing exports spans as the standard OTEL_ variables of the process environment
// configure it. The tracer is nil if they do not enable traces.
//
// Traces are on if OTEL_TRACES_EXPORTER or an OTLP endpoint is set, unless
// OTEL_SDK_DISABLED is true. An unusable variable is logged and ignored. Spans that
// cannot be sent are dropped, which is logged at most once a minute. stop flushes the
// remaining spans.
func Tracing(ctx context.Context, log *slog.Logger) (t trace.Tracer, stop func(context.Context) error, err error) {
	stop = func(context.Context) error { return nil }
	warn := func(name, problem string) {
		log.Warn("environment variable ignored", "event", "trace_config", "variable", name, "value", os.Getenv(name), "problem", problem)
	}
	asked := exporterAsked(warn)
	if asked == "" {
		return nil, stop, nil
	}
	otel.SetErrorHandler(&exportLog{log: log}) // the SDK would log errors in its own format
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	exporter, err := newExporter(ctx, asked)
	if err != nil {
		return nil, stop, fmt.Errorf("make an exporter of traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(service()...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		if !errors.Is(err, resource.ErrPartialResource) {
			return nil, stop, fmt.Errorf("describe this service to the trace collector: %w", err)
		}
		warn("OTEL_RESOURCE_ATTRIBUTES", err.Error()) // the valid attributes are used
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)}
	if ratio, ok := sampleRatio(); ok {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))))
	}
	provider := sdktrace.NewTracerProvider(options...)
	return provider.Tracer(tracing.Library), provider.Shutdown, nil
}

// service tells the collector what sends the spans; the environment can say otherwise.
func service() []attribute.KeyValue {
	host, _ := os.Hostname() // without one the process id must do
	return []attribute.KeyValue{
		attribute.String("service.name", "gq"), attribute.String("service.version", version.Release()),
		attribute.String("service.instance.id", fmt.Sprintf("%s-%d", host, os.Getpid())),
	}
}

// exporterAsked returns the exporter that the environment selects: console, grpc, http,
// or "" for none.
func exporterAsked(warn func(variable, problem string)) string {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return ""
	}
	switch name := strings.ToLower(os.Getenv("OTEL_TRACES_EXPORTER")); name {
	case "none":
		return ""
	case "console":
		return name
	case "otlp":
	default:
		if name != "" {
			warn("OTEL_TRACES_EXPORTER", "must be otlp, console or none")
		}
		if firstSet("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
			return ""
		}
	}
	variable := firstSet("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch name := strings.ToLower(os.Getenv(variable)); name {
	case "grpc":
		return name
	case "", "http/protobuf":
	default:
		warn(variable, "must be http/protobuf or grpc; http/protobuf is used")
	}
	return "http"
}

func newExporter(ctx context.Context, asked string) (sdktrace.SpanExporter, error) {
	switch asked {
	case "console":
		return stdouttrace.New()
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return otlptracehttp.New(ctx)
	}
}

// firstSet returns the first of these variables that is set, or "".
func firstSet(names ...string) string {
	for _, name := range names {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

// sampleRatio returns OTEL_TRACES_SAMPLER_ARG if no sampler is named, a case in which the
// SDK ignores it. It is the fraction of new traces to keep; a caller's sampling decision
// still wins.
func sampleRatio() (ratio float64, ok bool) {
	if os.Getenv("OTEL_TRACES_SAMPLER") != "" {
		return 0, false
	}
	ratio, err := strconv.ParseFloat(os.Getenv("OTEL_TRACES_SAMPLER_ARG"), 64)
	return ratio, err == nil && ratio >= 0 && ratio <= 1
}

// exportLog logs errors of the tracing SDK.
type exportLog struct {
	log *slog.Logger

	mu     sync.Mutex
	errors int       // since the last line; guarded by mu
	last   time.Time // time of that line; guarded by mu
}

// exportLogEvery is the minimum interval between two logged export errors.
const exportLogEvery = time.Minute

// Handle logs an error.
func (e *exportLog) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errors++
	if now := time.Now(); e.last.IsZero() || now.Sub(e.last) >= exportLogEvery {
		e.log.Warn("traces could not be sent", "event", "trace_export", "errors", e.errors, "error", err)
		e.errors, e.last = 0, now
	}
}
