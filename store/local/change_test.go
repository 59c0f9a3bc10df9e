package local

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// A change that had room when it began is made as a whole, even if it writes more than
// estimated.
func TestChangeOnCrowdedDisk(t *testing.T) {
	ctx := context.Background()
	s, err := OpenMemory(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var group store.Group
	var change store.Change
	for n := range byte(20) {
		spec := gq.Spec{ID: machine.NewJobID([16]byte{n + 1}), Type: "work"}.WithDefaults()
		group.Jobs = append(group.Jobs, spec)
		change.Updates = append(change.Updates, store.Update{
			Ref: store.Ref{Job: spec.ID},
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Cancel(s, strings.Repeat("r", gq.MaxReasonBytes), now)
			},
		})
	}
	if placed, err := s.Insert(ctx, []store.Group{group}); err != nil || placed[0].Err != nil {
		t.Fatalf("Insert: %v, %v", err, placed)
	}
	var refused error
	err = s.do(ctx, 1, func(tx *txn) {
		free := tx.s.disk.free
		tx.s.disk.free = uint64(tx.size() + len(change.Updates)<<10) // just enough by the estimate
		_, refused = tx.changeAll(change, nil, 0)
		tx.s.disk.free = free
	})
	if err != nil || refused != nil {
		t.Fatalf("a change: %v, %v", err, refused)
	}
}
