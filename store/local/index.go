package local

import (
	"bytes"
	"math"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// index is an ordered set of jobs: a B+ tree over the jobs' own keys. It takes about
// nine bytes per job: leaves hold only pointers and are full when jobs arrive in order,
// as they mostly do.
//
// Each node knows the cost of the cheapest job below it, so that a claim with a cost
// limit finds its job without visiting those that cost too much. That number is updated
// only on demand.
type index struct {
	root *node
	size int
}

// fanout is the number of entries of a node.
const fanout = 64

type node struct {
	jobs  []*job  // of a leaf, ascending
	kids  []*node // of an inner node
	first sortKey // a lower bound of the jobs below, above every job before
	cost  int64   // of the cheapest job below
	stale bool    // cost may be too low
}

// sortKey is a job's position: its key, then its id.
type sortKey struct {
	key machine.OrderKey
	id  gq.JobID
}

func (a sortKey) less(b sortKey) bool {
	if a.key != b.key {
		return a.key.Less(b.key)
	}
	return bytes.Compare(a.id[:], b.id[:]) < 0
}

func (j *job) place() sortKey { return sortKey{j.key, j.id} }

// add adds a job, which must not be present.
func (x *index) add(j *job) {
	k := j.place()
	if x.root == nil {
		x.root = &node{first: k, cost: math.MaxInt64}
	}
	if split := x.root.add(j, k); split != nil {
		x.root = &node{kids: []*node{x.root, split}, first: x.root.first, cost: min(x.root.cost, split.cost), stale: true}
	}
	x.size++
}

func (n *node) add(j *job, k sortKey) (split *node) {
	n.cost = min(n.cost, j.cost)
	if k.less(n.first) {
		n.first = k
	}
	if n.kids == nil {
		i := n.search(k)
		n.jobs = append(n.jobs, nil)
		copy(n.jobs[i+1:], n.jobs[i:])
		n.jobs[i] = j
		if len(n.jobs) > fanout {
			return n.split(i == len(n.jobs)-1)
		}
		return nil
	}
	i := n.child(k)
	if right := n.kids[i].add(j, k); right != nil {
		n.kids = append(n.kids, nil)
		copy(n.kids[i+2:], n.kids[i+1:])
		n.kids[i+1] = right
		if len(n.kids) > fanout {
			return n.split(i+1 == len(n.kids)-1)
		}
	}
	return nil
}

// split halves a node. A node that grew at its end keeps all but the last entry, so
// that ascending inserts leave full nodes behind.
func (n *node) split(atEnd bool) *node {
	right := &node{cost: n.cost, stale: true}
	n.stale = true
	if n.kids == nil {
		cut := len(n.jobs) / 2
		if atEnd {
			cut = len(n.jobs) - 1
		}
		right.jobs = append(make([]*job, 0, fanout+1), n.jobs[cut:]...)
		clear(n.jobs[cut:])
		n.jobs = n.jobs[:cut]
		right.first = right.jobs[0].place()
		return right
	}
	cut := len(n.kids) / 2
	if atEnd {
		cut = len(n.kids) - 1
	}
	right.kids = append(make([]*node, 0, fanout+1), n.kids[cut:]...)
	clear(n.kids[cut:])
	n.kids = n.kids[:cut]
	right.first = right.kids[0].first
	return right
}

// search returns the first position in a leaf whose job is not before k.
func (n *node) search(k sortKey) int {
	lo, hi := 0, len(n.jobs)
	if hi > 0 && n.jobs[hi-1].place().less(k) { // jobs mostly arrive in order
		return hi
	}
	for lo < hi {
		mid := (lo + hi) / 2
		if n.jobs[mid].place().less(k) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// child returns the last child that may hold k.
func (n *node) child(k sortKey) int {
	lo, hi := 0, len(n.kids)
	for lo < hi {
		mid := (lo + hi) / 2
		if k.less(n.kids[mid].first) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return max(lo-1, 0)
}

// remove removes a job if it is present.
func (x *index) remove(j *job) {
	if x.root == nil || !x.root.remove(j, j.place()) {
		return
	}
	x.size--
	for len(x.root.kids) == 1 {
		x.root = x.root.kids[0]
	}
	if x.size == 0 {
		x.root = nil
	}
}

func (n *node) remove(j *job, k sortKey) bool {
	if n.kids == nil {
		i := n.search(k)
		if i == len(n.jobs) || n.jobs[i] != j {
			return false
		}
		copy(n.jobs[i:], n.jobs[i+1:])
		n.jobs[len(n.jobs)-1] = nil
		n.jobs = n.jobs[:len(n.jobs)-1]
		n.stale = true
		return true
	}
	i := n.child(k)
	kid := n.kids[i]
	if !kid.remove(j, k) {
		return false
	}
	n.stale = true
	if len(kid.jobs) == 0 && len(kid.kids) == 0 {
		copy(n.kids[i:], n.kids[i+1:])
		n.kids[len(n.kids)-1] = nil
		n.kids = n.kids[:len(n.kids)-1]
	}
	return true
}

// replace lets a job take the place of another one that is present. It costs as much, and no job
// is between them.
func (x *index) replace(j, next *job) {
	n, k := x.root, j.place()
	for n.kids != nil {
		n = n.kids[n.child(k)]
	}
	n.jobs[n.search(k)] = next
}

// first returns the smallest job, nil if there is none.
func (x *index) first() *job {
	n := x.root
	if n == nil {
		return nil
	}
	for n.kids != nil {
		n = n.kids[0]
	}
	return n.jobs[0]
}

// cheap returns the smallest job that costs at most limit.
func (x *index) cheap(limit int64) *job {
	if x.root == nil {
		return nil
	}
	return x.root.cheap(limit)
}

func (n *node) cheap(limit int64) *job {
	if n.lowest() > limit {
		return nil
	}
	for _, j := range n.jobs {
		if j.cost <= limit {
			return j
		}
	}
	for _, kid := range n.kids {
		if j := kid.cheap(limit); j != nil {
			return j
		}
	}
	return nil
}

// lowest updates the node's cost.
func (n *node) lowest() int64 {
	if !n.stale {
		return n.cost
	}
	n.cost, n.stale = math.MaxInt64, false
	for _, j := range n.jobs {
		n.cost = min(n.cost, j.cost)
	}
	for _, kid := range n.kids {
		n.cost = min(n.cost, kid.lowest())
	}
	return n.cost
}
