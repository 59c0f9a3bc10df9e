package store

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Changer is an optional capability: documents and jobs in one commit, for callers
// whose documents about jobs must never disagree with them.
type Changer interface {
	// Change writes documents, applies functions to jobs and inserts jobs, all or
	// none, with the events of all jobs in the same commit. Nothing is written where a
	// document does not have the version that its caller has read, a function refuses,
	// or Insert would refuse the jobs. A function that leaves its job as it was refuses
	// nothing, and neither does a job whose idempotency key is taken.
	//
	// Errors: those of PutDocs, and in a [ChangeError] what Update would have answered
	// to an update, or Insert to the jobs.
	Change(ctx context.Context, c Change) (Changed, error)
}

// Change is documents and jobs to be changed together.
type Change struct {
	Docs    []Doc
	Updates []Update // each of another job, and without children

	// Insert is jobs to be inserted as one group, as Insert would, after the updates. They
	// do not depend on updated jobs.
	Insert []gq.Spec

	// Events are about no job: those of providers. They go to the log after the others. The
	// store sets Seq and Time.
	Events []gq.Event
}

// Changed is the answer to a [Change].
type Changed struct {
	Versions []uint64   // of the documents
	States   []gq.State // of the updated jobs, from here on
	Placed   []Placed   // the inserted jobs
}

// Inserting is the Update of a [ChangeError] that is about the jobs to be inserted.
const Inserting = -1

// ChangeError is why nothing of a [Change] happened: one of its updates, or the jobs that
// it was to insert.
type ChangeError struct {
	Update int // which, or Inserting
	Err    error
}

func (e *ChangeError) Error() string {
	return e.Err.Error()
}

func (e *ChangeError) Unwrap() error { return e.Err }

// CheckChange reports everything that is wrong with a change in itself, before a
// store takes any lock.
func CheckChange(c Change) error {
	faults := errs.FaultsOf(CheckDocs(c.Docs))
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
	for i := range c.Events {
		if e := &c.Events[i]; !e.Type.OfProvider() || e.Job.IsZero() || e.Queue == "" || e.JobType != "" || e.Lease != "" {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("events[%d]", i), Problem: "is not that of a provider"})
		}
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
