package engine

import (
	"context"
	"sync"
)

// shared lets concurrent callers share one execution of a read. A call that arrives while an
// execution is under way waits for the next one, so it sees everything that was committed
// before it. A single caller does not wait.
//
// The zero value is ready to use. Callers must not change the value they get.
type shared[T any] struct {
	mu   sync.Mutex
	turn chan struct{} // held by the caller that executes; guarded by mu until it is made
	next *sharing[T]   // callers that wait for the next execution; guarded by mu
}

// sharing is one execution.
type sharing[T any] struct {
	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

// do returns the result of one execution of read that began after the call. One of the callers
// executes it with its own context. If that context ends first, another caller executes it.
func (s *shared[T]) do(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	if s.turn == nil {
		s.turn = make(chan struct{}, 1)
	}
	if s.next == nil {
		s.next = &sharing[T]{done: make(chan struct{})}
	}
	ours := s.next
	s.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
	case <-ours.done:
		return ours.value, ours.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	select {
	case <-ours.done:
		return ours.value, ours.err
	default:
	}
	s.mu.Lock()
	if s.next == ours {
		s.next = nil
	}
	s.mu.Unlock()
	value, err := read(ctx)
	if err == nil || ctx.Err() == nil {
		ours.value, ours.err = value, err
		close(ours.done)
	}
	return value, err
}
