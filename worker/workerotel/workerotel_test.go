package workerotel_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
	"github.com/gopherqueue/gq/worker/workerotel"
)

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
	reader := sdkmetric.NewManualReader()
	metrics, err := workerotel.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(e, worker.Config{Slots: 3, Metrics: metrics, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("good", func(context.Context, *worker.Run) error { return nil })
	w.HandleFunc("bad", func(context.Context, *worker.Run) error { return gq.Permanent(errors.New("no"), "no") })
	w.Start(t.Context())
	for _, typ := range []string{"good", "good", "bad"} {
		r, err := e.Submit(t.Context(), gq.Spec{Type: typ})
		if err == nil {
			_, err = e.Wait(t.Context(), r.ID())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, reader); got["gq.worker.slots{state=free}"]+got["gq.worker.slots{state=used}"] != 3 {
		t.Errorf("while it runs: %v", got)
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	got := read(t, reader)
	for name, want := range map[string]float64{
		"gq.worker.jobs.started{type=good}":                    2,
		"gq.worker.jobs.started{type=bad}":                     1,
		"gq.worker.jobs.finished{outcome=completed,type=good}": 2,
		"gq.worker.jobs.finished{outcome=failed,type=bad}":     1,
		"gq.worker.job.duration{type=good}":                    2,
		"gq.worker.claim.latency{}":                            3,
		"gq.worker.slots{state=free}":                          0,
		"gq.worker.jobs.running{}":                             0,
		"gq.worker.leases.lost{}":                              0,
		"gq.worker.call.failures{call=heartbeat}":              0,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (%t), want %v", name, value, ok, want)
		}
	}
	if got["gq.worker.calls{call=claim}"] < 1 || got["gq.worker.calls{call=settle}"] < 1 {
		t.Errorf("no calls: %v", got)
	}
}

// read returns the values of all series, of histograms the number of samples.
func read(t *testing.T, reader sdkmetric.Reader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	key := func(name string, set attribute.Set) string {
		return name + "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Unit == "" || m.Description == "" {
				t.Errorf("%s has the unit %q and the description %q", m.Name, m.Unit, m.Description)
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values[key(m.Name, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[key(m.Name, p.Attributes)] = float64(p.Count)
				}
			default:
				t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return values
}
