// Package listing lists jobs by states that are not those of the store.
package listing

import (
	"context"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
)

// Lister lists jobs.
type Lister interface {
	List(ctx context.Context, q gq.Query) (gq.Page, error)
}

// States are the states of a view, in which jobs are listed.
type States[S ~string] struct {
	All      []S
	Of       func(*gq.State) S
	Statuses func(S) []gq.Status // that a job in the state can have; nil for an unknown state
}

// maxLists limits how many pages of a queue Page reads for one of its own.
const maxLists = 20

// Page returns a page of the jobs that a query selects and that are in one of the states; without
// states in any. No store has an index on the states, so a page can have fewer jobs than its limit,
// or none, without being the last; its cursor resumes the search.
func (s States[S]) Page(ctx context.Context, from Lister, q gq.Query, in []S) (page gq.Page, err error) {
	var faults []gq.Fault
	for _, state := range in {
		statuses := s.Statuses(state)
		if statuses == nil {
			faults = append(faults, gq.Fault{Field: "state", Problem: fmt.Sprintf("%.64q is not one of %v", state, s.All)})
		}
		q.Statuses = append(q.Statuses, statuses...)
	}
	if len(faults) > 0 {
		return page, &gq.InvalidError{Faults: faults}
	}
	slices.Sort(q.Statuses)
	q.Statuses = slices.Compact(q.Statuses)
	if len(in) == 0 {
		return from.List(ctx, q)
	}
	limit := q.Limit
	if limit == 0 {
		limit = 50
	}
	for range maxLists {
		q.Limit = limit - len(page.Jobs)
		some, err := from.List(ctx, q)
		if err != nil {
			return gq.Page{}, err
		}
		for i := range some.Jobs {
			if slices.Contains(in, s.Of(&some.Jobs[i].State)) {
				page.Jobs = append(page.Jobs, some.Jobs[i])
			}
		}
		page.Next, q.Cursor = some.Next, some.Next
		if some.Next == "" || len(page.Jobs) == limit || q.Picks() || q.MaxScan > 0 { // the call has looked at enough
			break
		}
	}
	return page, nil
}
