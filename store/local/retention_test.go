package local_test

import (
	"context"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/storetest"
)

// Collect returns 0 only if nothing is left, however much of the log is about other
// things than ends.
func TestCollectBehindLongLog(t *testing.T) {
	t.Parallel()
	const commits = 10_100 // more than one step reads
	ctx := context.Background()
	clock := storetest.NewClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	s, err := local.OpenMemory(local.Options{Config: store.Config{Clock: clock}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	spec := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "work", Policy: machine.DefaultPolicy()}.WithDefaults()
	if _, err := s.Insert(ctx, []store.Group{store.One(spec)}); err != nil {
		t.Fatal(err)
	}
	update := func(apply store.Apply) {
		t.Helper()
		updated, err := s.Update(ctx, []store.Update{{Ref: store.Ref{Job: spec.ID}, Apply: apply}})
		if err != nil || updated[0].Err != nil {
			t.Fatalf("Update: %v, %+v", err, updated)
		}
	}
	for range commits {
		update(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Update(s, gq.PriorityNormal, now)
		})
	}
	update(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Cancel(s, "", now) })
	clock.Advance(store.DefaultRetention().Cancelled)
	if n, _, err := s.Collect(ctx, 10); n != 1 || err != nil {
		t.Errorf("Collect removed %d jobs (%v), want the one that is past its retention", n, err)
	}
}
