package matchmaker

import (
	"cmp"
	"encoding/binary"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// waiting is a job that waits to be assigned.
type waiting struct {
	match.Job
	id     gq.JobID
	score  int64 // the cached part
	runAt  time.Time
	ends   time.Time // of its life
	cheap  bool      // may use the lane
	shape  *shape
	leases []past // at this attempt, ended without fault

	inQueue, inLane, inLater int // places in the heaps, -1 for none
}

// past is a lease that a job had.
type past struct {
	provider string
	lease    gq.LeaseID
}

// shape is what jobs have in common that the same providers can serve.
type shape struct {
	key     string
	sample  match.Job // any job of it
	servers int       // providers of the snapshot that could ever serve it
	queue   heap[*waiting]
	lane    heap[*waiting]

	inQueue, inLane int // places in the heaps of shapes, -1 for none
}

// backlog is all jobs that wait, in the order in which rounds take them. What it
// costs to take the first ones does not depend on how many there are.
//
// Jobs of a shape that nobody could serve stand aside: they are kept, and found
// again as soon as somebody can.
type backlog struct {
	policy *match.Policy
	count  func(*match.Job) int // providers of the snapshot that could ever serve a job
	jobs   map[gq.JobID]*waiting
	shapes map[string]*shape
	listed map[string]int // requesters that providers name, and how many do
	later  heap[*waiting] // by when they may run
	queue  order          // shapes that can be served, by their best job
	lane   order          // likewise, by their oldest cheap job
	key    []byte

	filling bool // heaps are ordered when all jobs are there
}

func newBacklog(p *match.Policy, count func(*match.Job) int) *backlog {
	b := &backlog{policy: p, count: count, jobs: map[gq.JobID]*waiting{}, shapes: map[string]*shape{}, listed: map[string]int{}}
	b.later = heap[*waiting]{
		before: func(a, b *waiting) bool { return a.runAt.Before(b.runAt) },
		placed: func(w *waiting, at int) { w.inLater = at },
	}
	b.queue = order{
		shapes: heap[*shape]{
			before: func(a, b *shape) bool { return queueBefore(a.queue.items[0], b.queue.items[0]) },
			placed: func(s *shape, at int) { s.inQueue = at },
		},
		jobs: func(s *shape) *heap[*waiting] { return &s.queue },
	}
	b.lane = order{
		shapes: heap[*shape]{
			before: func(a, b *shape) bool { return laneBefore(a.lane.items[0], b.lane.items[0]) },
			placed: func(s *shape, at int) { s.inLane = at },
		},
		jobs: func(s *shape) *heap[*waiting] { return &s.lane },
	}
	return b
}

// laneBefore is the order of the lane: by time of submission.
func laneBefore(a, b *waiting) bool {
	return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), strings.Compare(a.ID, b.ID)) < 0
}

// queueBefore is the order of the queue: by score, then by time of submission.
func queueBefore(a, b *waiting) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return laneBefore(a, b)
}

// put enters a job, or what has become of it.
func (b *backlog) put(w *waiting, now time.Time) {
	b.drop(w.id)
	w.score = b.policy.Priority.Cached(&w.Job)
	w.cheap = b.policy.Starvation.Every > 0 && w.MaxFee <= b.policy.Starvation.LowFeeMax
	w.inQueue, w.inLane, w.inLater = -1, -1, -1
	b.jobs[w.id] = w
	if w.runAt.After(now) {
		b.later.push(w)
		return
	}
	b.enter(w)
}

// enter lets a job take part.
func (b *backlog) enter(w *waiting) {
	key := b.shapeKey(&w.Job)
	s := b.shapes[string(key)]
	if s == nil {
		s = &shape{key: string(key), sample: w.Job, servers: b.count(&w.Job), inQueue: -1, inLane: -1}
		s.queue = heap[*waiting]{before: queueBefore, placed: func(w *waiting, at int) { w.inQueue = at }}
		s.lane = heap[*waiting]{before: laneBefore, placed: func(w *waiting, at int) { w.inLane = at }}
		b.shapes[s.key] = s
	}
	w.shape = s
	if b.filling {
		s.queue.add(w)
		if w.cheap {
			s.lane.add(w)
		}
		return
	}
	s.queue.push(w)
	if w.cheap {
		s.lane.push(w)
	}
	b.settle(s)
}

// fill lets f put many jobs, none of which is there yet, and orders them at once.
func (b *backlog) fill(f func() error) error {
	b.filling = true
	err := f()
	b.filling = false
	for _, s := range b.shapes {
		s.queue.build()
		s.lane.build()
		b.settle(s)
	}
	return err
}

// drop takes a job out.
func (b *backlog) drop(id gq.JobID) {
	w := b.jobs[id]
	if w == nil {
		return
	}
	delete(b.jobs, id)
	if w.inLater >= 0 {
		b.later.remove(w.inLater)
	}
	s := w.shape
	if s == nil {
		return
	}
	if w.inLane >= 0 {
		s.lane.remove(w.inLane)
	}
	if w.inQueue >= 0 {
		s.queue.remove(w.inQueue)
	}
	b.settle(s)
	if s.queue.len() == 0 && len(b.shapes) > maxIdleShapes {
		delete(b.shapes, s.key)
	}
}

// maxIdleShapes is how many shapes are kept when they have no job left, since
// finding out who serves them anew costs a look at every provider.
const maxIdleShapes = 4096

// settle puts a shape where it belongs after a change of its jobs or servers.
func (b *backlog) settle(s *shape) {
	if b.filling {
		return
	}
	place := func(shapes *heap[*shape], at, jobs int) {
		switch wanted := s.servers > 0 && jobs > 0; {
		case wanted && at < 0:
			shapes.push(s)
		case wanted:
			shapes.fix(at)
		case at >= 0:
			shapes.remove(at)
		}
	}
	place(&b.queue.shapes, s.inQueue, s.queue.len())
	place(&b.lane.shapes, s.inLane, s.lane.len())
}

// due lets jobs take part whose time has come.
func (b *backlog) due(now time.Time) {
	for b.later.len() > 0 && !b.later.items[0].runAt.After(now) {
		w := b.later.items[0]
		b.later.remove(0)
		b.enter(w)
	}
}

// waits reports whether there is a job whose time has come.
func (b *backlog) waits() bool { return len(b.jobs) > b.later.len() }

// ready reports whether there is a job that somebody could serve.
func (b *backlog) ready() bool { return b.queue.shapes.len() > 0 }

// next is when another job may take part, zero for never.
func (b *backlog) next() time.Time {
	if b.later.len() == 0 {
		return time.Time{}
	}
	return b.later.items[0].runAt
}

// take lists the jobs of a round of a batch: the first of the queue and of the lane. Jobs
// whose life is over are left out.
func (b *backlog) take(now time.Time, batch int64) (jobs []*waiting) {
	most := int(min(batch, int64(len(b.jobs))))
	seen := make(map[*waiting]bool, most)
	add := func(w *waiting) bool {
		if !w.ends.IsZero() && !now.Before(w.ends) {
			return false
		}
		if !seen[w] {
			seen[w] = true
			jobs = append(jobs, w)
		}
		return true
	}
	b.queue.first(most, queueBefore, add)
	if b.policy.Starvation.Every > 0 {
		b.lane.first(most, laneBefore, add)
	}
	return jobs
}

// shapeKey tells shapes apart. A requester matters only where a provider names
// it; everything that fits(p, j) looks at and that does not pass with time is
// part of it.
func (b *backlog) shapeKey(j *match.Job) []byte {
	key := append(b.key[:0], byte(j.Kind))
	text := func(t string) { key = append(binary.AppendUvarint(key, uint64(len(t))), t...) }
	list := func(l []string) {
		key = binary.AppendUvarint(key, uint64(len(l)))
		for _, t := range l {
			text(t)
		}
	}
	if j.Kind == match.AI {
		text(j.Spec.Model)
		text(j.Spec.Precision)
	} else {
		list(j.Spec.Gates)
		key = binary.AppendUvarint(key, uint64(j.Spec.Depth))
		key = binary.AppendUvarint(key, uint64(j.Spec.Width))
	}
	list(j.Regions)
	if b.listed[j.Requester] > 0 {
		text(j.Requester)
	} else {
		key = append(key, 0xff)
	}
	if j.Units > b.policy.Quotas.UnitsMax(j.Kind) {
		key = append(key, 1) // more than anyone gets
	}
	b.key = key
	return key
}

// list counts the requesters that a provider names, or forgets them, and
// reports whether shapes may be other ones now.
func (b *backlog) list(p *match.Provider, by int) (changed bool) {
	for _, l := range [][]string{p.Allow, p.Deny} {
		for _, r := range l {
			was := b.listed[r] > 0
			if b.listed[r] += by; b.listed[r] <= 0 {
				delete(b.listed, r)
			}
			changed = changed || was != (b.listed[r] > 0)
		}
	}
	return changed
}

// rebuild orders everything anew, after a change of the policy or of the
// requesters that providers name.
func (b *backlog) rebuild(p *match.Policy, now time.Time) {
	jobs, listed := b.jobs, b.listed
	*b = *newBacklog(p, b.count)
	b.listed = listed
	_ = b.fill(func() error {
		for _, w := range jobs {
			w.shape = nil
			b.put(w, now)
		}
		return nil
	})
}
