package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/worker"
)

// Sizes of scenario worker, unless Settings.Jobs is smaller. Rates use Settings.Callers
// and Settings.Duration.
const (
	latencyJobs   = 1000
	heartbeatJobs = 10_000
	heartbeatTTL  = 6 * time.Second
	longestTTL    = 16 * heartbeatTTL // for a machine that stood still for longer than a lease
	graphSmall    = 10                // the cost per job of larger graphs must not exceed that of this size
	chainLarge    = gq.MaxDepth
	fanLarge      = gq.MaxDependencies
)

// atMost returns jobs or Settings.Jobs, whichever is smaller.
func (b *bench) atMost(jobs int) int {
	if b.Jobs > 0 {
		return min(jobs, b.Jobs)
	}
	return jobs
}

// queueOfWorkers is an engine with a worker on a store.
type queueOfWorkers struct {
	*engine.Engine
	store   store.Store
	worker  *worker.Worker
	handler atomic.Pointer[func(ctx context.Context, run *worker.Run) error]
}

// withWorker runs a function while an engine and a worker run.
func (b *bench) withWorker(ctx context.Context, row string, c worker.Config, use func(context.Context, *queueOfWorkers) error) error {
	return b.with(ctx, Worker, row, nil, func(ctx context.Context, s store.Store) (err error) {
		e, err := engine.New(s, engine.Options{})
		if err != nil {
			return err
		}
		q := &queueOfWorkers{Engine: e, store: s}
		q.handle(func(context.Context, *worker.Run) error { return nil })
		c.QueueSets = []worker.QueueSet{{Queues: []string{queueName}}}
		c.Logger = slog.New(slog.DiscardHandler)
		q.worker = worker.New(e, c)
		q.worker.HandleFunc("bench", func(ctx context.Context, run *worker.Run) error { return (*q.handler.Load())(ctx, run) })
		running, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		var ran [2]error
		wg.Go(func() { ran[0] = e.Run(running) })
		wg.Go(func() { ran[1] = q.worker.Run(running) })
		defer func() {
			stop()
			wg.Wait()
			err = errors.Join(err, ran[0], ran[1])
		}()
		return use(ctx, q)
	})
}

// handle replaces the handler.
func (q *queueOfWorkers) handle(f func(context.Context, *worker.Run) error) { q.handler.Store(&f) }

// submit submits one job like those of the other scenarios.
func (q *queueOfWorkers) submit(ctx context.Context, payload []byte) error {
	spec := plainJob()
	spec.Payload.Data = payload
	_, err := q.Submit(ctx, spec)
	return err
}

// settled waits until n jobs have completed.
func (q *queueOfWorkers) settled(ctx context.Context, n int64) error {
	for {
		counts, err := q.store.Counts(ctx, queueName)
		if err != nil {
			return err
		}
		if len(counts) == 1 && counts[0].By[gq.StatusCompleted] >= n {
			return nil
		}
		if err := wait(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// workers measures the worker runtime.
func (b *bench) workers(ctx context.Context) (r WorkerResult, err error) {
	r.Callers = b.mostCallers()
	for _, part := range []func(context.Context, *WorkerResult) error{
		b.workerBare, b.workerRate, b.workerLatency, b.workerHeartbeats, b.workerGraphs,
	} {
		if err := part(ctx, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// workerBare measures the cycle that the runtime is compared with.
func (b *bench) workerBare(ctx context.Context, r *WorkerResult) error {
	return b.with(ctx, Worker, "bare", nil, func(ctx context.Context, s store.Store) error {
		before := readMachine()
		jobs, elapsed, err := b.drive(ctx, s, Cycle, r.Callers, 1, new(calls))
		if err != nil {
			return err
		}
		r.BareJobsPerSecond, r.BareCPU = rate(jobs, elapsed), before.until(readMachine()).perJob(jobs)
		return nil
	})
}

// workerRate lets callers submit one job after the other while a worker with as many
// slots runs them. At most four jobs per caller wait at once.
func (b *bench) workerRate(ctx context.Context, r *WorkerResult) error {
	return b.withWorker(ctx, "rate", worker.Config{Slots: r.Callers}, func(ctx context.Context, q *queueOfWorkers) error {
		before := readMachine()
		var jobs atomic.Int64
		var left *quota
		waiting := make(chan struct{}, 4*r.Callers)
		q.handle(func(context.Context, *worker.Run) error { <-waiting; return nil })
		elapsed, err := together(ctx, r.Callers, func() { left = newQuota(b.Jobs, b.Duration, nil) }, func() func(context.Context) error {
			c := newCaller(q.store, new(calls), plainJob(), b.Payload, 1)
			return func(ctx context.Context) error {
				for left.take(1) > 0 {
					c.fill(c.specs[0].Payload.Data)
					waiting <- struct{}{}
					if err := q.submit(ctx, c.specs[0].Payload.Data); err != nil {
						return err
					}
					jobs.Add(1)
				}
				return nil
			}
		})
		if err != nil {
			return err
		}
		start := time.Now()
		if err := q.settled(ctx, jobs.Load()); err != nil {
			return err
		}
		elapsed += time.Since(start)
		r.Jobs, r.JobsPerSecond, r.CPU = jobs.Load(), rate(jobs.Load(), elapsed), before.until(readMachine()).perJob(jobs.Load())
		r.Ratio = r.JobsPerSecond / r.BareJobsPerSecond
		return verify(ctx, q.store, 0, jobs.Load())
	})
}

// workerLatency submits one job at a time to an idle queue.
func (b *bench) workerLatency(ctx context.Context, r *WorkerResult) error {
	return b.withWorker(ctx, "latency", worker.Config{Slots: 2}, func(ctx context.Context, q *queueOfWorkers) error {
		var toStart, commit histogram
		started := make(chan time.Time, 1)
		q.handle(func(context.Context, *worker.Run) error { started <- time.Now(); return nil })
		for i := range b.atMost(latencyJobs) {
			start := time.Now()
			if err := q.submit(ctx, []byte{}); err != nil {
				return err
			}
			commit.add(time.Since(start))
			select {
			case at := <-started:
				toStart.add(at.Sub(start))
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := q.settled(ctx, int64(i+1)); err != nil {
				return err
			}
		}
		r.ToStart, r.Commit = toStart.latency(), commit.latency()
		return nil
	})
}

// errLost means that leases were lost while their worker was alive.
var errLost = errors.New("leases were lost while their worker was alive")

// workerHeartbeats keeps many jobs running and counts the resulting writes. A machine
// that stands still for longer than a lease loses it with any store, so longer leases are
// tried before blaming the store.
func (b *bench) workerHeartbeats(ctx context.Context, r *WorkerResult) error {
	for ttl := heartbeatTTL; ; ttl *= 4 {
		err := b.heartbeats(ctx, r, ttl)
		switch {
		case !errors.Is(err, errLost):
			return err
		case ttl >= longestTTL:
			return fmt.Errorf("%w: %w", err, errWrong)
		}
	}
}

// heartbeats runs workerHeartbeats with one lease length.
func (b *bench) heartbeats(ctx context.Context, r *WorkerResult, ttl time.Duration) error {
	jobs := b.atMost(heartbeatJobs)
	return b.withWorker(ctx, "heartbeats", worker.Config{Slots: jobs, LeaseTTL: ttl}, func(ctx context.Context, q *queueOfWorkers) error {
		meter, ok := q.store.(store.Meter)
		if !ok {
			return nil
		}
		release := make(chan struct{})
		q.handle(func(context.Context, *worker.Run) error { <-release; return nil })
		var once sync.Once
		finish := func() { once.Do(func() { close(release) }) }
		defer finish()
		if _, err := fill(ctx, q.store, plainJob(), b.Payload, jobs); err != nil {
			return err
		}
		lost := func() error {
			if n := q.worker.Stats().LeasesLost; n > 0 {
				return fmt.Errorf("%d of %d: %w", n, jobs, errLost)
			}
			return nil
		}
		for q.worker.Stats().Running < jobs {
			// A run that lost its lease also waits for the release and keeps its slot, so
			// without this check nothing would ever change.
			if err := lost(); err != nil {
				return err
			}
			if err := wait(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		before, start := meter.Meter().Commits, time.Now()
		if err := wait(ctx, ttl+ttl/3); err != nil {
			return err
		}
		r.HeartbeatCommits = new(float64(meter.Meter().Commits-before) / time.Since(start).Seconds())
		r.HeartbeatJobs, r.HeartbeatTTL = jobs, ttl.Seconds()
		if err := lost(); err != nil {
			return err
		}
		finish()
		return q.settled(ctx, int64(jobs))
	})
}

// workerGraphs runs chains and fan-ins of two sizes.
func (b *bench) workerGraphs(ctx context.Context, r *WorkerResult) error {
	for _, g := range []struct {
		name  string
		size  int
		draft func(i int) []gq.Dependency
	}{
		{"chain", graphSmall, chainNeeds},
		{"chain", b.atMost(chainLarge), chainNeeds},
		{"fan-in", graphSmall * 10, nil},
		{"fan-in", b.atMost(fanLarge), nil},
	} {
		err := b.withWorker(ctx, g.name, worker.Config{Slots: 64}, func(ctx context.Context, q *queueOfWorkers) error {
			drafts := make([]gq.GraphJob, 0, g.size+1)
			for i := range g.size {
				d := gq.GraphJob{Spec: plainJob(), Ref: fmt.Sprint(i)}
				if g.draft != nil {
					d.Needs = g.draft(i)
				}
				drafts = append(drafts, d)
			}
			if g.draft == nil {
				last := gq.GraphJob{Spec: plainJob(), Ref: "last"}
				for i := range g.size {
					last.Needs = append(last.Needs, gq.Dependency{Kind: gq.DependencyFanIn, Ref: fmt.Sprint(i)})
				}
				drafts = append(drafts, last)
			}
			start := time.Now()
			answers, err := q.SubmitGraph(ctx, drafts)
			if err != nil {
				return err
			}
			if _, err := q.Wait(ctx, answers[len(answers)-1].ID()); err != nil {
				return err
			}
			elapsed := time.Since(start)
			r.Graphs = append(r.Graphs, GraphRow{Shape: g.name, Jobs: len(drafts), Seconds: elapsed.Seconds(), PerJob: elapsed.Seconds() * 1e6 / float64(len(drafts))})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func chainNeeds(i int) []gq.Dependency {
	if i == 0 {
		return nil
	}
	return []gq.Dependency{{Kind: gq.DependencyChain, Ref: fmt.Sprint(i - 1)}}
}
