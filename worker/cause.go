package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// Why the context of a handler ended, as [context.Cause] tells.
var (
	// ErrLeaseLost: the queue refused the lease, or could not be reached until
	// it had run out. It is a [gq.ErrStaleLease].
	ErrLeaseLost = fmt.Errorf("the lease is lost: %w", gq.ErrStaleLease)

	// ErrCancelRequested: someone asked for the job to be cancelled.
	ErrCancelRequested = errors.New("the job was asked to stop")

	// ErrExecutionTimeout: the execution is over its time limit. It is a
	// [context.DeadlineExceeded].
	ErrExecutionTimeout = fmt.Errorf("the execution timeout is over: %w", context.DeadlineExceeded)

	// ErrDraining: the worker is stopping.
	ErrDraining = errors.New("the worker is stopping")
)

// What [Worker.Run] returns when it could not stop cleanly.
var (
	// ErrAbandoned: handlers went on after the drain timeout and the grace.
	// Their jobs were given back.
	ErrAbandoned = errors.New("handlers ignored the end of their contexts")

	// ErrUndelivered: outcomes could not be sent. The leases of those jobs run
	// out, and the jobs run again.
	ErrUndelivered = errors.New("outcomes could not be delivered")
)

// runContext is a handler's context. Its time limit is watched over by the
// keeper together with everything else, so that a job needs no timer.
type runContext struct {
	context.Context
	deadline time.Time // zero for none
}

// Deadline is when the execution timeout will be over.
func (c *runContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Err is [context.DeadlineExceeded] after an execution timeout.
func (c *runContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrExecutionTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// Timeout is middleware that ends the context of a handler after d. Like
// everything a handler can do itself, it can shorten the execution timeout of a
// job but not lengthen it.
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
