package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
)

// sweepGap is the shortest time between a sweep and another one that news or retention asks for,
// while sweeps are cheap.
const sweepGap = 100 * time.Millisecond

// sweepShare limits the share of the time that such sweeps take.
const sweepShare = 10

// agenda collects when something is due, in the store's time.
type agenda struct {
	news chan struct{} // has room for one
	mu   sync.Mutex
	due  time.Time // the earliest since take; zero is none; guarded by mu
}

func (a *agenda) at(due time.Time) {
	if due.IsZero() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due = wake.Earlier(a.due, due)
	wake.Up(a.news)
}

func (a *agenda) take() (due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	due, a.due = a.due, time.Time{}
	return due
}

// pacer decides when [Engine.Run] sweeps. It belongs to its goroutine.
type pacer struct {
	engine *Engine
	idle   time.Duration // longest time between two sweeps
	pause  time.Duration // after an error
	last   time.Time     // when the last sweep began
	took   time.Duration // by the last sweep
	next   time.Time     // the next sweep
}

// by moves the next sweep forward to a time, but not too close to the last one. It returns how
// long to wait for it.
func (p *pacer) by(at time.Time) time.Duration {
	if first := p.last.Add(p.gap()); at.Before(first) {
		at = first
	}
	if at.Before(p.next) {
		p.next = at
	}
	return time.Until(p.next)
}

func (p *pacer) gap() time.Duration {
	return min(max(sweepGap, sweepShare*p.took), p.engine.options.Sweep)
}

// sweep sweeps and returns how long to wait until the next one. The error means that no further
// one can succeed.
func (p *pacer) sweep(ctx context.Context) (wait time.Duration, err error) {
	e := p.engine
	p.last = time.Now()
	report, err := e.sweep(ctx, e.clock.nowIfKnown)
	p.took = time.Since(p.last)
	wait = p.idle
	switch {
	case ctx.Err() != nil || errors.Is(err, gq.ErrClosed) || errors.Is(err, gq.ErrStoreFailed):
		return 0, err
	case err != nil:
		level := slog.LevelWarn
		if errors.Is(err, gq.ErrDiskFull) { // the store says so itself, once a minute
			level = slog.LevelDebug
		}
		e.log.Log(ctx, level, "sweep", "error", err)
		wait, p.pause = p.pause, min(2*p.pause, time.Minute)
	case report.More:
		wait, p.pause = 0, e.options.Sweep
	default:
		p.pause = e.options.Sweep
		now := e.clock.now()
		if !report.Next.IsZero() {
			wait = min(wait, max(report.Next.Sub(now), time.Millisecond))
		}
		if !report.collect.IsZero() {
			wait = min(wait, max(report.collect.Sub(now), p.gap()))
		}
	}
	p.next = time.Now().Add(wait)
	return wait, nil
}
