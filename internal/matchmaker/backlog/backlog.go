// Package backlog orders the jobs that wait for assignment. It does no I/O and reads no
// clock; callers must serialize access.
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

// Job is a job that waits for assignment.
type Job struct {
	match.Job
	JobID  gq.JobID
	RunAt  time.Time          // no round takes it earlier
	EndsAt time.Time          // end of its lifetime; zero for no end
	Past   []ledger.PastLease // leases of this attempt that ended without a fault

	score int64 // the part of its score that is constant over time; it compares jobs of a kind
	cheap bool  // may use the lane
	shape *shape

	inQueue, inLane, inLater int // indexes in the heaps, -1 if not in them
}

// Unserved reports whether no provider of the last snapshot could ever serve the job.
func (j *Job) Unserved() bool { return j.shape != nil && j.shape.servers <= 0 }

// Backlog has all waiting jobs, in the order in which rounds take them. The cost of
// selecting the first ones does not depend on the number of waiting jobs.
//
// Jobs of a shape that no provider can serve are kept apart. They take part again as soon
// as a provider can serve them.
type Backlog struct {
	policy  *match.Policy
	servers func(*match.Job) int // counts the providers of the snapshot that could ever serve a job
	jobs    map[gq.JobID]*Job
	shapes  map[string]*shape
	listed  map[string]int  // requesters on allow and deny lists, with the number of such lists
	later   heap.Heap[*Job] // by RunAt
	queues  queues          // servable shapes of each kind, by their best job
	lane    order           // servable shapes, by their oldest cheap job
	key     []byte          // buffer of shapeKey

	filling bool // jobs are being added in bulk; the heaps are ordered afterwards
}

// New creates an empty backlog. servers counts the providers that could ever serve a job.
func New(p *match.Policy, servers func(*match.Job) int) *Backlog {
	b := &Backlog{
		policy: p, servers: servers, jobs: map[gq.JobID]*Job{}, shapes: map[string]*shape{}, listed: map[string]int{},
		later: heap.New(func(a, b *Job) bool { return a.RunAt.Before(b.RunAt) }, func(j *Job, at int) { j.inLater = at }),
		lane: order{
			shapes: heap.New(func(a, b *shape) bool { return laneBefore(a.lane.At(0), b.lane.At(0)) }, func(s *shape, at int) { s.inLane = at }),
			jobs:   func(s *shape) *heap.Heap[*Job] { return &s.lane },
		},
	}
	for _, k := range match.Kinds() {
		b.queues[k] = order{
			shapes: heap.New(func(a, b *shape) bool { return queueBefore(a.queue.At(0), b.queue.At(0)) }, func(s *shape, at int) { s.inQueue = at }),
			jobs:   func(s *shape) *heap.Heap[*Job] { return &s.queue },
		}
	}
	return b
}

// laneBefore orders the lane by submission time.
func laneBefore(a, b *Job) bool { return compareLane(a, b) < 0 }

func compareLane(a, b *Job) int {
	return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), strings.Compare(a.ID, b.ID))
}

// queueBefore orders the queue of a kind by score, then by submission time.
func queueBefore(a, b *Job) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return laneBefore(a, b)
}

// Len returns the number of jobs.
func (b *Backlog) Len() int { return len(b.jobs) }

// Get returns a job, nil if it is not waiting.
func (b *Backlog) Get(id gq.JobID) *Job { return b.jobs[id] }

// Put adds or replaces a job.
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

// Fill lets f add many jobs, none of which is present yet, and orders them once at the
// end.
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

// Advance makes jobs available whose run time has come.
func (b *Backlog) Advance(now time.Time) {
	for b.later.Len() > 0 && !b.later.At(0).RunAt.After(now) {
		b.enter(b.later.Remove(0))
	}
}

// HasDue reports whether the run time of any job has come.
func (b *Backlog) HasDue() bool { return len(b.jobs) > b.later.Len() }

// HasServable reports whether a provider of the last snapshot could ever serve one of the
// jobs whose run time has come.
func (b *Backlog) HasServable() bool {
	return slices.ContainsFunc(b.queues[:], func(o order) bool { return o.shapes.Len() > 0 })
}

// First reports whether the next round takes a job before all others.
func (b *Backlog) First(j *Job, now time.Time) bool {
	first := b.Select(now, 1, nil)
	return len(first) > 0 && first[0] == j
}

// NextRun returns when the next job becomes due, zero for never.
func (b *Backlog) NextRun() time.Time {
	if b.later.Len() == 0 {
		return time.Time{}
	}
	return b.later.At(0).RunAt
}

// Select returns the jobs of a round: the first of the queue and the first of the lane,
// up to batch of each. It skips jobs whose lifetime is over.
//
// listed are the jobs of the store that come first, at least batch of each kind if there are
// that many; it is nil if the store does not list them. Jobs that no provider can serve or that
// have to wait are skipped there too, and if too few are left, the jobs here follow.
func (b *Backlog) Select(now time.Time, batch int64, listed []gq.JobID) (jobs []*Job) {
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
	var ages [match.Quantum + 1]int64
	for _, k := range match.Kinds() {
		ages[k] = b.policy.Priority.Age(k, now.Unix())
	}
	compare := func(x, y *Job) int {
		return cmp.Or(cmp.Compare(y.score+ages[y.Kind], x.score+ages[x.Kind]), compareLane(x, y))
	}
	for _, k := range match.Kinds() {
		n := 0
		for _, id := range listed {
			if j := b.jobs[id]; n < most && j != nil && j.Kind == k && j.inQueue >= 0 && !seen[j] && !j.Unserved() && add(j) {
				n++
			}
		}
		if n < most {
			first([]order{b.queues[k]}, most, func(x, y *Job) bool { return compare(x, y) < 0 }, add)
		}
	}
	slices.SortFunc(jobs, compare)
	if len(jobs) > most {
		jobs = jobs[:most]
		clear(seen)
		for _, j := range jobs {
			seen[j] = true
		}
	}
	if b.policy.Starvation.Every > 0 {
		first([]order{b.lane}, most, laneBefore, add)
	}
	return jobs
}

// Rebuild reorders everything after a change of the policy or of the requesters on
// providers' lists.
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

// Unserved describes jobs of one shape that no provider of the snapshot could ever serve.
// Rounds skip them.
type Unserved struct {
	Like match.Job `json:"like"` // one of them, reduced to what decides who can serve it
	Jobs int       `json:"jobs"`
}

// maxUnserved is the most shapes that Unserved lists.
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
