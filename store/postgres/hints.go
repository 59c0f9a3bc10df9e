package postgres

import (
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

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

// keyHints remembers in which queues the keys of submitted jobs are usually new. Such jobs are inserted
// like plain ones; if a key is there already the INSERT fails, and the next try looks first. It
// is only a hint.
type keyHints struct {
	mu     sync.Mutex
	queues map[string]*keyHint // in which a key was there already; guarded by mu
}

// keyHint is for how many more submissions with keys the store looks first.
type keyHint struct{ left, next int }

// After a key was there already, this many submissions look first; after each further one twice
// as many.
const (
	fewLooks  = 16
	mostLooks = 4096
)

// expected reports whether the keys of jobs are expected to be new.
func (h *keyHints) expected(jobs []*gq.Spec) bool {
	seen := make(map[gq.IdempotencyKey]bool, len(jobs))
	keyed := 0
	for _, spec := range jobs {
		eachKey(spec, func(key gq.IdempotencyKey) {
			seen[key] = true
			keyed++
		})
	}
	if len(seen) < keyed {
		return false // jobs of one call with the same key have to be compared
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, spec := range jobs {
		if i > 0 && spec.Queue == jobs[i-1].Queue {
			continue
		}
		if q := h.queues[spec.Queue]; q != nil && q.left > 0 {
			return false
		}
	}
	return true
}

// learn records which keys of jobs were there already.
func (h *keyHints) learn(jobs []*gq.Spec, held map[gq.IdempotencyKey]holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var looked map[string]bool // queues, and whether a key was there
	for _, spec := range jobs {
		eachKey(spec, func(key gq.IdempotencyKey) {
			if looked == nil {
				looked = make(map[string]bool, 1)
			}
			_, there := held[key]
			looked[spec.Queue] = looked[spec.Queue] || there
		})
	}
	for name, there := range looked {
		q := h.queues[name]
		switch {
		case there && q == nil:
			if h.queues == nil {
				h.queues = make(map[string]*keyHint)
			}
			h.queues[name] = &keyHint{left: fewLooks, next: 2 * fewLooks}
		case there:
			q.left, q.next = q.next, min(2*q.next, mostLooks)
		case q != nil && q.left > 0:
			q.left--
		}
	}
}

// eachKey calls f with the keys of a job that others may have too.
func eachKey(spec *gq.Spec, f func(gq.IdempotencyKey)) {
	if spec.Key.Name != "" {
		f(store.KeyOf(spec))
	}
	if spec.OrderKey != "" {
		f(store.OrderKeyOf(spec))
	}
}
