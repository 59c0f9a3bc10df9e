package local_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/storetest"
)

// Checking for room advances other jobs. The answer must still be about the job that
// asked.
func TestRefusedForRoom(t *testing.T) {
	ctx := context.Background()
	clock := storetest.NewClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	s, err := local.OpenMemory(local.Options{Config: store.Config{Clock: clock}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	queue := machine.NewQueue("q")
	queue.Pool = "p"
	if err := errors.Join(s.PutPool(ctx, gq.Pool{Name: "p", Capacity: 1}), s.PutQueue(ctx, queue)); err != nil {
		t.Fatal(err)
	}
	insert := func(n byte, change func(*gq.Spec)) gq.State {
		spec := gq.Spec{ID: machine.NewJobID([16]byte{n}), Queue: "q", Type: "work", Policy: machine.DefaultPolicy()}
		change(&spec)
		placed, err := s.Insert(ctx, []store.Group{store.One(spec.WithDefaults())})
		if err = errors.Join(err, placed[0].Err); err != nil {
			t.Fatal(err)
		}
		return placed[0].Jobs[0].State
	}
	insert(1, func(s *gq.Spec) { s.CostUnits = 1 })
	if _, err := s.Claim(ctx, []store.Claim{{Filter: store.Filter{Queues: []string{"q"}}, N: 1, Worker: "w"}}); err != nil {
		t.Fatal(err)
	}
	asks := insert(2, func(s *gq.Spec) { s.CostUnits, s.Delay = 1, time.Second })
	insert(3, func(s *gq.Spec) { s.Delay, s.Policy.Lifetime = 29*time.Second, 30*time.Second })
	clock.Advance(time.Minute)
	updated, err := s.Update(ctx, []store.Update{{
		Ref: store.Ref{Job: asks.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Claim(s, machine.Grant{Lease: "lease", Worker: "w"}, now)
		},
	}})
	if err != nil || !errors.Is(updated[0].Err, gq.ErrNoCapacity) {
		t.Fatalf("Update: %v, %+v", err, updated)
	}
	if got := updated[0].State; got.ID != asks.ID || !got.RunAt.Equal(asks.RunAt) {
		t.Errorf("the answer is about job %s, want %s", got.ID, asks.ID)
	}
}
