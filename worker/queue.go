package worker

import (
	"context"

	"github.com/gopherqueue/gq"
)

// Queue is what a worker needs of a job queue. All methods may be called
// concurrently and must return soon after their context ends. Arguments are the
// callee's until it returns, and for good where it returned because the context
// ended; slices inside them must not be written to.
//
// An error of a call means that nothing is known about its items; the worker
// calls again. Errors of single answers are final, except those of the kinds
// [gq.KindUnavailable], [gq.KindTimeout] and [gq.KindInternal].
type Queue interface {
	// Claim gives up to N jobs, each started under a lease, with payload and
	// checkpoint. It waits up to Wait for the first one.
	Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error)

	// Heartbeat renews leases and records what their holders report. The
	// answers are in the order of the beats, and their states tell whether a
	// job was asked to stop.
	Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error)

	// Settle ends leases. The answers are in the order of the outcomes. The
	// identical outcome of a lease that it has ended is answered again.
	Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error)
}
