package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq/store"
)

// drainCallers is small, and drains use full batches, so that little is in flight
// compared with a tenth of the backlog.
const drainCallers = 8

// backlog measures the cycle on an empty queue, fills another, measures the cycle again,
// closes and reopens that store, and drains it. It then measures the cycle on an empty queue
// once more: the speed of a machine can change within these minutes.
func (b *bench) backlog(ctx context.Context) (BacklogResult, error) {
	result := BacklogResult{Jobs: b.Backlog, DrainCallers: drainCallers, DrainBatch: b.Batch}
	machine := readMachine()
	b.recorder.reset()
	var before, with, after []speed
	for _, part := range []func(context.Context, store.Store) error{
		func(ctx context.Context, s store.Store) (err error) { before, _, err = b.cycles(ctx, s); return err },
		func(ctx context.Context, s store.Store) (err error) { with, err = b.full(ctx, s, &result); return err },
		func(ctx context.Context, s store.Store) (err error) { after, _, err = b.cycles(ctx, s); return err },
	} {
		if err := b.with(ctx, Backlog, "", nil, part); err != nil {
			return result, err
		}
	}
	for i, batch := range b.batches() {
		without := before[i].mean(after[i])
		result.Cycles = append(result.Cycles, BacklogCycle{
			Callers: b.mostCallers(), Batch: batch,
			Without: without.rate, CPUWithout: without.cpu,
			With: with[i].rate, CPUWith: with[i].cpu, Ratio: with[i].rate / without.rate,
		})
	}
	result.OthersCPU = machine.until(readMachine()).others
	return result, ctx.Err()
}

// speed is a rate and the CPU time per operation in microseconds.
type speed struct {
	rate float64
	cpu  *float64
}

func (s speed) mean(o speed) speed {
	mean := speed{rate: (s.rate + o.rate) / 2}
	if s.cpu != nil && o.cpu != nil {
		mean.cpu = new((*s.cpu + *o.cpu) / 2)
	}
	return mean
}

// cycles measures the cycle with the largest number of callers, for each batch size.
func (b *bench) cycles(ctx context.Context, s store.Store) (speeds []speed, done int64, err error) {
	speeds = make([]speed, len(b.batches()))
	for i, batch := range b.batches() {
		before := readMachine()
		jobs, elapsed, err := b.drive(ctx, s, Cycle, b.mostCallers(), batch, new(calls))
		if err != nil {
			return speeds, done, err
		}
		speeds[i] = speed{rate(jobs, elapsed), before.until(readMachine()).perJob(jobs)}
		done += jobs
	}
	return speeds, done, nil
}

// full fills a store and returns how fast the cycle is then, for each batch size.
func (b *bench) full(ctx context.Context, s store.Store, result *BacklogResult) (with []speed, err error) {
	empty := liveHeap()
	took, err := fill(ctx, s, plainJob(), b.Payload, b.Backlog)
	if err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	result.FillJobsPerSecond = rate(int64(b.Backlog), took)
	result.HeapPerJob = float64(liveHeap()-empty) / float64(b.Backlog)
	if m, ok := s.(store.Meter); ok {
		result.DiskPerJob = new(float64(m.Meter().DiskBytes) / float64(b.Backlog))
	}
	if err := calm(ctx); err != nil {
		return nil, err
	}
	with, done, err := b.cycles(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := verify(ctx, s, int64(b.Backlog), done); err != nil {
		return nil, err
	}
	if b.place.Keeps() {
		reopened, err := b.reopen(s, result)
		if err != nil {
			return nil, err
		}
		defer reopened.Close() //nolint:errcheck // drained and verified; it is removed next
		s = reopened
		if err := verify(ctx, s, int64(b.Backlog), done); err != nil {
			return nil, fmt.Errorf("after reopening: %w", err)
		}
	}
	if err := b.drain(ctx, s, result); err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	return with, verify(ctx, s, 0, done+int64(b.Backlog))
}

func (b *bench) reopen(s store.Store, result *BacklogResult) (store.Store, error) {
	start := time.Now()
	if err := s.Close(); err != nil {
		return nil, err
	}
	result.CloseSeconds = new(time.Since(start).Seconds())
	start = time.Now()
	reopened, err := b.place.Open(string(Backlog), nil)
	result.ReopenSeconds = new(time.Since(start).Seconds())
	return reopened, err
}

// drain claims and completes everything, and compares the first tenth with the last.
func (b *bench) drain(ctx context.Context, s store.Store, result *BacklogResult) error {
	total := int64(b.Backlog)
	marks := []int64{total / 10, total - total/10, total}
	at := make([]atomic.Int64, len(marks)) // nanoseconds after the start
	var start time.Time
	var done atomic.Int64
	times := new(calls)
	_, err := together(ctx, drainCallers, func() { start = time.Now() }, func() func(context.Context) error {
		c := newCaller(s, times, plainJob(), b.Payload, b.Batch)
		return func(ctx context.Context) error {
			for {
				jobs, err := c.claimUpTo(ctx, b.Batch)
				if err != nil || len(jobs) == 0 {
					return err
				}
				if err := c.complete(ctx, jobs); err != nil {
					return err
				}
				now := int64(time.Since(start))
				end := done.Add(int64(len(jobs)))
				for i, mark := range marks {
					if end >= mark && end-int64(len(jobs)) < mark {
						at[i].Store(now)
					}
				}
			}
		}
	})
	if err != nil {
		return err
	}
	if done.Load() != total {
		return fmt.Errorf("%d of %d jobs came out: %w", done.Load(), total, errWrong)
	}
	first, late, last := at[0].Load(), at[1].Load(), at[2].Load()
	result.DrainJobsPerSecond = rate(total, time.Duration(last))
	result.DrainFirstPerSecond = rate(marks[0], time.Duration(first))
	result.DrainLastPerSecond = rate(total-marks[1], time.Duration(last-late))
	return nil
}
