// Package backlog orders the jobs that wait to be assigned. It does no I/O and reads no
// clock; its callers serialize access.
package backlog

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/heap"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/match"
)

// Job is a job that waits to be assigned.
type Job struct {
	match.Job
	JobID  gq.JobID
	RunAt  time.Time          // no round takes it before
	EndsAt time.Time          // end of its lifetime, zero for never
	Past   []ledger.PastLease // leases of this attempt that ended without a fault

	score int64 // the part of its score that does not change with time
	cheap bool  // may use the lane
	shape *shape

	inQueue, inLane, inLater int // positions in the heaps, -1 for none
}

// Unserved reports whether no provider of the last snapshot could ever serve the job.
func (j *Job) Unserved() bool { return j.shape != nil && j.shape.servers <= 0 }

// First reports whether the next round takes this job before all others.
func (j *Job) First() bool { return j.inQueue == 0 && j.shape.inQueue == 0 }

// Backlog is all jobs that wait, in the order in which rounds take them. The cost of
// selecting the first ones does not depend on how many jobs wait.
//
// Jobs of a shape that no provider can serve are kept apart. They take part again as soon
// as a provider can serve them.
type Backlog struct {
	policy  *match.Policy
	servers func(*match.Job) int // counts the providers of the snapshot that could ever serve a job
	jobs    map[gq.JobID]*Job
	shapes  map[string]*shape
	listed  map[string]int  // requesters on allow and deny lists, with the number of lists
	later   heap.Heap[*Job] // by RunAt
	queue   order           // shapes that can be served, by their best job
	lane    order           // shapes that can be served, by their oldest cheap job
	key     []byte          // scratch space of shapeKey

	filling bool // heaps are ordered once all jobs are there
}

// New makes an empty backlog. servers counts the providers that could ever serve a job.
func New(p *match.Policy, servers func(*match.Job) int) *Backlog {
	return &Backlog{
		policy: p, servers: servers, jobs: map[gq.JobID]*Job{}, shapes: map[string]*shape{}, listed: map[string]int{},
		later: heap.New(func(a, b *Job) bool { return a.RunAt.Before(b.RunAt) }, func(j *Job, at int) { j.inLater = at }),
		queue: order{
			shapes: heap.New(func(a, b *shape) bool { return queueBefore(a.queue.At(0), b.queue.At(0)) }, func(s *shape, at int) { s.inQueue = at }),
			jobs:   func(s *shape) *heap.Heap[*Job] { return &s.queue },
			before: queueBefore,
		},
		lane: order{
			shapes: heap.New(func(a, b *shape) bool { return laneBefore(a.lane.At(0), b.lane.At(0)) }, func(s *shape, at int) { s.inLane = at }),
			jobs:   func(s *shape) *heap.Heap[*Job] { return &s.lane },
			before: laneBefore,
		},
	}
}

// laneBefore orders the lane by time of submission.
func laneBefore(a, b *Job) bool {
	return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), strings.Compare(a.ID, b.ID)) < 0
}

// queueBefore orders the queue by score, then by time of submission.
func queueBefore(a, b *Job) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return laneBefore(a, b)
}

// Len is the number of jobs.
func (b *Backlog) Len() int { return len(b.jobs) }

// Get returns a job, nil if it does not wait.
func (b *Backlog) Get(id gq.JobID) *Job { return b.jobs[id] }

// Put adds a job or replaces it.
func (b *Backlog) Put(j *Job, now time.Time) {
	b.Drop(j.JobID)
	j.score = b.policy.Priority.Cached(&j.Job)
	j.cheap = b.policy.Starvation.Every > 0 && j.MaxFee <= b.policy.Starvation.LowFeeMax
	j.inQueue, j.inLane, j.inLater = -1, -1, -1
	b.jobs[j.JobID] = j
	if j.RunAt.After(now) {
		b.later.Push(j)
		return
	}
	b.enter(j)
}

// enter adds a job to its shape, so that rounds can take it.
func (b *Backlog) enter(j *Job) {
	s := b.shapeOf(&j.Job)
	j.shape = s
	add := (*heap.Heap[*Job]).Push
	if b.filling {
		add = (*heap.Heap[*Job]).Append
	}
	add(&s.queue, j)
	if j.cheap {
		add(&s.lane, j)
	}
	b.reorder(s)
}

// Fill lets f put many jobs, none of which is there yet, and orders them once at the end.
func (b *Backlog) Fill(f func() error) error {
	b.filling = true
	err := f()
	b.filling = false
	for _, s := range b.shapes {
		s.queue.Build()
		s.lane.Build()
		b.reorder(s)
	}
	return err
}

// Drop removes a job.
func (b *Backlog) Drop(id gq.JobID) {
	j := b.jobs[id]
	if j == nil {
		return
	}
	delete(b.jobs, id)
	if j.inLater >= 0 {
		b.later.Remove(j.inLater)
	}
	s := j.shape
	if s == nil {
		return
	}
	if j.inLane >= 0 {
		s.lane.Remove(j.inLane)
	}
	if j.inQueue >= 0 {
		s.queue.Remove(j.inQueue)
	}
	b.reorder(s)
	if s.queue.Len() == 0 && len(b.shapes) > maxIdleShapes {
		delete(b.shapes, s.key)
	}
}

// Advance lets rounds take the jobs whose run time has come.
func (b *Backlog) Advance(now time.Time) {
	for b.later.Len() > 0 && !b.later.At(0).RunAt.After(now) {
		b.enter(b.later.Remove(0))
	}
}

// HasDue reports whether there is a job whose run time has come.
func (b *Backlog) HasDue() bool { return len(b.jobs) > b.later.Len() }

// HasServable reports whether a provider of the last snapshot could ever serve one of the
// jobs whose run time has come.
func (b *Backlog) HasServable() bool { return b.queue.shapes.Len() > 0 }

// NextRun is when the next job becomes due, zero for never.
func (b *Backlog) NextRun() time.Time {
	if b.later.Len() == 0 {
		return time.Time{}
	}
	return b.later.At(0).RunAt
}

// Select lists the jobs of a round: the first of the queue and the first of the lane, up to
// batch of each. It leaves out jobs whose lifetime is over.
func (b *Backlog) Select(now time.Time, batch int64) (jobs []*Job) {
	most := int(min(batch, int64(len(b.jobs))))
	seen := make(map[*Job]bool, most)
	add := func(j *Job) bool {
		if !j.EndsAt.IsZero() && !now.Before(j.EndsAt) {
			return false
		}
		if !seen[j] {
			seen[j] = true
			jobs = append(jobs, j)
		}
		return true
	}
	b.queue.first(most, add)
	if b.policy.Starvation.Every > 0 {
		b.lane.first(most, add)
	}
	return jobs
}

// Rebuild orders everything again, after a change of the policy or of the requesters that
// providers list.
func (b *Backlog) Rebuild(p *match.Policy, now time.Time) {
	jobs, listed := b.jobs, b.listed
	*b = *New(p, b.servers)
	b.listed = listed
	_ = b.Fill(func() error {
		for _, j := range jobs {
			j.shape = nil
			b.Put(j, now)
		}
		return nil
	})
}

// Unserved is jobs of one shape that no provider of the snapshot could ever serve. No round
// looks at them.
type Unserved struct {
	Like match.Job `json:"like"` // one of them, with only what decides who can serve it
	Jobs int       `json:"jobs"`
}

// maxUnserved is how many shapes Unserved lists.
const maxUnserved = 20

// Unserved lists the shapes that no provider serves, those with the most jobs first.
func (b *Backlog) Unserved() (list []Unserved) {
	if !b.HasDue() {
		return nil
	}
	for _, s := range b.shapes {
		if s.servers <= 0 && s.queue.Len() > 0 {
			like := s.sample
			like.ID, like.EnqueuedAt, like.Attempt, like.MaxFee, like.SizeBytes, like.Tier = "", 0, 0, 0, 0, ""
			list = append(list, Unserved{like, s.queue.Len()})
		}
	}
	slices.SortFunc(list, func(a, b Unserved) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Like.Kind, b.Like.Kind), strings.Compare(a.Like.Spec.Model, b.Like.Spec.Model))
	})
	return list[:min(len(list), maxUnserved)]
}
