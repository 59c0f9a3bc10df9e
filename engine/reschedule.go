package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Reschedule sets the run time of a job that waits: one that is delayed, between two attempts or
// claimable. A zero time, or one that is not in the future, makes it claimable at once. A claimable
// job that is to run later does not go back to waiting: a copy takes its place, as with
// [Engine.Edit], and the returned state is that of the copy. It has the attempts, the checkpoint,
// the key, the metadata and the deadlines of the old job.
//
// For a job that a worker holds, that has ended or that waits for dependencies the error is
// [gq.ErrIllegalMove]; for a time after the end of its lifetime it is [gq.ErrInvalid].
func (e *Engine) Reschedule(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error) {
	state, err := arrived(ctx, e, id, func(id gq.JobID) (gq.State, error) { return e.reschedule(ctx, id, at) })
	if err != nil {
		return gq.State{}, jobError("reschedule", id, err)
	}
	return state, nil
}

func (e *Engine) reschedule(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error) {
	for {
		updated, err := e.store.Update(ctx, authorizeUpdates(ctx, []store.Update{{
			Ref: store.Ref{Job: id},
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Reschedule(s, at, now)
			},
		}}))
		if err != nil {
			return gq.State{}, err
		}
		state, err := updated[0].State, updated[0].Err
		switch {
		case errors.Is(err, machine.ErrClaimable):
			state, err = e.putOff(ctx, id, at)
			if errors.Is(err, gq.ErrConflict) {
				continue // a worker has had it meanwhile
			}
		case errors.Is(err, gq.ErrIllegalMove) && !state.ReplacedBy.IsZero():
			state, err = e.putOffBefore(ctx, &state, at, err)
		case errors.Is(err, gq.ErrIllegalMove) && state.Status == gq.StatusPending:
			err = e.nameDependencies(ctx, id, err)
		}
		return state, err
	}
}

// putOff replaces a claimable job by a copy that runs later and carries on from it.
func (e *Engine) putOff(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error) {
	job, err := e.Get(ctx, id, gq.WithPayload|gq.WithCheckpoint)
	if err != nil {
		return gq.State{}, err
	}
	switch flow, key := job.Spec.Workflow, job.Spec.OrderKey; {
	case !flow.IsZero():
		return gq.State{}, gq.ErrIllegalMove.Errorf("job %s is claimable and a part of workflow %s, so it cannot be put off; pause queue %s meanwhile", id, flow, job.Spec.Queue)
	case key != "":
		return gq.State{}, gq.ErrIllegalMove.Errorf("job %s is claimable and has the order key %.64q, so it cannot be put off: the jobs behind it would wait for one that comes after them; "+
			"pause queue %s meanwhile, or cancel the job and submit another with a delay", id, key, job.Spec.Queue)
	}
	s := job.Spec
	s.Replaces, s.RunAt, s.Delay, s.Metadata = id, at, 0, job.Metadata
	if s.Unique.OnCollision == gq.Debounced { // which needs a delay
		s.Unique.OnCollision = gq.Existing
	}
	if s.DependsOn, err = e.openDependencies(ctx, &job); err != nil {
		return gq.State{}, err
	}
	s.ID = e.random.jobID()
	carry := &store.CarryOn{Version: job.State.Version, Checkpoint: job.Checkpoint}
	for {
		placed, err := e.store.Insert(ctx, []store.Group{{Jobs: []gq.Spec{s}, Mint: e.random.mint(), Authorize: authorizing(ctx), CarryOn: carry}})
		switch {
		case err != nil:
			return gq.State{}, err
		case errors.Is(placed[0].Err, gq.ErrNotUnique) && s.Key.Name != "":
			s.Key, s.Unique = gq.IdempotencyKey{}, gq.UniqueRule{} // it had lost its key to another job
			continue
		case placed[0].Err != nil:
			refused, _ := unwrapRefusal(placed[0].Err)
			return gq.State{}, refused
		}
		return placed[0].Jobs[0].State, nil
	}
}

// putOffBefore returns the job that took the place of one, if this is what the call asks for: it
// was repeated after its answer was lost. Otherwise the error names that job.
func (e *Engine) putOffBefore(ctx context.Context, old *gq.State, at time.Time, err error) (gq.State, error) {
	found, readErr := e.store.Get(ctx, []store.Ref{{Job: old.ReplacedBy}}, 0)
	if readErr != nil || found[0].Err != nil || authorize(ctx, found[0].Spec.Queue) != nil {
		return gq.State{}, err
	}
	if next := found[0].State; next.Live() && !next.Status.Held() && next.RunAt.Equal(at) {
		return next, nil
	}
	return gq.State{}, gq.ErrIllegalMove.Errorf("job %s was replaced by job %s; reschedule that one", old.ID, old.ReplacedBy)
}

// namedDependencies is the most dependencies that an error names.
const namedDependencies = 3

// nameDependencies adds to an error which dependencies of a job have not ended. It names only
// jobs that the caller may change.
func (e *Engine) nameDependencies(ctx context.Context, id gq.JobID, err error) error {
	found, readErr := e.store.Get(ctx, []store.Ref{{Job: id}}, 0)
	if readErr != nil || found[0].Err != nil {
		return err // without their names
	}
	waits := []gq.Job{found[0].Job}
	if e.nameSuccessors(ctx, waits) != nil {
		return err
	}
	var refs []store.Ref
	for _, d := range waits[0].Spec.DependsOn {
		if d.Kind.Waits() {
			refs = append(refs, store.Ref{Job: d.Job})
		}
	}
	others, readErr := e.store.Get(ctx, refs, 0)
	if readErr != nil {
		return err
	}
	var names []string
	for i := range others {
		o := &others[i]
		if o.Err != nil || !o.State.Live() || authorize(ctx, o.Spec.Queue) != nil {
			continue
		}
		if len(names) == namedDependencies {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprintf("%s (%s)", o.State.ID, o.State.Status))
	}
	if len(names) == 0 {
		return err
	}
	return gq.ErrIllegalMove.Errorf("%v: %s", err, strings.Join(names, ", "))
}
