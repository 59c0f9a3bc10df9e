package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// The reasons why the context of a handler ends, for [context.Cause].
var (
	// ErrLeaseLost: the queue rejected the lease, or was unreachable until the lease
	// expired. It wraps [gq.ErrStaleLease].
	ErrLeaseLost = fmt.Errorf("lease lost: %w", gq.ErrStaleLease)

	// ErrCancelRequested: a user cancelled the job.
	ErrCancelRequested = errors.New("cancel requested")

	// ErrExecutionTimeout: the execution exceeded its timeout. It wraps
	// [context.DeadlineExceeded].
	ErrExecutionTimeout = fmt.Errorf("execution timeout exceeded: %w", context.DeadlineExceeded)

	// ErrDraining: the worker is stopping.
	ErrDraining = errors.New("the worker is stopping")
)

// Errors of [Worker.Run] if it could not stop cleanly.
var (
	// ErrAbandoned: handlers continued after the drain timeout and the grace. The worker
	// released their jobs.
	ErrAbandoned = errors.New("handlers ignored the end of their contexts")

	// ErrUndelivered: outcomes could not be sent. The leases of those jobs expire and the
	// jobs run again.
	ErrUndelivered = errors.New("outcomes could not be delivered")
)

// runContext is a handler's context. The keeper enforces its deadline, so a job needs no timer
// of its own.
type runContext struct {
	context.Context
	deadline time.Time // zero for none
}

// Deadline returns the end of the execution timeout.
func (c *runContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Err returns [context.DeadlineExceeded] after an execution timeout.
func (c *runContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrExecutionTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// Timeout is middleware that ends the context of a handler after d. It can shorten the
// execution timeout of a job but not extend it.
func Timeout(d time.Duration) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, run *Run) error {
			ctx, cancel := context.WithTimeoutCause(ctx, d, ErrExecutionTimeout)
			defer cancel()
			err := next(ctx, run)
			if err != nil && errors.Is(context.Cause(ctx), ErrExecutionTimeout) && !isVerdict(err) {
				return fmt.Errorf("%w: %w", ErrExecutionTimeout, err)
			}
			return err
		}
	}
}
