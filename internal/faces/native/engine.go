// Package native is the queue's own API over HTTP and gRPC. It decodes requests, calls
// the engine and encodes the results; it has no rules of its own.
package native

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// awaitJob waits for a job to end, until waiting ends. If waiting ends before ctx, it
// returns the job's current state, even if there was no time to read it before.
func awaitJob(ctx, waiting context.Context, e engine.API, id gq.JobID) (gq.Job, error) {
	job, err := e.Wait(waiting, id)
	over := waiting.Err() != nil && ctx.Err() == nil
	switch {
	case !over || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		return job, err
	case job.State.ID.IsZero():
		return e.Get(ctx, id, gq.WithResult)
	default:
		return job, nil
	}
}
