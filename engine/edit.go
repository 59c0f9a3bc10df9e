package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Edit replaces a waiting job by a copy with other content or in another queue. The copy has
// the policy, the current metadata, the key, the run time and the open dependencies of the old
// job, and jobs that wait for the old one wait for the copy. The old job ends CANCELLED in the
// same commit, and each names the other.
//
// Errors: [gq.ErrInvalid], [gq.ErrNotFound], and [gq.ErrIllegalMove] for a job that a worker has
// started or holds, or that has ended.
func (e *Engine) Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error) {
	if change.Empty() {
		return gq.SubmitResult{}, fmt.Errorf("edit %s: %w", id, &gq.InvalidError{Faults: []gq.Fault{{Field: "edit", Problem: "changes nothing; give a payload, a queue or a run time"}}})
	}
	job, err := e.unended(ctx, id)
	if err != nil {
		return gq.SubmitResult{}, err
	}
	if flow := job.Spec.Workflow; !flow.IsZero() {
		return gq.SubmitResult{}, gq.ErrIllegalMove.Errorf("job %s is a part of workflow %s and cannot be edited; cancel the workflow and submit it anew", id, flow)
	}
	if change.Queue != "" && change.Queue != job.Spec.Queue {
		if err := mayCarry(ctx, job.Spec.Queue, "moving a job to another queue"); err != nil {
			return gq.SubmitResult{}, jobError("edit", id, err)
		}
	}
	spec, err := e.edited(ctx, &job, change)
	if err != nil {
		return gq.SubmitResult{}, jobError("edit", id, err)
	}
	out, err := e.submit(ctx, &spec, e.fill)
	if errors.Is(err, gq.ErrNotUnique) {
		// If another edit came first, its copy has the key.
		if _, err := e.unended(ctx, id); err != nil {
			return gq.SubmitResult{}, err
		}
	}
	if err != nil {
		return gq.SubmitResult{}, jobError("edit", id, err)
	}
	return out, nil
}

// unended reads a job to be edited that has not ended.
func (e *Engine) unended(ctx context.Context, id gq.JobID) (gq.Job, error) {
	job, err := e.Get(ctx, id, gq.WithPayload)
	if err != nil {
		return gq.Job{}, err
	}
	if job.State.Status.Terminal() {
		return gq.Job{}, gq.ErrIllegalMove.Errorf("job %s is already %s", id, job.State.Status)
	}
	return job, nil
}

// edited returns the spec of the job that takes the place of another one.
func (e *Engine) edited(ctx context.Context, job *gq.Job, change gq.JobEdit) (gq.Spec, error) {
	old := job.Spec
	match.KeepUnits(&old)
	s := change.Apply(old)
	s.ID, s.Replaces, s.Delay = gq.JobID{}, job.State.ID, 0
	if change.RunAt.IsZero() {
		if s.RunAt = job.State.RunAt; !s.RunAt.After(job.State.CreatedAt) {
			s.RunAt = gq.Spec{}.RunAt
		}
	}
	s.Metadata = job.Metadata
	s.Metadata.Tags = maps.Clone(job.Metadata.Tags)
	if len(s.Unique.Fields) > 0 {
		s.Key = gq.IdempotencyKey{} // it follows from the payload
		if !s.ReplayOf.IsZero() {
			s.Key.Fingerprint = job.Spec.Key.Fingerprint // which tells what it replays
		}
	}
	if s.Unique.OnCollision == gq.Debounced { // which needs a delay
		s.Unique.OnCollision = gq.Existing
	}
	var err error
	s.DependsOn, err = e.openDependencies(ctx, job)
	return s, err
}

// openDependencies returns the dependencies that a job still waits for, and the job that
// spawned it.
func (e *Engine) openDependencies(ctx context.Context, job *gq.Job) (open []gq.Dependency, err error) {
	for _, d := range job.Spec.DependsOn {
		if d.Kind.Waits() && (job.State.Status != gq.StatusPending || d.Kind == gq.DependencyAfterAny && !job.State.AnyOpen) {
			continue // it has ended
		}
		found, err := e.store.Get(ctx, []store.Ref{{Job: d.Job}}, 0)
		if err != nil {
			return nil, err
		}
		switch err := found[0].Err; {
		case errors.Is(err, gq.ErrNotFound): // it has ended
		case err != nil:
			return nil, err
		case !slices.Contains(open, d):
			open = append(open, d)
		}
	}
	return open, nil
}

// nameSuccessors changes what jobs depend on where a job was replaced: they depend on the job that
// took its place. It follows no more than [gq.MaxReplacements], as submissions do.
func (e *Engine) nameSuccessors(ctx context.Context, jobs []gq.Job) error {
	ids := make(map[gq.JobID]gq.JobID) // to the job that counts
	var unread []store.Ref
	add := func(id gq.JobID) {
		if _, known := ids[id]; !known {
			ids[id], unread = id, append(unread, store.Ref{Job: id})
		}
	}
	for i := range jobs {
		for _, d := range jobs[i].Spec.DependsOn {
			add(d.Job)
		}
	}
	for n := 0; len(unread) > 0 && n <= gq.MaxReplacements; n++ {
		reading := unread
		unread = nil
		for some := range slices.Chunk(reading, store.MaxPage) {
			found, err := e.store.Get(ctx, some, 0)
			if err != nil {
				return err
			}
			for i := range found {
				if next := found[i].State.ReplacedBy; found[i].Err == nil && !next.IsZero() {
					ids[found[i].State.ID] = next
					add(next)
				}
			}
		}
	}
	for i := range jobs {
		for k := range jobs[i].Spec.DependsOn {
			for d := &jobs[i].Spec.DependsOn[k]; ids[d.Job] != d.Job; {
				d.Job = ids[d.Job]
			}
		}
	}
	return nil
}
