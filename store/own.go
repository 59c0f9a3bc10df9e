package store

import (
	"bytes"
	"maps"
	"slices"

	"github.com/gopherqueue/gq"
)

// Own gives a state its own copies of its policy, lease and failure. A store calls it
// on every state that it returns: inside, states share them, and nothing that a caller
// writes there may reach the store or another caller.
func Own(s *gq.State) {
	switch {
	case s.Policy != nil && s.Lease != nil:
		c := &struct { // in one allocation
			policy gq.Policy
			lease  gq.Lease
		}{*s.Policy, *s.Lease}
		s.Policy, s.Lease = &c.policy, &c.lease
	case s.Policy != nil:
		s.Policy = new(*s.Policy)
	case s.Lease != nil:
		s.Lease = new(*s.Lease)
	}
	if s.Failure != nil {
		s.Failure = new(*s.Failure)
	}
}

// OwnJobs is [Own] for the states of jobs.
func OwnJobs(jobs []gq.Job) {
	for i := range jobs {
		Own(&jobs[i].State)
	}
}

// OwnPlaced is [Own] for the states of submitted jobs.
func OwnPlaced(placed []Placed) {
	for i := range placed {
		Own(&placed[i].State)
	}
}

// OwnInserted is [Own] for all states of an answer.
func OwnInserted(answers []Inserted) {
	for i := range answers {
		OwnPlaced(answers[i].Jobs)
	}
}

// OwnUpdated is [Own] for all states of an answer.
func OwnUpdated(answers []Updated) {
	for i := range answers {
		Own(&answers[i].State)
		OwnPlaced(answers[i].Spawned)
	}
}

// CopySpec is a copy of a spec that shares no memory with it.
func CopySpec(s gq.Spec) gq.Spec {
	s.Payload.Data = bytes.Clone(s.Payload.Data)
	s.DependsOn = slices.Clone(s.DependsOn)
	s.Requires = slices.Clone(s.Requires)
	s.Unique.Fields = slices.Clone(s.Unique.Fields)
	s.Attributes = maps.Clone(s.Attributes)
	s.Metadata.Tags = maps.Clone(s.Metadata.Tags)
	return s
}

// CopyJob is a copy of a job that shares no memory with it.
func CopyJob(j gq.Job) gq.Job {
	Own(&j.State)
	j.Spec = CopySpec(j.Spec)
	j.Metadata.Tags = maps.Clone(j.Metadata.Tags)
	j.Result, j.Checkpoint = bytes.Clone(j.Result), bytes.Clone(j.Checkpoint)
	return j
}
