// Package heap is a binary heap whose items know their position in it, so that any of
// them can be moved or removed.
package heap

// Heap holds items, the first one before all others. Make one with [New].
type Heap[T any] struct {
	items  []T
	before func(a, b T) bool
	moved  func(item T, at int)
}

// New makes an empty heap. It calls moved with the new position of every item that moves,
// -1 for one that is removed; nil is for items that need not know.
func New[T any](before func(a, b T) bool, moved func(item T, at int)) Heap[T] {
	if moved == nil {
		moved = func(T, int) {}
	}
	return Heap[T]{before: before, moved: moved}
}

// Len is the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// At is the item at a position. The first item is at 0; the items after the one at n are at
// 2n+1 and 2n+2, and below those.
func (h *Heap[T]) At(n int) T { return h.items[n] }

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	h.Append(item)
	h.up(len(h.items) - 1)
}

// Append adds an item without ordering it. Call [Heap.Build] after the last one: that is
// cheaper than to push many.
func (h *Heap[T]) Append(item T) {
	h.items = append(h.items, item)
	h.moved(item, len(h.items)-1)
}

// Build orders all items.
func (h *Heap[T]) Build() {
	for at := len(h.items)/2 - 1; at >= 0; at-- {
		h.down(at)
	}
}

// Remove removes the item at a position and returns it.
func (h *Heap[T]) Remove(at int) T {
	item, last := h.items[at], len(h.items)-1
	h.moved(item, -1)
	if at != last {
		h.items[at] = h.items[last]
		h.moved(h.items[at], at)
	}
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	if at < last {
		h.Fix(at)
	}
	return item
}

// Fix restores the order after the item at a position has changed.
func (h *Heap[T]) Fix(at int) {
	if !h.down(at) {
		h.up(at)
	}
}

func (h *Heap[T]) swap(a, b int) {
	h.items[a], h.items[b] = h.items[b], h.items[a]
	h.moved(h.items[a], a)
	h.moved(h.items[b], b)
}

func (h *Heap[T]) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !h.before(h.items[at], h.items[parent]) {
			return
		}
		h.swap(at, parent)
		at = parent
	}
}

func (h *Heap[T]) down(at int) (moved bool) {
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
