package postgres

import "sync"

// queueHints are queues of which this node knows that a way which most calls can go
// would be gone in vain. Both ways are right for any queue, so it may be wrong.
type queueHints struct{ names sync.Map }

// learn notes what is known of a queue.
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
