package local

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/storetest"
)

// Jobs are removed in ranges of adjacent numbers. A job within a range that ends in the
// same commit must keep all its records.
func TestPurgeSparesNeighbours(t *testing.T) {
	ctx, fs := context.Background(), vfs.NewMem()
	s, err := open("db", Options{fs: fs})
	if err != nil {
		t.Fatal(err)
	}
	var group store.Group
	for n := range byte(5) {
		group.Jobs = append(group.Jobs, gq.Spec{ID: machine.NewJobID([16]byte{n + 1}), Type: "work"}.WithDefaults())
	}
	if placed, err := s.Insert(ctx, []store.Group{group}); err != nil || placed[0].Err != nil {
		t.Fatalf("Insert: %v, %v", err, placed)
	}
	claimed, err := s.Claim(ctx, []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 5, Worker: "w"}})
	if err != nil || len(claimed[0].Jobs) != 5 {
		t.Fatalf("Claim: %v, %v", err, claimed)
	}
	completing := func(i int) store.Update {
		lease := claimed[0].Jobs[i].State.Lease.Ref()
		return store.Update{
			Ref: store.Ref{Job: group.Jobs[i].ID}, Result: []byte{byte(i)}, Metadata: &gq.Metadata{Priority: gq.PriorityNormal, CorrelationID: "c"},
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Complete(s, lease, []byte{byte(i)}, now)
			},
		}
	}
	var gone []gq.JobID
	for _, i := range []int{0, 1, 3, 4} {
		if updated, err := s.Update(ctx, []store.Update{completing(i)}); err != nil || updated[0].Err != nil {
			t.Fatalf("Update: %v, %v", err, updated)
		}
		gone = append(gone, group.Jobs[i].ID)
	}
	var last store.Updated
	var failed error
	answers := make([]error, len(gone))
	if err := s.do(ctx, 1, func(tx *txn) {
		u := completing(2)
		tx.update(&u, &last, false)
		failed = tx.purge(gone, answers)
	}); err != nil || last.Err != nil || failed != nil || errors.Join(answers...) != nil {
		t.Fatalf("a commit: %v, %v, %v, %v", err, last.Err, failed, answers)
	}
	for _, when := range []string{"at once", "after a restart"} {
		for i := range group.Jobs {
			found, err := s.Get(ctx, []store.Ref{{Job: group.Jobs[i].ID}}, gq.WithResult)
			if err != nil {
				t.Fatal(err)
			}
			j := found[0]
			switch {
			case i != 2 && !errors.Is(j.Err, gq.ErrNotFound):
				t.Errorf("%s: job %d, which was purged: %v", when, i, j.Err)
			case i == 2 && (j.Err != nil || j.State.Status != gq.StatusCompleted || string(j.Result) != "\x02" || j.Metadata.CorrelationID != "c"):
				t.Errorf("%s: the job between them: %v, %s, result %q, metadata %+v", when, j.Err, j.State.Status, j.Result, j.Metadata)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = open("db", Options{fs: fs}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
}

// If a job is purged in the commit that moved its events out of the log, none of them
// may remain.
func TestPurgeTakesCarriedHistory(t *testing.T) {
	ctx := context.Background()
	clock := storetest.NewClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	s, err := OpenMemory(Options{Config: store.Config{Clock: clock, Retention: store.Retention{
		Completed: time.Hour, Cancelled: 3 * time.Hour, Failed: time.Hour, DeadLetter: time.Hour,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	spec := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "work"}.WithDefaults()
	if placed, err := s.Insert(ctx, []store.Group{store.One(spec)}); err != nil || placed[0].Err != nil {
		t.Fatalf("Insert: %v, %v", err, placed)
	}
	clock.Advance(2 * time.Hour)
	updated, err := s.Update(ctx, []store.Update{{
		Ref:   store.Ref{Job: spec.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Cancel(s, "", now) },
	}})
	if err != nil || updated[0].Err != nil {
		t.Fatalf("Update: %v, %v", err, updated)
	}
	clock.Advance(2 * time.Hour) // the event of its submission leaves the log
	answers := make([]error, 1)
	var collected, purged error
	if err := s.do(ctx, 1, func(tx *txn) {
		_, collected = tx.collect(10)
		purged = tx.purge([]gq.JobID{spec.ID}, answers)
	}); err != nil || collected != nil || purged != nil || answers[0] != nil {
		t.Fatalf("a commit: %v, %v, %v, %v", err, collected, purged, answers)
	}
	if s.dropped.Load() == 0 {
		t.Error("nothing was dropped from the log, so nothing was carried over")
	}
	if err := s.each(prefixHistory, func(key, _ []byte) error { return fmt.Errorf("a history is left at %q", key) }); err != nil {
		t.Error(err)
	}
}
