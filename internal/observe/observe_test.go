package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
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

// scrape reads the page like Prometheus.
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
	m := NewMetrics(o, e, nil, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gq_extra", Help: "Extra."}, func() float64 { return 7 }))
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

// The page has what schedules, workflows, signals, limit keys and unique jobs did.
func TestFeatureMetrics(t *testing.T) {
	e := newEngine(t)
	m := NewMetrics(New(e, nil), e, nil)
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []gq.Schedule{
		{Name: "active", Every: time.Hour, Template: gq.Spec{Type: "t"}},
		{Name: "paused", Every: time.Hour, Paused: true, Template: gq.Spec{Type: "t"}},
	} {
		_, err := e.PutSchedule(ctx, s)
		check(err)
	}
	_, err := e.TriggerSchedule(ctx, "active")
	check(err)
	flow := gq.NewWorkflow("order")
	flow.Signal("approved", time.Hour)
	flow.Signal("paid", time.Hour)
	id, err := e.SubmitWorkflow(ctx, flow)
	check(err)
	_, err = e.Signal(ctx, id, "paid", nil)
	check(err)
	_, err = e.SetQueueKey(ctx, gq.QueueKey{Queue: "q", Key: "customer", Limit: 3})
	check(err)
	for range 2 {
		_, err = e.Submit(ctx, gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}, Unique: gq.UniqueRule{While: gq.WhileLive}})
		check(err)
	}
	m.Happened([]gq.Event{
		{Type: gq.EventCancelled, Reason: machine.ReasonStartDeadline}, {Type: gq.EventCancelled, Reason: "not needed"},
		{Type: gq.EventFailed, Reason: machine.ReasonSignalTimeout}, {Type: gq.EventFailed},
	})
	m.overlook(ctx, time.Now().Add(time.Hour+90*time.Second))
	_, got := scrape(t, m)
	if lag := got["gq_schedule_lag_seconds{}"]; lag < 60 || lag > 91 { // a schedule starts at a whole second
		t.Errorf("the lag is %v s", lag)
	}
	for key, want := range map[string]float64{
		"gq_schedules{state=active}":                    1,
		"gq_schedules{state=paused}":                    1,
		"gq_schedules{state=ended}":                     0,
		"gq_schedule_fired_total{}":                     1,
		"gq_schedule_skipped_total{reason=overlap}":     0,
		"gq_workflows{status=RUNNING}":                  1,
		"gq_workflows{status=FAILED}":                   0,
		"gq_signals_waiting{}":                          1,
		"gq_signals_received_total{}":                   1,
		"gq_signal_timeouts_total{}":                    1,
		"gq_start_deadlines_missed_total{}":             1,
		"gq_limit_keys{}":                               1,
		"gq_unique_collisions_total{outcome=returned}":  1,
		"gq_unique_collisions_total{outcome=debounced}": 0,
		"gq_inbox_taken_in_total{outcome=accepted}":     0,
		"gq_inbox_oldest_seconds{}":                     0,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", key, v, ok, want)
		}
	}
}

// Label values are escaped.
func TestLabel(t *testing.T) {
	s := &manyQueues{stats: gq.Stats{Queues: []gq.Count{{Queue: "x\"y\\z\n"}}}}
	if page, _ := scrape(t, NewMetrics(New(nil, nil), s, nil)); !strings.Contains(page, `gq_queue_depth{queue="x\"y\\z\n"} 0`) {
		t.Errorf("the queue is not escaped in\n%s", page)
	}
}

// Dashboards rely on the names, types, help texts, labels and buckets of the page. A
// change of testdata/metrics.txt breaks them.
func TestMetricNames(t *testing.T) {
	s := &manyQueues{stats: gq.Stats{Queues: []gq.Count{{Queue: "q"}}}}
	s.stats.Queues[0].By[gq.StatusScheduled] = 1
	o := New(nil, nil)
	for _, status := range []gq.Status{gq.StatusCompleted, gq.StatusRetrying} {
		o.measured.settled(&gq.State{Status: status})
	}
	m := NewMetrics(o, withPools{s, newEngine(t), []gq.Pool{{Name: "scheduler", Capacity: 70, Used: 30}}}, nil)
	m.oldest["q"], m.unserved = time.Now(), map[string]bool{"q": true}
	m.overlook(t.Context(), time.Now())
	page, values := scrape(t, m)
	if values["gq_pool_capacity_units{pool=scheduler}"] != 70 || values["gq_pool_used_units{pool=scheduler}"] != 30 {
		t.Errorf("the pool: %v", values)
	}
	var lines []string
	for line := range strings.Lines(page) {
		if name, _, ok := cutLast(line, " "); ok && !strings.HasPrefix(line, "#") {
			line = name + "\n" // without the value
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.Join(lines, "")); diff != "" {
		t.Error(diff)
	}
}

// withPools is a source with pools and the schedules, workflows and counters of an engine.
type withPools struct {
	*manyQueues
	*engine.Engine
	pools []gq.Pool
}

func (s withPools) Counts(context.Context, ...string) ([]gq.Count, error) { return nil, nil }
func (s withPools) Stats(ctx context.Context) (gq.Stats, error)           { return s.manyQueues.Stats(ctx) }
func (s withPools) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	return s.manyQueues.List(ctx, q)
}

func (s withPools) Pools(context.Context) ([]gq.Pool, error) { return s.pools, nil }

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

func TestMetricsNeedPermission(t *testing.T) {
	e := newEngine(t)
	m := NewMetrics(New(e, nil), e, func(context.Context) error { return gq.ErrDenied })
	var page bytes.Buffer
	if err := m.Write(t.Context(), &page); !errors.Is(err, gq.ErrDenied) || page.Len() > 0 {
		t.Errorf("%v %s", err, &page)
	}
}

// silentStore never answers.
type silentStore struct{ *manyQueues }

func (silentStore) Counts(ctx context.Context, _ ...string) ([]gq.Count, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Without its store the page has what the process knows, within the time that Prometheus waits.
func TestMetricsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := New(nil, nil)
		o.measured.submitted(nil)
		_, got := scrape(t, NewMetrics(o, silentStore{&manyQueues{}}, nil))
		if _, has := got["gq_workers{}"]; has || got["gq_store_up{}"] != 0 || got["gq_submissions_total{outcome=accepted}"] != 1 || time.Since(began) >= 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), got)
		}
		if _, got = scrape(t, NewMetrics(New(nil, nil), &manyQueues{}, nil)); got["gq_store_up{}"] != 1 {
			t.Errorf("with its store: %v", got)
		}
	})
}

// What is refused is counted by its reason, and a call whose caller has gone is not.
func TestRefusals(t *testing.T) {
	o := New(nil, nil)
	r := o.measured.refusals
	for _, err := range []error{nil, gq.ErrQueueFull, fmt.Errorf("x: %w", gq.ErrQueueFull), context.Canceled, errors.New("odd")} {
		r.add(callSubmit, err)
	}
	r.leases(callSettle, []gq.LeaseResult{{}, {Err: gq.ErrStaleLease}}, nil)
	_, got := scrape(t, NewMetrics(o, &manyQueues{}, nil))
	for series, n := range map[string]float64{
		"gq_refused_total{call=submit,reason=queue_full}": 2, "gq_refused_total{call=submit,reason=internal}": 1,
		"gq_refused_total{call=settle,reason=stale_lease}": 1, "gq_refused_total{call=claim,reason=disk_full}": 0,
	} {
		if v, has := got[series]; !has || v != n {
			t.Errorf("%s is %v (%v), want %v", series, v, has, n)
		}
	}
}

// A queue with claimable jobs and no worker that asks for it is told, unless it is not served by claims.
func TestUnservedQueues(t *testing.T) {
	e := newEngine(t)
	e.Delegate("matching", engine.Delegate{})
	for _, queue := range []string{"mail.a", "sms", "lonely", "matching"} {
		if _, err := e.Submit(t.Context(), gq.Spec{Type: "t", Queue: queue}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Submit(t.Context(), gq.Spec{Type: "t", Queue: "lonely", Delay: time.Hour}); err != nil { // which nobody could claim yet
		t.Fatal(err)
	}
	for _, queues := range [][]string{{"mail.*"}, {"sms"}} {
		if _, err := e.Claim(t.Context(), gq.ClaimRequest{Worker: "w-" + queues[0][:3], N: 1, Types: []string{"other"}, Queues: queues}); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMetrics(New(e, nil), e, nil)
	m.look(t.Context())
	page, got := scrape(t, m)
	if got["gq_queue_unserved_jobs{queue=lonely}"] != 1 || strings.Count(page, "\ngq_queue_unserved_jobs{") != 1 {
		t.Errorf("unserved queues in\n%s", page)
	}
}

// manyQueues is a source with many queues.
type manyQueues struct{ stats gq.Stats }

func (s *manyQueues) Stats(context.Context) (gq.Stats, error)               { return s.stats, nil }
func (s *manyQueues) Counts(context.Context, ...string) ([]gq.Count, error) { return nil, nil }
func (s *manyQueues) List(context.Context, gq.Query) (gq.Page, error) {
	return gq.Page{}, nil
}

// BenchmarkScrape reads the page of a store with 10,000 queues; the limit is 20 ms.
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

// Queues beyond the limit are added up.
func TestMetricsOfTooManyQueues(t *testing.T) {
	s := &manyQueues{}
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
