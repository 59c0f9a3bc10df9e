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

// SweepReport is what one sweep has done.
type SweepReport struct {
	Advanced  int       // jobs that time has moved on
	Released  int       // dependents that were told of an end
	Fired     int       // slots of schedules
	Collected int       // finished jobs past their retention
	Next      time.Time // when something is due again, in the store's time; zero if nothing is known to be
	More      bool      // there is more to do at once: each step has a limit
}

// Sweep does what is due, a bounded part of it. Jobs and their leases are judged
// by the store's own time; now is the instant up to which schedules fire, since
// a slot is a date and not something a store knows of. [Engine.Run] calls this;
// tests and simulations may call it by themselves. Sweeps of any number of
// engines do each thing once.
func (e *Engine) Sweep(ctx context.Context, now time.Time) (SweepReport, error) {
	return e.sweep(ctx, func() time.Time { return now })
}

// sweep asks for the instant up to which schedules fire when it has heard what time
// it is for the store: the clock of this machine may be wrong.
func (e *Engine) sweep(ctx context.Context, now func() time.Time) (SweepReport, error) {
	var r SweepReport
	err := e.advance(ctx, &r)
	err = errors.Join(err, e.release(ctx, &r), e.fire(ctx, now(), &r), e.collect(ctx, &r))
	if err != nil {
		return r, fmt.Errorf("sweep: %w", err)
	}
	return r, nil
}

// advance records what time has done to jobs.
func (e *Engine) advance(ctx context.Context, r *SweepReport) error {
	due, err := e.store.Due(ctx, e.options.Batch)
	if err != nil {
		return fmt.Errorf("find due jobs: %w", err)
	}
	e.clock.saw(due.Now)
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
		case errors.Is(u.Err, gq.ErrNotFound) || errors.Is(u.Err, gq.ErrInUse): // it was collected since, or is for the next sweep
		case u.Err != nil:
			faults = append(faults, fmt.Errorf("advance %s: %w", due.Jobs[i], u.Err))
		}
	}
	r.More = r.More || len(due.Jobs) == e.options.Batch && r.Advanced > 0
	return errors.Join(faults...)
}

// release passes ends on to dependents.
func (e *Engine) release(ctx context.Context, r *SweepReport) error {
	n, err := e.store.ReleaseDependents(ctx, e.options.Batch)
	if err != nil {
		return fmt.Errorf("release dependents: %w", err)
	}
	r.Released = n
	r.More = r.More || n >= e.options.Batch
	return nil
}

// collect drops what is past its retention.
func (e *Engine) collect(ctx context.Context, r *SweepReport) error {
	n, err := e.store.Collect(ctx, e.options.Batch)
	if err != nil {
		return fmt.Errorf("collect finished jobs: %w", err)
	}
	r.Collected = n
	r.More = r.More || n >= e.options.Batch
	return nil
}
