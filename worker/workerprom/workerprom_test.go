package workerprom_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
	"github.com/gopherqueue/gq/worker/workerprom"
)

// broken is a queue that fails every other heartbeat and claim.
type broken struct {
	worker.Queue
	claims int
}

func (b *broken) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	b.claims++
	if b.claims == 1 {
		return nil, errors.New("no connection")
	}
	return b.Queue.Claim(ctx, r)
}

func (b *broken) Heartbeat(context.Context, []gq.Heartbeat) ([]gq.LeaseResult, error) {
	return nil, errors.New("no connection")
}

func TestMetrics(t *testing.T) {
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Start(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	registry := prometheus.NewPedanticRegistry()
	metrics := workerprom.New(registry)
	w := worker.New(&broken{Queue: e}, worker.Config{Slots: 7, Metrics: metrics, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("good", func(context.Context, *worker.Run) error { return nil })
	w.HandleFunc("bad", func(ctx context.Context, run *worker.Run) error {
		_ = run.Checkpoint(ctx, []byte("x")) // the heartbeat fails
		return gq.Permanent(errors.New("no"), "no")
	})
	w.HandleFunc("cancelled", func(context.Context, *worker.Run) error { return worker.Cancel("enough") })
	inside, leave := make(chan bool), make(chan bool)
	w.HandleFunc("slow", func(context.Context, *worker.Run) error {
		inside <- true
		<-leave
		return nil
	})
	w.Start(t.Context())
	for _, typ := range []string{"good", "good", "bad", "cancelled", "slow"} {
		r, err := e.Submit(t.Context(), gq.Spec{Type: typ})
		if err != nil {
			t.Fatal(err)
		}
		if typ == "slow" {
			break
		}
		if _, err := e.Wait(t.Context(), r.ID()); err != nil {
			t.Fatal(err)
		}
	}
	<-inside
	check := func(text string, names ...string) {
		t.Helper()
		if diff := cmp.Diff(sortedLines(text), sortedLines(page(t, registry, names))); diff != "" {
			t.Errorf("the page is not as expected (-want +got):\n%s", diff)
		}
	}
	check(`
		# HELP gq_worker_jobs_running Handlers that have not returned.
		# TYPE gq_worker_jobs_running gauge
		gq_worker_jobs_running 1
	`, "gq_worker_jobs_running")
	if used, free := value(t, registry, "gq_worker_slots", "used"), value(t, registry, "gq_worker_slots", "free"); used != 1 || free != 6 {
		t.Errorf("%v slots are used and %v free, want 1 and 6", used, free)
	}
	close(leave)
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	check(`
		# HELP gq_worker_jobs_running Handlers that have not returned.
		# TYPE gq_worker_jobs_running gauge
		gq_worker_jobs_running 0
		# HELP gq_worker_slots Slots of the workers.
		# TYPE gq_worker_slots gauge
		gq_worker_slots{state="free"} 0
		gq_worker_slots{state="used"} 0
		# HELP gq_worker_jobs_started_total Executions begun.
		# TYPE gq_worker_jobs_started_total counter
		gq_worker_jobs_started_total{type="bad"} 1
		gq_worker_jobs_started_total{type="cancelled"} 1
		gq_worker_jobs_started_total{type="good"} 2
		gq_worker_jobs_started_total{type="slow"} 1
		# HELP gq_worker_jobs_finished_total Executions ended, by how they ended.
		# TYPE gq_worker_jobs_finished_total counter
		gq_worker_jobs_finished_total{outcome="cancelled",type="cancelled"} 1
		gq_worker_jobs_finished_total{outcome="completed",type="good"} 2
		gq_worker_jobs_finished_total{outcome="completed",type="slow"} 1
		gq_worker_jobs_finished_total{outcome="failed",type="bad"} 1
		# HELP gq_worker_leases_lost_total Leases that the queue rejected or that expired before the handler returned.
		# TYPE gq_worker_leases_lost_total counter
		gq_worker_leases_lost_total 0
	`, "gq_worker_jobs_running", "gq_worker_slots", "gq_worker_jobs_started_total", "gq_worker_jobs_finished_total", "gq_worker_leases_lost_total")
	if n := value(t, registry, "gq_worker_call_failures_total", "claim"); n != 1 {
		t.Errorf("%v claims failed, want 1", n)
	}
	if n := value(t, registry, "gq_worker_call_failures_total", "heartbeat"); n < 1 {
		t.Errorf("%v heartbeats failed, want at least 1", n)
	}
	if n := value(t, registry, "gq_worker_claim_latency_seconds", ""); n != 5 {
		t.Errorf("%v claim latencies, want 5", n)
	}
	if n := value(t, registry, "gq_worker_job_duration_seconds", "good"); n != 2 {
		t.Errorf("%v durations, want 2", n)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// page returns the text of some families as a scraper reads it.
func page(t *testing.T, g prometheus.Gatherer, names []string) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if slices.Contains(names, f.GetName()) {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return text.String()
}

func sortedLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// value returns the value, or the number of samples, of the series with one label value.
func value(t *testing.T, g prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				return float64(m.GetHistogram().GetSampleCount())
			case dto.MetricType_GAUGE:
				return m.GetGauge().GetValue()
			default:
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no %s of %q", name, label)
	return 0
}
