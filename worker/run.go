package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Run is one execution of a job, as its handler sees it. Its methods may be
// called from any goroutine of the handler, until the handler returns.
type Run struct {
	// Set before the handler starts, and only read from then on.
	worker  *Worker
	lane    *lane
	handler Handler
	job     gq.Job
	ref     gq.LeaseRef
	policy  *gq.Policy
	context runContext
	cancel  context.CancelCauseFunc

	watch // guarded by worker.keeper.mu

	outcome outcome // owned by the settler once the handler has returned
}

// ID identifies the job; it is the same in every execution.
func (r *Run) ID() gq.JobID { return r.job.Spec.ID }

// Type is the job's type.
func (r *Run) Type() string { return r.job.Spec.Type }

// Queue is the queue that the job came from.
func (r *Run) Queue() string { return r.job.Spec.Queue }

// Attempt is 1 for the first execution of the job.
func (r *Run) Attempt() int { return r.job.State.Attempt }

// Bound is how many executions the job may have.
func (r *Run) Bound() int { return r.job.State.Bound }

// LeaseVersion fences other systems: it is larger in every later execution, so
// a system that remembers the largest one it saw can refuse a holder that has
// lost the job without knowing it.
func (r *Run) LeaseVersion() gq.LeaseVersion { return r.ref.Version }

// LeaseID is the id of the lease and so of this execution.
func (r *Run) LeaseID() gq.LeaseID { return r.ref.ID }

// Lease is what the holder of the job shows: to complete it within a transaction
// of one's own, for example.
func (r *Run) Lease() gq.LeaseRef { return r.ref }

// PreviousAttempt is the id of the execution before this one, empty for the
// first.
func (r *Run) PreviousAttempt() gq.LeaseID { return r.job.State.Lease.Previous }

// Key is the idempotency key that the job was submitted with.
func (r *Run) Key() gq.IdempotencyKey { return r.job.Spec.Key }

// Payload is what was submitted. It must not be written to.
func (r *Run) Payload() gq.Payload { return r.job.Spec.Payload }

// Metadata is the user's, as of the claim. It must not be written to.
func (r *Run) Metadata() gq.Metadata { return r.job.Metadata }

// CorrelationID is the user's, for traces and logs.
func (r *Run) CorrelationID() string { return r.job.Metadata.CorrelationID }

// LastCheckpoint is the checkpoint that an earlier execution saved, nil if none
// did.
func (r *Run) LastCheckpoint() []byte { return r.job.Checkpoint }

// Failure is how the last execution that failed did so, nil if none has.
func (r *Run) Failure() *gq.Failure { return r.job.State.Failure }

// Deadline is when the execution timeout will be over, by this machine's clock;
// false if the job has none.
func (r *Run) Deadline() (time.Time, bool) { return r.context.Deadline() }

// Log is the worker's logger with the fields that name the job.
func (r *Run) Log() *slog.Logger { return slog.New(r.worker.log.Handler().WithAttrs(r.attrs())) }

// attrs name the job in a log line.
func (r *Run) attrs(more ...slog.Attr) []slog.Attr {
	attrs := make([]slog.Attr, 0, 4+len(more))
	attrs = append(attrs, slog.String("job", r.ID().String()), slog.String("type", r.Type()), slog.Int("attempt", r.Attempt()))
	if id := r.CorrelationID(); id != "" {
		attrs = append(attrs, slog.String("correlation_id", id))
	}
	return append(attrs, more...)
}

// logged writes a line about the job.
func (r *Run) logged(level slog.Level, message string, more ...slog.Attr) {
	log := r.worker.log
	if log.Enabled(context.Background(), level) {
		log.LogAttrs(context.Background(), level, message, r.attrs(more...)...)
	}
}

// SetResult keeps v as the result of the job, should the handler succeed: a
// []byte or [json.RawMessage] as it is, anything else as JSON. The last call
// counts. The error is a permanent failure, for the handler to return.
func (r *Run) SetResult(v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	k := &r.worker.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.index >= 0 {
		r.result = data
	}
	return nil
}

// SpawnOnSuccess submits children of the job together with its completion: all
// of them, and only if the completion is accepted.
func (r *Run) SpawnOnSuccess(children ...gq.Spec) {
	k := &r.worker.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	r.children = append(r.children, children...)
}

// Progress tells how far the handler is, from 0 to 1, with a note for people.
// It does not wait: the report goes out with a heartbeat, within about a
// second, and a newer report replaces one that has not gone out.
func (r *Run) Progress(ctx context.Context, fraction float64, note string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if math.IsNaN(fraction) || fraction < 0 || fraction > 1 {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "progress", Problem: fmt.Sprintf("%v is not between 0 and 1", fraction)}}}
	}
	r.worker.keeper.progress(r, fraction, note, time.Now())
	return nil
}

// Checkpoint saves data for the next execution of the job, should this one not
// finish. When it returns nil the data is as durable as the queue is. It is not
// repeated when the queue cannot be reached: the handler may try again.
//
// The error is [ErrLeaseLost] where the job belongs to someone else.
func (r *Run) Checkpoint(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "checkpoint", Problem: "is empty"}}}
	}
	_, err := r.report(ctx, gq.Heartbeat{Checkpoint: bytes.Clone(data)})
	return err
}

// Spawn submits children of the job now, together with a checkpoint: both or
// neither. The checkpoint tells the next execution what has been submitted; it
// may be nil for children whose idempotency keys make a second submission
// harmless. Spawn is not repeated when the queue cannot be reached, and then it
// is not known whether it happened.
func (r *Run) Spawn(ctx context.Context, checkpoint []byte, children ...gq.Spec) ([]gq.SubmitResult, error) {
	a, err := r.report(ctx, gq.Heartbeat{Checkpoint: bytes.Clone(checkpoint), Spawn: slices.Clone(children)})
	if err == nil && len(a.Spawned) != len(children) {
		err = fmt.Errorf("spawn from %s: the queue answered for %d of %d children", r.ID(), len(a.Spawned), len(children))
	}
	return a.Spawned, err
}

func (r *Run) report(ctx context.Context, b gq.Heartbeat) (gq.LeaseResult, error) {
	if ctx.Err() != nil {
		return gq.LeaseResult{}, context.Cause(ctx)
	}
	if !r.worker.keeper.live(r) {
		return gq.LeaseResult{}, fmt.Errorf("report on %s: %w", r.ID(), ErrLeaseLost)
	}
	b.Lease, b.Progress = r.ref, -1
	answer, err := r.worker.reporter.send(ctx, r, b)
	if err != nil {
		return gq.LeaseResult{}, fmt.Errorf("report on %s: %w", r.ID(), err)
	}
	if errs.KindOf(answer.Err) == gq.KindStaleLease {
		return answer, fmt.Errorf("report on %s: %w", r.ID(), ErrLeaseLost)
	}
	return answer, answer.Err
}
