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
// claimable. A zero time, or one that is not in the future, makes it claimable at once. For a
// job that a worker holds, that has ended or that waits for dependencies the error is
// [gq.ErrIllegalMove]; for a time after the end of its lifetime it is [gq.ErrInvalid].
func (e *Engine) Reschedule(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error) {
	updated, err := e.store.Update(ctx, authorizeUpdates(ctx, []store.Update{{
		Ref: store.Ref{Job: id},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Reschedule(s, at, now)
		},
	}}))
	if err == nil {
		err = updated[0].Err
	}
	if err != nil {
		if len(updated) > 0 && errors.Is(err, gq.ErrIllegalMove) && updated[0].State.Status == gq.StatusPending {
			err = e.nameDependencies(ctx, id, err)
		}
		return gq.State{}, jobError("reschedule", id, err)
	}
	return updated[0].State, nil
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
	var refs []store.Ref
	for _, d := range found[0].Spec.DependsOn {
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
