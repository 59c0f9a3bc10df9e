package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Admit starts a claimed job if its pool has room for it, and renews its hold if
// not: then the error is a [gq.CapacityError], the state in the answer is that of
// the waiting job, and its holder should ask again after a while. Asking, the look
// at the pool and the start are one commit. A ttl of 0 is the policy's.
func (e *Engine) Admit(ctx context.Context, lease gq.LeaseRef, ttl, again time.Duration) (gq.State, error) {
	ask := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Ask(s, lease, again, now)
	}
	start := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if s.Detail != gq.DetailLeasePending { // it could not ask
			return s, nil, gq.ErrIllegalMove.Errorf("job %s waits for no capacity", s.ID)
		}
		return machine.Start(s, lease, ttl, now)
	}
	answers, err := e.fenced(ctx, e.store, []string{"ask for capacity", "start"}, []gq.LeaseRef{lease, lease}, []store.Update{{Apply: ask}, {Apply: start}})
	if err != nil {
		return gq.State{}, err
	}
	state, err := answers[1].State, answers[1].Err
	if answers[0].Err != nil {
		err = answers[0].Err
	}
	if err == nil {
		e.workers.alive(&state)
	}
	return state, err
}

// Report is [Engine.Prepare] with what the holder has to say about it.
func (e *Engine) Report(ctx context.Context, lease gq.LeaseRef, d gq.Detail, r machine.Report) (gq.State, error) {
	return e.held(ctx, "prepare", lease, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		prepared, events, err := machine.Prepare(s, lease, d, now)
		if err != nil {
			return s, nil, err
		}
		next, more, err := machine.Heartbeat(prepared, lease, r, now)
		if err != nil {
			return s, nil, err
		}
		return next, append(events, more...), nil
	})
}

// ByLease reads the job that has or had a lease. The error is [gq.ErrNotFound]
// where none has.
func (e *Engine) ByLease(ctx context.Context, lease gq.LeaseID, parts gq.Parts) (gq.Job, error) {
	found, err := e.store.Get(ctx, []store.Ref{{Lease: lease}}, parts)
	if err == nil {
		err = found[0].Err
	}
	if err != nil {
		if errors.Is(err, gq.ErrNotFound) {
			return gq.Job{}, gq.ErrNotFound.Errorf("lease %.80q not found", lease)
		}
		return gq.Job{}, fmt.Errorf("get the job of lease %.80q: %w", lease, err)
	}
	return found[0].Job, nil
}

// Jobs reads many jobs by id. Those that are not, or no longer, there are left
// out.
func (e *Engine) Jobs(ctx context.Context, ids []gq.JobID, parts gq.Parts) (map[gq.JobID]gq.Job, error) {
	jobs := make(map[gq.JobID]gq.Job, len(ids))
	if len(ids) == 0 {
		return jobs, nil
	}
	refs := make([]store.Ref, len(ids))
	for i, id := range ids {
		refs[i].Job = id
	}
	found, err := e.store.Get(ctx, refs, parts)
	if err != nil {
		return nil, fmt.Errorf("get %d jobs: %w", len(ids), err)
	}
	for i := range found {
		switch f := &found[i]; {
		case f.Err == nil:
			jobs[ids[i]] = f.Job
		case !errors.Is(f.Err, gq.ErrNotFound):
			return nil, fmt.Errorf("get %s: %w", ids[i], f.Err)
		}
	}
	return jobs, nil
}

// Advance records what time has done to one job, as a sweep would, and returns
// its state from there on. With nothing due it changes nothing.
func (e *Engine) Advance(ctx context.Context, id gq.JobID) (gq.State, error) {
	draw := e.draw()
	updated, err := e.store.Update(ctx, []store.Update{{
		Ref: store.Ref{Job: id},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Advance(s, draw, now)
		},
	}})
	if err == nil {
		err = updated[0].Err
	}
	if err != nil {
		return gq.State{}, jobError("advance", id, err)
	}
	return updated[0].State, nil
}

// catchUpSteps bounds how much one call records.
const catchUpSteps = 100

// CatchUp records what time has done to all jobs by now, so that what is read
// after it does not lag behind the next sweep. With nothing due it costs one look.
func (e *Engine) CatchUp(ctx context.Context) error {
	for range catchUpSteps {
		var r SweepReport
		if err := e.advance(ctx, &r); err != nil {
			return fmt.Errorf("catch up: %w", err)
		}
		if !r.More {
			return nil
		}
	}
	return nil
}

// pools that were configured at the start of a process, as they were then
const configuredKind = "configured pools"

// ConfigurePool makes a pool as an installation is configured. What was changed
// while it ran stays, until the configuration says something else than before.
func (e *Engine) ConfigurePool(ctx context.Context, p gq.Pool) error {
	told := []byte(fmt.Sprintf("%d", p.Capacity))
	before, err := e.store.Doc(ctx, configuredKind, p.Name)
	if errors.Is(err, gq.ErrNotFound) {
		before, err = store.Doc{Kind: configuredKind, Name: p.Name}, nil
	}
	if err != nil {
		return fmt.Errorf("configure pool %.80q: %w", p.Name, err)
	}
	pools, err := e.Pools(ctx)
	if err != nil {
		return fmt.Errorf("configure pool %.80q: %w", p.Name, err)
	}
	there := slices.ContainsFunc(pools, func(q gq.Pool) bool { return q.Name == p.Name })
	if there && string(before.Data) == string(told) {
		return nil
	}
	if err := e.PutPool(ctx, p); err != nil {
		return err
	}
	before.Data = told
	if _, err := e.store.PutDocs(ctx, []store.Doc{before}); err != nil && !errors.Is(err, gq.ErrConflict) { // another engine is told the same
		return fmt.Errorf("configure pool %.80q: %w", p.Name, err)
	}
	return nil
}
