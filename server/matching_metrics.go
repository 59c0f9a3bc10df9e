package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// maxProviderLines is how many providers have their own lines on the metrics page. The
// leases of the others are summed as provider="".
const maxProviderLines = 1000

// levelsWithin limits how long a page waits for the store.
const levelsWithin = time.Second

// matchingMetrics puts the current numbers of matching on the metrics page.
type matchingMetrics struct {
	dispatcher *matchmaker.Dispatcher
	waiting, leases, providers, eligible,
	providerLeases, providerHealth,
	sinkRecords, sinkFailures, sinkUp *prometheus.Desc
}

func newMatchingMetrics(d *matchmaker.Dispatcher) *matchingMetrics {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("gq_matching_"+name, help, labels, nil)
	}
	return &matchingMetrics{
		dispatcher:     d,
		waiting:        describe("waiting_jobs", "Jobs that wait for a provider."),
		leases:         describe("leases", "Leases that providers hold."),
		providers:      describe("providers", "Registered providers by status.", "status"),
		eligible:       describe("eligible_providers", "Providers that a round would include now."),
		providerLeases: describe("provider_leases", "Leases that a provider holds; those of providers without their own line are summed as provider=\"\".", "provider"),
		providerHealth: describe("provider_health_ratio", "Health of a provider, from 0 to 1.", "provider"),
		sinkRecords:    describe("sink_records_total", "Records that this server delivered to a sink.", "sink"),
		sinkFailures:   describe("sink_failures_total", "Attempts of this server to deliver to a sink that failed.", "sink"),
		sinkUp:         describe("sink_up", "1 if the last attempt to deliver to a sink did not fail, else 0.", "sink"),
	}
}

// Describe implements [prometheus.Collector].
func (m *matchingMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.waiting, m.leases, m.providers, m.eligible, m.providerLeases, m.providerHealth, m.sinkRecords, m.sinkFailures, m.sinkUp,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *matchingMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), levelsWithin)
	defer cancel()
	now := m.dispatcher.Levels(ctx, maxProviderLines)
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.waiting, float64(now.Waiting))
	gauge(m.leases, float64(now.Leases))
	gauge(m.eligible, float64(now.Eligible))
	for _, s := range match.Statuses() {
		gauge(m.providers, float64(now.Statuses[s]), s.String())
	}
	for _, p := range now.Providers {
		gauge(m.providerLeases, float64(p.Leases), p.ID)
		gauge(m.providerHealth, p.Health, p.ID)
	}
	if now.Others > 0 {
		gauge(m.providerLeases, float64(now.Others), "")
	}
	for _, s := range now.Sinks {
		out <- prometheus.MustNewConstMetric(m.sinkRecords, prometheus.CounterValue, float64(s.Delivered), s.Name)
		out <- prometheus.MustNewConstMetric(m.sinkFailures, prometheus.CounterValue, float64(s.Failed), s.Name)
		up := 0.0
		if s.Up {
			up = 1
		}
		gauge(m.sinkUp, up, s.Name)
	}
}
