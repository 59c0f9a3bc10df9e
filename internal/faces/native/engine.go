// Package native is the queue's own API, over HTTP and over gRPC. A face decodes,
// calls the engine and encodes; it owns no rule.
package native

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// awaitJob waits for the end of a job while waiting lasts. If that is over before the
// call is, the answer is the job as it stands, also where there was no time to look.
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
