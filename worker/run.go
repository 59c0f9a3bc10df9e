package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/steps"
	"github.com/gopherqueue/gq/machine"
)

// Run is one execution of a job. Its methods are safe for concurrent use until the handler
// returns.
type Run struct {
	// Set before the handler starts and not changed afterwards.
	worker  *Worker
	fetcher *fetcher
	handler Handler
	job     gq.Job
	ref     gq.LeaseRef
	policy  *gq.Policy
	context runContext
	cancel  context.CancelCauseFunc
	span    trace.Span // nil without Config.TracerProvider
	began   time.Time  // zero without Config.Metrics

	watch // guarded by worker.keeper.mu

	called   func() map[string]bool // the words in the payloads of all jobs of a call of HandleMany; nil without one
	steps    atomic.Pointer[recording]
	released bool    // it holds no slot any more; guarded by worker.slots.mu
	outcome  outcome // owned by the settler once the handler has returned
}

// ID returns the id of the job, which is the same in every execution.
func (r *Run) ID() gq.JobID { return r.job.Spec.ID }

// Type returns the type of the job.
func (r *Run) Type() string { return r.job.Spec.Type }

// Queue returns the queue of the job.
func (r *Run) Queue() string { return r.job.Spec.Queue }

// Attempt returns the number of this execution; the first is 1.
func (r *Run) Attempt() int { return r.job.State.Attempt }

// Bound returns the maximum number of executions.
func (r *Run) Bound() int { return r.job.State.Bound }

// LeaseVersion returns the fencing number, which is larger in every later execution. A system
// that stores the largest number it has seen can reject a worker that lost the job without
// noticing.
func (r *Run) LeaseVersion() gq.LeaseVersion { return r.ref.Version }

// LeaseID returns the id of the lease, which is also the id of this execution.
func (r *Run) LeaseID() gq.LeaseID { return r.ref.ID }

// Lease returns the reference to the lease, for example to complete the job in a transaction
// of the program.
func (r *Run) Lease() gq.LeaseRef { return r.ref }

// PreviousAttempt returns the id of the previous execution; empty for the first.
func (r *Run) PreviousAttempt() gq.LeaseID { return r.job.State.Lease.Previous }

// Key returns the idempotency key of the job.
func (r *Run) Key() gq.IdempotencyKey { return machine.ShownKey(&r.job.Spec) }

// Slot returns the firing time of the schedule that submitted the job; zero if none did.
func (r *Run) Slot() time.Time { return r.job.Spec.Slot() }

// Policy returns the policy of the job.
func (r *Run) Policy() gq.Policy { return *r.policy }

// Payload returns the submitted payload. The handler must not modify it.
func (r *Run) Payload() gq.Payload { return r.job.Spec.Payload }

// Metadata returns the metadata of the job at the time of the claim. The handler must not
// modify it.
func (r *Run) Metadata() gq.Metadata { return r.job.Metadata }

// CorrelationID returns the correlation id of the job, for traces and logs.
func (r *Run) CorrelationID() string { return r.job.Metadata.CorrelationID }

// LastCheckpoint returns the checkpoint that an earlier execution saved; nil if there is none.
// It does not contain the steps that [Step] has recorded.
func (r *Run) LastCheckpoint() []byte {
	c, err := steps.Parse(r.job.Checkpoint)
	if err != nil {
		return r.job.Checkpoint
	}
	return c.Own
}

// Failure returns the failure of the last failed execution; nil if none failed.
func (r *Run) Failure() *gq.Failure { return r.job.State.Failure }

// Context returns the context of this execution, which ends as the package documentation says.
// A handler gets it as an argument; a handler of many jobs ([HandleMany]) asks each of them.
func (r *Run) Context() context.Context { return &r.context }

// Deadline returns the end of the execution timeout by this machine's clock; false if there
// is no timeout.
func (r *Run) Deadline() (time.Time, bool) { return r.context.Deadline() }

// Log returns the worker's logger with attributes that identify the job.
func (r *Run) Log() *slog.Logger { return slog.New(r.worker.log.Handler().WithAttrs(r.attrs())) }

// attrs returns the attributes that identify the job in a log line.
func (r *Run) attrs(more ...slog.Attr) []slog.Attr {
	attrs := make([]slog.Attr, 0, 4+len(more))
	attrs = append(attrs, slog.String("job", r.ID().String()), slog.String("type", r.Type()), slog.Int("attempt", r.Attempt()))
	if id := r.CorrelationID(); id != "" {
		attrs = append(attrs, slog.String("correlation_id", id))
	}
	return append(attrs, more...)
}

// logged writes a log line about the job.
func (r *Run) logged(level slog.Level, message string, more ...slog.Attr) {
	log := r.worker.log
	if log.Enabled(context.Background(), level) {
		log.LogAttrs(context.Background(), level, message, r.attrs(more...)...)
	}
}

// milliseconds returns a duration for a log line. A program's own handler would write a
// [slog.Duration] without its unit.
func milliseconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, float64(d.Microseconds())/1000)
}

// SetResult sets the result that the job has if the handler succeeds: a []byte or
// [json.RawMessage] unchanged, any other value as JSON. A second call replaces the first. The
// error is a permanent failure for the handler to return.
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

// Result returns the encoded result that [Run.SetResult] has set; nil if there is none. Middleware
// can read it after the handler has returned, and replace it.
func (r *Run) Result() []byte {
	k := &r.worker.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.result
}

// SetPayload replaces the payload that the handler will read, for middleware that transforms it.
// The stored payload never changes. It must not be called after the handler has begun.
func (r *Run) SetPayload(p gq.Payload) { r.job.Spec.Payload = p }

// SpawnOnSuccess submits child jobs atomically with the completion of the job. They have the
// trace context of this execution.
func (r *Run) SpawnOnSuccess(children ...gq.Spec) {
	children = traced(r.Context(), slices.Clone(children))
	k := &r.worker.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	r.children = append(r.children, children...)
}

// Progress reports progress from 0 to 1 with a note for people. It does not block: a heartbeat
// sends the report within about a second, and a newer report replaces an unsent one. The last report
// is sent before the outcome of the handler. Followers get the reports ([gq.EventProgress]).
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

// Checkpoint saves data for the next execution, in case this one does not finish. When it
// returns nil, the data is durable. It does not retry when the queue is unreachable; the
// handler can.
//
// The error is [ErrLeaseLost] if the lease expired or another worker holds the job.
func (r *Run) Checkpoint(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "checkpoint", Problem: "is empty"}}}
	}
	_, _, err := r.save(ctx, gq.Heartbeat{}, func(c *steps.Checkpoint) { c.Own = bytes.Clone(data) })
	return err
}

// Spawn submits child jobs now, atomically with a checkpoint. The checkpoint tells the next
// execution which children exist; it can be nil if the children have idempotency keys. Spawn
// does not retry when the queue is unreachable; whether the children exist is then unknown.
func (r *Run) Spawn(ctx context.Context, checkpoint []byte, children ...gq.Spec) ([]gq.SubmitResult, error) {
	return r.worker.submitChildren(ctx, traced(ctx, slices.Clone(children)), func(ctx context.Context, specs []gq.Spec) (_ []gq.SubmitResult, err error) {
		b := gq.Heartbeat{Spawn: specs}
		var a gq.LeaseResult
		if len(checkpoint) == 0 {
			a, err = r.report(ctx, b)
		} else {
			a, _, err = r.save(ctx, b, func(c *steps.Checkpoint) { c.Own = bytes.Clone(checkpoint) })
		}
		if err == nil && len(a.Spawned) != len(specs) {
			err = fmt.Errorf("spawn from %s: the queue answered for %d of %d children", r.ID(), len(a.Spawned), len(specs))
		}
		return a.Spawned, err
	})
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
