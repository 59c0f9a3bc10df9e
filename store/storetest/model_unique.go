package storetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// drawUnique sometimes gives a job a rule. Its key has a scope of its own and it has no
// dependencies, so that what the job that has the key waits for is never in doubt.
func drawUnique(r *rapid.T, s *gq.Spec) {
	if !chance(r, "unique", 5) {
		return
	}
	s.Key = gq.IdempotencyKey{Scope: "u", Name: pick(r, "unique key", "k", "kk"), Fingerprint: pick[uint64](r, "fingerprint", 1, 2)}
	s.DependsOn = nil
	u := &s.Unique
	u.OnCollision = pick(r, "on collision", gq.Existing, gq.Refuse, gq.Replace, gq.Replace, gq.Debounced, gq.Throttled)
	switch u.OnCollision {
	case gq.Throttled:
		u.While, s.Policy.StartWithin = gq.ForPeriod, 0 // it may wait for longer than that
	case gq.Debounced:
		u.While, s.Delay = pick(r, "while", gq.WhileWaiting, gq.WhileLive, gq.UntilDone), seconds(r, "push", 2, 6)
	default:
		u.While = pick(r, "while", gq.WhileWaiting, gq.WhileWaiting, gq.WhileLive, gq.UntilDone, gq.ForPeriod)
	}
	if u.While == gq.ForPeriod {
		u.Period = seconds(r, "period", 3, 8)
	}
}

// untouched reports whether no attempt of a job has started and no worker holds it.
func (j *modelJob) untouched() bool { return !j.held() && !j.terminal() && j.s.Attempt == 0 }

// hasKey reports whether a job still has its key.
func (j *modelJob) hasKey(now time.Time) bool {
	ended := j.terminal() || come(j.lifeEnd(), now)
	switch j.spec.Unique.While {
	case gq.WhileWaiting:
		return j.untouched() && !ended
	case gq.WhileLive:
		return !ended
	case gq.UntilDone:
		return j.s.Status != gq.StatusCompleted && j.s.Status != gq.StatusCancelled
	default:
		return now.Before(j.key)
	}
}

// keyEnd returns when the key of a new job is free in any case.
func keyEnd(s *gq.Spec, runAt, now time.Time) time.Time {
	switch {
	case s.Unique.While == 0:
		return now.Add(s.Policy.IdempotencyWindow)
	case s.Unique.OnCollision == gq.Throttled:
		return runAt.Add(s.Unique.Period)
	default:
		return now.Add(s.Unique.Period)
	}
}

// planUnique decides about a member with a rule.
func (m *model) planUnique(g store.Group, p *plan, i int) {
	s := &g.Jobs[i]
	first := slices.IndexFunc(g.Jobs[:i], func(o gq.Spec) bool { return o.Key.Name == s.Key.Name && o.Key.Scope == s.Key.Scope })
	on := s.Unique.OnCollision
	if first >= 0 && on != gq.Existing {
		p.refuse(gq.ErrInvalid)
		return
	}
	if first >= 0 && p.made(first) {
		p.inGroup[i] = first
		p.alias[s.ID] = g.Jobs[first].ID
		return
	}
	owner := m.keys[[2]string{s.Key.Scope, s.Key.Name}]
	if owner == nil || !owner.hasKey(m.now) {
		if owner != nil {
			m.happened("unique key free again")
		}
		return
	}
	answer := func() {
		p.owners[i] = owner
		p.alias[s.ID] = owner.spec.ID
	}
	alive := owner.untouched() && !come(owner.lifeEnd(), m.now)
	switch {
	case on == gq.Existing:
		answer()
		m.happened("unique, existing")
	case on == gq.Refuse, on == gq.Replace && !alive, on == gq.Debounced && !owner.untouched():
		p.refuse(gq.ErrNotUnique)
		m.happened("unique, refused")
	case on == gq.Replace:
		p.replaces[i] = owner
		p.alias[owner.spec.ID] = s.ID
		m.happened("unique, replaced")
	case on == gq.Debounced:
		answer()
		p.postpones[i] = m.now.Add(s.Delay)
		if s.RunAt.After(p.postpones[i]) {
			p.postpones[i] = s.RunAt
		}
	case on == gq.Throttled:
		m.planThrottle(p, i, owner, s, answer)
	}
}

func (m *model) planThrottle(p *plan, i int, owner *modelJob, s *gq.Spec, answer func()) {
	at := owner.key
	if owner.spec.Unique.While != gq.ForPeriod {
		at = owner.s.RunAt.Add(s.Unique.Period)
	}
	switch {
	case owner.untouched() && m.now.Before(owner.s.RunAt):
		answer()
		m.happened("unique, throttled and waiting")
	case m.now.Before(at):
		p.notBefore[i] = at
		m.happened("unique, throttled")
	}
}

// settleUnique changes the jobs that members of an accepted group replace or postpone.
func (m *model) settleUnique(g store.Group, p *plan) {
	for i, at := range p.postpones {
		j := p.owners[i]
		ripe := j.s.Status == gq.StatusScheduled || j.s.Status != gq.StatusPending && come(j.s.RunAt, m.now)
		if ripe || !at.After(j.s.RunAt) || come(j.lifeEnd(), at) {
			continue
		}
		j.s.RunAt = at
		v := j.note(gq.EventUpdated, nil, m.now)
		v.Until, v.Reason = at, "debounced"
		m.happened("unique, debounced")
	}
	for i, old := range p.replaces {
		by := g.Jobs[i].ID
		old.s.Cancellation = gq.Cancellation{RequestedAt: m.now, Reason: "replaced by " + by.String()}
		old.s.ReplacedBy = by
		old.cancelled(false, m.now)
		for _, j := range m.jobs {
			for k := range j.edges {
				if e := &j.edges[k]; e.parent == old && !e.told {
					e.parent = m.jobs[by]
					m.happened("dependent of a replaced job")
				}
			}
		}
	}
}
