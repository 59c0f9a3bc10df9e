package local

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// The limit on queues holds for queues made by a job and for configured ones.
func TestTooManyQueues(t *testing.T) {
	ctx := context.Background()
	s, err := OpenMemory(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	s.mu.Lock()
	for i := 1; i < gq.MaxQueues; i++ {
		s.table.addQueue(uint32(i), machine.NewQueue(fmt.Sprint("q", i)))
	}
	s.mu.Unlock()
	submit := func(n byte, queue string) error {
		spec := gq.Spec{ID: machine.NewJobID([16]byte{n}), Queue: queue, Type: "work"}.WithDefaults()
		placed, err := s.Insert(ctx, []store.Group{store.One(spec)})
		if err != nil {
			t.Fatal(err)
		}
		return placed[0].Err
	}
	if err := s.PutQueue(ctx, machine.NewQueue("last")); err != nil {
		t.Errorf("the last queue: %v", err)
	}
	for n, queue := range []string{"last", "q1"} {
		if err := errors.Join(submit(byte(n+1), queue), s.PutQueue(ctx, machine.NewQueue(queue))); err != nil {
			t.Errorf("queue %s, which exists: %v", queue, err)
		}
	}
	if err := submit(9, "more"); !errors.Is(err, gq.ErrTooMany) {
		t.Errorf("a job for one more: %v, want ErrTooMany", err)
	}
	if err := s.PutQueue(ctx, machine.NewQueue("more")); !errors.Is(err, gq.ErrTooMany) {
		t.Errorf("one more: %v, want ErrTooMany", err)
	}
}
