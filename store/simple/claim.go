package simple

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Claim implements [store.Claimer].
func (s *Store) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	answers := make([]store.Claimed, len(claims))
	for i, c := range claims {
		if answers[i].Err = store.CheckClaim(c); answers[i].Err != nil {
			continue
		}
		into := gq.StatusRunning
		if c.Hold {
			into = gq.StatusClaimed
		}
		l := s.limits(into, now)
		chosen := s.choose(c.Filter, c.N, l)
		if len(chosen) < c.N {
			answers[i].RetryAt, answers[i].KeyRate = l.retryAt, l.keyRate
		}
		s.rates, s.owed = l.rates, l.owed
		s.forgetKeys(now)
		for _, j := range chosen {
			answers[i].Jobs = append(answers[i].Jobs, s.grant(j, &c, now))
		}
	}
	now = s.nowLocked()
	for _, u := range s.rules.late(answers, func(*gq.Lease) time.Time { return now }) {
		s.update(s.jobs[u.Job], &u, now)
	}
	return answers, nil
}

// Peek implements [store.Claimer].
func (s *Store) Peek(ctx context.Context, f store.Filter, n int) (found []store.Found, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := f.Check(); err != nil {
		return nil, err
	}
	for _, j := range s.choose(f, n, s.limits(gq.StatusRunning, now)) {
		found = append(found, store.Found{Job: s.read(j, 0, now)})
	}
	return found, nil
}

// choose returns up to n jobs that a claim gets, and counts them in the limits.
func (s *Store) choose(f store.Filter, n int, l *limits) (chosen []*job) {
	for i, name := range f.Queues {
		if s.queues[name].Paused || slices.Contains(f.Queues[:i], name) {
			continue
		}
		for _, c := range s.inOrder(name, l.now) {
			if len(chosen) == n {
				return chosen
			}
			state := s.ripe(c.job, l.now)
			if !s.rules.claimable(&state, l.now) || !s.rules.selects(f, &c.job.spec) {
				continue
			}
			verdict := s.rules.ask(l, c.job)
			if verdict == stop {
				break
			}
			if verdict == take {
				chosen = append(chosen, c.job)
			}
		}
	}
	return chosen
}

// Waiting implements [store.Claimer].
func (s *Store) Waiting(ctx context.Context, prefix, after string, limit int) (queues []string, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := store.CheckWaiting(limit); err != nil {
		return nil, err
	}
	for name := range s.queues {
		if strings.HasPrefix(name, prefix) && name > after && len(s.inOrder(name, now)) > 0 {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues[:min(limit, len(queues))], nil
}

// inOrder returns the jobs of a queue that are not held by an unexpired lease, in the order of
// service.
func (s *Store) inOrder(queue string, now time.Time) []candidate {
	list := ordered[candidate]{compare: candidate.compare}
	if waiting := s.waiting[queue]; waiting != nil {
		list.items = slices.Clip(waiting.items) // so that add copies it
	}
	for j := range s.held {
		if j.spec.Queue == queue && j.state.Lease.Expired(now) {
			state := s.ripe(j, now)
			list.add(candidate{s.rules.order(&state), j})
		}
	}
	return list.items
}

// ripe returns the state of a job as a claim must see it: without an expired lease.
func (s *Store) ripe(j *job, now time.Time) gq.State {
	if j.state.Status.Held() && j.state.Lease.Expired(now) {
		next, _, _ := machine.Advance(j.state, s.config.Draw(0), now) // always legal
		return next
	}
	return j.state
}

// grant gives a job to a claim.
func (s *Store) grant(j *job, c *store.Claim, now time.Time) gq.Job {
	if j.state.Status.Held() { // under an expired lease
		next, events, _ := machine.Advance(j.state, s.draw(), now) // always legal
		s.write(j, next, events, now)
	}
	s.granted++
	var unique [16]byte
	binary.BigEndian.PutUint64(unique[8:], s.granted)
	next, events, err := s.rules.claim(j.state, machine.Grant{
		Lease: machine.NewLeaseID(unique), Worker: c.Worker, Start: !c.Hold, TTL: c.TTL, DefaultTTL: c.DefaultTTL, CostUnits: j.spec.CostUnits,
	}, now)
	if err != nil {
		panic("store in memory: a claimable job cannot be claimed: " + err.Error())
	}
	s.serve(j)
	s.write(j, next, events, now)
	return s.read(j, c.Parts, now)
}
