package simple

import (
	"bytes"
	"maps"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// replace gives a job another state and keeps the lists in step with it.
func (s *Store) replace(j *job, next gq.State) {
	s.unlist(j)
	j.state = next
	s.list(j)
}

// list adds a job to the lists that its state belongs in.
func (s *Store) list(j *job) {
	state := &j.state
	count := s.counts[j.spec.Queue]
	if count == nil {
		count = &gq.Count{Queue: j.spec.Queue}
		s.counts[j.spec.Queue] = count
	}
	count.By[state.Status]++
	switch {
	case !state.Live():
		over := s.retention(j)
		s.ended.add(over)
		s.dueAt(over.at)
	case state.Status.Held():
		s.held[j] = true
	default:
		s.queueOf(j).add(candidate{s.rules.order(state), j})
	}
	if at := s.rules.due(state); !at.IsZero() {
		s.timers.add(timer{at, j})
	}
}

// unlist removes a job from all lists.
func (s *Store) unlist(j *job) {
	state := &j.state
	s.counts[j.spec.Queue].By[state.Status]--
	switch {
	case !state.Live():
		s.ended.remove(s.retention(j))
	case state.Status.Held():
		delete(s.held, j)
	default:
		s.queueOf(j).remove(candidate{s.rules.order(state), j})
	}
	if at := s.rules.due(state); !at.IsZero() {
		s.timers.remove(timer{at, j})
	}
}

func (s *Store) retention(j *job) timer {
	return timer{j.state.CompletedAt.Add(s.rules.kept(s.config.Retention, &j.state)), j}
}

// queueOf returns the jobs of a queue that are not held, in the order of service.
func (s *Store) queueOf(j *job) *ordered[candidate] {
	list := s.waiting[j.spec.Queue]
	if list == nil {
		list = &ordered[candidate]{compare: candidate.compare}
		s.waiting[j.spec.Queue] = list
	}
	return list
}

// turned returns the next state of a job with a new turn if its priority changes.
func (s *Store) turned(j *job, next gq.State) gq.State {
	if j.state.Live() && next.Live() && j.state.Priority() != next.Priority() {
		next.Turn = s.turn(&j.spec, next.Priority())
	}
	return next
}

// write gives a job its next state and records the change.
func (s *Store) write(j *job, next gq.State, events []gq.Event, now time.Time) {
	before := j.state
	s.replace(j, s.turned(j, next))
	s.record(j, before, events, now)
}

// record records how a job got from an earlier state to its present one: its events, its
// lease, and what its dependents must be told.
func (s *Store) record(j *job, before gq.State, events []gq.Event, now time.Time) {
	s.changed(j.spec.Queue)
	s.dueAt(s.rules.due(&j.state))
	for _, e := range events {
		s.eventSeq++
		e.Seq, e.Time, e.Queue, e.JobType = s.eventSeq, now, j.spec.Queue, j.spec.Type
		if e.Type == gq.EventCancelRequested {
			s.news.Cancels = append(s.news.Cancels, e.Job)
		}
		s.events = append(s.events, e)
		j.events = append(j.events, e)
	}
	if l := j.state.Lease; l != nil && (before.Lease == nil || before.Lease.ID != l.ID) {
		s.leases[l.ID] = j
		j.leases = append(j.leases, l.ID)
	}
	if !j.state.Live() {
		s.stepOut(j)
		for _, d := range j.dependents {
			s.tell(d, j)
		}
		j.dependents = nil
	}
}

// tell queues a dependent of a job that has ended.
func (s *Store) tell(d dependent, ended *job) {
	d.ended.Status, d.ended.Priority = ended.state.Status, ended.state.Priority()
	s.dependents = append(s.dependents, d)
}

// keep stores the blobs of an update.
func (j *job) keep(u *store.Update) {
	if u.Metadata != nil {
		j.metadata = *u.Metadata
		j.metadata.Tags = maps.Clone(u.Metadata.Tags)
	}
	if u.Result != nil {
		j.result = bytes.Clone(u.Result)
	}
	if u.Checkpoint != nil {
		j.checkpoint = bytes.Clone(u.Checkpoint)
	}
}

// remove removes a finished job. Its events stay in the log.
func (s *Store) remove(j *job) {
	s.unlist(j)
	s.submitted.remove(j)
	delete(s.jobs, j.spec.ID)
	for _, id := range j.leases {
		delete(s.leases, id)
	}
	if key := store.KeyOf(&j.spec); s.keys[key].job == j {
		delete(s.keys, key)
	}
}
