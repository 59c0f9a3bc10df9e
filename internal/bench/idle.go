package bench

import (
	"context"
	"time"

	"github.com/gopherqueue/gq/store"
)

// idleJobs is the most jobs that wait in the idle store; as many more are delayed
// indefinitely.
const idleJobs = 10_000

// idle measures the CPU time of the process, without a store and with one that holds jobs
// but is not called.
func (b *bench) idle(ctx context.Context) (IdleResult, error) {
	jobs := min(b.Backlog, idleJobs)
	result := IdleResult{Seconds: b.Idle.Seconds(), Queued: jobs, Delayed: jobs}
	var err error
	if result.Baseline, err = cpuPercent(ctx, b.Idle); err != nil {
		return result, err
	}
	err = b.with(ctx, Idle, "", nil, func(ctx context.Context, s store.Store) error {
		delayed := plainJob()
		delayed.Delay = 24 * time.Hour
		if _, err := fill(ctx, s, plainJob(), b.Payload, jobs); err != nil {
			return err
		}
		if _, err := fill(ctx, s, delayed, b.Payload, jobs); err != nil {
			return err
		}
		if err := calm(ctx); err != nil {
			return err
		}
		result.CPU, err = cpuPercent(ctx, b.Idle)
		return err
	})
	return result, err
}

// Filling a store leaves work behind, such as compactions. It belongs to the fill, not to
// the next measurement, which starts when the process has calmed down: when it used less
// than calmPercent of a core for calmSpan, or after calmMost.
const (
	calmPercent = 5
	calmSpan    = 500 * time.Millisecond
	calmMost    = 5 * time.Minute // ten million jobs take minutes
)

// calm waits until this process is idle.
func calm(ctx context.Context) error {
	for start := time.Now(); time.Since(start) < calmMost; {
		used, err := cpuPercent(ctx, calmSpan)
		if err != nil || used == nil || *used < calmPercent {
			return err
		}
	}
	return ctx.Err()
}

// cpuPercent returns the CPU time that the process uses while idle for d, in percent of
// one core. Before that, the process gets a third of d to finish earlier work.
func cpuPercent(ctx context.Context, d time.Duration) (*float64, error) {
	liveHeap() // leave no garbage to collect
	if err := wait(ctx, d/3); err != nil {
		return nil, err
	}
	before, start := readMachine(), time.Now()
	if err := wait(ctx, d); err != nil {
		return nil, err
	}
	used := before.until(readMachine())
	if used.own == nil {
		return nil, nil
	}
	return new(100 * float64(*used.own) / float64(time.Since(start))), nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
