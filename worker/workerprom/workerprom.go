// Package workerprom reports the measurements of workers to Prometheus.
//
//	metrics := workerprom.New(prometheus.DefaultRegisterer)
//	w := worker.New(client, worker.Config{Metrics: metrics})
//
// All workers that share a [Metrics] are added up. The metrics:
//
//	gq_worker_slots{state}                            gauge: slots that are used or free
//	gq_worker_jobs_running                            gauge: handlers that have not returned
//	gq_worker_jobs_unsettled                          gauge: outcomes that the queue has not accepted yet
//	gq_worker_jobs_ignoring                           gauge: handlers that continue after the end of their context
//	gq_worker_jobs_started_total{type}                executions begun
//	gq_worker_jobs_finished_total{type,outcome}       executions ended: completed, failed, timed_out, cancelled, released, lost, abandoned
//	gq_worker_job_duration_seconds{type}              histogram: from the claim until the handler returned
//	gq_worker_claim_latency_seconds                   histogram: from when a job could be claimed until it was
//	gq_worker_leases_lost_total                       leases that ended before their handler returned
//	gq_worker_outcomes_refused_total                  outcomes that came late or that the queue rejected
//	gq_worker_outcomes_undelivered_total              outcomes that could not be sent in time
//	gq_worker_calls_total{call}                       calls to the queue: claim, heartbeat, settle
//	gq_worker_call_failures_total{call}               of these, calls that returned an error
package workerprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gopherqueue/gq/internal/workerstats"
	"github.com/gopherqueue/gq/worker"
)

// Bucket bounds in seconds.
var buckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}

// Metrics implements [worker.Metrics] and [prometheus.Collector].
type Metrics struct {
	workerstats.Sum

	started  *prometheus.CounterVec
	finished *prometheus.CounterVec
	duration *prometheus.HistogramVec
	latency  prometheus.Histogram
}

// New creates the metrics and registers them. A nil registerer registers them nowhere; the caller
// can then register the result. It panics if the registerer already has such metrics.
func New(r prometheus.Registerer) *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		started:  counters("gq_worker_jobs_started_total", "Executions begun.", "type"),
		finished: counters("gq_worker_jobs_finished_total", "Executions ended, by how they ended.", "type", "outcome"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gq_worker_job_duration_seconds", Help: "From the claim of a job until its handler returned.", Buckets: buckets,
		}, []string{"type"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gq_worker_claim_latency_seconds", Help: "From when a job could be claimed until this process claimed it.", Buckets: buckets,
		}),
	}
	if r != nil {
		r.MustRegister(m)
	}
	return m
}

// Started implements [worker.Metrics].
func (m *Metrics) Started(typ string, latency time.Duration) {
	m.started.WithLabelValues(typ).Inc()
	m.latency.Observe(latency.Seconds())
}

// Finished implements [worker.Metrics].
func (m *Metrics) Finished(typ string, outcome worker.RunOutcome, took time.Duration) {
	m.finished.WithLabelValues(typ, outcome.String()).Inc()
	m.duration.WithLabelValues(typ).Observe(took.Seconds())
}

var (
	slots       = describe("slots", "Slots of the workers.", "state")
	running     = describe("jobs_running", "Handlers that have not returned.")
	unsettled   = describe("jobs_unsettled", "Outcomes that the queue has not accepted yet.")
	ignoring    = describe("jobs_ignoring", "Running handlers whose context ended longer than the grace period ago.")
	leasesLost  = describe("leases_lost_total", "Leases that the queue rejected or that expired before the handler returned.")
	refused     = describe("outcomes_refused_total", "Outcomes that were late or that the queue rejected.")
	undelivered = describe("outcomes_undelivered_total", "Outcomes that could not be sent before the lease expired.")
	calls       = describe("calls_total", "Calls to the queue.", "call")
	failures    = describe("call_failures_total", "Calls to the queue that returned an error.", "call")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gq_worker_"+name, help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.started, m.finished, m.duration, m.latency} {
		c.Describe(out)
	}
	for _, d := range []*prometheus.Desc{slots, running, unsettled, ignoring, leasesLost, refused, undelivered, calls, failures} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.started, m.finished, m.duration, m.latency} {
		c.Collect(out)
	}
	s := m.Stats()
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	gauge(slots, s.Slots-s.Used, "free")
	gauge(slots, s.Used, "used")
	gauge(running, s.Running)
	gauge(unsettled, s.Unsettled)
	gauge(ignoring, s.Ignoring)
	counter(leasesLost, s.LeasesLost)
	counter(refused, s.Refused)
	counter(undelivered, s.Undelivered)
	counter(calls, s.Claims, "claim")
	counter(calls, s.Heartbeats, "heartbeat")
	counter(calls, s.Settles, "settle")
	counter(failures, s.FailedClaims, "claim")
	counter(failures, s.FailedHeartbeats, "heartbeat")
	counter(failures, s.FailedSettles, "settle")
}
