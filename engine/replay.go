package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// callerKey is the key under which a context carries the name of a caller.
type callerKey struct{}

// WithCaller returns a context for calls on behalf of somebody with a name. The submission of a
// replay tells it: see [gq.AttributeReplayedBy].
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Replay submits a finished job again, as a new job with ReplayOf set. The new job has the
// payload, the policy and the current metadata of the old one, but no idempotency key, no
// dependencies and no delay. The old job does not change.
//
// A job is replayed once: further calls, also at the same time, return its replay with Existing
// set, as long as that is kept. To run it once more, replay the replay when it has finished.
//
// The replay of a unique job is unique too: it takes the key over, or is refused with
// [gq.ErrNotUnique] if another job holds it. A job of a workflow is refused with
// [gq.ErrIllegalMove]: see [Engine.RetryWorkflow]. So is a job whose place another one took.
func (e *Engine) Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error) {
	job, err := e.Get(ctx, id, gq.WithPayload)
	if err != nil {
		return gq.SubmitResult{}, err
	}
	if job.State.Live() {
		return gq.SubmitResult{}, gq.ErrIllegalMove.Errorf("job %s is still %s; only finished jobs can be replayed", id, job.State.Status)
	}
	if err := replayable(&job); err != nil {
		return gq.SubmitResult{}, err
	}
	again := replayed(ctx, &job)
	out, err := e.submit(ctx, &again, e.fill)
	if err == nil {
		out.State, err = e.latest(ctx, out.State)
	}
	if err != nil {
		return gq.SubmitResult{}, fmt.Errorf("replay %s: %w", id, err)
	}
	return out, nil
}

// latest returns the state of the job that took the place of a replaced one, or the state itself. It
// follows no more than [gq.MaxReplacements]: the state that it returns then names the next.
func (e *Engine) latest(ctx context.Context, s gq.State) (gq.State, error) {
	for n := 0; !s.ReplacedBy.IsZero() && n < gq.MaxReplacements; n++ {
		found, err := e.store.Get(ctx, []store.Ref{{Job: s.ReplacedBy}}, 0)
		if err != nil {
			return s, err
		}
		if errors.Is(found[0].Err, gq.ErrNotFound) {
			break
		}
		if found[0].Err != nil {
			return s, found[0].Err
		}
		s = found[0].State
	}
	return s, nil
}

// replayable refuses to replay a job whose place another one has taken, which would do the work
// twice, and a single job of a workflow: outside of it, the job would run without its
// dependencies, and its dependents would not notice.
func replayable(job *gq.Job) error {
	if !job.State.ReplacedBy.IsZero() {
		return gq.ErrIllegalMove.Errorf("job %s took the place of job %s and does its work; replay that one when it has finished", job.State.ReplacedBy, job.State.ID)
	}
	if job.Spec.Workflow.IsZero() {
		return nil
	}
	return gq.ErrIllegalMove.Errorf("job %s is a part of workflow %s; retry that: gq workflow retry %s", job.State.ID, job.Spec.Workflow, job.Spec.Workflow)
}

// replayed returns the submission that repeats a finished job.
func replayed(ctx context.Context, job *gq.Job) gq.Spec {
	again := job.Spec
	again.ID, again.ReplayOf = gq.JobID{}, job.State.ID
	again.Replaces, again.DependsOn, again.RunAt, again.Delay = gq.JobID{}, nil, time.Time{}, 0
	if again.Unique.OnCollision == gq.Debounced { // which needs a delay
		again.Unique.OnCollision = gq.Existing
	}
	again.Key = machine.ReplayKey(&job.Spec)
	again.Metadata = job.Metadata
	again.Metadata.Tags = maps.Clone(job.Metadata.Tags)
	again.Attributes = maps.Clone(job.Spec.Attributes)
	match.KeepUnits(&again)
	delete(again.Attributes, gq.AttributeReplayedBy) // who replayed the old job
	if by, _ := ctx.Value(callerKey{}).(string); by != "" && len(again.Attributes) < gq.MaxAttributes {
		if again.Attributes == nil {
			again.Attributes = make(map[string]string, 1)
		}
		again.Attributes[gq.AttributeReplayedBy] = by
	}
	return again
}
