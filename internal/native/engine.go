// Package native is the queue's own API, over HTTP and over gRPC. A face decodes,
// calls the engine and encodes; it owns no rule.
package native

import (
	"context"
	"errors"
	"time"

	"github.com/gopherqueue/gq"
)

// Engine is what the native faces need of a queue. Package engine has it; its
// documentation says what each method promises.
type Engine interface {
	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
	SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error)
	SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error)
	Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error)
	List(ctx context.Context, q gq.Query) (gq.Page, error)
	UpdateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (gq.Job, error)
	Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error)
	CancelWhere(ctx context.Context, q gq.Query, reason string) (gq.CancelReport, error)
	Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error)
	Purge(ctx context.Context, id gq.JobID) error
	PurgeWhere(ctx context.Context, q gq.Query) (int, error)
	Wait(ctx context.Context, id gq.JobID) (gq.Job, error)
	Explain(ctx context.Context, id gq.JobID) (gq.Explanation, error)
	History(ctx context.Context, id gq.JobID) ([]gq.Event, error)
	LastEvent(ctx context.Context) (uint64, error)

	Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error)
	Start(ctx context.Context, lease gq.LeaseRef, ttl time.Duration) (gq.State, error)
	Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error)
	Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error)
	Workers(ctx context.Context) ([]gq.LiveWorker, error)

	Queue(ctx context.Context, name string) (gq.Queue, error)
	Queues(ctx context.Context) ([]gq.Queue, error)
	QueuesAfter(ctx context.Context, name string, limit int) ([]gq.Queue, error)
	ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error)
	Pause(ctx context.Context, queue string) (gq.Queue, error)
	Resume(ctx context.Context, queue string) (gq.Queue, error)
	Pools(ctx context.Context) ([]gq.Pool, error)
	PutPool(ctx context.Context, p gq.Pool) error
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
	Stats(ctx context.Context) (gq.Stats, error)

	Schedule(ctx context.Context, name string) (gq.Schedule, error)
	Schedules(ctx context.Context) ([]gq.Schedule, error)
	PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error)
	PauseSchedule(ctx context.Context, name string) (gq.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error)
	DeleteSchedule(ctx context.Context, name string) error
}

// awaitJob waits for the end of a job while waiting lasts. If that is over before the
// call is, the answer is the job as it stands, also where there was no time to look.
func awaitJob(ctx, waiting context.Context, e Engine, id gq.JobID) (gq.Job, error) {
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
