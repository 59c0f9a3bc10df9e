package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
)

func newEngine(t testing.TB) *engine.Engine {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// scrape reads the page as Prometheus does.
func scrape(t testing.TB, m *Metrics) (string, map[string]float64) {
	t.Helper()
	var page bytes.Buffer
	if err := m.Write(t.Context(), &page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	values := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := name + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetHistogram() != nil:
				values[key] = float64(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				values[key] = m.GetCounter().GetValue()
			default:
				values[key] = m.GetGauge().GetValue()
			}
		}
	}
	return text, values
}

func TestMetrics(t *testing.T) {
	e := newEngine(t)
	o := New(e, nil)
	m := NewMetrics(o, e, nil, Gauge{"gq_extra", "gauge", "Extra.", func() float64 { return 7 }})
	ctx := t.Context()
	strange := "mail.out"
	if _, err := o.SubmitBatch(ctx, []gq.Spec{{Type: "t"}, {Type: "t"}, {Type: "t", Queue: strange}, {}}); err != nil {
		t.Fatal(err)
	}
	jobs, err := o.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 2})
	if err != nil || len(jobs) != 2 {
		t.Fatal(len(jobs), err)
	}
	if _, err := o.Heartbeat(ctx, []gq.Heartbeat{{Lease: jobs[0].State.Lease.Ref(), Progress: -1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Settle(ctx, []gq.Outcome{
		{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete},
		{Lease: jobs[1].State.Lease.Ref(), Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryTemporary, RetryAfter: time.Hour}},
	}); err != nil {
		t.Fatal(err)
	}
	events, err := e.Events(ctx, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	m.Happened(events)
	m.look(ctx)
	_, got := scrape(t, m)
	for key, want := range map[string]float64{
		"gq_queue_depth{queue=default}":          1,
		"gq_queue_depth{queue=" + strange + "}":  1,
		"gq_jobs{queue=default,state=COMPLETED}": 1,
		"gq_jobs{queue=default,state=RETRYING}":  1,
		"gq_submissions_total{outcome=accepted}": 3,
		"gq_submissions_total{outcome=refused}":  1,
		"gq_batch_size{call=submit}":             1,
		"gq_batch_size{call=claim}":              1,
		"gq_call_seconds{call=heartbeat}":        1,
		"gq_call_seconds{call=settle}":           1,
		"gq_claim_latency_seconds{}":             2,
		"gq_run_seconds{}":                       2,
		"gq_attempts_total{state=COMPLETED}":     1,
		"gq_attempts_total{state=RETRYING}":      1,
		"gq_retries_total{}":                     1,
		"gq_events_total{type=job.completed}":    1,
		"gq_leases{}":                            0,
		"gq_extra{}":                             7,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", key, v, ok, want)
		}
	}
	if age, ok := got["gq_queue_oldest_seconds{queue="+strange+"}"]; !ok || age < 0 || age > 60 {
		t.Errorf("the oldest job is %v s old (there: %t)", age, ok)
	}
	if got["gq_store_commits_total{}"] == 0 {
		t.Error("no commits")
	}
}

func TestLabel(t *testing.T) {
	if got, want := label("a", "x\"y\\z\n"), `a="x\"y\\z\n"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMetricsNeedPermission(t *testing.T) {
	e := newEngine(t)
	m := NewMetrics(New(e, nil), e, func(context.Context) error { return gq.ErrDenied })
	var page bytes.Buffer
	if err := m.Write(t.Context(), &page); !errors.Is(err, gq.ErrDenied) || page.Len() > 0 {
		t.Errorf("%v %s", err, &page)
	}
}

// tenThousandQueues is a source with many queues.
type tenThousandQueues struct{ stats gq.Stats }

func (s *tenThousandQueues) Stats(context.Context) (gq.Stats, error) { return s.stats, nil }
func (s *tenThousandQueues) List(context.Context, gq.Query) (gq.Page, error) {
	return gq.Page{}, nil
}

// BenchmarkScrape reads the page of a store with 10,000 queues; the bound is
// 20 ms.
func BenchmarkScrape(b *testing.B) {
	e := newEngine(b)
	specs := make([]gq.Spec, 10_000)
	for i := range specs {
		specs[i] = gq.Spec{Type: "t", Queue: fmt.Sprintf("queue-%d", i)}
	}
	for from := 0; from < len(specs); from += 1000 {
		if _, err := e.SubmitBatch(b.Context(), specs[from:from+1000]); err != nil {
			b.Fatal(err)
		}
	}
	m := NewMetrics(New(e, nil), e, nil)
	m.look(b.Context())
	m.look(b.Context())
	for b.Loop() {
		var page bytes.Buffer
		if err := m.Write(b.Context(), &page); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(page.Len()), "bytes")
	}
}

// Beyond a number of queues the rest is added up.
func TestMetricsOfTooManyQueues(t *testing.T) {
	s := &tenThousandQueues{}
	for i := range maxQueues + 10 {
		c := gq.Count{Queue: fmt.Sprint(i)}
		c.By[gq.StatusScheduled] = 2
		s.stats.Queues = append(s.stats.Queues, c)
	}
	_, got := scrape(t, NewMetrics(New(nil, nil), s, nil))
	if got["gq_queue_depth{queue=}"] != 20 {
		t.Errorf("the rest has %v jobs, want 20", got["gq_queue_depth{queue=}"])
	}
}

// collector takes spans as a collector does.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []otlpSpan // guarded by mu
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request otlpRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range request.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// A trace goes from the caller over the submission to each attempt, and the
// worker is given the context of its own.
func TestTrace(t *testing.T) {
	c := newCollector(t)
	tracer, stop := Tracing(c.URL, "gq", 1, slog.New(slog.DiscardHandler))
	e := newEngine(t)
	o := New(e, tracer)
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := Extract(t.Context(), func(name string) string {
		if name == traceParent {
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
		given = append(given, jobs[0].Spec.Attributes[traceParent])
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

	var submits, runs []otlpSpan
	for _, s := range c.spans {
		if s.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("span %s is of trace %s", s.Name, s.TraceID)
		}
		switch s.Name {
		case "submit t":
			submits = append(submits, s)
		case "run t":
			runs = append(runs, s)
		}
	}
	if len(submits) != 2 || len(runs) != 2 {
		t.Fatalf("%d submissions and %d attempts, want 2 and 2", len(submits), len(runs))
	}
	if submits[0].ParentID != "00f067aa0ba902b7" {
		t.Errorf("the submission's parent is %s", submits[0].ParentID)
	}
	for i, run := range runs {
		if run.ParentID != submits[0].SpanID || len(run.Links) != 1 || run.Links[0].SpanID != submits[0].SpanID {
			t.Errorf("attempt %d belongs to %s with links %v, want %s", i+1, run.ParentID, run.Links, submits[0].SpanID)
		}
		if !strings.Contains(given[i], run.SpanID) {
			t.Errorf("attempt %d was given %s, want span %s", i+1, given[i], run.SpanID)
		}
	}
	if runs[0].Status.Code != 2 || runs[0].Status.Message != "busy" || runs[1].Status.Code != 1 {
		t.Errorf("the attempts ended with %+v and %+v", runs[0].Status, runs[1].Status)
	}
}

func TestLog(t *testing.T) {
	var text bytes.Buffer
	log := NewLog(&text, "gq", slog.LevelInfo)
	log.Info("one")
	log.Warn("two", "method", "Submit", "event", "rpc_error", "request", "r1", "job_id", "j")
	log.With("event", "x").Error("three")
	log.WithGroup("g").Info("four", "a", 1)
	log.Debug("five")
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4:\n%s", len(lines), text.String())
	}
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ts_ms", "level", "service", "method", "event", "message"} {
			if _, ok := fields[name]; !ok {
				t.Errorf("%s lacks %s", line, name)
			}
		}
		if ms, ok := fields["ts_ms"].(float64); !ok || time.Since(time.UnixMilli(int64(ms))).Abs() > time.Minute {
			t.Errorf("ts_ms is %v", fields["ts_ms"])
		}
	}
	if !strings.Contains(lines[1], `"request_id":"r1"`) || strings.Count(lines[1], `"event"`) != 1 {
		t.Errorf("the second line is %s", lines[1])
	}
}

// Traces that cannot be sent are told of in the log of the server, not too often.
func TestTracesThatCannotBeSent(t *testing.T) {
	var lines bytes.Buffer
	_, stop := Tracing("http://127.0.0.1:1", "gq", 1, NewLog(&lines, "gq", slog.LevelInfo))
	defer stop(t.Context()) //nolint:errcheck // nothing was traced
	for range 1000 {
		otel.Handle(errors.New("no collector"))
	}
	var line struct{ Level, Service, Error string }
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Level != "WARN" || line.Service != "gq" || line.Error != "no collector" {
		t.Errorf("the log says %s: %v", lines.String(), err)
	}
}
