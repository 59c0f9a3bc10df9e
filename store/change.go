package store

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
)

// Changer is an optional capability: documents and jobs in one commit, for those
// who keep books about jobs that must never disagree with them.
type Changer interface {
	// Change writes documents and applies functions to jobs, all or none, with
	// the events of all jobs in the same commit. Nothing is written where a
	// document does not have the version that its caller has read, or a function
	// refuses. A function that leaves its job as it was refuses nothing.
	//
	// Errors: those of PutDocs, and of an update what Update would have answered,
	// in a [ChangeError] that says which.
	Change(ctx context.Context, c Change) (Changed, error)
}

// Change is documents and jobs to be changed together.
type Change struct {
	Docs    []Doc
	Updates []Update // each of another job, and without children
}

// Changed is the answer to a [Change].
type Changed struct {
	Versions []uint64   // of the documents
	States   []gq.State // of the jobs, from here on
}

// ChangeError is why nothing of a [Change] happened: one of its updates.
type ChangeError struct {
	Update int // which
	Err    error
}

func (e *ChangeError) Error() string { return fmt.Sprintf("updates[%d]: %v", e.Update, e.Err) }

func (e *ChangeError) Unwrap() error { return e.Err }

// CheckChange reports everything that is wrong with a change in itself, before a
// store takes any lock.
func CheckChange(c Change) error {
	faults := gq.FaultsOf(CheckDocs(c.Docs))
	add := func(i int, field, problem string) {
		faults = append(faults, gq.Fault{Field: fmt.Sprintf("updates[%d].%s", i, field), Problem: problem})
	}
	first := make(map[Ref]int, len(c.Updates))
	for i := range c.Updates {
		u := &c.Updates[i]
		if u.Apply == nil {
			add(i, "apply", "is missing")
		}
		if len(u.Spawn) > 0 {
			add(i, "spawn", "a change of many jobs has no children")
		}
		if k, twice := first[u.Ref]; twice {
			add(i, "job", fmt.Sprintf("is that of updates[%d] again", k))
			continue
		}
		first[u.Ref] = i
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// Again is the fault of an update that names the job of an earlier one in
// another way.
func (c Change) Again(i, earlier int) error {
	return &ChangeError{i, &gq.InvalidError{Faults: []gq.Fault{{Field: "job", Problem: fmt.Sprintf("is that of updates[%d] again", earlier)}}}}
}
