package postgres

import "sync"

// queueHints remembers queues for which a fast path would fail. It is only a hint: both
// paths are correct for every queue.
type queueHints struct{ names sync.Map }

// learn records whether the fast path fails for a queue.
func (h *queueHints) learn(name string, is bool) {
	if is {
		h.names.Store(name, true)
	} else {
		h.names.Delete(name)
	}
}

func (h *queueHints) has(name string) bool {
	_, is := h.names.Load(name)
	return is
}
