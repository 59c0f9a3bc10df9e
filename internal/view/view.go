// Package view lists the views in which APIs can show jobs: in the words of a document instead of
// the engine's own.
package view

import (
	"context"
	"fmt"
	"reflect"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/listing"
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
		stateOf:  func(s *gq.State) string { return string(jobmodel.StateOf(s)) },
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

// List returns a page of the jobs that a query selects and that are in one of the states of the
// view; without states in any. A page by state can be short without being the last.
func (v *View) List(ctx context.Context, from listing.Lister, q gq.Query, states []string) (gq.Page, error) {
	return listing.States[string]{All: v.States, Of: v.stateOf, Statuses: v.statuses}.Page(ctx, from, q, states)
}

// Page returns what is encoded of a page of jobs.
func (v *View) Page(p gq.Page) any {
	out := struct {
		Jobs       []any  `json:"jobs"`
		NextCursor string `json:"next_cursor"`
	}{make([]any, len(p.Jobs)), p.Next}
	for i := range p.Jobs {
		out.Jobs[i] = v.Job(&p.Jobs[i])
	}
	return out
}
