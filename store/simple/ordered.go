package simple

import "slices"

// ordered is a sorted list. No two of its items compare equal.
type ordered[T any] struct {
	items   []T
	compare func(a, b T) int
}

// add inserts an item that the list does not have.
func (o *ordered[T]) add(item T) {
	i, _ := slices.BinarySearchFunc(o.items, item, o.compare)
	o.items = slices.Insert(o.items, i, item)
}

// remove removes an item that the list has.
func (o *ordered[T]) remove(item T) {
	if i, found := slices.BinarySearchFunc(o.items, item, o.compare); found {
		o.items = slices.Delete(o.items, i, i+1)
	}
}
