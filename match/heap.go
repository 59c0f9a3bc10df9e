package match

import "slices"

// lowest returns the k lowest items, sorted. It reorders items: the others come after
// them.
func lowest[T any](items []T, k int, compare func(a, b T) int) []T {
	if k < len(items) {
		higher := func(a, b T) int { return compare(b, a) }
		heap := items[:k]
		heapify(heap, higher)
		for i := k; k > 0 && i < len(items); i++ {
			if compare(items[i], heap[0]) < 0 {
				items[i], heap[0] = heap[0], items[i]
				siftDown(heap, 0, higher)
			}
		}
		items = heap
	}
	slices.SortFunc(items, compare)
	return items
}

// heapify arranges items as a heap with the lowest first.
func heapify[T any](items []T, compare func(a, b T) int) {
	for i := len(items)/2 - 1; i >= 0; i-- {
		siftDown(items, i, compare)
	}
}

// siftDown restores the heap below index i.
func siftDown[T any](items []T, i int, compare func(a, b T) int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(items); child++ {
			if compare(items[child], items[least]) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		items[i], items[least] = items[least], items[i]
		i = least
	}
}
