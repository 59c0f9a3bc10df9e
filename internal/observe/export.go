package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// exportWithin is how long a collector may take.
const exportWithin = 10 * time.Second

// Tracing sends spans to an OpenTelemetry collector over OTLP/HTTP, as JSON.
// endpoint is that of OTEL_EXPORTER_OTLP_ENDPOINT, such as
// http://localhost:4318. ratio is the share of new traces that are kept; what a
// caller has decided counts. Spans that cannot be sent are dropped, which goes to the
// log once a minute at most. Stop sends what is left.
func Tracing(endpoint, service string, ratio float64, log *slog.Logger) (t trace.Tracer, stop func(context.Context) error) {
	otel.SetErrorHandler(&exportLog{log: log}) // or it would write lines of its own
	exporter := &exporter{url: strings.TrimSuffix(endpoint, "/") + "/v1/traces", client: &http.Client{Timeout: exportWithin}}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service))),
	)
	return provider.Tracer("github.com/gopherqueue/gq"), provider.Shutdown
}

// exportLog writes errors of the tracing library to a log.
type exportLog struct {
	log *slog.Logger

	mu     sync.Mutex
	errors int       // since the last line; guarded by mu
	last   time.Time // when that was; guarded by mu
}

// exportLogEvery is how often errors of an export are logged at most.
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

// exporter is OTLP/HTTP with JSON, the part of it that spans need.
type exporter struct {
	url    string
	client *http.Client
}

// The messages of OTLP, by their JSON names.
type (
	otlpValue struct {
		String *string `json:"stringValue,omitempty"`
		Int    *string `json:"intValue,omitempty"`
		Bool   *bool   `json:"boolValue,omitempty"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpLink struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	}
	otlpStatus struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	otlpSpan struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		ParentID   string          `json:"parentSpanId,omitempty"`
		State      string          `json:"traceState,omitempty"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      string          `json:"startTimeUnixNano"`
		End        string          `json:"endTimeUnixNano"`
		Attributes []otlpAttribute `json:"attributes,omitempty"`
		Links      []otlpLink      `json:"links,omitempty"`
		Status     otlpStatus      `json:"status"`
	}
	otlpScope struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpResource struct {
		Resource struct {
			Attributes []otlpAttribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []otlpScope `json:"scopeSpans"`
	}
	otlpRequest struct {
		ResourceSpans []otlpResource `json:"resourceSpans"`
	}
)

func otlpAttributes(all []attribute.KeyValue) (out []otlpAttribute) {
	for _, kv := range all {
		a := otlpAttribute{Key: string(kv.Key)}
		switch kv.Value.Type() {
		case attribute.BOOL:
			b := kv.Value.AsBool()
			a.Value.Bool = &b
		case attribute.INT64:
			n := strconv.FormatInt(kv.Value.AsInt64(), 10)
			a.Value.Int = &n
		default:
			s := kv.Value.String()
			a.Value.String = &s
		}
		out = append(out, a)
	}
	return out
}

func otlpOf(s sdktrace.ReadOnlySpan) otlpSpan {
	out := otlpSpan{
		TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(),
		State: s.SpanContext().TraceState().String(), Name: s.Name(), Kind: int(s.SpanKind()),
		Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10),
		Attributes: otlpAttributes(s.Attributes()),
		Status:     otlpStatus{Message: s.Status().Description},
	}
	switch s.Status().Code.String() {
	case "Ok":
		out.Status.Code = 1
	case "Error":
		out.Status.Code = 2
	}
	if s.Parent().SpanID().IsValid() {
		out.ParentID = s.Parent().SpanID().String()
	}
	for _, l := range s.Links() {
		out.Links = append(out.Links, otlpLink{l.SpanContext.TraceID().String(), l.SpanContext.SpanID().String()})
	}
	return out
}

// ExportSpans sends spans.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	var scope otlpScope
	scope.Scope.Name = spans[0].InstrumentationScope().Name
	for _, s := range spans {
		scope.Spans = append(scope.Spans, otlpOf(s))
	}
	var r otlpResource
	r.Resource.Attributes = otlpAttributes(spans[0].Resource().Attributes())
	r.ScopeSpans = []otlpScope{scope}
	body, err := json.Marshal(otlpRequest{[]otlpResource{r}})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := e.client.Do(request)
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // nothing of it is used
	_, _ = io.CopyN(io.Discard, answer.Body, 4<<10)
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("export spans: the collector answered %d", answer.StatusCode)
	}
	return nil
}

// Shutdown ends nothing: there is nothing to end.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
