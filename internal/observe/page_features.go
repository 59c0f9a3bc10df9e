package observe

import (
	"context"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/enum"
)

// countFor is how long a look may count workflows; the next one continues.
const countFor = 100 * time.Millisecond

// overview is the state of schedules, workflows and limit keys as of the last look.
type overview struct {
	schedules map[string]int // by state
	lag       time.Duration
	workflows engine.WorkflowCounts
	counted   bool // workflows
	keys      int
}

// scheduleStates are the states of schedules.
var scheduleStates = []string{"active", "paused", "ended"}

// overlook reads the state of schedules, workflows and limit keys. What cannot be read keeps its
// last value.
func (m *Metrics) overlook(ctx context.Context, now time.Time) {
	m.mu.Lock()
	o := m.overview
	m.mu.Unlock()
	if s, ok := m.source.(interface {
		Schedules(ctx context.Context) ([]gq.Schedule, error)
	}); ok {
		if list, err := s.Schedules(ctx); err == nil {
			o.schedules, o.lag = schedulesOf(list, now)
		}
	}
	if s, ok := m.source.(interface {
		CountWorkflows(ctx context.Context, limit time.Duration) (engine.WorkflowCounts, bool, error)
	}); ok {
		if counts, ready, err := s.CountWorkflows(ctx, countFor); err == nil && ready {
			o.workflows, o.counted = counts, true
		}
	}
	if s, ok := m.source.(interface {
		Queues(ctx context.Context) ([]gq.Queue, error)
	}); ok {
		if list, err := s.Queues(ctx); err == nil {
			o.keys = 0
			for i := range list {
				o.keys += list[i].OwnKeys
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.overview = o
}

// schedulesOf counts schedules by state and returns how late the latest of them is.
func schedulesOf(list []gq.Schedule, now time.Time) (by map[string]int, lag time.Duration) {
	by = make(map[string]int, len(scheduleStates))
	for i := range list {
		switch s := &list[i]; {
		case s.Paused:
			by["paused"]++
		case s.Next.IsZero():
			by["ended"]++
		default:
			by["active"]++
			lag = max(lag, now.Sub(s.Next))
		}
	}
	return by, lag
}

// ofFeatures reports on schedules, workflows, signals, limit keys, unique jobs and the inbox.
func (m *Metrics) ofFeatures() []*dto.MetricFamily {
	m.mu.Lock()
	o := m.overview
	m.mu.Unlock()
	gauge, counter := dto.MetricType_GAUGE, dto.MetricType_COUNTER
	var out []*dto.MetricFamily
	one := func(name, help string, kind dto.MetricType, value float64) {
		f := newFamily(name, help, kind)
		f.add(value)
		out = append(out, f.MetricFamily)
	}
	each := func(name, help string, kind dto.MetricType, label string) func(value string, n float64) {
		f := newFamily(name, help, kind)
		out = append(out, f.MetricFamily)
		return func(value string, n float64) { f.add(n, &dto.LabelPair{Name: &label, Value: &value}) }
	}
	if o.schedules != nil {
		add := each("gq_schedules", "Schedules by state, as of the last 15 s.", gauge, "state")
		for _, state := range scheduleStates {
			add(state, float64(o.schedules[state]))
		}
		one("gq_schedule_lag_seconds", "How late the most overdue firing of a schedule is, as of the last 15 s.", gauge, max(o.lag, 0).Seconds())
	}
	if o.counted {
		add := each("gq_workflows", "Workflows by status, as of the last complete count.", gauge, "status")
		for _, s := range enum.All[gq.WorkflowStatus]() {
			add(s.String(), float64(o.workflows.By[s]))
		}
		one("gq_signals_waiting", "Jobs of workflows that wait for a signal, as of the last complete count.", gauge, float64(o.workflows.Signals))
	}
	one("gq_limit_keys", "Limit keys with limits of their own, as of the last 15 s.", gauge, float64(o.keys))
	source, ok := m.source.(interface{ Activity() engine.Activity })
	if !ok {
		return out
	}
	a := source.Activity()
	one("gq_schedule_fired_total", "Jobs of schedules that this server submitted.", counter, float64(a.Fired))
	add := each("gq_schedule_skipped_total", "Slots of schedules without a job, because of the overlap rule or the rule for missed slots, or because the job was refused.", counter, "reason")
	add("overlap", float64(a.SkippedOverlap))
	add("missed", float64(a.SkippedMissed))
	add("refused", float64(a.SkippedRefused))
	one("gq_signals_received_total", "Signals that this server gave to jobs of workflows.", counter, float64(a.Signals))
	one("gq_claims_key_rate_limited_total", "Claims that got fewer jobs than they asked for because of the rates of limit keys.", counter, float64(a.KeyRate))
	add = each("gq_unique_collisions_total", "Submissions of unique jobs whose key another job held, by what happened.", counter, "outcome")
	add("returned", float64(a.Returned))
	add("refused", float64(a.Refused))
	add("replaced", float64(a.Replaced))
	add("debounced", float64(a.Debounced))
	add("throttled", float64(a.Throttled))
	add = each("gq_inbox_taken_in_total", "Submissions from transactions of applications that this server took in.", counter, "outcome")
	add("accepted", float64(a.TakenIn))
	add("refused", float64(a.TurnedDown))
	return out
}
