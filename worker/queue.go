package worker

import (
	"context"

	"github.com/gopherqueue/gq"
)

// Queue has the methods that a worker calls on a job queue. They must be safe for concurrent
// use and return soon after their context ends. They own their arguments until they return;
// after a return because of an ended context they own them for good. They must not write to
// slices inside the arguments.
//
// If a call returns an error, the fate of its items is unknown and the worker repeats the call.
// The error of a single item is final, unless its kind is [gq.KindUnavailable],
// [gq.KindTimeout] or [gq.KindInternal].
//
// A queue that knows at once which running jobs somebody has asked to stop can also have the method
//
//	CancelRequests(f func(jobs []gq.JobID)) (stop func())
//
// f returns at once. The worker then sends a heartbeat of those jobs without waiting for its time.
//
// A queue that lists its workers can also have the method WorkerStopped of [gq.Driver]. A worker
// that has stopped and holds no jobs calls it last.
type Queue interface {
	// Claim returns up to N jobs with payload and checkpoint, each started under a lease. It
	// waits up to Wait for the first one.
	Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error)

	// Heartbeat renews leases and records progress and checkpoints. The results are in the
	// order of the beats. Their states include cancel requests.
	Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error)

	// Settle ends leases. The results are in the order of the outcomes. Repeating the
	// outcome that ended a lease returns the same result.
	Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error)
}
