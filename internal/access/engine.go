package access

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Engine is what a guard stands in front of: everything that an engine does for
// callers. A test holds it against the engine, so that a new method cannot be
// forgotten here.
type Engine interface {
	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
	Enqueue(ctx context.Context, s gq.Spec) (gq.JobID, error)
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
	Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error)
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	LastEvent(ctx context.Context) (uint64, error)
	BeforeFirstEvent(ctx context.Context) (uint64, error)
	ByLease(ctx context.Context, lease gq.LeaseID, parts gq.Parts) (gq.Job, error)
	Jobs(ctx context.Context, ids []gq.JobID, parts gq.Parts) (map[gq.JobID]gq.Job, error)
	Advance(ctx context.Context, id gq.JobID) (gq.State, error)
	CatchUp(ctx context.Context) error

	Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error)
	Prepare(ctx context.Context, lease gq.LeaseRef, d gq.Detail) (gq.State, error)
	Report(ctx context.Context, lease gq.LeaseRef, d gq.Detail, r machine.Report) (gq.State, error)
	Admit(ctx context.Context, lease gq.LeaseRef, ttl, again time.Duration) (gq.State, error)
	Start(ctx context.Context, lease gq.LeaseRef, ttl time.Duration) (gq.State, error)
	Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error)
	Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error)
	Complete(ctx context.Context, lease gq.LeaseRef, result []byte) (gq.State, error)
	Fail(ctx context.Context, lease gq.LeaseRef, f gq.Failure) (gq.State, error)
	Release(ctx context.Context, lease gq.LeaseRef, delay time.Duration, reason string) (gq.State, error)
	Workers(ctx context.Context) ([]gq.LiveWorker, error)

	Queue(ctx context.Context, name string) (gq.Queue, error)
	Queues(ctx context.Context) ([]gq.Queue, error)
	QueuesAfter(ctx context.Context, name string, limit int) ([]gq.Queue, error)
	PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error)
	ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error)
	Pause(ctx context.Context, queue string) (gq.Queue, error)
	Resume(ctx context.Context, queue string) (gq.Queue, error)
	Pools(ctx context.Context) ([]gq.Pool, error)
	PutPool(ctx context.Context, p gq.Pool) error
	ConfigurePool(ctx context.Context, p gq.Pool) error
	Sample(ctx context.Context, pool string) error
	Samples(ctx context.Context, pool string, from time.Time) ([]machine.Sample, error)
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
	Stats(ctx context.Context) (gq.Stats, error)

	Schedule(ctx context.Context, name string) (gq.Schedule, error)
	Schedules(ctx context.Context) ([]gq.Schedule, error)
	PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error)
	PauseSchedule(ctx context.Context, name string) (gq.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error)
	DeleteSchedule(ctx context.Context, name string) error
}

// Finder finds out which queues jobs and leases belong to; every store is one.
type Finder interface {
	Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error)
}
