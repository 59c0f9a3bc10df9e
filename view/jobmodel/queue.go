package jobmodel

import (
	"context"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/listing"
)

// Queue submits and reads the jobs of a queue in the words of the job model. It is safe for concurrent use.
type Queue struct{ driver gq.Driver }

// On returns the queue of a [gq.Client], or of any other driver.
func On(d gq.Driver) Queue { return Queue{d} }

// Submit submits a job with limits in the names of the job model. If the idempotency key belongs to
// a job with other content, it returns the id of that job and [gq.ErrKeyReused]. It refuses a limit
// that an option of the job gives too, with another value.
func (q Queue) Submit(ctx context.Context, s gq.Spec, t Timeouts) (gq.JobID, error) {
	if faults := t.conflicts(&s); len(faults) > 0 {
		return gq.JobID{}, &gq.InvalidError{Faults: faults}
	}
	t.Limit(&s)
	out, err := q.driver.Submit(ctx, s)
	if err == nil {
		err = out.KeyReused()
	}
	return out.ID(), err
}

// Get returns a job with its payload and result.
func (q Queue) Get(ctx context.Context, id gq.JobID) (Job, error) {
	job, err := q.driver.Get(ctx, id, gq.WithPayload|gq.WithResult)
	if err != nil {
		return Job{}, err
	}
	return Of(&job), nil
}

// Page is a part of a list of jobs, without their payloads and results.
type Page struct {
	Jobs []Job
	Next string // Query.Cursor of the next page; empty on the last
}

// List returns the jobs that a query selects and that are in one of the states; without states in
// any. A page by state can have fewer jobs than its limit without being the last.
func (q Queue) List(ctx context.Context, query gq.Query, states ...State) (Page, error) {
	page, err := listing.States[State]{All: States(), Of: StateOf, Statuses: State.Statuses}.Page(ctx, q.driver, query, states)
	if err != nil {
		return Page{}, err
	}
	out := Page{Jobs: make([]Job, len(page.Jobs)), Next: page.Next}
	for i := range page.Jobs {
		out.Jobs[i] = Of(&page.Jobs[i])
	}
	return out, nil
}

// History returns the history of a job, oldest first: one entry for each change of its state.
func (q Queue) History(ctx context.Context, id gq.JobID) ([]Event, error) {
	events, err := q.driver.History(ctx, id)
	if err != nil {
		return nil, err
	}
	return History(events), nil
}

// Follow calls f with every change of a state after an event with a sequence number, and then with
// new ones, until the context ends or f returns an error; see [gq.Driver].
func (q Queue) Follow(ctx context.Context, after uint64, f func([]Event) error) error {
	return q.driver.Follow(ctx, after, func(events []gq.Event) error {
		if all := History(events); len(all) > 0 {
			return f(all)
		}
		return nil
	})
}
