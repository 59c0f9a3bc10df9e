package bench

import (
	"context"
	"fmt"
	"runtime/pprof"
	"time"

	"github.com/gopherqueue/gq/store"
)

// row measures one row of the table, a cycle or an enqueue, and its floor.
func (b *bench) row(ctx context.Context, name Scenario, callers, batch int) (Row, error) {
	row := Row{Callers: callers, Batch: batch}
	before := readMachine()
	b.recorder.reset()
	err := b.with(ctx, name, shape(callers, batch), b.recorder.record, func(ctx context.Context, s store.Store) error {
		return b.load(ctx, s, name, &row)
	})
	if err != nil {
		return row, err
	}
	if b.recorder.full() {
		b.warn("%s with %s ended after %.1f s: %d MiB of commits were recorded", name, shape(callers, batch), row.Seconds, b.recorder.bytes.Load()>>20)
	}
	if replayer, ok := b.place.(Replayer); ok && len(b.recorder.commits) > 0 {
		row.CommitBytes = new(float64(b.recorder.bytes.Load()) / float64(row.Jobs))
		if err := b.floor(ctx, name, replayer, &row); err != nil {
			return row, err
		}
	}
	row.OthersCPU = before.until(readMachine()).others
	return row, ctx.Err()
}

func (b *bench) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}

// load runs the callers of a row and measures the store.
func (b *bench) load(ctx context.Context, s store.Store, name Scenario, row *Row) error {
	stopWatching := watchMemory(b.recorder)
	before, times := readMachine(), new(calls)
	jobs, elapsed, err := b.drive(ctx, s, name, row.Callers, row.Batch, times)
	used := before.until(readMachine())
	row.RSS = stopWatching()
	if err != nil {
		return err
	}
	row.Jobs, row.Seconds, row.JobsPerSecond = jobs, elapsed.Seconds(), rate(jobs, elapsed)
	row.CPU = used.perJob(jobs)
	row.Enqueue, row.Claim, row.Complete = times.enqueue.latency(), times.claim.latency(), times.complete.latency()
	if m, ok := s.(store.Meter); ok {
		cost := m.Meter()
		row.Commits = new(float64(cost.Commits) / float64(jobs))
		row.Syncs = new(float64(cost.Syncs) / float64(jobs))
		row.DiskBytes = new(float64(cost.DiskBytes) / float64(jobs))
	}
	row.LiveHeap = liveHeap()
	claimable, completed := int64(0), jobs
	if name == Enqueue {
		claimable, completed = jobs, 0
	}
	if err := verify(ctx, s, claimable, completed); err != nil {
		return err
	}
	events, err := lastEvent(ctx, s)
	row.Events = float64(events) / float64(jobs)
	return err
}

// drive passes jobs through a store until the row is over.
func (b *bench) drive(ctx context.Context, s store.Store, name Scenario, callers, batch int, times *calls) (jobs int64, elapsed time.Duration, err error) {
	var q *quota
	done := make(chan int64, callers)
	prepare := func() func(context.Context) error {
		c := newCaller(s, times, plainJob(), b.Payload, batch)
		work := c.cycle
		if name == Enqueue {
			work = c.enqueue
		}
		return func(ctx context.Context) error {
			n := int64(0)
			defer func() { done <- n }()
			for k := q.take(batch); k > 0; k = q.take(batch) {
				if err := work(ctx, k); err != nil {
					return err
				}
				n += int64(k)
			}
			return nil
		}
	}
	elapsed, err = together(ctx, callers, func() { q = newQuota(b.Jobs, b.Duration, b.recorder.full) }, prepare)
	for range callers {
		jobs += <-done
	}
	return jobs, elapsed, err
}

// floor replays the commits of the row.
func (b *bench) floor(ctx context.Context, name Scenario, replayer Replayer, row *Row) (err error) {
	before := readMachine()
	var elapsed time.Duration
	pprof.Do(ctx, labels(name, shape(row.Callers, row.Batch), "floor"), func(context.Context) {
		elapsed, err = replayer.Replay(b.recorder.commits)
	})
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	row.FloorCPU = before.until(readMachine()).perJob(row.Jobs)
	floor := rate(row.Jobs, elapsed)
	row.FloorSeconds, row.FloorJobsPerSecond = new(elapsed.Seconds()), new(floor)
	row.Ratio = new(row.JobsPerSecond / floor)
	return nil
}

// rate returns n per second.
func rate(n int64, d time.Duration) float64 {
	return float64(n) / max(d, time.Nanosecond).Seconds()
}
