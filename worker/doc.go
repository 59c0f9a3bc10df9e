// Package worker runs Go functions as the handlers of jobs.
//
//	w := worker.New(client, worker.Config{Slots: 50})
//	worker.Handle(w, SendEmail, func(ctx context.Context, job *worker.Job[Email]) error {
//		return send(ctx, job.Args)
//	})
//	err := w.Run(ctx) // until ctx ends
//
// It needs only the three methods of [Queue], so that it runs unchanged against
// an engine in the same process and against a remote server.
//
// # What a handler answers
//
// Nil completes the job. An error fails the attempt: [gq.Temporary] and
// [gq.Permanent] say how, [Snooze] puts the job off without fault, [Cancel]
// ends it, and every other error is judged by [classify.Error] or by
// Config.Classify. A panic is a failure of category SYSTEM whose message is the
// value with the stack. A payload that is not what the handler takes is a
// permanent failure with code invalid_payload, and the handler is not called.
//
// # Why a context ends
//
// A handler's context ends when the job stops being worth the work, and
// [context.Cause] tells why:
//
//   - [ErrLeaseLost]: the job belongs to someone else, or may by now. The
//     outcome of the handler is not sent.
//   - [ErrCancelRequested]: someone asked for the job to stop. An error ends it
//     as cancelled; a success still counts where the policy lets it.
//   - [ErrExecutionTimeout]: the attempt is over its time limit. It ends with
//     category TIMEOUT whatever the handler returns. A handler can shorten the
//     limit ([context.WithTimeout], [Timeout]) and cannot lengthen it.
//   - [ErrDraining]: the worker stops and the time for that is over. An error
//     that is no verdict gives the job back without using up an attempt.
//
// A handler that goes on regardless keeps its slot. After Config.Grace it is
// logged, and counted in [Stats.Ignoring].
//
// # What is promised
//
//   - No more handlers run at once than there are slots, and no job is claimed
//     without a free one. Only types with a handler are claimed.
//   - While a handler runs its lease is renewed every third of the TTL, in one
//     call for all jobs of the worker (of at most 1000 each). A job that has
//     finished or whose context has ended is not renewed.
//   - A handler whose lease cannot be renewed is told when the lease runs out
//     by the worker's own, monotonic clock. Instants of the queue's clock are
//     never compared with it.
//   - An outcome is sent until it is answered or the lease has run out. A success
//     that the queue refuses as invalid becomes a permanent failure.
//   - Log lines name the job by id, type, attempt and correlation id. At level
//     Info and above they contain neither payloads nor texts of handlers' errors.
//
// # What is not promised
//
// A job may run more than once, and two executions may overlap: when a worker is
// cut off for longer than its lease, and when a handler ignores the end of its
// context. Handlers that must not act twice use [Run.ID] to recognise a repeat
// and hand [Run.LeaseVersion] to the systems they write to, which refuse a
// smaller one than they have seen. Go cannot stop a function from outside.
package worker
