package backlog

import (
	"encoding/binary"

	"github.com/gopherqueue/gq/internal/heap"
	"github.com/gopherqueue/gq/match"
)

// shape is a set of jobs that the same providers can serve.
type shape struct {
	key     string
	sample  match.Job // any of its jobs
	servers int       // providers of the snapshot that could ever serve it
	queue   heap.Heap[*Job]
	lane    heap.Heap[*Job]

	inQueue, inLane int // indexes in the heaps of shapes, -1 if not in them
}

// maxIdleShapes is how many shapes without jobs are kept, since counting the servers of a
// new shape means checking every provider.
const maxIdleShapes = 4096

// shapeOf returns the shape of a job, creating it if needed.
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

// shapeKey is equal for jobs that the same providers can serve. It covers everything that
// [match.Policy.Serves] checks and that is constant over time; the requester only if a
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

// reorder restores a shape's position after its jobs or servers changed.
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
	place(&b.queues[s.sample.Kind].shapes, s.inQueue, s.queue.Len())
	place(&b.lane.shapes, s.inLane, s.lane.Len())
}

// AddServers counts a provider that joined the snapshot (by 1) or left it (by -1) as a
// server of every shape it serves.
func (b *Backlog) AddServers(by int, serves func(*match.Job) bool) {
	for _, s := range b.shapes {
		if serves(&s.sample) {
			s.servers += by
			b.reorder(s)
		}
	}
}

// CountLists adds (by 1) or removes (by -1) the allow and deny lists of a provider. If it
// returns true, the shapes of jobs may have changed and the caller must call
// [Backlog.Rebuild].
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

// order is a heap of heaps: shapes by their best job, each with a heap of its jobs.
type order struct {
	shapes heap.Heap[*shape]
	jobs   func(*shape) *heap.Heap[*Job]
}

// queues has one order for each kind: the scores of the kinds rise at different rates, so only
// those of one kind have a lasting order.
type queues [match.Quantum + 1]order

// first visits the best n jobs of some orders, best first. It descends the heaps only as far
// as needed. before must agree with each of the orders. A job for which visit returns false
// does not count.
func first(orders []order, n int, before func(a, b *Job) bool, visit func(*Job) bool) {
	type node struct {
		job   *Job
		order *order
		shape int // index in the heap of shapes
		at    int // index in the heap of jobs
	}
	front := heap.New(func(a, b node) bool { return before(a.job, b.job) }, nil)
	look := func(o *order, shape, at int) {
		if shape >= o.shapes.Len() {
			return
		}
		if jobs := o.jobs(o.shapes.At(shape)); at < jobs.Len() {
			front.Push(node{jobs.At(at), o, shape, at})
		}
	}
	for i := range orders {
		look(&orders[i], 0, 0)
	}
	for n > 0 && front.Len() > 0 {
		next := front.Remove(0)
		if visit(next.job) {
			n--
		}
		if next.at == 0 {
			look(next.order, 2*next.shape+1, 0)
			look(next.order, 2*next.shape+2, 0)
		}
		look(next.order, next.shape, 2*next.at+1)
		look(next.order, next.shape, 2*next.at+2)
	}
}
