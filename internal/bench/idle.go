package bench

import (
	"context"
	"time"

	"github.com/gopherqueue/gq/store"
)

// idleJobs is how many jobs wait in the idle store, at most, and as many again
// for a time that does not come.
const idleJobs = 10_000

// idle measures the CPU time of the process, without a store and with one that
// holds jobs and is not called.
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

// Filling a store leaves work behind, such as compactions. It belongs to the fill,
// not to what is measured next, which begins when the process has calmed down: when
// it used less than calmPercent of a core for calmSpan, or after calmMost.
const (
	calmPercent = 5
	calmSpan    = 500 * time.Millisecond
	calmMost    = 60 * time.Second
)

// calm waits until nothing is going on in this process.
func calm(ctx context.Context) error {
	for start := time.Now(); time.Since(start) < calmMost; {
		used, err := cpuPercent(ctx, calmSpan)
		if err != nil || used == nil || *used < calmPercent {
			return err
		}
	}
	return ctx.Err()
}

// cpuPercent is the CPU time the process uses while it is left alone for d, in
// percent of one core. Before that it gets a third of d to finish what it was
// doing.
func cpuPercent(ctx context.Context, d time.Duration) (*float64, error) {
	liveHeap() // no garbage is left to collect
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
