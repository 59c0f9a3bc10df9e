package backlog

import (
	"encoding/binary"

	"github.com/gopherqueue/gq/internal/heap"
	"github.com/gopherqueue/gq/match"
)

// shape is the jobs that the same providers can serve.
type shape struct {
	key     string
	sample  match.Job // any job of it
	servers int       // providers of the snapshot that could ever serve it
	queue   heap.Heap[*Job]
	lane    heap.Heap[*Job]

	inQueue, inLane int // positions in the heaps of shapes, -1 for none
}

// maxIdleShapes is how many shapes are kept without jobs: counting the servers of a new shape
// costs a look at every provider.
const maxIdleShapes = 4096

// shapeOf finds or makes the shape of a job.
func (b *Backlog) shapeOf(j *match.Job) *shape {
	key := b.shapeKey(j)
	s := b.shapes[string(key)]
	if s == nil {
		s = &shape{
			key: string(key), sample: *j, servers: b.servers(j), inQueue: -1, inLane: -1,
			queue: heap.New(queueBefore, func(j *Job, at int) { j.inQueue = at }),
			lane:  heap.New(laneBefore, func(j *Job, at int) { j.inLane = at }),
		}
		b.shapes[s.key] = s
	}
	return s
}

// shapeKey is equal for jobs that the same providers can serve. It has everything that
// [match.Policy.Serves] looks at and that does not change with time; the requester only if a
// provider lists it.
func (b *Backlog) shapeKey(j *match.Job) []byte {
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
		key = append(key, 1) // more than any provider may have
	}
	b.key = key
	return key
}

// reorder moves a shape to its place after its jobs or its servers have changed.
func (b *Backlog) reorder(s *shape) {
	if b.filling {
		return
	}
	place := func(shapes *heap.Heap[*shape], at, jobs int) {
		switch wanted := s.servers > 0 && jobs > 0; {
		case wanted && at < 0:
			shapes.Push(s)
		case wanted:
			shapes.Fix(at)
		case at >= 0:
			shapes.Remove(at)
		}
	}
	place(&b.queue.shapes, s.inQueue, s.queue.Len())
	place(&b.lane.shapes, s.inLane, s.lane.Len())
}

// AddServers counts a provider that joined the snapshot (by 1) or left it (by -1) as a
// server of every shape that it serves.
func (b *Backlog) AddServers(by int, serves func(*match.Job) bool) {
	for _, s := range b.shapes {
		if serves(&s.sample) {
			s.servers += by
			b.reorder(s)
		}
	}
}

// CountLists adds (by 1) or removes (by -1) the allow and deny lists of a provider. If it
// returns true, jobs may have other shapes now and the caller must call [Backlog.Rebuild].
func (b *Backlog) CountLists(p *match.Provider, by int) (changed bool) {
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

// order is a heap of heaps: shapes by their best job, each with its jobs.
type order struct {
	shapes heap.Heap[*shape]
	jobs   func(*shape) *heap.Heap[*Job]
	before func(a, b *Job) bool
}

// first visits the best n jobs of all shapes, best first. It goes down the heaps only as far
// as it must. A job for which visit returns false does not count.
func (o *order) first(n int, visit func(*Job) bool) {
	type node struct {
		job   *Job
		shape int // its position in the heap of shapes
		at    int // its position in the heap of jobs
	}
	front := heap.New(func(a, b node) bool { return o.before(a.job, b.job) }, nil)
	look := func(shape, at int) {
		if shape >= o.shapes.Len() {
			return
		}
		if jobs := o.jobs(o.shapes.At(shape)); at < jobs.Len() {
			front.Push(node{jobs.At(at), shape, at})
		}
	}
	look(0, 0)
	for n > 0 && front.Len() > 0 {
		next := front.Remove(0)
		if visit(next.job) {
			n--
		}
		if next.at == 0 {
			look(2*next.shape+1, 0)
			look(2*next.shape+2, 0)
		}
		look(next.shape, 2*next.at+1)
		look(next.shape, 2*next.at+2)
	}
}
