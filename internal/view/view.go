// Package view lists the views in which APIs can show jobs: in the words of a document instead of
// the engine's own.
package view

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/view/jobmodel"
	"github.com/gopherqueue/gq/view/semantics"
)

// View shows jobs in the states and members of one document.
type View struct {
	Name   string
	States []string

	JobType, EventType reflect.Type // of what Job returns, and of Event.Shown

	Job     func(*gq.Job) any
	History func([]gq.Event) []Event // of one job or of many; see [semantics.History]

	stateOf  func(*gq.State) string
	statuses func(state string) []gq.Status
}

// Event is one entry of a history.
type Event struct {
	Seq   uint64 // of the [gq.Event]; several entries can have one
	State string
	Shown any // what is encoded
}

// The views.
var (
	Semantics = &View{
		Name: "semantics", JobType: reflect.TypeFor[semantics.Job](), EventType: reflect.TypeFor[semantics.Event](), States: texts(semantics.States()),
		Job: func(j *gq.Job) any { return semantics.Of(j) },
		History: func(events []gq.Event) []Event {
			return shown(semantics.History(events), func(e *semantics.Event) Event { return Event{e.Seq, string(e.State), e} })
		},
		stateOf:  func(s *gq.State) string { return string(semantics.StateOf(s)) },
		statuses: func(state string) []gq.Status { return semantics.State(state).Statuses() },
	}
	JobModel = &View{
		Name: "jobmodel", JobType: reflect.TypeFor[jobmodel.Job](), EventType: reflect.TypeFor[jobmodel.Event](), States: texts(jobmodel.States()),
		Job: func(j *gq.Job) any { return jobmodel.Of(j) },
		History: func(events []gq.Event) []Event {
			return shown(jobmodel.History(events), func(e *jobmodel.Event) Event { return Event{e.Seq, string(e.State), e} })
		},
		stateOf:  func(s *gq.State) string { return string(jobmodel.StateOf(s.Status)) },
		statuses: func(state string) []gq.Status { return jobmodel.State(state).Statuses() },
	}
	views = []*View{Semantics, JobModel}
)

// All lists the views.
func All() []*View { return views }

func texts[S ~string](states []S) (all []string) {
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}

func shown[E any](events []E, one func(*E) Event) []Event {
	all := make([]Event, len(events))
	for i := range events {
		all[i] = one(&events[i])
	}
	return all
}

// Names lists the names of the views.
func Names() (all []string) {
	for _, v := range views {
		all = append(all, v.Name)
	}
	return all
}

// Named returns the view with a name, and nil for no name.
func Named(name string) (*View, error) {
	if name == "" {
		return nil, nil
	}
	for _, v := range views {
		if v.Name == name {
			return v, nil
		}
	}
	return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "view", Problem: fmt.Sprintf("%.64q is not one of %v", name, Names())}}}
}

// Lister lists jobs.
type Lister interface {
	List(ctx context.Context, q gq.Query) (gq.Page, error)
}

// maxLists limits how many pages of a queue List reads for one of its own.
const maxLists = 20

// List returns a page of the jobs that a query selects and that are in one of the states of the
// view; without states in any. No store has an index on the states, so a page can have fewer
// jobs than its limit, or none, without being the last; its cursor resumes the search.
func (v *View) List(ctx context.Context, from Lister, q gq.Query, states []string) (page gq.Page, err error) {
	var faults []gq.Fault
	for _, state := range states {
		statuses := v.statuses(state)
		if statuses == nil {
			faults = append(faults, gq.Fault{Field: "state", Problem: fmt.Sprintf("%.64q is not one of %v", state, v.States)})
		}
		q.Statuses = append(q.Statuses, statuses...)
	}
	if len(faults) > 0 {
		return page, &gq.InvalidError{Faults: faults}
	}
	slices.Sort(q.Statuses)
	q.Statuses = slices.Compact(q.Statuses)
	if len(states) == 0 {
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
			if slices.Contains(states, v.stateOf(&some.Jobs[i].State)) {
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
