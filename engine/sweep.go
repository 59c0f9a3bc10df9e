package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// SweepReport has the counts of one sweep.
type SweepReport struct {
	Advanced  int       // jobs whose state changed with time
	Released  int       // dependents of ended jobs that were updated
	Fired     int       // firings of schedules
	Collected int       // finished jobs that were deleted after their retention
	Next      time.Time // when the next change is due, in the store's time; zero if unknown
	More      bool      // a step reached its limit, so more changes are due

	collect time.Time // when the retention of the next finished job is over; zero if there is none
}

// Sweep applies a limited number of due changes. The store judges jobs and leases by its own
// time; schedules fire up to now. [Engine.Run] calls Sweep; tests and simulations can call it
// directly. If several engines sweep, each change still happens once.
func (e *Engine) Sweep(ctx context.Context, now time.Time) (SweepReport, error) {
	return e.sweep(ctx, func() time.Time { return now })
}

// sweep calls now only after it has read the store's time, because the clock of this machine may
// be wrong.
func (e *Engine) sweep(ctx context.Context, now func() time.Time) (SweepReport, error) {
	var r SweepReport
	err := e.advance(ctx, e.store.Due, &r)
	err = errors.Join(err, e.release(ctx, &r), e.fire(ctx, now(), &r), e.collect(ctx, &r), e.forgetWorkflows(ctx, &r))
	if err != nil {
		return r, fmt.Errorf("sweep: %w", err)
	}
	return r, nil
}

// advance applies the changes of the jobs that find lists: delays, retries, expiries.
func (e *Engine) advance(ctx context.Context, find func(context.Context, int) (store.Due, error), r *SweepReport) error {
	due, err := find(ctx, e.options.Batch)
	if err != nil {
		return fmt.Errorf("find due jobs: %w", err)
	}
	e.clock.observe(due.Now)
	r.Next = due.Next
	if len(due.Jobs) == 0 {
		return nil
	}
	updates := make([]store.Update, len(due.Jobs))
	for i, id := range due.Jobs {
		draw := e.draw()
		updates[i] = store.Update{
			Ref: store.Ref{Job: id}, Yield: true,
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Advance(s, draw, now)
			},
		}
	}
	updated, err := e.store.Update(ctx, updates)
	if err != nil {
		return fmt.Errorf("advance jobs: %w", err)
	}
	var faults []error
	for i := range updated {
		switch u := &updated[i]; {
		case u.Changed:
			r.Advanced++
		case errors.Is(u.Err, gq.ErrNotFound) || errors.Is(u.Err, gq.ErrInUse): // deleted meanwhile, or locked until the next sweep
		case u.Err != nil:
			faults = append(faults, fmt.Errorf("advance %s: %w", due.Jobs[i], u.Err))
		}
	}
	r.More = r.More || len(due.Jobs) == e.options.Batch && r.Advanced > 0
	return errors.Join(faults...)
}

// release updates the dependents of ended jobs.
func (e *Engine) release(ctx context.Context, r *SweepReport) error {
	n, err := e.store.ReleaseDependents(ctx, e.options.Batch)
	if err != nil {
		return fmt.Errorf("release dependents: %w", err)
	}
	r.Released = n
	r.More = r.More || n >= e.options.Batch
	return nil
}

// releaseNow updates the dependents of jobs that have just ended, without waiting for the
// next sweep, which repeats what fails here.
func (e *Engine) releaseNow(ctx context.Context) {
	for more := true; more; {
		var r SweepReport
		if err := e.release(ctx, &r); err != nil {
			if ctx.Err() == nil {
				e.log.Warn("release dependents", "error", err)
			}
			return
		}
		more = r.More
	}
}

// collect deletes finished jobs past their retention.
func (e *Engine) collect(ctx context.Context, r *SweepReport) error {
	if err := e.history.beforeCollect(ctx); err != nil {
		return err
	}
	n, next, err := e.store.Collect(ctx, e.options.Batch)
	if err != nil {
		return fmt.Errorf("collect finished jobs: %w", err)
	}
	r.Collected, r.collect = n, next
	r.More = r.More || n >= e.options.Batch
	return nil
}
