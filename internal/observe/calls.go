package observe

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

// The measured calls.
const (
	callSubmit = iota
	callClaim
	callHeartbeat
	callSettle
	callEnd
)

var callNames = [callEnd]string{"submit", "claim", "heartbeat", "settle"}

// Bucket bounds: seconds for durations, sizes for batches.
var (
	seconds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	sizes   = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 10_000}
)

// measurements are this process's counters since its start. Each series is looked up
// once, so counting needs no lookup by label.
type measurements struct {
	registry *prometheus.Registry

	duration [callEnd]prometheus.Observer
	batch    [callEnd]prometheus.Observer // items of a call
	accepted prometheus.Counter           // submissions
	refused  prometheus.Counter
	wait     prometheus.Histogram                              // from claimable to claimed
	run      prometheus.Histogram                              // from started to settled
	outcomes [gq.StatusCancelled + 1]func() prometheus.Counter // attempts, by the job's status afterwards
	events   [32]prometheus.Counter                            // by type; nil for unused numbers
	retries  prometheus.Counter

	late        prometheus.Counter // start deadlines missed
	unsignalled prometheus.Counter // signals that did not come in time
	rounds      *rounds            // of matching
	refusals    refusals
}

func newMeasurements() *measurements {
	m := &measurements{registry: prometheus.NewRegistry()}
	vector := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"call"})
		m.registry.MustRegister(v)
		return v
	}
	durations := vector("gq_call_seconds", "How long calls took; claims that may wait are not counted.", seconds)
	batches := vector("gq_batch_size", "Items of a call: jobs submitted or claimed, heartbeats, outcomes.", sizes)
	for i, name := range callNames {
		m.duration[i], m.batch[i] = durations.WithLabelValues(name), batches.WithLabelValues(name)
	}
	m.wait = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gq_claim_latency_seconds", Help: "From when a job could be claimed until it was.", Buckets: seconds,
	})
	m.run = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gq_run_seconds", Help: "From the start of an attempt until it was settled.", Buckets: seconds,
	})
	m.retries = prometheus.NewCounter(prometheus.CounterOpts{Name: "gq_retries_total", Help: "Attempts that another one follows."})
	m.late = prometheus.NewCounter(prometheus.CounterOpts{Name: "gq_start_deadlines_missed_total", Help: "Jobs that ended because they did not start in time."})
	m.unsignalled = prometheus.NewCounter(prometheus.CounterOpts{Name: "gq_signal_timeouts_total", Help: "Jobs of workflows that got no signal before their deadline."})
	submissions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gq_submissions_total", Help: "Submissions by outcome."}, []string{"outcome"})
	m.accepted, m.refused = submissions.WithLabelValues("accepted"), submissions.WithLabelValues("refused")
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gq_attempts_total", Help: "Attempts that were settled, by the state of their job after that.",
	}, []string{"state"})
	for _, s := range enum.All[gq.Status]() { // a status is absent until an attempt leads to it
		m.outcomes[s] = sync.OnceValue(func() prometheus.Counter { return attempts.WithLabelValues(s.String()) })
	}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gq_events_total", Help: "Events of the log that this server has seen, by type.",
	}, []string{"type"})
	for _, t := range enum.All[gq.EventType]() {
		m.events[t] = events.WithLabelValues(t.String())
	}
	m.rounds = newRounds(m.registry)
	m.refusals = newRefusals(m.registry)
	m.registry.MustRegister(m.wait, m.run, m.retries, m.late, m.unsignalled, submissions, attempts, events)
	return m
}

// call measures a call with this many items; the caller runs the returned function at its
// end.
func (m *measurements) call(which, items int) (end func()) {
	began := time.Now()
	return func() { m.took(which, items, time.Since(began)) }
}

func (m *measurements) took(which, items int, d time.Duration) {
	m.duration[which].Observe(d.Seconds())
	m.batch[which].Observe(float64(items))
}

func (m *measurements) submitted(err error) {
	if err != nil {
		m.refused.Inc()
		m.refusals.add(callSubmit, err)
		return
	}
	m.accepted.Inc()
}

func (m *measurements) claimed(s *gq.State) {
	if s.Lease != nil && !s.ScheduledAt.IsZero() {
		m.wait.Observe(max(0, s.Lease.GrantedAt.Sub(s.ScheduledAt)).Seconds())
	}
}

func (m *measurements) settled(s *gq.State) {
	if int(s.Status) < len(m.outcomes) && m.outcomes[s.Status] != nil {
		m.outcomes[s.Status]().Inc()
	}
	if !s.StartedAt.IsZero() && !s.UpdatedAt.Before(s.StartedAt) {
		m.run.Observe(s.UpdatedAt.Sub(s.StartedAt).Seconds())
	}
}

func (m *measurements) happened(e *gq.Event) {
	t := e.Type
	if int(t) < len(m.events) && m.events[t] != nil {
		m.events[t].Inc()
	}
	switch {
	case t == gq.EventRetrying:
		m.retries.Inc()
	case t == gq.EventCancelled && e.Reason == machine.ReasonStartDeadline:
		m.late.Inc()
	case t == gq.EventFailed && e.Reason == machine.ReasonSignalTimeout:
		m.unsignalled.Inc()
	}
}
