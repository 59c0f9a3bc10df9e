// Package worker runs Go functions as the handlers of jobs.
//
//	w := worker.New(client, worker.Config{Slots: 50})
//	worker.Handle(w, SendEmail, func(ctx context.Context, job *worker.Job[Email]) error {
//		return send(ctx, job.Args)
//	})
//	err := w.Run(ctx) // until ctx ends
//
// A worker needs only the three methods of [Queue], so it runs unchanged on an embedded queue
// and against a server.
//
// # What a handler returns
//
// Nil completes the job. An error fails the attempt: [gq.Temporary] allows a retry,
// [gq.Permanent] does not, [Snooze] postpones the job without using up an attempt, [Cancel]
// cancels it, and [classify.Error] or Config.Classify classifies every other error. A panic is
// a failure of category SYSTEM; its message is the panic value with the stack. A payload that
// cannot be decoded is a permanent failure with code invalid_payload, and the handler does not
// run.
//
// # Why a context ends
//
// The context of a handler ends when its result no longer matters. [context.Cause] returns the
// reason:
//
//   - [ErrLeaseLost]: the lease expired, or another worker holds the job. The worker discards
//     the outcome of the handler.
//   - [ErrCancelRequested]: a user cancelled the job. An error ends it as cancelled; the policy
//     decides whether a success still counts.
//   - [ErrExecutionTimeout]: the attempt exceeded its execution timeout. It ends with category
//     TIMEOUT, whatever the handler returns. A handler can shorten the timeout
//     ([context.WithTimeout], [Timeout]) but not extend it.
//   - [ErrDraining]: the worker stops and Config.DrainTimeout is over. An untyped error then
//     releases the job without using up an attempt.
//
// A handler that continues after its context ended keeps its slot. After Config.Grace the
// worker logs it and counts it in [Stats.Ignoring].
//
// # What is promised
//
//   - At most Config.Slots handlers run at once. The worker claims a job only if it has a free
//     slot and a handler for the type.
//   - The worker renews the lease of a running handler after a third of the TTL, with one call
//     for up to 1000 jobs. It does not renew the lease of a job that finished or whose context
//     has ended.
//   - If a lease cannot be renewed, the context of the handler ends when the lease expires by
//     the worker's monotonic clock. The worker never compares its clock with the queue's.
//   - The worker sends an outcome until the queue answers or the lease has expired. A success
//     that the queue rejects as invalid becomes a permanent failure.
//   - Log lines name the job by id, type, attempt and correlation id. At level Info and above
//     they contain neither payloads nor error messages of handlers.
//
// # What is not promised
//
// A job can run more than once, and two executions can overlap: when a worker is disconnected
// for longer than its lease, or a handler ignores the end of its context. Go cannot stop a
// function from outside. Handlers that must not act twice use [Run.ID] to detect a repeated
// execution, and pass [Run.LeaseVersion] to the systems they write to, which reject versions
// smaller than the largest they have seen.
package worker
