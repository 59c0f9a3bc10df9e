package simple

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Due implements [store.Sweeper].
func (s *Store) Due(ctx context.Context, limit int) (due store.Due, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return due, err
	}
	defer s.end()
	due.Now = now
	for _, t := range s.timers.items {
		if t.at.After(now) || len(due.Jobs) == max(limit, 1) {
			due.Next = t.at
			break
		}
		due.Jobs = append(due.Jobs, t.job.spec.ID)
	}
	return due, nil
}

// ReleaseDependents implements [store.Sweeper].
func (s *Store) ReleaseDependents(ctx context.Context, limit int) (told int, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer s.end()
	for ; told < max(limit, 1) && len(s.dependents) > 0; told++ {
		d := s.dependents[0]
		s.dependents = s.dependents[1:]
		if j := s.jobs[d.id]; j != nil {
			next, events, _ := machine.DependencyEnded(j.state, d.ended, now) // always legal
			s.write(j, next, events, now)
		}
	}
	return told, nil
}

// Collect implements [store.Sweeper].
func (s *Store) Collect(ctx context.Context, limit int) (removed int, next time.Time, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return 0, next, err
	}
	defer s.end()
	gone := make(map[gq.JobID]bool)
	for removed < max(limit, 1) && len(s.ended.items) > 0 && !now.Before(s.ended.items[0].at) {
		j := s.ended.items[0].job
		removed++
		if s.eventsUntil(j).After(now) {
			s.purged = append(s.purged, purged{j.spec.ID, s.eventsUntil(j)})
		} else {
			gone[j.spec.ID] = true
		}
		s.remove(j)
	}
	s.purged = slices.DeleteFunc(s.purged, func(p purged) bool {
		over := !now.Before(p.until)
		gone[p.job] = gone[p.job] || over
		return over
	})
	s.forget(gone)
	if len(s.ended.items) > 0 {
		next = s.ended.items[0].at
	}
	return removed, next, nil
}

// forget removes the events of jobs from the log.
func (s *Store) forget(jobs map[gq.JobID]bool) {
	if len(jobs) == 0 {
		return
	}
	s.events = slices.DeleteFunc(s.events, func(e gq.Event) bool {
		if jobs[e.Job] {
			s.gone = max(s.gone, e.Seq)
		}
		return jobs[e.Job]
	})
}

// eventsUntil returns how long the events of a finished job are kept: as long as those of jobs
// without a retention of their own, and no shorter than the job.
func (s *Store) eventsUntil(j *job) time.Time {
	return j.state.CompletedAt.Add(max(s.config.Retention.Of(j.state.Status), s.rules.kept(s.config.Retention, &j.state)))
}

// purged is a job that went before its events.
type purged struct {
	job   gq.JobID
	until time.Time
}

// Purge implements [store.Purger].
func (s *Store) Purge(ctx context.Context, ids []gq.JobID) ([]error, error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	answers := make([]error, len(ids))
	for i, id := range ids {
		j := s.jobs[id]
		switch {
		case j == nil:
			answers[i] = fmt.Errorf("job %s: %w", id, gq.ErrNotFound)
		case j.state.Live():
			answers[i] = fmt.Errorf("job %s has not ended: %w", id, gq.ErrIllegalMove)
		default:
			s.purged = append(s.purged, purged{id, s.eventsUntil(j)})
			s.remove(j)
		}
	}
	return answers, nil
}
