package observe

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/version"
)

// collector receives spans over OTLP/HTTP and OTLP/gRPC, like a real collector.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	http, grpc string // addresses, http://HOST:PORT

	mu       sync.Mutex
	spans    []*tracepb.Span   // guarded by mu
	resource map[string]string // of the latest spans; guarded by mu
	headers  map[string]string // of the latest spans; guarded by mu
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	overHTTP := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request collectorpb.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.take(&request, r.Header.Get)
	}))
	t.Cleanup(overHTTP.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overGRPC := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(overGRPC, c)
	ended := make(chan error, 1)
	go func() { ended <- overGRPC.Serve(listener) }()
	t.Cleanup(func() {
		overGRPC.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c.http, c.grpc = overHTTP.URL, "http://"+listener.Addr().String()
	return c
}

// Export implements OTLP/gRPC.
func (c *collector) Export(ctx context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.take(request, func(name string) string { return strings.Join(metadata.ValueFromIncomingContext(ctx, name), ",") })
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func (c *collector) take(request *collectorpb.ExportTraceServiceRequest, header func(string) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resource, c.headers = map[string]string{}, map[string]string{"x-tenant": header("x-tenant")}
	for _, r := range request.ResourceSpans {
		for _, a := range r.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range r.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

// forget clears the OTEL_ variables that tests set.
func forget(t testing.TB) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
		"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		"OTEL_EXPORTER_OTLP_HEADERS",
	} {
		t.Setenv(name, "")
	}
}

// A trace spans the caller, the submission and each attempt, and the worker gets the
// context of its attempt.
func TestTrace(t *testing.T) {
	c := newCollector(t)
	forget(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.http)
	tracer, stop, err := Tracing(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	o := New(e, tracer)
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := Extract(t.Context(), func(name string) string {
		if name == gq.AttributeTraceParent {
			return caller
		}
		return ""
	})
	if _, err := o.Submit(ctx, gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}}); err != nil {
		t.Fatal(err)
	}
	again, err := o.Submit(ctx, gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}})
	if err != nil || !again.Existing || !again.Same {
		t.Errorf("the same submission in another span: %+v, %v", again, err)
	}
	var given []string
	for attempt := 1; attempt <= 2; attempt++ {
		jobs, err := o.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1})
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		given = append(given, jobs[0].Spec.Attributes[gq.AttributeTraceParent])
		outcome := gq.Outcome{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete}
		if attempt == 1 {
			outcome.Verdict = gq.VerdictFail
			outcome.Failure = gq.Failure{Category: gq.CategoryTemporary, Code: "busy", RetryAfter: time.Millisecond}
		}
		if answers, err := o.Settle(t.Context(), []gq.Outcome{outcome}); err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	var submits, waits, runs []*tracepb.Span
	for _, s := range c.spans {
		if id := hex.EncodeToString(s.TraceId); id != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("span %s is of trace %s", s.Name, id)
		}
		switch s.Name {
		case "submit t":
			submits = append(submits, s)
		case "wait t":
			waits = append(waits, s)
		case "run t":
			runs = append(runs, s)
		}
	}
	if len(submits) != 2 || len(waits) != 2 || len(runs) != 2 {
		t.Fatalf("%d submissions, %d waits and %d attempts, want 2 of each", len(submits), len(waits), len(runs))
	}
	if parent := hex.EncodeToString(submits[0].ParentSpanId); parent != "00f067aa0ba902b7" {
		t.Errorf("the submission's parent is %s", parent)
	}
	if e := runs[0].Events; len(e) != 1 || e[0].Name != "retry scheduled" {
		t.Errorf("the first attempt has the events %v", e)
	}
	if e := runs[1].Events; len(e) != 1 || e[0].Name != "retry" {
		t.Errorf("the second attempt has the events %v", e)
	}
	for i, run := range runs {
		if w := waits[i]; !bytes.Equal(w.ParentSpanId, submits[0].SpanId) || w.EndTimeUnixNano < w.StartTimeUnixNano || w.EndTimeUnixNano > run.EndTimeUnixNano {
			t.Errorf("wait %d belongs to %x and lasts from %d to %d", i+1, w.ParentSpanId, w.StartTimeUnixNano, w.EndTimeUnixNano)
		}
		if !bytes.Equal(run.ParentSpanId, submits[0].SpanId) || len(run.Links) != 1 || !bytes.Equal(run.Links[0].SpanId, submits[0].SpanId) {
			t.Errorf("attempt %d belongs to %x with links %v, want %x", i+1, run.ParentSpanId, run.Links, submits[0].SpanId)
		}
		if !strings.Contains(given[i], hex.EncodeToString(run.SpanId)) {
			t.Errorf("attempt %d was given %s, want span %x", i+1, given[i], run.SpanId)
		}
	}
	if runs[0].Status.Code != tracepb.Status_STATUS_CODE_ERROR || runs[0].Status.Message != "busy" || runs[1].Status.Code != tracepb.Status_STATUS_CODE_OK {
		t.Errorf("the attempts ended with %v and %v", runs[0].Status, runs[1].Status)
	}
}

// The server log reports traces that cannot be sent, at a limited rate.
func TestTracesThatCannotBeSent(t *testing.T) {
	var lines bytes.Buffer
	forget(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	_, stop, err := Tracing(t.Context(), NewLog(&lines, "gq", slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t.Context()) //nolint:errcheck // nothing was traced
	for range 1000 {
		otel.Handle(errors.New("no collector"))
	}
	var line struct{ Level, Service, Error string }
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Level != "WARN" || line.Service != "gq" || line.Error != "no collector" {
		t.Errorf("the log says %s: %v", lines.String(), err)
	}
}

// The standard variables decide whether and where traces are sent.
func TestTracingVariables(t *testing.T) {
	submitted := func(t *testing.T, c *collector) int {
		t.Helper()
		tracer, stop, err := Tracing(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		o := New(newEngine(t), tracer)
		for range 20 {
			if _, err := o.Submit(t.Context(), gq.Spec{Type: "t"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.spans)
	}
	for _, test := range []struct {
		name string
		env  []string // NAME=VALUE; HTTP and GRPC are the collector's addresses
		want int      // spans of 20
	}{
		{"nothing", nil, 0},
		{"endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP"}, 20},
		{"endpoint of traces", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=HTTP/v1/traces"}, 20},
		{"grpc", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=GRPC", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, 20},
		{"grpc for traces", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=GRPC", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"}, 20},
		{"unknown protocol", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_EXPORTER_OTLP_PROTOCOL=carrier-pigeon"}, 20},
		{"unknown exporter", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_TRACES_EXPORTER=carrier-pigeon"}, 20},
		{"disabled", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_SDK_DISABLED=true"}, 0},
		{"no exporter", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_TRACES_EXPORTER=none"}, 0},
		{"sampler", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_TRACES_SAMPLER=always_off"}, 0},
		{"ratio", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0"}, 0},
		{"ratio alone", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_TRACES_SAMPLER_ARG=0"}, 0},
		{"sampler before ratio", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=HTTP", "OTEL_TRACES_SAMPLER=always_on", "OTEL_TRACES_SAMPLER_ARG=0"}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCollector(t)
			forget(t)
			for _, v := range test.env {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, strings.NewReplacer("HTTP", c.http, "GRPC", c.grpc).Replace(value))
			}
			if got := submitted(t, c); got != test.want {
				t.Errorf("%d spans, want %d", got, test.want)
			}
		})
	}
	t.Run("names and headers", func(t *testing.T) {
		c := newCollector(t)
		forget(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.http)
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
		if submitted(t, c); c.resource["service.name"] != "gq" || c.resource["service.version"] != version.Release() || c.resource["service.instance.id"] == "" || c.headers["x-tenant"] != "blue" {
			t.Errorf("%v %v", c.resource, c.headers)
		}
		t.Setenv("OTEL_SERVICE_NAME", "orders")
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
		if submitted(t, c); c.resource["service.name"] != "orders" || c.resource["deployment.environment"] != "test" {
			t.Errorf("%v", c.resource)
		}
	})
}

// What the tracing SDK reports about its variables goes to the server log.
func TestTracingVariablesThatAreIgnored(t *testing.T) {
	for _, test := range []struct{ name, value string }{
		{"OTEL_TRACES_EXPORTER", "carrier-pigeon"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon"},
		{"OTEL_RESOURCE_ATTRIBUTES", "novalue"},
		{"OTEL_TRACES_SAMPLER", "carrier-pigeon"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", "nowhere.pem"},
	} {
		t.Run(test.name, func(t *testing.T) {
			forget(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv(test.name, test.value)
			var lines bytes.Buffer
			_, stop, err := Tracing(t.Context(), NewLog(&lines, "gq", slog.LevelInfo))
			if err != nil {
				t.Fatal(err)
			}
			defer stop(t.Context()) //nolint:errcheck // nothing was traced
			if !strings.Contains(lines.String(), test.value) || !json.Valid([]byte(strings.Split(lines.String(), "\n")[0])) {
				t.Errorf("the log says %q", lines.String())
			}
		})
	}
}
