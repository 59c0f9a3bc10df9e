package store

import (
	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// OrderKeyOf returns the key under which a store keeps the tail of a job's order key: the job of
// the queue that was submitted last with it. No other key has a control character in its scope.
// The name is empty if the job has no order key.
func OrderKeyOf(s *gq.Spec) gq.IdempotencyKey {
	if s.OrderKey == "" {
		return gq.IdempotencyKey{}
	}
	return gq.IdempotencyKey{Scope: "\x00" + s.Queue, Name: s.OrderKey}
}

// FollowTails returns for each job of a group the job that it has to wait for because of its
// order key, zero for none; nil if there are none at all. made reports which members become jobs,
// and tail returns the live tail of a job's key in the store.
func FollowTails(jobs []gq.Spec, made func(i int) bool, tail func(s *gq.Spec) gq.JobID) (after []gq.JobID) {
	var last map[gq.IdempotencyKey]gq.JobID // of this group
	for i := range jobs {
		s := &jobs[i]
		if s.OrderKey == "" || !made(i) {
			continue
		}
		id, inside := last[OrderKeyOf(s)]
		if !inside {
			id = tail(s)
		}
		if len(jobs) > 1 {
			if last == nil {
				last = make(map[gq.IdempotencyKey]gq.JobID)
			}
			last[OrderKeyOf(s)] = s.ID
		}
		if id.IsZero() {
			continue
		}
		if after == nil {
			after = make([]gq.JobID, len(jobs))
		}
		after[i] = id
	}
	return after
}

// Ordered returns dependencies with one more, unless after is zero.
func Ordered(deps []gq.Dependency, after gq.JobID) []gq.Dependency {
	if after.IsZero() {
		return deps
	}
	return append(deps[:len(deps):len(deps)], gq.Dependency{Kind: machine.DependencyOrder, Job: after})
}
