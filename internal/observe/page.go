package observe

import (
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
)

// Source is what the page shows of the queue itself.
type Source interface {
	Stats(ctx context.Context) (gq.Stats, error)
	List(ctx context.Context, q gq.Query) (gq.Page, error)
}

// Gauge is a number that somebody else keeps.
type Gauge struct {
	Name, Kind, Help string
	Value            func() float64
}

// Limits of the page.
const (
	maxQueues   = 20_000                 // queues with lines of their own; the rest are added up as queue=""
	oldestEvery = 15 * time.Second       // between looks for the oldest jobs
	oldestFor   = 200 * time.Millisecond // that a look may take; the next one goes on
)

// Metrics is the page that Prometheus reads.
type Metrics struct {
	observed *Observed
	source   Source
	gauges   []Gauge
	allow    func(ctx context.Context) error

	mu     sync.Mutex
	oldest map[string]time.Time // when the oldest claimable job of a queue became so; guarded by mu
	cursor int                  // where the next look begins; guarded by mu
}

// NewMetrics makes a page of what an engine does and how its store stands. Who
// asks for it must be allowed to; nil allows everyone.
func NewMetrics(o *Observed, s Source, allow func(ctx context.Context) error, more ...Gauge) *Metrics {
	return &Metrics{observed: o, source: s, gauges: more, allow: allow, oldest: map[string]time.Time{}}
}

// Happened counts events, for a follower of the log.
func (m *Metrics) Happened(events []gq.Event) {
	for i := range events {
		m.observed.numbers.happened(events[i].Type)
	}
}

// Run keeps the ages of the oldest jobs until the context ends.
func (m *Metrics) Run(ctx context.Context) error {
	ticker := time.NewTicker(oldestEvery)
	defer ticker.Stop()
	for {
		m.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look finds the oldest claimable job of each queue that has any.
func (m *Metrics) look(ctx context.Context) {
	stats, err := m.source.Stats(ctx)
	if err != nil {
		return // the page shows what is known
	}
	var waiting []string
	has := map[string]bool{}
	for _, c := range stats.Queues {
		if c.By[gq.StatusScheduled] > 0 {
			waiting = append(waiting, c.Queue)
			has[c.Queue] = true
		}
	}
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

// Write writes the page. After an error nothing is written.
func (m *Metrics) Write(ctx context.Context, w io.Writer) error {
	if m.allow != nil {
		if err := m.allow(ctx); err != nil {
			return err
		}
	}
	stats, err := m.source.Stats(ctx)
	if err != nil {
		return err
	}
	_ = m.write(w, &stats, time.Now()) // the scraper has left
	return nil
}

func (m *Metrics) write(out io.Writer, stats *gq.Stats, now time.Time) error {
	p := &page{out: out, buffer: make([]byte, 0, flushAt+4096)}
	m.writeQueues(p, stats, now)
	m.writeNumbers(p)
	p.single("gq_leases", "gauge", "Jobs that workers hold.", float64(stats.Total.Held()))
	p.single("gq_workers", "gauge", "Workers that have shown themselves to this server within the last minute.", float64(stats.Workers))
	p.single("gq_store_commits_total", "counter", "Batches the store has written.", float64(stats.Commits))
	p.single("gq_store_syncs_total", "counter", "Times the store waited for stable storage.", float64(stats.Syncs))
	p.single("gq_store_disk_bytes", "gauge", "Size of the store on disk.", float64(stats.DiskBytes))
	for _, g := range m.gauges {
		p.single(g.Name, g.Kind, g.Help, g.Value())
	}
	p.single("go_goroutines", "gauge", "Goroutines.", float64(runtime.NumGoroutine()))
	p.flush(1)
	return p.err
}

func (m *Metrics) writeQueues(p *page, stats *gq.Stats, now time.Time) {
	queues := stats.Queues
	var rest gq.Count
	for len(queues) > maxQueues {
		rest.Add(queues[len(queues)-1])
		queues = queues[:len(queues)-1]
	}
	if len(stats.Queues) > maxQueues {
		queues = append(slices.Clip(queues), rest)
	}
	p.head("gq_queue_depth", "gauge", "Jobs that have not ended.")
	for i := range queues {
		p.ofQueue(`gq_queue_depth{queue="`, queues[i].Queue, `"} `, queues[i].Live())
	}
	p.head("gq_jobs", "gauge", "Jobs by state; a state without jobs is absent.")
	states := enum.All[gq.Status]()
	ends := make([]string, len(states))
	for k, s := range states {
		ends[k] = `",state="` + s.String() + `"} `
	}
	for i := range queues {
		for k, s := range states {
			if n := queues[i].By[s]; n != 0 {
				p.ofQueue(`gq_jobs{queue="`, queues[i].Queue, ends[k], n)
			}
		}
	}
	p.head("gq_queue_oldest_seconds", "gauge", "How long the oldest claimable job has waited, as of the last 15 s.")
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range queues {
		if since, ok := m.oldest[queues[i].Queue]; ok {
			p.ofQueue(`gq_queue_oldest_seconds{queue="`, queues[i].Queue, `"} `, int64(max(0, now.Sub(since)).Round(time.Second)/time.Second))
		}
	}
}

func (m *Metrics) writeNumbers(p *page) {
	n := m.observed.numbers
	p.head("gq_call_seconds", "histogram", "How long calls took; claims that may wait are not counted.")
	for i, name := range callNames {
		p.distribution("gq_call_seconds", label("call", name), n.calls[i])
	}
	p.head("gq_batch_size", "histogram", "Items of a call: jobs submitted or claimed, heartbeats, outcomes.")
	for i, name := range callNames {
		p.distribution("gq_batch_size", label("call", name), n.batches[i])
	}
	p.head("gq_claim_latency_seconds", "histogram", "From when a job could be claimed until it was.")
	p.distribution("gq_claim_latency_seconds", "", n.wait)
	p.head("gq_run_seconds", "histogram", "From the start of an attempt until it was settled.")
	p.distribution("gq_run_seconds", "", n.run)
	p.head("gq_submissions_total", "counter", "Submissions by outcome.")
	p.line("gq_submissions_total", `outcome="accepted"`, float64(n.accepted.n.Load()))
	p.line("gq_submissions_total", `outcome="refused"`, float64(n.refused.n.Load()))
	p.head("gq_attempts_total", "counter", "Attempts that were settled, by the state of their job after that.")
	for _, s := range enum.All[gq.Status]() {
		if v := n.outcomes[s].n.Load(); v > 0 {
			p.line("gq_attempts_total", `state="`+s.String()+`"`, float64(v))
		}
	}
	p.single("gq_retries_total", "counter", "Attempts that another one follows.", float64(n.events[gq.EventRetrying].n.Load()))
	p.head("gq_events_total", "counter", "Events of the log that this server has seen, by type.")
	for _, t := range enum.All[gq.EventType]() {
		p.line("gq_events_total", `type="`+t.String()+`"`, float64(n.events[t].n.Load()))
	}
}
