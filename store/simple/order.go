package simple

import (
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// line puts new jobs with an order key behind the tails of their keys.
func (s *Store) line(fresh []arrival) {
	specs := make([]gq.Spec, len(fresh))
	for i := range fresh {
		specs[i] = fresh[i].spec
	}
	after := store.FollowTails(specs,
		func(int) bool { return true },
		func(spec *gq.Spec) gq.JobID {
			if tail := s.tails[store.OrderKeyOf(spec)]; tail != nil {
				return tail.spec.ID
			}
			return gq.JobID{}
		})
	for i := range after {
		fresh[i].after = after[i]
	}
}

// dependencies returns what a new job depends on, with the job of its order key that it follows.
func (a *arrival) dependencies() []gq.Dependency { return store.Ordered(a.spec.DependsOn, a.after) }

// stepOut removes a job that has ended from the line of its order key. If it ended before it was
// its turn, the job behind it waits for the one ahead of it instead.
func (s *Store) stepOut(j *job) {
	ahead := j.ahead
	if j.ahead = nil; ahead != nil && !ahead.state.Live() {
		ahead = nil
	}
	if key := store.OrderKeyOf(&j.spec); s.tails[key] == j {
		if delete(s.tails, key); ahead != nil {
			s.tails[key] = ahead
		}
	}
	if ahead == nil {
		return
	}
	j.dependents = slices.DeleteFunc(j.dependents, func(d dependent) bool {
		if d.ended.Kind != machine.DependencyOrder {
			return false
		}
		if behind := s.jobs[d.id]; behind != nil && behind.state.Live() {
			ahead.dependents = append(ahead.dependents, d)
			behind.ahead = ahead
		}
		return true
	})
}
