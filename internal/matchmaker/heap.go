package matchmaker

// heap is a binary heap whose items know their place in it, so that any of them
// can be taken out.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
	placed func(item T, at int) // -1 when it has left
}

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	h.placed(item, len(h.items)-1)
	h.up(len(h.items) - 1)
}

// add puts an item at the end, for build to order later: so n items cost n steps.
func (h *heap[T]) add(item T) {
	h.items = append(h.items, item)
	h.placed(item, len(h.items)-1)
}

// build orders what was added.
func (h *heap[T]) build() {
	for at := len(h.items)/2 - 1; at >= 0; at-- {
		h.down(at)
	}
}

func (h *heap[T]) remove(at int) {
	last := len(h.items) - 1
	h.placed(h.items[at], -1)
	if at != last {
		h.items[at] = h.items[last]
		h.placed(h.items[at], at)
	}
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	if at < last {
		h.fix(at)
	}
}

// fix restores the order after the item at a place has changed.
func (h *heap[T]) fix(at int) {
	if !h.down(at) {
		h.up(at)
	}
}

func (h *heap[T]) swap(a, b int) {
	h.items[a], h.items[b] = h.items[b], h.items[a]
	h.placed(h.items[a], a)
	h.placed(h.items[b], b)
}

func (h *heap[T]) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !h.before(h.items[at], h.items[parent]) {
			return
		}
		h.swap(at, parent)
		at = parent
	}
}

func (h *heap[T]) down(at int) (moved bool) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(h.items); child++ {
			if h.before(h.items[child], h.items[least]) {
				least = child
			}
		}
		if least == at {
			return moved
		}
		h.swap(at, least)
		at, moved = least, true
	}
}

// order is a heap of heaps: shapes by their best job, each with its jobs.
type order struct {
	shapes heap[*shape]
	jobs   func(*shape) *heap[*waiting]
}

// first visits the best n jobs of all shapes, best first, without touching the
// rest: it goes down the heaps only as far as it must. visit may ask for one
// more by returning false.
func (o *order) first(n int, before func(a, b *waiting) bool, visit func(*waiting) bool) {
	type node struct {
		job   *waiting
		shape int // its place in the heap of shapes
		at    int // its place in the heap of jobs
	}
	front := heap[node]{before: func(a, b node) bool { return before(a.job, b.job) }, placed: func(node, int) {}}
	look := func(shape, at int) {
		if shape >= o.shapes.len() {
			return
		}
		if jobs := o.jobs(o.shapes.items[shape]); at < jobs.len() {
			front.push(node{jobs.items[at], shape, at})
		}
	}
	look(0, 0)
	for n > 0 && front.len() > 0 {
		next := front.items[0]
		front.remove(0)
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
