package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Purge removes a finished job before its retention is over, with its payload, result and
// history. Its events stay in the event log. For a live job the error is [gq.ErrIllegalMove].
func (e *Engine) Purge(ctx context.Context, id gq.JobID) error {
	job, err := e.Get(ctx, id, 0)
	switch {
	case errors.Is(err, gq.ErrNotFound): // the store reports it below
	case err != nil:
		return err
	case job.State.Live():
		return gq.ErrIllegalMove.Errorf("job %s is still %s; only finished jobs can be purged", id, job.State.Status)
	}
	named := id
	if !job.State.ID.IsZero() {
		named = job.State.ID // the submission of id may have been a repetition
	}
	answers, err := e.purge(ctx, []gq.Job{job}, named) // a job's queue never changes, so the authorisation still holds
	if err != nil {
		return jobError("purge", id, err)
	}
	return answers[0]
}

// purgePage is the number of jobs per commit of PurgeWhere.
const purgePage = 500

// PurgeWhere removes every finished job that a query selects, one page at a time, and returns
// their number. The query must name at least one status, and only terminal ones. PurgeWhere
// ignores its cursor and limit. After an error repeating the call continues.
func (e *Engine) PurgeWhere(ctx context.Context, q gq.Query) (removed int, err error) {
	if err := checkFinished(q, "purged"); err != nil {
		return 0, fmt.Errorf("purge many: %w", err)
	}
	q.Cursor, q.Limit = "", purgePage
	for {
		page, err := e.List(ctx, q)
		if err != nil {
			return removed, fmt.Errorf("purge many: %w", err)
		}
		ids := make([]gq.JobID, len(page.Jobs))
		for i := range page.Jobs {
			ids[i] = page.Jobs[i].State.ID
		}
		answers, err := e.purge(context.WithoutCancel(ctx), page.Jobs, ids...) // told whole, as in cancelAll
		if err != nil {
			return removed, fmt.Errorf("purge many: %w", err)
		}
		for _, err := range answers {
			switch {
			case err == nil:
				removed++
			case !errors.Is(err, gq.ErrNotFound): // otherwise it was already removed
				return removed, fmt.Errorf("purge many: %w", err)
			}
		}
		if page.Next == "" {
			return removed, nil
		}
		q.Cursor = page.Next
	}
}

// checkFinished requires a query that names terminal statuses. done says what is to happen to
// the jobs.
func checkFinished(q gq.Query, done string) error {
	var faults []gq.Fault
	if len(q.Statuses) == 0 {
		faults = append(faults, gq.Fault{Field: "states", Problem: "is required; use COMPLETED, FAILED, DEAD_LETTER or CANCELLED"})
	}
	for _, s := range q.Statuses {
		if !s.Terminal() {
			faults = append(faults, gq.Fault{Field: "states", Problem: fmt.Sprintf("%s is not terminal; only finished jobs can be %s", s, done)})
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

func (e *Engine) purge(ctx context.Context, jobs []gq.Job, ids ...gq.JobID) ([]error, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if e.delivery != nil && slices.ContainsFunc(jobs, func(j gq.Job) bool { return j.Metadata.CallbackURL != "" }) {
		if err := e.delivery.CatchUp(ctx); err != nil {
			return nil, err
		}
	}
	p, ok := e.store.(store.Purger)
	if !ok {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: "cannot remove jobs before their retention is over"}}}
	}
	return p.Purge(ctx, ids)
}
