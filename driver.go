package gq

import (
	"context"
	"time"
)

// Driver has every call a program can make on a queue. Package engine implements it over a
// store, package client over the network, and a [Client] offers it to programs. All methods
// may be called concurrently, and what they return belongs to the caller.
type Driver interface {
	Submitter

	// Get reads a job with the parts that are asked for.
	Get(ctx context.Context, id JobID, parts Parts) (Job, error)
	// List reads a page of jobs.
	List(ctx context.Context, q Query) (Page, error)
	// Wait returns a job with its result once it has ended.
	Wait(ctx context.Context, id JobID) (Job, error)
	// Explain says why a job is not running.
	Explain(ctx context.Context, id JobID) (Explanation, error)
	// History lists the events of a job, oldest first.
	History(ctx context.Context, id JobID) ([]Event, error)
	// UpdateMetadata changes the tags, the priority and other metadata of a live job.
	UpdateMetadata(ctx context.Context, id JobID, p MetadataPatch) (Job, error)
	// Cancel ends a job that waits, and asks the worker of a running one to stop.
	Cancel(ctx context.Context, id JobID, reason string) (State, error)
	// CancelWhere cancels all live jobs that a query selects.
	CancelWhere(ctx context.Context, q Query, reason string) (CancelReport, error)
	// Replay submits a finished job again.
	Replay(ctx context.Context, id JobID) (SubmitResult, error)
	// Purge removes a finished job.
	Purge(ctx context.Context, id JobID) error
	// PurgeWhere removes all finished jobs that a query selects and returns how many.
	PurgeWhere(ctx context.Context, q Query) (int, error)

	// Claim hands out jobs under leases.
	Claim(ctx context.Context, r ClaimRequest) ([]Job, error)
	// Start begins the execution of a job that was claimed with Hold.
	Start(ctx context.Context, lease LeaseRef, ttl time.Duration) (State, error)
	// Heartbeat renews leases and records what their holders report.
	Heartbeat(ctx context.Context, beats []Heartbeat) ([]LeaseResult, error)
	// Settle ends leases, each with its own outcome.
	Settle(ctx context.Context, outcomes []Outcome) ([]LeaseResult, error)
	// Fail ends a lease with a failure; the job's policy decides about another attempt.
	Fail(ctx context.Context, lease LeaseRef, f Failure) (State, error)
	// Release gives a job back without using up an attempt.
	Release(ctx context.Context, lease LeaseRef, delay time.Duration, reason string) (State, error)
	// Workers lists the workers that have claimed or sent a heartbeat lately.
	Workers(ctx context.Context) ([]LiveWorker, error)

	// DeclareQueue sets up a queue when a program starts, and leaves alone what an
	// operator has changed since.
	DeclareQueue(ctx context.Context, q Queue) (Queue, error)
	// PutQueue sets up a queue, whatever it was before.
	PutQueue(ctx context.Context, q Queue) (Queue, error)
	// ChangeQueue applies change to a queue and retries if somebody else changed it
	// meanwhile.
	ChangeQueue(ctx context.Context, name string, change func(*Queue)) (Queue, error)
	// Queue reads a queue.
	Queue(ctx context.Context, name string) (Queue, error)
	// Queues lists all queues by name.
	Queues(ctx context.Context) ([]Queue, error)
	// QueuesAfter lists up to limit queues whose names come after one.
	QueuesAfter(ctx context.Context, name string, limit int) ([]Queue, error)
	// Pause stops handing out a queue's jobs; submissions go on.
	Pause(ctx context.Context, queue string) (Queue, error)
	// Resume hands out a queue's jobs again.
	Resume(ctx context.Context, queue string) (Queue, error)
	// Counts has the number of jobs by queue and status, of all queues if none is named.
	Counts(ctx context.Context, queues ...string) ([]Count, error)
	// Stats has the counts of all queues together with the live workers.
	Stats(ctx context.Context) (Stats, error)
	// Pools lists the capacities that queues share.
	Pools(ctx context.Context) ([]Pool, error)
	// PutPool sets up a pool.
	PutPool(ctx context.Context, p Pool) error

	// PutSchedule makes a schedule or replaces the one of that name.
	PutSchedule(ctx context.Context, s Schedule) (Schedule, error)
	// Schedule reads a schedule.
	Schedule(ctx context.Context, name string) (Schedule, error)
	// Schedules lists all schedules by name.
	Schedules(ctx context.Context) ([]Schedule, error)
	// PauseSchedule stops a schedule.
	PauseSchedule(ctx context.Context, name string) (Schedule, error)
	// ResumeSchedule continues a paused schedule without making up for missed slots.
	ResumeSchedule(ctx context.Context, name string) (Schedule, error)
	// DeleteSchedule removes a schedule. The jobs it has submitted stay.
	DeleteSchedule(ctx context.Context, name string) error

	// Events reads up to limit events after a sequence number, oldest first.
	Events(ctx context.Context, after uint64, limit int) ([]Event, error)
	// LastEvent is the sequence number of the newest event.
	LastEvent(ctx context.Context) (uint64, error)
	// Follow calls f with the events after a sequence number, oldest first and without a
	// gap, and with new ones as they come, until ctx ends, which is no error, or f returns
	// one.
	Follow(ctx context.Context, after uint64, f func([]Event) error) error
}

// Submitter accepts jobs and the completion of one: a [Client], or the queue within a
// transaction of the program's own ([Client.In]), where both count if and only if the
// transaction commits.
type Submitter interface {
	// Submit stores a job.
	Submit(ctx context.Context, s Spec) (SubmitResult, error)
	// SubmitBatch stores jobs that have nothing to do with each other; each has a result
	// of its own.
	SubmitBatch(ctx context.Context, specs []Spec) ([]SubmitResult, error)
	// SubmitGraph stores jobs that depend on each other, all or none.
	SubmitGraph(ctx context.Context, jobs []GraphJob) ([]SubmitResult, error)
	// Complete ends a lease with success.
	Complete(ctx context.Context, lease LeaseRef, result []byte) (State, error)
}
