package simple

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// find returns the job that a reference names, or nil.
func (s *Store) find(r store.Ref) *job {
	if r.Job.IsZero() {
		return s.leases[r.Lease]
	}
	return s.jobs[r.Job]
}

// missing is the error of an update whose job does not exist.
func missing(r store.Ref) error {
	if r.Job.IsZero() {
		return store.UnknownLease(r.Lease)
	}
	return fmt.Errorf("job %s: %w", r.Job, gq.ErrNotFound)
}

// Update implements [store.Writer].
func (s *Store) Update(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	answers := make([]store.Updated, len(updates))
	for i := range updates {
		u := &updates[i]
		j := s.find(u.Ref)
		if j == nil {
			answers[i].Err = missing(u.Ref)
		} else if answers[i].Err = u.Authorized(j.spec.Queue, &j.state); answers[i].Err == nil {
			answers[i] = s.update(j, u, now)
		}
	}
	store.OwnUpdated(answers)
	return answers, nil
}

// decide returns what an update makes of a job, or why it is refused.
func (s *Store) decide(j *job, u *store.Update, now time.Time) (next gq.State, events []gq.Event, err error) {
	if err := store.CheckUpdate(u, s.config.Limits, s.config.Retention); err != nil {
		return j.state, nil, err
	}
	next, events, err = u.Apply(j.state, now)
	switch {
	case err != nil:
	case next.ID != j.state.ID:
		err = fmt.Errorf("update %s: the function returned the state of another job", j.state.ID)
	default:
		if err = s.admit(j, next.Status, now); err == nil {
			next = s.turned(j, next)
		}
	}
	return next, events, err
}

// update applies one update.
func (s *Store) update(j *job, u *store.Update, now time.Time) store.Updated {
	before := j.state
	next, events, err := s.decide(j, u, now)
	if err != nil || next == before && len(events) == 0 {
		return store.Updated{State: before, Err: err}
	}
	s.replace(j, next) // the children see it in its new state
	spawned, err := s.spawn(u, now)
	if err != nil {
		s.replace(j, before)
		return store.Updated{State: before, Err: err}
	}
	s.record(j, before, events, now)
	j.keep(u)
	return store.Updated{State: j.state, Changed: true, Spawned: spawned}
}

// spawn adds the children of an update.
func (s *Store) spawn(u *store.Update, now time.Time) ([]store.Placed, error) {
	if len(u.Spawn) == 0 {
		return nil, nil
	}
	placed, err := s.insert(store.Group{Jobs: u.Spawn, Authorize: u.Authorize}, now)
	if err != nil {
		return nil, err
	}
	return placed, nil
}

// Change implements [store.Changer].
func (s *Store) Change(ctx context.Context, c store.Change) (out store.Changed, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return out, err
	}
	defer s.end()
	if err := store.CheckChange(c); err != nil {
		return out, err
	}
	if err := s.checkVersions(c.Docs); err != nil {
		return out, err
	}
	insert := func() error {
		if len(c.Insert) == 0 {
			return nil
		}
		if out.Placed, err = s.insert(store.Group{Jobs: c.Insert}, now); err != nil {
			return &store.ChangeError{Update: store.Inserting, Err: err}
		}
		store.OwnPlaced(out.Placed)
		return nil
	}
	if out.States, err = s.updateAll(c, now, insert); err != nil {
		return store.Changed{}, err
	}
	out.Versions = s.putDocs(c.Docs)
	for _, e := range c.Events {
		s.eventSeq++
		e.Seq, e.Time = s.eventSeq, now
		s.events = append(s.events, e)
		s.changed(e.Queue)
	}
	return out, nil
}

// updateAll applies all updates of a change or none. insert does the rest of the change that
// can be refused.
func (s *Store) updateAll(c store.Change, now time.Time, insert func() error) (states []gq.State, err error) {
	type step struct {
		job    *job
		before gq.State
		events []gq.Event
	}
	var steps []step
	done := false
	defer func() { // also if a function panics
		if done {
			return
		}
		for _, p := range steps {
			s.replace(p.job, p.before)
		}
	}()
	earlier := make(map[*job]int, len(c.Updates))
	for i := range c.Updates {
		u := &c.Updates[i]
		j := s.find(u.Ref)
		if j == nil {
			return nil, &store.ChangeError{Update: i, Err: missing(u.Ref)}
		}
		if k, again := earlier[j]; again {
			return nil, c.Again(i, k)
		}
		earlier[j] = i
		if err := u.Authorized(j.spec.Queue, &j.state); err != nil {
			return nil, &store.ChangeError{Update: i, Err: err}
		}
		next, events, err := s.decide(j, u, now)
		if err != nil {
			return nil, &store.ChangeError{Update: i, Err: err}
		}
		steps = append(steps, step{j, j.state, events})
		s.replace(j, next)
	}
	if err := insert(); err != nil {
		return nil, err
	}
	done = true
	for i, p := range steps {
		if p.job.state != p.before || len(p.events) > 0 {
			s.record(p.job, p.before, p.events, now)
			p.job.keep(&c.Updates[i])
		}
		state := p.job.state
		store.Own(&state)
		states = append(states, state)
	}
	return states, nil
}
