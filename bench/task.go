package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// task is one measurement of a side, in an empty place. The Node sides get it as JSON.
type task struct {
	Row       string  `json:"row"`
	URL       string  `json:"url"`
	Jobs      int     `json:"jobs"`      // of bulk, drain, backlog and latency; 0 is any number
	Step      int     `json:"step"`      // first and last part of a backlog
	Batch     int     `json:"batch"`     // jobs per bulk insert
	Inserters int     `json:"inserters"` // concurrent bulk inserts
	Callers   int     `json:"callers"`   // of single
	Seconds   float64 `json:"seconds"`   // of single, idle, cycle and half, and of each half of pinned; the most for bulk and drain of a server
	Fill      float64 `json:"fill"`      // the most seconds to fill the queue of drain
	Window    int     `json:"window"`    // jobs of cycle that may wait
	Pinned    float64 `json:"pinned"`    // seconds for which a snapshot is held open
	Rate      int     `json:"rate"`      // jobs per second of pinned and half
	Every     float64 `json:"every"`     // milliseconds between the jobs of latency

	begin func() // called when the clock starts
	end   func() // called when it stops, if that is before run returns
}

// outcome is what a side has measured. Values that a row does not measure are zero.
type outcome struct {
	Jobs    int     `json:"jobs,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	First   float64 `json:"first,omitempty"` // jobs per second in the first step of a backlog
	Last    float64 `json:"last,omitempty"`  // and in the last
	P50     float64 `json:"p50,omitempty"`   // milliseconds
	P99     float64 `json:"p99,omitempty"`
	Before  float64 `json:"before,omitempty"` // p99 of claims without a snapshot
	Under   float64 `json:"under,omitempty"`  // and at the end of the time with a snapshot held open
	Queries float64 `json:"queries,omitempty"`
	CPU     float64 `json:"cpu,omitempty"`    // seconds, client and server together
	Written float64 `json:"written"`          // bytes, likewise
	Server  float64 `json:"server,omitempty"` // seconds of these that the server used
	Others  float64 `json:"others"`           // percent of the CPU that other processes used meanwhile
}

func (o outcome) rate() float64 {
	if o.Seconds == 0 {
		return 0
	}
	return float64(o.Jobs) / o.Seconds
}

// effort returns the CPU time per job, client and server together, in microseconds. It
// says more than a rate if others use the machine too.
func (o outcome) effort() float64 {
	if o.Jobs == 0 {
		return 0
	}
	return o.CPU * 1e6 / float64(o.Jobs)
}

// bytes returns the bytes written to disk per job.
func (o outcome) bytes() float64 {
	if o.Jobs == 0 {
		return 0
	}
	return o.Written / float64(o.Jobs)
}

// side is a queue that is measured.
type side interface {
	name() string
	can(row string) bool
	run(ctx context.Context, t task) (outcome, error)
}

// meter counts the jobs that ran and records when each step was complete.
type meter struct {
	total, step int64
	n           atomic.Int64
	begin       time.Time
	mu          sync.Mutex
	marks       []time.Duration
	done        chan struct{}
}

func newMeter(total, step int) *meter {
	return &meter{total: int64(total), step: int64(min(step, total)), done: make(chan struct{})}
}

func (m *meter) start() { m.begin = time.Now() }

func (m *meter) hit() {
	n := m.n.Add(1)
	if n%m.step == 0 {
		m.mu.Lock()
		m.marks = append(m.marks, time.Since(m.begin))
		m.mu.Unlock()
	}
	if n == m.total {
		close(m.done)
	}
}

// wait waits until all jobs have run.
func (m *meter) wait(ctx context.Context) error {
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs were run: %w", m.n.Load(), m.total, context.Cause(ctx))
	}
}

// ends returns the rates of the first and the last step.
func (m *meter) ends() (first, last float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.marks)
	k := len(m.marks)
	if k < 2 {
		return 0, 0
	}
	return float64(m.step) / m.marks[0].Seconds(), float64(m.step) / (m.marks[k-1] - m.marks[k-2]).Seconds()
}

// times collects durations from many goroutines.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

// cut returns the durations so far and starts anew.
func (t *times) cut() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.all
	t.all = nil
	return all
}

// percentile returns milliseconds.
func percentile(all []time.Duration, p float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(p*float64(len(all))))].Seconds() * 1000
}

// together runs f in n goroutines and returns the first error.
func together(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}

// inBatches calls insert for each batch of a task, from as many goroutines as the task
// says.
func (t task) inBatches(insert func(from, n int) error) error {
	var next atomic.Int64
	return together(max(t.Inserters, 1), func(int) error {
		for {
			from := int(next.Add(int64(t.Batch))) - t.Batch
			if from >= t.Jobs {
				return nil
			}
			if err := insert(from, min(t.Batch, t.Jobs-from)); err != nil {
				return err
			}
		}
	})
}

// singles lets callers insert one job after the other until time is up. Each has
// inserted one before, so that connections are open and plans are cached.
func (t task) singles(insert func(i int) error) (outcome, error) {
	if err := together(t.Callers, insert); err != nil {
		return outcome{}, err
	}
	var n atomic.Int64
	t.begin()
	start := time.Now()
	end := start.Add(seconds(t.Seconds))
	err := together(t.Callers, func(int) error {
		for time.Now().Before(end) {
			if err := insert(int(n.Add(1))); err != nil {
				return err
			}
		}
		return nil
	})
	return outcome{Jobs: int(n.Load()), Seconds: time.Since(start).Seconds()}, err
}

// latencies submits jobs at a steady pace and measures how long after the start of the
// call each one starts.
type latencies struct {
	begun []time.Time
	took  times
	left  sync.WaitGroup
}

func (l *latencies) started(i int) {
	l.took.add(time.Since(l.begun[i]))
	l.left.Done()
}

func (l *latencies) measure(t task, submit func(i int) error) (outcome, error) {
	errs := make(chan error, t.Jobs)
	t.begin()
	tick := time.NewTicker(seconds(t.Every / 1000))
	defer tick.Stop()
	for i := range t.Jobs {
		l.begun[i] = time.Now()
		go func() { errs <- submit(i) }()
		<-tick.C
	}
	for range t.Jobs {
		if err := <-errs; err != nil {
			return outcome{}, err
		}
	}
	l.left.Wait()
	all := l.took.cut()
	return outcome{Jobs: t.Jobs, P50: percentile(all, 0.50), P99: percentile(all, 0.99)}, nil
}

func newLatencies(n int) *latencies {
	l := &latencies{begun: make([]time.Time, n)}
	l.left.Add(n)
	return l
}

// steady submits jobs at a rate, first undisturbed, then with a snapshot held open. The
// claims that count are those of the first part's second half, when plans and caches
// are warm, and those at the end of the second part, when most dead rows cannot be
// removed.
func (t task) steady(ctx context.Context, claims *times, submit func(n int) error) (outcome, error) {
	const ticks = 50 // a second
	running, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Second / ticks)
		defer tick.Stop()
		for {
			select {
			case <-running.Done():
				failed <- nil
				return
			case <-tick.C:
				if err := submit(t.Rate / ticks); err != nil {
					failed <- err
					return
				}
			}
		}
	}()
	rest := func(d float64) error {
		select {
		case <-time.After(seconds(d)):
			return nil
		case err := <-failed:
			failed <- nil
			return err
		}
	}
	part := func(total float64) (float64, error) {
		if err := rest(max(total-t.Seconds, 0)); err != nil {
			return 0, err
		}
		claims.cut()
		err := rest(min(total, t.Seconds))
		return percentile(claims.cut(), 0.99), err
	}
	var out outcome
	var err error
	if out.Before, err = part(1.5 * t.Seconds); err != nil {
		return out, err
	}
	release, err := hold(ctx, t.URL)
	if err != nil {
		return out, err
	}
	out.Under, err = part(t.Pinned)
	release()
	stop()
	if err == nil {
		err = <-failed
	}
	return out, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
