package storetest

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// naiveExtra is what a collision adds to a new job.
type naiveExtra struct {
	replaces  gq.JobID
	named     bool // by the spec, not found by the key
	carryOn   *store.CarryOn
	notBefore time.Time
	given     []gq.Dependency // its dependencies as the caller named them
}

// naiveChange is the next state of a job that is replaced or postponed.
type naiveChange struct {
	next   gq.State
	events []gq.Event
}

// collide decides about a submission whose key is recorded for a job.
func (n *naive) collide(k naiveKey, s *gq.Spec, now time.Time) machine.Collision {
	h := machine.KeyHolder{State: n.data.jobs[k.job].state, Fingerprint: k.fingerprint, While: k.while, Until: k.until}
	switch {
	case n.bug == keysForever, n.bug == keysLonger && now.Equal(k.until):
		h.Until = machine.Forever
	case n.bug == ruleIsWindow && k.while != 0:
		h.While, h.Until = 0, h.State.CreatedAt.Add(24*time.Hour)
	}
	c := machine.Collide(h, s, now)
	switch {
	case n.bug == neverPostpones:
		c.Events = nil
	case n.bug == neverThrottles:
		c.NotBefore = time.Time{}
	case n.bug == refusesNothing && c.Err != nil:
		return machine.Collision{Same: true}
	}
	return c
}

// displace returns the state of a job that a new one replaces.
func (n *naive) displace(g *store.Group, id, by gq.JobID, changed map[gq.JobID]naiveChange, now time.Time) (naiveChange, error) {
	old := n.data.jobs[id]
	if old == nil {
		return naiveChange{}, fmt.Errorf("naive: replace %s: %w", id, gq.ErrNotFound)
	}
	if err := g.Authorized(old.spec.Queue); err != nil && n.bug != asksNobody {
		return naiveChange{}, err
	}
	if err := machine.CheckReplaced(&old.spec); err != nil {
		return naiveChange{}, err
	}
	if _, twice := changed[id]; twice {
		return naiveChange{}, store.ReplacedTwice(id)
	}
	next, events, err := g.Replace(old.state, by, now)
	if err != nil && n.bug == replacesAnything && old.state.Live() {
		return naiveChange{old.state, nil}, nil
	}
	return naiveChange{next, events}, err
}
