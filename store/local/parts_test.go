package local

import (
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestCommitIsOrderedByKind: jobs that are submitted or that end together have their
// records of one kind next to each other, and ids from elsewhere are sorted.
func TestCommitIsOrderedByKind(t *testing.T) {
	var kinds string
	var ids []string
	s, err := open("db", Options{fs: vfs.NewMem(), OnCommit: func(commit []byte) {
		kinds, ids = "", nil
		for r := batchrepr.Read(commit); ; {
			_, key, _, ok, err := r.Next()
			if err != nil {
				t.Error(err)
			}
			if !ok || err != nil {
				return
			}
			kinds += string(key[:1])
			if key[0] == prefixID {
				ids = append(ids, string(key[1:]))
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var groups []store.Group
	for i := range 3 {
		groups = append(groups, store.One(gq.Spec{
			ID: machine.NewJobID([16]byte{1, byte(9 - i)}), Type: "t", Queue: "q", Payload: gq.Payload{Data: []byte("{}"), ContentType: gq.JSON},
		}.WithDefaults()))
	}
	if _, err := s.Insert(t.Context(), groups); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(ids) {
		t.Errorf("ids of submitted jobs are not sorted: %x", ids)
	}
	if want := "eeefffhhhbcp"; kinds != want {
		t.Errorf("submitted jobs: %s, want %s", kinds, want)
	}
	claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{"q"}}, N: 3, Worker: "w"}})
	if err != nil {
		t.Fatal(err)
	}
	var updates []store.Update
	for _, j := range claimed[0].Jobs {
		updates = append(updates, store.Update{Ref: store.Ref{Job: j.State.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Complete(s, j.State.Lease.Ref(), nil, now)
		}})
	}
	if _, err := s.Update(t.Context(), updates); err != nil {
		t.Fatal(err)
	}
	if want := "fffgggpd"; kinds != want {
		t.Errorf("completed jobs: %s, want %s", kinds, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
