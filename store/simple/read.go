package simple

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// read returns a copy of a job with the given parts.
func (s *Store) read(j *job, parts gq.Parts, now time.Time) gq.Job {
	out := gq.Job{Spec: j.spec, State: s.rules.show(j.state, now), Metadata: j.metadata}
	if parts&gq.WithPayload == 0 {
		out.Spec.Payload.Data = nil
	}
	if parts&gq.WithResult != 0 {
		out.Result = j.result
	}
	if parts&gq.WithCheckpoint != 0 {
		out.Checkpoint = j.checkpoint
	}
	return store.CopyJob(out)
}

// Get implements [store.Reader].
func (s *Store) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	found := make([]store.Found, len(refs))
	for i, r := range refs {
		if j := s.find(r); j != nil {
			found[i].Job = s.read(j, parts, now)
		} else {
			found[i].Err = fmt.Errorf("job %s, lease %.80q: %w", r.Job, r.Lease, gq.ErrNotFound)
		}
	}
	return found, nil
}

// List implements [store.Reader].
func (s *Store) List(ctx context.Context, q gq.Query) (page gq.Page, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return page, err
	}
	defer s.end()
	if err := store.CheckQuery(&q); err != nil {
		return page, err
	}
	after, err := store.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	jobs := slices.All(s.submitted.items)
	if !q.OldestFirst {
		jobs = slices.Backward(s.submitted.items)
	}
	for _, j := range jobs {
		state := s.rules.show(j.state, now)
		passed := q.OldestFirst && state.Sequence <= after || !q.OldestFirst && state.Sequence >= after
		if after > 0 && passed || !selects(&q, j.spec.Queue, &state) {
			continue
		}
		if len(page.Jobs) == q.Limit {
			page.Next = store.Cursor(page.Jobs[q.Limit-1].State.Sequence)
			break
		}
		page.Jobs = append(page.Jobs, s.read(j, 0, now))
	}
	return page, nil
}

func selects(q *gq.Query, queue string, s *gq.State) bool {
	return (q.Queue == "" || q.Queue == queue) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, s.Status)) &&
		!s.CreatedAt.Before(q.CreatedAfter) &&
		(q.CreatedBefore.IsZero() || s.CreatedAt.Before(q.CreatedBefore))
}

// Keyed implements [store.Reader].
func (s *Store) Keyed(ctx context.Context, scopes, names []string) (ids []gq.JobID, err error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	in := len(scopes)
	if in == 0 {
		known := make(map[string]bool)
		for key := range s.keys {
			known[key.Scope] = true
		}
		in = len(known)
	}
	if err := store.CheckKeyed(in, names); err != nil {
		return nil, err
	}
	for key, use := range s.keys {
		if slices.Contains(names, key.Name) && (len(scopes) == 0 || slices.Contains(scopes, key.Scope)) && !slices.Contains(ids, use.job.state.ID) {
			ids = append(ids, use.job.state.ID)
		}
	}
	return ids, nil
}

// Counts implements [store.Reader].
func (s *Store) Counts(ctx context.Context, queues ...string) (counts []gq.Count, err error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	for name, c := range s.counts {
		if len(queues) == 0 && !s.hidden(name) || slices.Contains(queues, name) {
			counts = append(counts, *c)
		}
	}
	return counts, nil
}

// Events implements [store.EventLog].
func (s *Store) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	if after < s.gone {
		return nil, fmt.Errorf("events after %d: %w", after, gq.ErrGone)
	}
	first, _ := slices.BinarySearchFunc(s.events, after+1, func(e gq.Event, seq uint64) int { return int(e.Seq) - int(seq) })
	rest := s.events[first:]
	return ownEvents(rest[:max(0, min(limit, len(rest)))]), nil
}

// ownEvents returns a copy of events that shares no memory with them.
func ownEvents(events []gq.Event) []gq.Event {
	events = slices.Clone(events)
	for i := range events {
		if f := events[i].Failure; f != nil {
			events[i].Failure = new(*f)
		}
	}
	return events
}

// LastEvent implements [store.EventLog].
func (s *Store) LastEvent(ctx context.Context) (uint64, error) {
	if _, err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	return s.eventSeq, nil
}

// History implements [store.EventLog].
func (s *Store) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	j := s.jobs[id]
	if j == nil {
		return nil, fmt.Errorf("history of job %s: %w", id, gq.ErrNotFound)
	}
	return ownEvents(j.events), nil
}
