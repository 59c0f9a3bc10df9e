package storetest

import (
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

func (m *model) claim(r *rapid.T) {
	var claims []store.Claim
	for range pick(r, "claims", 1, 1, 2) {
		claims = append(claims, rapid.Custom(m.drawClaim).Draw(r, "claim"))
	}
	answers, err := m.s.Claim(m.Context(), claims)
	m.ok("Claim", err)
	if len(answers) != len(claims) {
		m.Fatalf("Claim answered %d of %d claims", len(answers), len(claims))
	}
	for i, c := range claims {
		m.ok("Claim", answers[i].Err)
		sure, possible := m.chosen("Claim", c.Filter, c.N, answers[i].Jobs)
		m.comeback(c, answers[i], sure, possible)
		for _, got := range answers[i].Jobs {
			m.granted(c, got)
		}
	}
}

func (m *model) peek(r *rapid.T) {
	c := rapid.Custom(m.drawClaim).Draw(r, "claim")
	found, err := m.s.Peek(m.Context(), c.Filter, c.N)
	m.ok("Peek", err)
	jobs := make([]gq.Job, len(found))
	for i, f := range found {
		m.ok("Peek", f.Err)
		jobs[i] = f.Job
	}
	m.chosen("Peek", c.Filter, c.N, jobs)
}

func suits(f store.Filter, s *gq.Spec) bool {
	return (len(f.Types) == 0 || slices.Contains(f.Types, s.Type)) && (f.MaxCost == 0 || s.CostUnits <= f.MaxCost) &&
		!slices.ContainsFunc(s.Requires, func(c string) bool { return !slices.Contains(f.Offers, c) })
}

// before reports whether a job is served before another of its queue.
func before(a, b gq.State) bool {
	x, y := urgent(a.Own, a.Inherited), urgent(b.Own, b.Inherited)
	aged := func(s gq.State, p gq.Priority) (time.Time, bool) {
		return s.RunAt.Add(time.Duration(p-1) * s.Policy.Aging).Truncate(time.Microsecond), s.Policy.Aging > 0 && s.Turn == 0
	}
	first, ages := aged(a, x)
	second, too := aged(b, y)
	if ages && too {
		return first.Before(second) || first.Equal(second) && a.Sequence < b.Sequence
	}
	if ages {
		return y > gq.PriorityNormal || y == gq.PriorityNormal && b.Turn >= uint64(first.UnixMicro())
	}
	if too {
		return x < gq.PriorityNormal || x == gq.PriorityNormal && a.Turn < uint64(second.UnixMicro())
	}
	return x < y || x == y && (a.Turn < b.Turn || a.Turn == b.Turn && a.Sequence < b.Sequence)
}

// standing returns the state that decides about the place of a job in its queue: a lost one is
// there again from now on.
func (m *model) standing(j *modelJob) gq.State {
	if j.expired(m.now) {
		j = j.clone()
		j.advance(m.now)
	}
	return j.s
}

// granted records a claimed job in the model.
func (m *model) granted(c store.Claim, got gq.Job) {
	j := m.jobs[got.State.ID]
	if got.State.Lease == nil || got.State.Lease.ID == "" || m.issued[got.State.Lease.ID] {
		m.Fatalf("Claim gave job %s the lease %+v, which is none or was given before", got.State.ID, got.State.Lease)
	}
	switch {
	case j.held():
		m.happened("claim of a lost job")
	case j.s.Status != gq.StatusScheduled:
		m.happened("claim of a due job")
	}
	var tried *modelJob
	for _, o := range m.reachable(j) {
		if !o.claimable(m.now) {
			continue
		}
		tried = o.clone()
		tried.claim(got.State.Lease.ID, c, m.now)
		if sameState(tried.state(), got.State) {
			break
		}
	}
	if tried == nil || !sameState(tried.state(), got.State) {
		m.differs("the answer of Claim", tried, got.State)
	}
	m.become(j, tried)
	m.turned(j, got.State)
	m.used(j)
	m.leases[got.State.Lease.ID], m.issued[got.State.Lease.ID] = j, true
	m.content("Claim", j, got, c.Parts)
	m.happened("claim")
}

func (m *model) update(r *rapid.T) {
	var updates []store.Update
	var verbs []verb
	for range pick(r, "updates", 1, 1, 1, 3) {
		c := rapid.Custom(m.drawChange).Draw(r, "update")
		updates, verbs = append(updates, c.update()), append(verbs, c.verb)
	}
	m.hint = !m.hint // a hint may be right or wrong
	for i := range updates {
		updates[i].Settles = m.hint
	}
	m.change(updates, verbs)
}

// change makes updates and compares their answers.
func (m *model) change(updates []store.Update, verbs []verb) {
	answers, err := m.s.Update(m.Context(), updates)
	m.ok("Update", err)
	if len(answers) != len(updates) {
		m.Fatalf("Update answered %d of %d updates", len(answers), len(updates))
	}
	for i, u := range updates {
		j, unknown := m.jobs[u.Job], gq.ErrNotFound
		if u.Job.IsZero() {
			j, unknown = m.leases[u.Lease], gq.ErrStaleLease
		}
		if j == nil {
			if !errors.Is(answers[i].Err, unknown) {
				m.Fatalf("Update (%s) of an unknown job: %v, want %v", verbs[i].name, answers[i].Err, unknown)
			}
			continue
		}
		m.changed(j, verbs[i], answers[i])
	}
}

func (m *model) changed(j *modelJob, v verb, answer store.Updated) {
	var next *modelJob
	var want error
	matched := false
	for _, o := range m.reachable(j) { // it may or may not know of its dependencies' ends
		next = o.clone()
		want = v.model(next, m.now)
		if want == nil {
			matched = answer.Err == nil && sameState(next.state(), answer.State)
		} else {
			next = o
			matched = answer.Err != nil && errors.Is(answer.Err, want)
		}
		if matched {
			break
		}
	}
	switch {
	case !matched && (want != nil || answer.Err != nil):
		m.Fatalf("%s of job %s (%s, lease %+v): %v, want %v", v.name, j.spec.ID, j.s.Status, j.s.Lease, answer.Err, want)
	case !matched:
		m.differs("the answer to "+v.name, next, answer.State)
	}
	if want != nil {
		if answer.Changed {
			m.Fatalf("%s of job %s was refused and reports a change", v.name, j.spec.ID)
		}
		m.happened(map[bool]string{true: "stale refused", false: "illegal refused"}[errors.Is(want, gq.ErrStaleLease)])
		m.become(j, next)
		return
	}
	if v.settles {
		if len(next.events) == len(j.events) {
			m.happened("settlement repeated")
		}
		m.settling[j.spec.ID] = v
	}
	if v.metadata != nil {
		next.metadata = *v.metadata
	}
	if v.result != nil {
		next.result = v.result
	}
	if v.checkpoint != nil {
		next.checkpoint = v.checkpoint
	}
	m.become(j, next)
}

// become sets a job to a new state, and counts the situations on the way.
func (m *model) become(j, next *modelJob) {
	for _, v := range next.events[min(len(j.events), len(next.events)):] {
		switch {
		case v.Status == gq.StatusRetrying && v.LeaseState == gq.LeaseExpired:
			m.happened("lease lost")
		case v.Type == gq.EventScheduled && v.Reason == "hold_expired":
			m.happened("hold lost")
		case v.Reason == "rescheduled":
			m.happened("rescheduled " + v.Status.String())
		case v.Type == gq.EventRetrying && v.Failure == nil:
			m.happened("released")
		case v.Type == gq.EventRetrying:
			m.happened("retry")
		case v.Type == gq.EventCancelRequested:
			m.happened("cancel requested")
		case v.Type == gq.EventRenewed:
			m.happened("renewed")
		case next.terminal() && v.Type == modelEvents[v.Status]:
			m.happened(v.Status.String())
			m.happened(v.Reason)
			if v.Reason == "dependency" {
				m.happened("dependent " + v.Status.String())
				if slices.ContainsFunc(j.edges, func(e modelEdge) bool { return e.parent.s.Reason == "dependency" }) {
					m.happened("two generations")
				}
			}
		case v.Type == gq.EventScheduled && len(next.edges) > 0 && j.s.Status == gq.StatusPending:
			m.happened("dependent scheduled")
		}
		if v.Failure != nil && v.Failure.Code == "execution_timeout" {
			m.happened("execution timeout")
		}
	}
	next.relevelled = next.relevelled || next.priority() != j.priority()
	*j = *next
}
