package observe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/store"
)

// Source supplies the queue's own numbers for the page.
type Source interface {
	Stats(ctx context.Context) (gq.Stats, error)
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
	List(ctx context.Context, q gq.Query) (gq.Page, error)
}

// Limits of the page.
const (
	maxQueues   = 20_000                 // queues with their own lines; the rest are summed as queue=""
	oldestEvery = 15 * time.Second       // interval between scans for the oldest jobs
	oldestFor   = 200 * time.Millisecond // time limit of a scan; the next one continues
	probeFor    = time.Second            // time limit of the store's first answer to a scrape
	readFor     = 8 * time.Second        // and of all: Prometheus waits for ten seconds
)

// Metrics is the page that Prometheus scrapes.
type Metrics struct {
	observed *Observed
	source   Source
	allow    func(ctx context.Context) error

	mu     sync.Mutex
	oldest map[string]time.Time // since when each queue's oldest claimable job has been claimable; guarded by mu
	cursor int                  // where the next scan starts; guarded by mu

	unserved map[string]bool // queues with claimable jobs that no live worker asks for; guarded by mu

	overview overview // guarded by mu
}

// NewMetrics creates a page with an engine's call metrics, its store's state and further
// collectors. allow decides who may read it; nil allows everyone.
func NewMetrics(o *Observed, s Source, allow func(ctx context.Context) error, more ...prometheus.Collector) *Metrics {
	registry := o.measured.registry
	registry.MustRegister(more...)
	return &Metrics{observed: o, source: s, allow: allow, oldest: map[string]time.Time{}}
}

// Register adds collectors to the page.
func (m *Metrics) Register(more ...prometheus.Collector) {
	m.observed.measured.registry.MustRegister(more...)
}

// Happened counts events of the event log.
func (m *Metrics) Happened(events []gq.Event) {
	for i := range events {
		m.observed.measured.happened(&events[i])
	}
}

// Run keeps the ages of the oldest jobs up to date until the context ends.
func (m *Metrics) Run(ctx context.Context) error {
	ticker := time.NewTicker(oldestEvery)
	defer ticker.Stop()
	for {
		m.look(ctx)
		m.overlook(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look finds the oldest claimable job of each queue that has one.
func (m *Metrics) look(ctx context.Context) {
	stats, err := m.source.Stats(ctx)
	if err != nil {
		return // the page keeps the last known values
	}
	var waiting []string
	has := map[string]bool{}
	for _, c := range stats.Queues {
		if c.By[gq.StatusScheduled] > 0 {
			waiting = append(waiting, c.Queue)
			has[c.Queue] = true
		}
	}
	m.lookForWorkers(ctx, waiting)
	m.mu.Lock()
	for queue := range m.oldest {
		if !has[queue] {
			delete(m.oldest, queue)
		}
	}
	next := m.cursor
	m.mu.Unlock()
	began := time.Now()
	for range waiting {
		if ctx.Err() != nil || time.Since(began) > oldestFor {
			break
		}
		queue := waiting[next%len(waiting)]
		next++
		page, err := m.source.List(ctx, gq.Query{Queue: queue, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: 1})
		if err != nil || len(page.Jobs) == 0 {
			continue
		}
		m.mu.Lock()
		m.oldest[queue] = page.Jobs[0].State.ScheduledAt
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cursor = 0; len(waiting) > 0 {
		m.cursor = next % len(waiting)
	}
}

// Write writes the page. If it returns an error, it has written nothing.
func (m *Metrics) Write(ctx context.Context, w io.Writer) error {
	if m.allow != nil {
		if err := m.allow(ctx); err != nil {
			return err
		}
	}
	stored := m.ofReachable(ctx)
	counted, err := m.observed.measured.registry.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	_ = write(w, slices.Concat(counted, stored, m.ofFeatures())) // an error means that the scraper has gone
	return nil
}

// ofReachable reads the numbers of the store. Without the store the page has what the process
// knows, and says so: an outage is when its numbers matter most.
func (m *Metrics) ofReachable(ctx context.Context) []*dto.MetricFamily {
	families, err := m.read(ctx)
	value := 1.0
	if err != nil {
		value = 0
	}
	up := newFamily("gq_store_up", "1 if the store answered, 0 if it did not and its metrics are missing.", dto.MetricType_GAUGE)
	up.add(value)
	return append(families, up.MetricFamily)
}

// read reads everything about the store that the page has, or nothing.
func (m *Metrics) read(ctx context.Context) ([]*dto.MetricFamily, error) {
	probing, cancel := context.WithTimeout(store.Impatient(ctx), probeFor)
	defer cancel()
	_, err := m.source.Counts(probing, gq.DefaultQueue)
	if err != nil { // maybe only a connection was lost
		_, err = m.source.Counts(probing, gq.DefaultQueue)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, readFor)
	defer cancel()
	stats, err := m.source.Stats(ctx)
	if err != nil {
		return nil, err
	}
	inbox, err := m.ofInbox(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := m.ofPools(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(m.ofStore(&stats, time.Now()), inbox, pools), nil
}

func write(w io.Writer, families []*dto.MetricFamily) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for _, f := range families {
		if len(f.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			return err
		}
	}
	return out.Flush()
}

// ofInbox counts the submissions that are not jobs.
func (m *Metrics) ofInbox(ctx context.Context) ([]*dto.MetricFamily, error) {
	source, ok := m.source.(interface {
		Inbox(ctx context.Context, cursor string, limit int) (gq.Inbox, error)
	})
	if !ok {
		return nil, nil
	}
	inbox, err := source.Inbox(ctx, "", 1)
	if err != nil {
		return nil, err
	}
	waiting := newFamily("gq_inbox_waiting", "Submissions from transactions of applications that no server has taken in yet.", dto.MetricType_GAUGE)
	waiting.add(float64(inbox.Waiting))
	refused := newFamily("gq_inbox_refused", "Submissions that were refused after their transactions had committed.", dto.MetricType_GAUGE)
	refused.add(float64(inbox.Refused))
	oldest := newFamily("gq_inbox_oldest_seconds", "How long the oldest submission has waited to be taken in.", dto.MetricType_GAUGE)
	age := 0.0
	if !inbox.Oldest.IsZero() {
		age = max(0, time.Since(inbox.Oldest).Seconds())
	}
	oldest.add(age)
	return []*dto.MetricFamily{waiting.MetricFamily, refused.MetricFamily, oldest.MetricFamily}, nil
}

// ofStore builds the store's metrics without a registry: sorting and checking the series
// of 20,000 queues would cost more than the rest of the page.
func (m *Metrics) ofStore(stats *gq.Stats, now time.Time) []*dto.MetricFamily {
	gauge, counter := dto.MetricType_GAUGE, dto.MetricType_COUNTER
	one := func(name, help string, kind dto.MetricType, value float64) *dto.MetricFamily {
		f := newFamily(name, help, kind)
		f.add(value)
		return f.MetricFamily
	}
	families := append(m.ofQueues(stats, now),
		m.ofUnserved(stats.Queues[:min(len(stats.Queues), maxQueues)]),
		one("gq_leases", "Jobs that workers hold.", gauge, float64(stats.Total.Held())),
		one("gq_workers", "Workers that claimed jobs or sent heartbeats within the last minute, to any server on the database.", gauge, float64(stats.Workers)),
		one("gq_nodes", "Servers and embedding programs that run on the database.", gauge, float64(len(stats.Nodes))),
		one("gq_store_commits_total", "Batches the store has written.", counter, float64(stats.Commits)),
		one("gq_store_syncs_total", "Times the store waited for stable storage.", counter, float64(stats.Syncs)),
		one("gq_store_disk_bytes", "Size of the store on disk.", gauge, float64(stats.DiskBytes)))
	if stats.DiskReserve == 0 { // the store does not measure the disk
		return families
	}
	return append(families,
		one("gq_store_free_bytes", "Space that is free on the disk of the store.", gauge, float64(stats.DiskFree)),
		one("gq_store_reserve_bytes", "Space that the store keeps free: with less, new jobs are refused.", gauge, float64(stats.DiskReserve)))
}

func (m *Metrics) ofQueues(stats *gq.Stats, now time.Time) []*dto.MetricFamily {
	queues := stats.Queues
	var rest gq.Count
	for len(queues) > maxQueues {
		rest.Add(queues[len(queues)-1])
		queues = queues[:len(queues)-1]
	}
	if len(stats.Queues) > maxQueues {
		queues = append(slices.Clip(queues), rest)
	}
	gauge := dto.MetricType_GAUGE
	depth := newFamily("gq_queue_depth", "Jobs that have not ended.", gauge)
	jobs := newFamily("gq_jobs", "Jobs by state; a state without jobs is absent.", gauge)
	oldest := newFamily("gq_queue_oldest_seconds", "How long the oldest claimable job has waited, as of the last 15 s.", gauge)
	queue, state := "queue", "state"
	states := enum.All[gq.Status]()
	labels := make([]*dto.LabelPair, len(states))
	for i, s := range states {
		value := s.String()
		labels[i] = &dto.LabelPair{Name: &state, Value: &value}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range queues {
		q := &queues[i]
		name := &dto.LabelPair{Name: &queue, Value: &q.Queue}
		depth.add(float64(q.Live()), name)
		for k, s := range states {
			if n := q.By[s]; n != 0 {
				jobs.add(float64(n), name, labels[k])
			}
		}
		if since, ok := m.oldest[q.Queue]; ok {
			oldest.add(max(0, now.Sub(since)).Round(time.Second).Seconds(), name)
		}
	}
	return []*dto.MetricFamily{depth.MetricFamily, jobs.MetricFamily, oldest.MetricFamily}
}

// family is a metric family under construction.
type family struct{ *dto.MetricFamily }

func newFamily(name, help string, kind dto.MetricType) family {
	return family{&dto.MetricFamily{Name: &name, Help: &help, Type: &kind}}
}

func (f family) add(value float64, labels ...*dto.LabelPair) {
	if f.GetType() == dto.MetricType_COUNTER {
		f.Metric = append(f.Metric, &dto.Metric{Label: labels, Counter: &dto.Counter{Value: &value}})
		return
	}
	var s struct { // one allocation: a page has many
		metric dto.Metric
		gauge  dto.Gauge
		value  float64
	}
	s.value = value
	s.gauge.Value = &s.value
	s.metric.Label, s.metric.Gauge = labels, &s.gauge
	f.Metric = append(f.Metric, &s.metric)
}
