package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// rounds measures the rounds of matching that this process ran.
type rounds struct {
	outcomes *prometheus.CounterVec
	assigned prometheus.Counter
	duration prometheus.Histogram
}

// roundOutcomes are the outcomes of rounds.
var roundOutcomes = []string{"assigned", "empty", "overtaken", "failed"}

func newRounds(registry *prometheus.Registry) *rounds {
	r := &rounds{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gq_matching_rounds_total",
			Help: "Rounds that this server ran: assigned something, were empty, were overtaken by another server or failed.",
		}, []string{"outcome"}),
		assigned: prometheus.NewCounter(prometheus.CounterOpts{Name: "gq_matching_assignments_total", Help: "Jobs that rounds of this server assigned."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gq_matching_round_seconds", Help: "How long rounds took, with their commit.", Buckets: seconds,
		}),
	}
	for _, o := range roundOutcomes {
		r.outcomes.WithLabelValues(o)
	}
	registry.MustRegister(r.outcomes, r.assigned, r.duration)
	return r
}

// Round measures a round of matching: how it ended, what it assigned, how long it took.
func (o *Observed) Round(outcome string, assigned int, took time.Duration) {
	r := o.measured.rounds
	r.outcomes.WithLabelValues(outcome).Inc()
	r.assigned.Add(float64(assigned))
	r.duration.Observe(took.Seconds())
}
