package storetest

import (
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// line returns the jobs that new ones wait for because of their order keys, zero for none.
func (n *naive) line(specs []gq.Spec) []gq.JobID {
	after := store.FollowTails(specs,
		func(int) bool { return n.bug != ordersNothing },
		func(s *gq.Spec) gq.JobID {
			if tail := n.ahead(s, n.data.sequence+1); tail != nil {
				return tail.spec.ID
			}
			return gq.JobID{}
		})
	if after == nil {
		after = make([]gq.JobID, len(specs))
	}
	return after
}

// ahead returns the last live job with the order key of s that was submitted before a number.
func (n *naive) ahead(s *gq.Spec, before uint64) (last *naiveJob) {
	for _, j := range n.data.jobs {
		same := j.spec.OrderKey == s.OrderKey && (j.spec.Queue == s.Queue || n.bug == orderAcrossQueues)
		if same && j.state.Live() && j.state.Sequence < before && (last == nil || j.state.Sequence > last.state.Sequence) {
			last = j
		}
	}
	return last
}

// stepOut makes the job behind one that has ended wait for the one ahead of it.
func (n *naive) stepOut(j *naiveJob) {
	if j.spec.OrderKey == "" || n.bug == orderSkips {
		return
	}
	ahead := n.ahead(&j.spec, j.state.Sequence)
	if ahead == nil {
		return
	}
	j.waiting = slices.DeleteFunc(j.waiting, func(w telling) bool {
		if w.ended.Kind == machine.DependencyOrder {
			ahead.waiting = append(ahead.waiting, w)
		}
		return w.ended.Kind == machine.DependencyOrder
	})
}
