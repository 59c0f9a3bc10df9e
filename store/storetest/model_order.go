package storetest

import (
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// drawOrder sometimes gives a job an order key. It has no dependencies, so that only time and
// verbs end it before its turn.
func drawOrder(r *rapid.T, s *gq.Spec) {
	if !chance(r, "in order", 5) || s.Unique.While != 0 {
		return
	}
	s.OrderKey = pick(r, "order key", "k", "l")
	s.DependsOn = nil
}

// lineUp puts new jobs behind the last ones with their order keys.
func (m *model) lineUp(made []*modelJob) {
	for _, j := range made {
		if j.spec.OrderKey == "" {
			continue
		}
		key := [2]string{j.spec.Queue, j.spec.OrderKey}
		if tail := m.tails[key]; tail != nil {
			if ahead := (modelEdge{parent: tail, kind: machine.DependencyOrder}).ahead(); !ahead.terminal() {
				j.edges = append(j.edges, modelEdge{parent: ahead, kind: machine.DependencyOrder})
				j.s.OrderedAfter = ahead.spec.ID
				m.happened("order key, behind another")
				if ahead != tail {
					m.happened("order key, behind one that ended early")
				}
			}
		}
		m.tails[key] = j
	}
}

// ahead returns the job that the end of an edge waits for: with an order key, the one before
// those that ended before it was their turn.
func (e modelEdge) ahead() *modelJob {
	j := e.parent
	for e.kind == machine.DependencyOrder && j.terminal() {
		before := j
		for _, o := range j.edges {
			if o.kind == machine.DependencyOrder && !o.told {
				j = o.parent
			}
		}
		if j == before {
			break
		}
	}
	return j
}
