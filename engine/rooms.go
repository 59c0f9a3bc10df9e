package engine

import (
	"slices"
	"sync"
	"time"
)

// rooms are the queues in which schedules wait for room for a job.
type rooms struct {
	mu   sync.Mutex
	full map[string]bool // guarded by mu
}

// Between attempts to submit a job to a full queue. News of the queue come earlier, unless they
// came between the first refusal and the note about it, or are lost.
const (
	retryFirst = 100 * time.Millisecond
	retryFull  = 5 * time.Second
)

// wait notes that a queue is full, and returns when to try again without news of it.
func (r *rooms) wait(queue string, now time.Time) (again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full[queue] {
		return now.Add(retryFull)
	}
	if r.full == nil {
		r.full = make(map[string]bool)
	}
	r.full[queue] = true
	return now.Add(retryFirst)
}

// keep forgets all other queues.
func (r *rooms) keep(still map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue := range r.full {
		if !still[queue] {
			delete(r.full, queue)
		}
	}
}

// changed reports whether one of the queues may have room now.
func (r *rooms) changed(queues []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.full) > 0 && slices.ContainsFunc(queues, func(queue string) bool { return r.full[queue] })
}
