package gq

import (
	"context"
	"time"
)

// Driver has every call that a program can make on a queue. Package engine implements it on
// top of a store and package client over the network; programs use it through a [Client].
// All methods are safe for concurrent use. The caller owns the values they return.
type Driver interface {
	Submitter

	// Get returns a job, with its payload, result and checkpoint if parts asks for them.
	//gq:needs read on the job
	Get(ctx context.Context, id JobID, parts Parts) (Job, error)
	// List returns one page of the jobs that a query selects.
	List(ctx context.Context, q Query) (Page, error)
	// Wait blocks until a job has ended and returns it with its result.
	Wait(ctx context.Context, id JobID) (Job, error)
	// Explain says why a job is not running.
	Explain(ctx context.Context, id JobID) (Explanation, error)
	// History lists the events of a job, oldest first.
	//gq:needs read on the job
	History(ctx context.Context, id JobID) ([]Event, error)
	// UpdateMetadata changes the tags, the priority and other metadata of a live job.
	//gq:needs submit on the job
	UpdateMetadata(ctx context.Context, id JobID, p MetadataPatch) (Job, error)
	// Reschedule sets the run time of a waiting job. A zero or past time makes it claimable
	// at once. A claimable job that is to run later is replaced by a copy, and the result is
	// the state of the copy.
	//gq:needs submit on the job
	Reschedule(ctx context.Context, id JobID, at time.Time) (State, error)
	// Cancel ends a waiting job at once and asks the worker of a running job to stop.
	//gq:needs submit on the job
	Cancel(ctx context.Context, id JobID, reason string) (State, error)
	// CancelWhere cancels all live jobs that a query selects.
	CancelWhere(ctx context.Context, q Query, reason string) (CancelReport, error)
	// Edit replaces a waiting job by a copy with another payload, queue or run time, in one
	// commit, and returns the copy.
	Edit(ctx context.Context, id JobID, change JobEdit) (SubmitResult, error)
	// Replay submits a finished job again. If it was replayed before, the result is its replay,
	// with Existing set; to run it once more, replay that one when it has finished.
	Replay(ctx context.Context, id JobID) (SubmitResult, error)
	// ReplayWhere submits finished jobs that a query selects again, except those that were
	// replayed before, up to Query.Limit in a call. [ReplayReport.Next] is the cursor of the next call.
	ReplayWhere(ctx context.Context, q Query) (ReplayReport, error)
	// CountWhere counts the jobs that a query selects. [CountReport.Next] is the cursor of
	// the next call if one call could not count all of them.
	CountWhere(ctx context.Context, q Query) (CountReport, error)
	// Purge removes a finished job.
	//gq:needs admin on the job
	Purge(ctx context.Context, id JobID) error
	// PurgeWhere removes all finished jobs that a query selects and returns their number.
	PurgeWhere(ctx context.Context, q Query) (int, error)

	// Workflow returns a workflow with the current states of its jobs.
	//gq:needs read on the workflow
	Workflow(ctx context.Context, id WorkflowID) (Workflow, error)
	// Workflows lists workflows, newest first.
	Workflows(ctx context.Context, q WorkflowQuery) (WorkflowPage, error)
	// CancelWorkflow cancels all live jobs of a workflow except the final ones, which run if
	// they are for this end.
	//gq:needs submit on the workflow
	CancelWorkflow(ctx context.Context, id WorkflowID, reason string) (CancelReport, error)
	// RetryWorkflow submits again what did not complete in a workflow that has ended: new jobs
	// with the same names, after the jobs that completed.
	//gq:needs submit on the workflow
	RetryWorkflow(ctx context.Context, id WorkflowID) (Workflow, error)
	// AddToWorkflow adds the jobs of a flow to a workflow that has not ended.
	AddToWorkflow(ctx context.Context, id WorkflowID, f *Flow) (Workflow, error)
	// Signal completes the job of a workflow that waits for the signal with this name. The
	// value becomes its result: a []byte or [json.RawMessage] unchanged, any other value as
	// JSON. Sending the same value again changes nothing. The error is [ErrNotFound] if
	// there is no such workflow or signal, and [ErrIllegalMove] if the job has ended or has
	// another value.
	//gq:needs submit on the workflow
	Signal(ctx context.Context, id WorkflowID, name string, value any) (State, error)

	// Claim takes jobs from queues and returns each with a lease.
	Claim(ctx context.Context, r ClaimRequest) ([]Job, error)
	// Start begins to execute a job that the caller claimed with Hold.
	//gq:needs work on the job
	Start(ctx context.Context, lease LeaseRef, ttl time.Duration) (State, error)
	// Heartbeat renews leases and records progress and checkpoints.
	Heartbeat(ctx context.Context, beats []Heartbeat) ([]LeaseResult, error)
	// Settle ends leases, each with its own outcome.
	Settle(ctx context.Context, outcomes []Outcome) ([]LeaseResult, error)
	// Fail ends a lease with a failure. The job's policy decides whether to retry.
	//gq:needs work on the job
	Fail(ctx context.Context, lease LeaseRef, f Failure) (State, error)
	// Release returns a job to its queue without using up an attempt.
	//gq:needs work on the job
	Release(ctx context.Context, lease LeaseRef, delay time.Duration, reason string) (State, error)
	// Workers lists the workers that claimed jobs or sent heartbeats in the last minute.
	Workers(ctx context.Context) ([]LiveWorker, error)
	// WorkerStopped says that a worker has stopped, so that no server lists it any longer. A
	// later call of the worker lists it again. The error is [ErrConflict] if it holds jobs.
	// Package worker does this by itself.
	WorkerStopped(ctx context.Context, worker string) error

	// DeclareQueue configures a queue at program start. It keeps settings that an operator
	// has changed since the last declaration.
	DeclareQueue(ctx context.Context, q Queue) (Queue, error)
	// PutQueue replaces the configuration of a queue.
	PutQueue(ctx context.Context, q Queue) (Queue, error)
	// ChangeQueue applies change to a queue's configuration and retries if another process
	// modified it concurrently.
	ChangeQueue(ctx context.Context, name string, change func(*Queue)) (Queue, error)
	// Queue returns a queue.
	//gq:needs any on the queue
	Queue(ctx context.Context, name string) (Queue, error)
	// Queues lists all queues, sorted by name.
	Queues(ctx context.Context) ([]Queue, error)
	// QueuesAfter lists up to limit queues with names greater than name, sorted by name.
	QueuesAfter(ctx context.Context, name string, limit int) ([]Queue, error)
	// Pause stops claims from a queue. Submissions continue.
	//gq:needs admin on the queue
	Pause(ctx context.Context, queue string) (Queue, error)
	// Resume allows claims from a paused queue again.
	//gq:needs admin on the queue
	Resume(ctx context.Context, queue string) (Queue, error)
	// DeleteQueue removes the configuration of a queue without live jobs. Its finished jobs
	// stay until their retention is over.
	//gq:needs admin on the queue
	DeleteQueue(ctx context.Context, name string) error
	// SetQueueKey gives one limit key of a queue other limits than the rest, from the next
	// claim on. It replaces the limits that the key had. A queue that does not exist yet is
	// created.
	SetQueueKey(ctx context.Context, k QueueKey) (QueueKey, error)
	// UnsetQueueKey gives a limit key the limits of its queue again. The error is
	// [ErrNotFound] if it has none of its own.
	//gq:needs admin on the queue
	UnsetQueueKey(ctx context.Context, queue, key string) error
	// QueueKeys lists up to limit keys of a queue that have limits of their own and names
	// greater than after, sorted by name. A limit of 0 is 1000, which is also the most.
	//gq:needs read on the queue
	QueueKeys(ctx context.Context, queue, after string, limit int) ([]QueueKey, error)
	// Counts returns the number of jobs by queue and status. Without names it returns all
	// queues.
	Counts(ctx context.Context, queues ...string) ([]Count, error)
	// QueueHistory returns what happened in queues over time: one point for each step, oldest
	// first and without gaps. Steps below an hour reach back [HistoryMinutes], others
	// [HistoryHours]; a query for older times gets fewer points. It includes everything up to
	// the call.
	QueueHistory(ctx context.Context, q HistoryQuery) ([]HistoryPoint, error)
	// QueueActivity returns what happened in the last 60 minutes in each of the named queues,
	// or in each queue where anything did, sorted by name. Without names it may be some
	// seconds old.
	QueueActivity(ctx context.Context, queues ...string) ([]QueueActivity, error)
	// Stats returns the counts of all queues, the number of live workers and the size of
	// the store.
	Stats(ctx context.Context) (Stats, error)
	// Pools lists the capacity pools.
	//gq:needs read on all queues
	Pools(ctx context.Context) ([]Pool, error)
	// PutPool creates or replaces a pool.
	//gq:needs admin on all queues
	PutPool(ctx context.Context, p Pool) error

	// Inbox counts the submissions that are not jobs yet and those that were refused after
	// their transactions had committed, and lists up to limit of the refused ones.
	//gq:needs read on all queues
	Inbox(ctx context.Context, cursor string, limit int) (Inbox, error)
	// RetryRefused makes the queue decide again about refused submissions, and returns
	// their number.
	//gq:needs admin on all queues
	RetryRefused(ctx context.Context, which RefusedSelection) (int, error)
	// DiscardRefused deletes refused submissions and returns their number.
	//gq:needs admin on all queues
	DiscardRefused(ctx context.Context, which RefusedSelection) (int, error)

	// PutSchedule creates or replaces a schedule.
	PutSchedule(ctx context.Context, s Schedule) (Schedule, error)
	// DeclareSchedule sets up a schedule at program start. It keeps settings that an operator
	// has changed since the last declaration, such as a pause.
	DeclareSchedule(ctx context.Context, s Schedule) (Schedule, error)
	// Schedule returns a schedule.
	Schedule(ctx context.Context, name string) (Schedule, error)
	// Schedules lists all schedules, sorted by name.
	Schedules(ctx context.Context) ([]Schedule, error)
	// PauseSchedule stops a schedule from firing.
	PauseSchedule(ctx context.Context, name string) (Schedule, error)
	// ResumeSchedule continues a paused schedule. The firings missed meanwhile are skipped.
	ResumeSchedule(ctx context.Context, name string) (Schedule, error)
	// TriggerSchedule submits a job of a schedule at once, even if the schedule is paused or
	// has ended. The slot of the job is the current second. The next firing stays as it is.
	// If the overlap rule would skip the job, the error is [ErrOverlap].
	TriggerSchedule(ctx context.Context, name string) (Firing, error)
	// BackfillSchedule submits the jobs of past slots that have none, oldest first, and
	// ignores the overlap rule and the jitter. If the queue cannot hold the jobs of the
	// whole range, it submits none.
	BackfillSchedule(ctx context.Context, b Backfill) (BackfillReport, error)
	// DeleteSchedule removes a schedule and keeps the jobs it submitted.
	DeleteSchedule(ctx context.Context, name string) error

	// Events returns up to limit events after a sequence number, oldest first.
	//gq:needs read on all queues
	Events(ctx context.Context, after uint64, limit int) ([]Event, error)
	// LastEvent returns the sequence number of the newest event.
	//gq:needs read on any queue
	LastEvent(ctx context.Context) (uint64, error)
	// Follow calls f with all events after a sequence number, oldest first and without
	// gaps, and then with new events as they occur. It returns nil when ctx ends, or the
	// error that f returned.
	//
	// A follower that has caught up also gets the progress of running jobs ([EventProgress]),
	// the newest report of each job. These events are not kept: their sequence number is that of
	// the event before them, and who follows later does not get them.
	Follow(ctx context.Context, after uint64, f func([]Event) error) error
}

// Submitter accepts jobs and completes them: either a [Client], or a transaction of the
// program ([Client.In]), where submissions and completions take effect if the transaction
// commits.
type Submitter interface {
	// Submit stores a job.
	Submit(ctx context.Context, s Spec) (SubmitResult, error)
	// SubmitBatch stores independent jobs. Each has its own result.
	SubmitBatch(ctx context.Context, specs []Spec) ([]SubmitResult, error)
	// SubmitGraph stores jobs that depend on each other: all of them or none.
	SubmitGraph(ctx context.Context, jobs []GraphJob) ([]SubmitResult, error)
	// SubmitWorkflow stores the jobs of a workflow and its record: all of it or nothing.
	SubmitWorkflow(ctx context.Context, f *Flow) (WorkflowID, error)
	// Complete ends a lease with success.
	//gq:needs work on the job
	Complete(ctx context.Context, lease LeaseRef, result []byte) (State, error)
}
