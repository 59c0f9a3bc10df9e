package postgres_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestExportOneByOne exports jobs one at a time, where the numbers of a block are not all
// used and the next block has many rows.
func TestExportOneByOne(t *testing.T) {
	s := open(t, pgtest.Database(t), store.Config{})
	defer s.Close()
	var specs []gq.Spec
	for range 200 {
		specs = append(specs, newSpec("q"))
	}
	mustInsert(t, s, specs...)
	page, err := s.List(t.Context(), gq.Query{OldestFirst: true, Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	var gone []gq.JobID
	for _, j := range page.Jobs {
		if j.State.Sequence%64 > 60 { // the last numbers of each block
			gone = append(gone, j.State.ID)
		}
	}
	var updates []store.Update
	for _, id := range gone {
		updates = append(updates, store.Update{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Cancel(s, "", now)
		}})
	}
	if _, err := s.Update(t.Context(), updates); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	x, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	jobs := 0
	for cursor := ""; ; {
		items, next, err := x.Read(t.Context(), cursor, 1)
		if err != nil {
			t.Fatal(err)
		}
		jobs += len(items.Jobs)
		if cursor = next; cursor == "" {
			break
		}
	}
	if want := 200 - len(gone); jobs != want {
		t.Errorf("%d jobs were exported, want %d", jobs, want)
	}
}
