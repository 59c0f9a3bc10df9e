// Package workerotel reports the measurements of workers to OpenTelemetry.
//
//	metrics, err := workerotel.New(otel.GetMeterProvider())
//	w := worker.New(client, worker.Config{Metrics: metrics})
//
// All workers that share a [Metrics] are added up. The instruments are those of package
// workerprom: gq.worker.jobs.started is gq_worker_jobs_started_total there, and
// gq.worker.job.duration with the unit s is gq_worker_job_duration_seconds.
package workerotel

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gopherqueue/gq/internal/tracing"
	"github.com/gopherqueue/gq/internal/workerstats"
	"github.com/gopherqueue/gq/worker"
)

// Metrics implements [worker.Metrics].
type Metrics struct {
	workerstats.Sum

	started  metric.Int64Counter
	finished metric.Int64Counter
	duration metric.Float64Histogram
	latency  metric.Float64Histogram
}

// New creates the instruments.
func New(provider metric.MeterProvider) (*Metrics, error) {
	m := &Metrics{}
	meter := builder{Meter: provider.Meter(tracing.Library)}
	m.started = meter.counter("jobs.started", "{job}", "Executions begun.")
	m.finished = meter.counter("jobs.finished", "{job}", "Executions ended, by how they ended.")
	m.duration = meter.histogram("job.duration", "From the claim of a job until its handler returned.")
	m.latency = meter.histogram("claim.latency", "From when a job could be claimed until this process claimed it.")
	meter.observe(m)
	if meter.err != nil {
		return nil, fmt.Errorf("create the instruments of a worker: %w", meter.err)
	}
	return m, nil
}

// builder creates instruments and keeps the first error.
type builder struct {
	metric.Meter
	err error
}

func (b *builder) keep(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) counter(name, unit, about string) metric.Int64Counter {
	c, err := b.Int64Counter("gq.worker."+name, metric.WithUnit(unit), metric.WithDescription(about))
	b.keep(err)
	return c
}

func (b *builder) histogram(name, about string) metric.Float64Histogram {
	h, err := b.Float64Histogram("gq.worker."+name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200))
	b.keep(err)
	return h
}

// observe creates the instruments whose values come from [worker.Stats].
func (b *builder) observe(m *Metrics) {
	gauge := func(name, unit, about string) metric.Int64ObservableUpDownCounter {
		g, err := b.Int64ObservableUpDownCounter("gq.worker."+name, metric.WithUnit(unit), metric.WithDescription(about))
		b.keep(err)
		return g
	}
	counter := func(name, unit, about string) metric.Int64ObservableCounter {
		c, err := b.Int64ObservableCounter("gq.worker."+name, metric.WithUnit(unit), metric.WithDescription(about))
		b.keep(err)
		return c
	}
	slots := gauge("slots", "{slot}", "Slots of the workers.")
	running := gauge("jobs.running", "{job}", "Handlers that have not returned.")
	unsettled := gauge("jobs.unsettled", "{job}", "Outcomes that the queue has not accepted yet.")
	ignoring := gauge("jobs.ignoring", "{job}", "Running handlers whose context ended longer than the grace period ago.")
	leasesLost := counter("leases.lost", "{lease}", "Leases that the queue rejected or that expired before the handler returned.")
	refused := counter("outcomes.refused", "{outcome}", "Outcomes that were late or that the queue rejected.")
	undelivered := counter("outcomes.undelivered", "{outcome}", "Outcomes that could not be sent before the lease expired.")
	calls := counter("calls", "{call}", "Calls to the queue.")
	failures := counter("call.failures", "{call}", "Calls to the queue that returned an error.")
	if b.err != nil {
		return
	}
	with := func(key, value string) metric.ObserveOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
	}
	free, used := with("state", "free"), with("state", "used")
	claim, heartbeat, settle := with("call", "claim"), with("call", "heartbeat"), with("call", "settle")
	_, err := b.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := m.Stats()
		o.ObserveInt64(slots, int64(s.Slots-s.Used), free)
		o.ObserveInt64(slots, int64(s.Used), used)
		o.ObserveInt64(running, int64(s.Running))
		o.ObserveInt64(unsettled, int64(s.Unsettled))
		o.ObserveInt64(ignoring, int64(s.Ignoring))
		o.ObserveInt64(leasesLost, int64(s.LeasesLost))
		o.ObserveInt64(refused, int64(s.Refused))
		o.ObserveInt64(undelivered, int64(s.Undelivered))
		o.ObserveInt64(calls, int64(s.Claims), claim)
		o.ObserveInt64(calls, int64(s.Heartbeats), heartbeat)
		o.ObserveInt64(calls, int64(s.Settles), settle)
		o.ObserveInt64(failures, int64(s.FailedClaims), claim)
		o.ObserveInt64(failures, int64(s.FailedHeartbeats), heartbeat)
		o.ObserveInt64(failures, int64(s.FailedSettles), settle)
		return nil
	}, slots, running, unsettled, ignoring, leasesLost, refused, undelivered, calls, failures)
	b.keep(err)
}

// Started implements [worker.Metrics].
func (m *Metrics) Started(typ string, latency time.Duration) {
	m.started.Add(context.Background(), 1, metric.WithAttributes(attribute.String("type", typ)))
	m.latency.Record(context.Background(), latency.Seconds())
}

// Finished implements [worker.Metrics].
func (m *Metrics) Finished(typ string, outcome worker.RunOutcome, took time.Duration) {
	m.finished.Add(context.Background(), 1, metric.WithAttributes(attribute.String("type", typ), attribute.String("outcome", outcome.String())))
	m.duration.Record(context.Background(), took.Seconds(), metric.WithAttributes(attribute.String("type", typ)))
}
