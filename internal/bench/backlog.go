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

// backlog measures the cycle on an empty queue, fills the queue, measures the cycle
// again, closes and reopens the store, and drains it.
func (b *bench) backlog(ctx context.Context) (BacklogResult, error) {
	result := BacklogResult{Jobs: b.Backlog, DrainCallers: drainCallers, DrainBatch: b.Batch}
	before := readMachine()
	b.recorder.reset()
	err := b.with(ctx, Backlog, "", nil, func(ctx context.Context, s store.Store) error {
		without, _, err := b.cycles(ctx, s)
		for i, batch := range b.batches() {
			result.Cycles = append(result.Cycles, BacklogCycle{
				Callers: b.mostCallers(), Batch: batch, Without: without[i].rate, CPUWithout: without[i].cpu,
			})
		}
		return err
	})
	if err != nil {
		return result, err
	}
	if err := b.with(ctx, Backlog, "", nil, func(ctx context.Context, s store.Store) error {
		return b.full(ctx, s, &result)
	}); err != nil {
		return result, err
	}
	result.OthersCPU = before.until(readMachine()).others
	return result, ctx.Err()
}

// speed is a rate and the CPU time per operation in microseconds.
type speed struct {
	rate float64
	cpu  *float64
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

func (b *bench) full(ctx context.Context, s store.Store, result *BacklogResult) error {
	empty := liveHeap()
	took, err := fill(ctx, s, plainJob(), b.Payload, b.Backlog)
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	result.FillJobsPerSecond = rate(int64(b.Backlog), took)
	result.HeapPerJob = float64(liveHeap()-empty) / float64(b.Backlog)
	if m, ok := s.(store.Meter); ok {
		result.DiskPerJob = new(float64(m.Meter().DiskBytes) / float64(b.Backlog))
	}
	if err := calm(ctx); err != nil {
		return err
	}
	with, done, err := b.cycles(ctx, s)
	if err != nil {
		return err
	}
	for i := range result.Cycles {
		c := &result.Cycles[i]
		c.With, c.CPUWith = with[i].rate, with[i].cpu
		c.Ratio = c.With / c.Without
	}
	if err := verify(ctx, s, int64(b.Backlog), done); err != nil {
		return err
	}
	if b.place.Keeps() {
		reopened, err := b.reopen(s, result)
		if err != nil {
			return err
		}
		defer reopened.Close() //nolint:errcheck // drained and verified; it is removed next
		s = reopened
		if err := verify(ctx, s, int64(b.Backlog), done); err != nil {
			return fmt.Errorf("after reopening: %w", err)
		}
	}
	if err := b.drain(ctx, s, result); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return verify(ctx, s, 0, done+int64(b.Backlog))
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
