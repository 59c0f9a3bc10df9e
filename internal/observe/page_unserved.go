package observe

import (
	"context"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/gopherqueue/gq"
)

// lookForWorkers notes the queues with claimable jobs that no live worker asks for. Queues that
// are not served by claims, such as that of matching, need none.
func (m *Metrics) lookForWorkers(ctx context.Context, waiting []string) {
	source, ok := m.source.(interface {
		Workers(ctx context.Context) ([]gq.LiveWorker, error)
		Delegated(queue string) bool
	})
	if !ok {
		return
	}
	workers, err := source.Workers(ctx)
	if err != nil {
		return // the page keeps the last known values
	}
	names, patterns := map[string]bool{}, []string(nil)
	for i := range workers {
		for _, name := range workers[i].Queues {
			if !names[name] && strings.HasSuffix(name, "*") {
				patterns = append(patterns, name)
			}
			names[name] = true
		}
	}
	unserved := map[string]bool{}
	for _, queue := range waiting {
		if !names[queue] && !source.Delegated(queue) && !slices.ContainsFunc(patterns, func(p string) bool { return gq.MatchQueue(p, queue) }) {
			unserved[queue] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unserved = unserved
}

// ofUnserved reports the jobs of queues that no worker serves.
func (m *Metrics) ofUnserved(queues []gq.Count) *dto.MetricFamily {
	f := newFamily("gq_queue_unserved_jobs", "Jobs that could be claimed and whose queue no live worker asks for, as of the last 15 s; absent for other queues.", dto.MetricType_GAUGE)
	label := "queue"
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range queues {
		if n := queues[i].By[gq.StatusScheduled]; n > 0 && m.unserved[queues[i].Queue] {
			f.add(float64(n), &dto.LabelPair{Name: &label, Value: &queues[i].Queue})
		}
	}
	return f.MetricFamily
}
