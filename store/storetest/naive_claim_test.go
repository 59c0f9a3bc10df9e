package storetest

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func (n *naive) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	now, err := n.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	answers := make([]store.Claimed, len(claims))
	for i, c := range claims {
		if answers[i].Err = store.CheckClaim(c); answers[i].Err != nil {
			continue
		}
		if n.bug == overClaims {
			c.N++
		}
		if n.habit&sweepsFirst != 0 {
			n.sweep(c.Queues, now)
		}
		l := n.limits(now)
		if c.Hold {
			l.into = gq.StatusClaimed
		}
		chosen := n.candidates(c.Filter, c.N, l)
		if len(chosen) < c.N && n.bug != rateSaysNothing {
			answers[i].RetryAt, answers[i].KeyRate = l.retry, l.keyRate
		}
		n.data.due, n.data.owed = l.due, l.owed
		if n.bug == claimsRace { // decides before it takes the lock for the write
			for _, j := range chosen {
				s := j.state
				defer func() { j.state = s }()
			}
			n.mu.Unlock()
			runtime.Gosched()
			n.mu.Lock()
		}
		for _, j := range chosen {
			answers[i].Jobs = append(answers[i].Jobs, n.grant(j, c, now))
		}
	}
	if n.bug != answersLate {
		now := n.now()
		for _, u := range store.Late(answers, func(*gq.Lease) time.Time { return now }) {
			n.apply(n.data.jobs[u.Job], u, now)
		}
	}
	return own(n, answers), nil
}

func (n *naive) draw() machine.Draw {
	if n.bug == forgetsBackoffs {
		return machine.Draw{}
	}
	return n.cfg.Draw(0)
}

// sweep records what is due in the given queues.
func (n *naive) sweep(queues []string, now time.Time) {
	for _, j := range n.sorted() {
		if slices.Contains(queues, j.spec.Queue) {
			next, events, _ := machine.Advance(j.state, n.draw(), now)
			n.write(j, next, events, now)
		}
	}
}

// ripe returns a state as a claim at an instant must see it.
func (n *naive) ripe(s gq.State, now time.Time) gq.State {
	if s.Status.Held() && s.Lease.Expired(now) && n.bug != expiryNeedsSweep {
		s, _, _ = machine.Advance(s, n.draw(), now)
	}
	return s
}

// candidate is a job that a claim could take, and its state then.
type candidate struct {
	job  *naiveJob
	ripe gq.State
}

func (n *naive) candidates(f store.Filter, limit int, l *limits) (chosen []*naiveJob) {
	for _, name := range f.Queues {
		if n.data.queues[name].Paused && n.bug != ignoresPause {
			continue
		}
		var ready []candidate
		for _, j := range n.data.jobs {
			if j.spec.Queue != name || slices.Contains(chosen, j) {
				continue
			}
			s := n.ripe(j.state, l.now)
			if n.claimable(s, l.now) && n.matches(f, &j.spec) {
				ready = append(ready, candidate{j, s})
			}
		}
		slices.SortFunc(ready, func(a, b candidate) int { return n.compare(&a.ripe, &b.ripe) })
		for _, c := range ready {
			if len(chosen) == limit {
				break
			}
			v := l.ask(c.job)
			if v == stop {
				break
			}
			if v == take {
				chosen = append(chosen, c.job)
			}
		}
	}
	return chosen
}

func (n *naive) claimable(s gq.State, now time.Time) bool {
	switch n.bug {
	case delayNeedsSweep:
		return s.Status == gq.StatusScheduled && machine.Claimable(&s, now)
	case claimsEarly:
		return machine.Claimable(&s, now.Add(time.Nanosecond))
	case claimsLate:
		return machine.Claimable(&s, now.Add(-time.Nanosecond)) || s.Status == gq.StatusScheduled && machine.Claimable(&s, now)
	case ignoresLifetime:
		end := s
		policy := *s.Policy
		policy.Lifetime, policy.RunLifetime = 0, 0
		end.Policy = &policy
		return machine.Claimable(&end, now)
	default:
		return machine.Claimable(&s, now)
	}
}

func (n *naive) compare(a, b *gq.State) int {
	switch n.bug {
	case ignoresAging:
		return cmp.Or(cmp.Compare(a.Priority(), b.Priority()), cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Sequence, b.Sequence))
	case agesFromSubmission:
		since := func(s gq.State) machine.OrderKey { s.RunAt = s.CreatedAt; return machine.Order(&s) }
		x, y := since(*a), since(*b)
		return cmp.Or(cmp.Compare(x.Hi, y.Hi), cmp.Compare(x.Lo, y.Lo))
	case ordersByID:
		return slices.Compare(a.ID[:], b.ID[:])
	case ignoresPriority:
		return cmp.Compare(a.Sequence, b.Sequence)
	case ignoresInherited:
		return cmp.Or(cmp.Compare(a.Own, b.Own), cmp.Compare(a.Sequence, b.Sequence))
	case turnsByTime:
		late := func(s *gq.State) uint64 { return s.Turn + 3*uint64(s.Attempt) }
		return cmp.Or(cmp.Compare(a.Priority(), b.Priority()), cmp.Compare(late(a), late(b)), cmp.Compare(a.Sequence, b.Sequence))
	case ordersByTime:
		return cmp.Or(cmp.Compare(a.Priority(), b.Priority()), a.RunAt.Compare(b.RunAt), cmp.Compare(a.Sequence, b.Sequence))
	case lastInFirstOut:
		return cmp.Or(cmp.Compare(a.Priority(), b.Priority()), cmp.Compare(b.Sequence, a.Sequence))
	default:
		x, y := machine.Order(a), machine.Order(b)
		return cmp.Or(cmp.Compare(x.Hi, y.Hi), cmp.Compare(x.Lo, y.Lo), slices.Compare(a.ID[:], b.ID[:]))
	}
}

func (n *naive) matches(f store.Filter, s *gq.Spec) bool {
	if len(f.Types) > 0 && !slices.Contains(f.Types, s.Type) && n.bug != ignoresTypes {
		return false
	}
	offered := func(c string) bool { return slices.Contains(f.Offers, c) }
	missing := slices.ContainsFunc(s.Requires, func(c string) bool { return !offered(c) })
	if n.bug == anyCapability {
		missing = len(s.Requires) > 0 && !slices.ContainsFunc(s.Requires, offered)
	}
	tooDear := f.MaxCost > 0 && s.CostUnits > f.MaxCost
	if n.bug == costBelow {
		tooDear = f.MaxCost > 0 && s.CostUnits >= f.MaxCost && s.CostUnits > 0
	}
	return !missing && !tooDear
}

// grant gives a candidate to the claim.
func (n *naive) grant(j *naiveJob, c store.Claim, now time.Time) gq.Job {
	if j.state.Status.Held() {
		next, events, _ := machine.Advance(j.state, n.draw(), now)
		n.write(j, next, events, now)
	}
	n.data.tokens++
	var unique [16]byte
	for i := range 8 {
		unique[i] = byte(n.data.tokens >> (8 * i))
	}
	g := machine.Grant{Lease: machine.NewLeaseID(unique), Worker: c.Worker, Start: !c.Hold, TTL: c.TTL, DefaultTTL: c.DefaultTTL, CostUnits: j.spec.CostUnits}
	switch {
	case n.bug == reusesLease && j.state.Lease != nil:
		g.Lease = j.state.Lease.ID
	case n.bug == ignoresTTL:
		g.TTL = 0
	case n.bug == ignoresHold:
		g.Start = true
	case n.bug == namesNobody:
		g.Worker = "worker"
	case n.bug == forgetsCost:
		g.CostUnits = 0
	case n.bug == restartsVersions:
		j.state.Version = 0
	}
	next, events, err := machine.Claim(j.state, g, now)
	if err != nil && n.bug == "" {
		panic(err)
	}
	if n.bug == claimsInMemory {
		found := n.read(j, c.Parts, now)
		found.State = next
		return found
	}
	n.serve(j)
	n.write(j, next, events, now)
	return n.read(j, c.Parts, now)
}

func (n *naive) Peek(ctx context.Context, f store.Filter, limit int) (found []store.Found, err error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if err := f.Check(); err != nil {
		return nil, err
	}
	l := n.limits(now)
	l.peeking = true
	for _, j := range n.candidates(f, limit, l) {
		if n.bug == peekClaims {
			n.grant(j, store.Claim{Worker: "peek"}, now)
		}
		found = append(found, store.Found{Job: n.read(j, 0, now)})
	}
	return own(n, found), nil
}

func (n *naive) Now(ctx context.Context) (time.Time, error) {
	now, err := n.begin(ctx, true)
	if err != nil {
		return now, err
	}
	n.mu.Unlock()
	return now, nil
}

func (n *naive) Due(ctx context.Context, limit int) (due store.Due, err error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return due, err
	}
	defer n.mu.Unlock()
	due.Now = now
	type at struct {
		id  gq.JobID
		due time.Time
	}
	var all []at
	for _, j := range n.sorted() {
		s := j.state
		if n.bug == missesTimeouts && s.Status == gq.StatusRunning {
			policy := *s.Policy
			policy.ExecutionTimeout = 0
			s.Policy = &policy
		}
		if d := machine.Due(&s); !d.IsZero() {
			all = append(all, at{s.ID, d})
		}
	}
	if n.bug != dueUnsorted {
		slices.SortStableFunc(all, func(a, b at) int { return a.due.Compare(b.due) })
	}
	for _, a := range all {
		if !a.due.After(now) && len(due.Jobs) < max(limit, 1) {
			due.Jobs = append(due.Jobs, a.id)
		} else if due.Next.IsZero() || a.due.Before(due.Next) {
			due.Next = a.due
		}
	}
	if n.bug == dueForgetsNext {
		due.Next = time.Time{}
	}
	return due, nil
}

// sorted returns all jobs in order of submission.
func (n *naive) sorted() []*naiveJob {
	all := make([]*naiveJob, 0, len(n.data.jobs))
	for _, j := range n.data.jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *naiveJob) int { return cmp.Compare(a.state.Sequence, b.state.Sequence) })
	return all
}
