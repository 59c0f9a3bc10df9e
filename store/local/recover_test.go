package local

import (
	"context"
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// A store that is closed while it updates the dependents of an ended job continues when
// it is reopened. The call that ended the job was running, so it is answered.
func TestTellingGoesOn(t *testing.T) {
	const kids = 3*releaseStep - 1
	ctx, fs := context.Background(), vfs.NewMem()
	var s *Store
	var ending atomic.Bool
	closed := make(chan error, 1)
	hook := func([]byte) {
		if !ending.CompareAndSwap(true, false) {
			return
		}
		go func() { closed <- s.Close() }()
		for { // until nothing more begins
			s.intake.mu.Lock()
			done := s.intake.closed
			s.intake.mu.Unlock()
			if done {
				return
			}
			runtime.Gosched()
		}
	}
	s, err := open("db", Options{fs: fs, OnCommit: hook})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(n uint32) gq.Spec {
		var id [16]byte
		binary.BigEndian.PutUint32(id[:], n)
		return gq.Spec{ID: machine.NewJobID(id), Type: "work"}.WithDefaults()
	}
	parent := spec(0)
	group := store.Group{Jobs: []gq.Spec{parent}}
	for n := range uint32(kids) {
		kid := spec(n + 1)
		kid.DependsOn = []gq.Dependency{{Kind: gq.DependencyFanIn, Job: parent.ID}}
		group.Jobs = append(group.Jobs, kid)
	}
	if placed, err := s.Insert(ctx, []store.Group{group}); err != nil || placed[0].Err != nil {
		t.Fatalf("Insert: %v, %v", err, placed)
	}
	ending.Store(true)
	updated, err := s.Update(ctx, []store.Update{{
		Ref:   store.Ref{Job: parent.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Cancel(s, "", now) },
	}})
	if err != nil || updated[0].Err != nil {
		t.Fatalf("Update: %v, %v", err, updated)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	waiting := func() int64 {
		counts, err := s.Counts(ctx, gq.DefaultQueue)
		if err != nil {
			t.Fatal(err)
		}
		return counts[0].By[gq.StatusPending]
	}
	if s, err = open("db", Options{fs: fs}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for {
		n, err := s.ReleaseDependents(ctx, 100)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d of %d dependents still wait", n, kids)
	}
}
