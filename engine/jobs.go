package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Get returns a job as of now. If a job that it depends on was replaced, it names the job that took
// the place.
func (e *Engine) Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	job, err := arrived(ctx, e, id, func(id gq.JobID) (gq.Job, error) {
		found, err := e.store.Get(ctx, []store.Ref{{Job: id}}, parts)
		if err == nil {
			err = found[0].Err
		}
		if err == nil {
			err = authorize(ctx, found[0].Spec.Queue)
		}
		if err != nil {
			return gq.Job{}, err
		}
		return found[0].Job, nil
	})
	if err == nil && len(job.Spec.DependsOn) > 0 {
		one := []gq.Job{job}
		err = e.nameSuccessors(ctx, one)
		job = one[0]
	}
	if err != nil {
		return gq.Job{}, jobError("get", id, err)
	}
	return job, nil
}

// jobError returns the error of a call about a job. If the job does not exist or its state
// forbids the call, the error names only the job and the reason.
func jobError(verb string, id gq.JobID, err error) error {
	if refused, ok := unwrapRefusal(err); ok {
		return refused
	}
	var submission *refusedSubmission
	switch {
	case errors.As(err, &submission):
		return submission
	case errors.Is(err, gq.ErrNotFound):
		return gq.ErrNotFound.Errorf("job %s not found", id)
	case errors.Is(err, gq.ErrIllegalMove):
		return err // names the job
	}
	return fmt.Errorf("%s %s: %w", verb, id, err)
}

// List returns a page of jobs in order of submission. Filters by queue, status and time use an
// index, and so do keys. Filters by type and tag scan up to [MaxScan] jobs; see [gq.Query.Picks].
func (e *Engine) List(ctx context.Context, q gq.Query) (page gq.Page, err error) {
	switch {
	case len(q.Keys) > 0:
		page, err = e.keyed(ctx, q)
	case q.Picks():
		page, err = e.pick(ctx, q)
	default:
		page, err = e.store.List(ctx, q)
	}
	if err == nil {
		err = e.nameSuccessors(ctx, page.Jobs)
	}
	if err != nil {
		return gq.Page{}, fmt.Errorf("list jobs: %w", err)
	}
	return page, nil
}

// MaxScan limits how many jobs List scans for one page that is filtered by type or tag. There
// is no index on either, because an index would slow down every submission.
const MaxScan = 10_000

// pick scans jobs for a page until it knows whether there is a next page, or has scanned
// MaxScan jobs.
func (e *Engine) pick(ctx context.Context, q gq.Query) (page gq.Page, err error) {
	if err := machine.CheckQuery(&q); err != nil {
		return page, err
	}
	all := q
	all.Types, all.Tags = nil, nil
	if err := store.CheckQuery(&all); err != nil { // before its limit grows
		return page, err
	}
	limit, most := all.Limit, MaxScan
	if q.MaxScan > 0 {
		most = min(most, q.MaxScan)
	}
	for looked := 0; ; {
		all.Limit = min(max(limit, looked), store.MaxPage, most-looked) // start small: most jobs may match
		some, err := e.store.List(ctx, all)
		if err != nil {
			return gq.Page{}, err
		}
		for i := range some.Jobs {
			if !q.Picked(&some.Jobs[i]) {
				continue
			}
			if len(page.Jobs) == limit {
				page.Next = store.Cursor(page.Jobs[limit-1].State.Sequence)
				return page, nil
			}
			page.Jobs = append(page.Jobs, some.Jobs[i])
		}
		looked += all.Limit
		if len(some.Jobs) < all.Limit { // the store has looked at so many
			looked += q.MaxScan
		}
		if some.Next == "" || looked >= most {
			page.Next = some.Next
			return page, nil
		}
		all.Cursor = some.Next
	}
}

// Events returns up to limit events after a sequence number, oldest first. If they have
// already been deleted, the error is [gq.ErrGone].
func (e *Engine) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	events, err := e.store.Events(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("events after %d: %w", after, err)
	}
	return events, nil
}

// History returns all events of a job, oldest first.
func (e *Engine) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	events, err := arrived(ctx, e, id, func(id gq.JobID) ([]gq.Event, error) { return e.store.History(ctx, id) })
	if err == nil {
		if len(events) > 0 {
			err = authorize(ctx, events[0].Queue)
		} else if authorizing(ctx) != nil {
			_, err = e.Get(ctx, id, 0) // calls the authorisation hook
		}
	}
	if err != nil {
		return nil, jobError("history of", id, err)
	}
	return events, nil
}

// stripes are locks that jobs share by hash.
type stripes [64]sync.Mutex

func (s *stripes) of(id gq.JobID) *sync.Mutex { return &s[id[15]%64] }

// hold locks a mutex whose holders call the store. A long wait for it counts as time without the
// store, so that a call does not wait for an outage longer because others wait too.
func hold(ctx context.Context, m *sync.Mutex) context.Context {
	ctx = store.Together(ctx)
	began := time.Now()
	m.Lock()
	if time.Since(began) > time.Second {
		store.OutageOf(ctx).Begin(began)
	}
	return ctx
}

// UpdateMetadata changes the metadata of a live job. The priority can change while no
// worker holds the job. Concurrent changes through one engine are all applied; if two engines change the tags
// of a job at the same moment, the later one wins.
func (e *Engine) UpdateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (gq.Job, error) {
	for {
		job, done, err := e.updateMetadata(ctx, id, p)
		if done || err != nil {
			return job, err
		}
		id = job.State.ID // the submission of id was a repetition: its changes wait for those of the first
	}
}

// updateMetadata is UpdateMetadata, which is not done if the job has another id.
func (e *Engine) updateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (_ gq.Job, done bool, _ error) {
	lock := e.patches.of(id)
	ctx = hold(ctx, lock)
	defer lock.Unlock()
	if p.CallbackURL != nil && *p.CallbackURL != "" {
		if err := e.checkCallback("callback_url", *p.CallbackURL); err != nil {
			return gq.Job{}, false, fmt.Errorf("update %s: %w", id, err)
		}
	}
	for {
		job, err := e.Get(ctx, id, 0)
		if err != nil {
			return gq.Job{}, false, err
		}
		if job.State.ID != id {
			return job, false, nil
		}
		if p.CallbackURL != nil && *p.CallbackURL != "" {
			if err := mayCarry(ctx, job.Spec.Queue, "a callback URL, which gets the result,"); err != nil {
				return gq.Job{}, false, jobError("update", id, err)
			}
			if err := e.noteCallbacks(ctx); err != nil {
				return gq.Job{}, false, jobError("update", id, err)
			}
		}
		next := p.Apply(job.Metadata)
		updated, err := e.store.Update(ctx, []store.Update{{
			Ref: store.Ref{Job: id},
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				if s.Own != job.Metadata.Priority && !s.Status.Terminal() {
					return s, nil, gq.ErrConflict
				}
				return machine.Update(s, next.Priority, now)
			},
			Metadata: &next,
		}})
		if err == nil {
			err = updated[0].Err
		}
		if errors.Is(err, gq.ErrConflict) {
			continue // modified by another engine; retry
		}
		if err != nil {
			return gq.Job{}, false, jobError("update", id, err)
		}
		job.State, job.Metadata = updated[0].State, next
		return job, true, nil
	}
}
