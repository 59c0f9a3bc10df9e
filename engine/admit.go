package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Admit starts a claimed job if its pool has enough free capacity. Otherwise it renews the
// hold, records the denial in the history, and returns the state of the waiting job with
// [gq.ErrNoCapacity]; the worker should retry later. The check and the start happen in one
// commit. A ttl of 0 is the policy's.
func (e *Engine) Admit(ctx context.Context, lease gq.LeaseRef, ttl, again time.Duration) (gq.State, error) {
	ask := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Ask(s, lease, again, now)
	}
	start := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if s.Detail != gq.DetailLeasePending { // Ask failed
			return s, nil, gq.ErrIllegalMove.Errorf("job %s does not wait for capacity", s.ID)
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
	if full, denied := errors.AsType[*machine.CapacityError](err); denied {
		return e.deny(ctx, lease, state, full)
	}
	if err == nil {
		e.workers.alive(&state, throughStream(ctx))
	}
	return state, err
}

// deny records that the pool of a waiting job was full, unless something has happened to the job
// since, and returns the denial.
func (e *Engine) deny(ctx context.Context, lease gq.LeaseRef, waiting gq.State, full *machine.CapacityError) (gq.State, error) {
	told, err := e.held(ctx, "deny", lease, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Deny(s, lease, full, now)
	})
	switch {
	case errors.Is(err, gq.ErrStaleLease) || errors.Is(err, gq.ErrIllegalMove):
		return waiting, full
	case err != nil:
		return waiting, err
	}
	return told, full
}

// Report is [Engine.Prepare] with a progress report.
func (e *Engine) Report(ctx context.Context, lease gq.LeaseRef, d gq.Detail, r machine.Report) (gq.State, error) {
	state, err := e.held(ctx, "prepare", lease, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
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
	if err == nil && (r.Progress >= 0 || r.Note != "") {
		e.reported(ctx, []*gq.State{&state})
	}
	return state, err
}

// ByLease returns the job whose current or last lease has this id, or [gq.ErrNotFound].
func (e *Engine) ByLease(ctx context.Context, lease gq.LeaseID, parts gq.Parts) (gq.Job, error) {
	found, err := e.store.Get(ctx, []store.Ref{{Lease: lease}}, parts)
	if err == nil {
		err = found[0].Err
	}
	if err == nil {
		err = authorize(ctx, found[0].Spec.Queue)
	}
	if err != nil {
		if refused, ok := unwrapRefusal(err); ok {
			return gq.Job{}, refused
		}
		if errors.Is(err, gq.ErrNotFound) {
			return gq.Job{}, gq.ErrNotFound.Errorf("lease %.80q not found", lease)
		}
		return gq.Job{}, fmt.Errorf("get the job of lease %.80q: %w", lease, err)
	}
	return found[0].Job, nil
}

// Jobs returns many jobs by id. It leaves out those that do not exist.
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
		return nil, fmt.Errorf("get %s: %w", quantity.Of(len(ids), "job"), err)
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

// Advance applies due changes to one job, as a sweep would, and returns its state.
func (e *Engine) Advance(ctx context.Context, id gq.JobID) (gq.State, error) {
	draw := e.draw()
	updated, err := e.store.Update(ctx, authorizeUpdates(ctx, []store.Update{{
		Ref: store.Ref{Job: id},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Advance(s, draw, now)
		},
	}}))
	if err == nil {
		err = updated[0].Err
	}
	if err != nil {
		return gq.State{}, jobError("advance", id, err)
	}
	return updated[0].State, nil
}

// catchUpSteps limits the number of batches per call.
const catchUpSteps = 100

// CatchUp applies due changes to all jobs, so that reads after it do not have to wait for the
// next sweep. If nothing is due, it costs one read, which concurrent calls share.
func (e *Engine) CatchUp(ctx context.Context) error {
	find := e.store.Due
	if l, ok := e.store.(store.LateLister); ok {
		find = l.Late
	}
	_, err := e.caught.do(ctx, func(ctx context.Context) (none struct{}, err error) {
		for range catchUpSteps {
			var r SweepReport
			if err := e.advance(ctx, find, &r); err != nil || !r.More {
				return none, err
			}
		}
		return none, nil
	})
	if err != nil {
		return fmt.Errorf("catch up: %w", err)
	}
	return nil
}

// configuredKind is the kind of the documents with the last configured capacity of each pool.
const configuredKind = "configured pools"

// ConfigurePool creates a pool from the configuration of a server. It keeps a capacity that was
// changed at run time until the configuration itself changes.
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
	if _, err := e.store.PutDocs(ctx, []store.Doc{before}); err != nil && !errors.Is(err, gq.ErrConflict) { // on a conflict another engine has the same configuration
		return fmt.Errorf("configure pool %.80q: %w", p.Name, err)
	}
	return nil
}
