package engine_test

import (
	"maps"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// A job of matching that names no units has the default also where no server runs rounds, whatever it requires
// and however it comes into the queue.
func TestUnitsWithoutRounds(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	none := map[string]string{match.AttributeUnits: "0"}
	for _, test := range []struct {
		spec gq.Spec
		want int64
	}{
		{gq.Spec{Queue: match.Queue, Type: "AI"}, 1},
		{gq.Spec{Queue: match.Queue, Type: "QUANTUM"}, 1},
		{gq.Spec{Queue: match.Queue, Type: "AI", Requires: []string{"gq.matching"}}, 1},
		{gq.Spec{Queue: match.Queue, Type: "AI", CostUnits: 3}, 3},
		{gq.Spec{Queue: match.Queue, Type: "AI", CostUnits: 3, Attributes: none}, 3},
		{gq.Spec{Queue: match.Queue, Type: "AI", Attributes: none}, 0},
		{gq.Spec{Queue: match.Queue, Type: "mail"}, 0},
		{gq.Spec{Queue: "other", Type: "AI"}, 0},
	} {
		if got := f.get(f.submit(test.spec)).Spec.CostUnits; got != test.want {
			t.Errorf("%s in %s with %v: %d units, want %d", test.spec.Type, test.spec.Queue, test.spec.Attributes, got, test.want)
		}
	}
	for range 2 {
		moved := must[gq.SubmitResult](t)(f.Edit(t.Context(), f.submit(gq.Spec{Queue: "other", Type: "AI"}), gq.JobEdit{Queue: match.Queue}))
		if got := f.get(moved.ID()).Spec.CostUnits; got != 1 {
			t.Errorf("a job that was moved into the queue has %d units, want 1", got)
		}
	}
}

// Jobs of matching that were stored with 0 units and without the attribute that says so have 0 in a copy too. The
// stored jobs do not change.
func TestStoredUnitsStay(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	copies := map[string]func(gq.JobID) gq.JobID{
		"edit": func(id gq.JobID) gq.JobID {
			return must[gq.SubmitResult](t)(f.Edit(t.Context(), id, gq.JobEdit{RunAt: time.Now().Add(time.Hour)})).ID()
		},
		"replay": func(id gq.JobID) gq.JobID {
			must[gq.State](t)(f.Cancel(t.Context(), id, ""))
			return must[gq.SubmitResult](t)(f.Replay(engine.WithCaller(t.Context(), "ada"), id)).ID()
		},
		"replay by a filter": func(id gq.JobID) gq.JobID {
			must[gq.State](t)(f.Cancel(t.Context(), id, ""))
			q := gq.Query{Queue: match.Queue, Statuses: []gq.Status{gq.StatusCancelled}}
			for _, again := range must[gq.ReplayReport](t)(f.ReplayWhere(t.Context(), q)).Jobs {
				if f.get(again).Spec.ReplayOf == id {
					return again
				}
			}
			t.Fatalf("job %s was not replayed", id)
			return id
		},
	}
	stored := byte(0)
	for name, copied := range copies {
		for kind, attributes := range map[string]map[string]string{"AI": nil, "QUANTUM": {"a": "1"}} {
			for _, again := range []bool{false, true} {
				stored++
				spec := gq.Spec{ID: machine.NewJobID([16]byte{stored}), Queue: match.Queue, Type: kind, Attributes: attributes}.WithDefaults()
				if placed := must[[]store.Inserted](t)(f.store.Insert(t.Context(), []store.Group{store.One(spec)})); placed[0].Err != nil {
					t.Fatal(placed[0].Err)
				}
				id := copied(spec.ID)
				if again { // the copy of a copy
					id = copied(id)
				}
				if got := f.get(id).Spec; got.CostUnits != 0 || got.Attributes["a"] != attributes["a"] {
					t.Errorf("%s of a stored job of type %s: %d units and the attributes %v, want 0 units", name, kind, got.CostUnits, got.Attributes)
				}
				if got := f.get(spec.ID).Spec; got.CostUnits != 0 || !maps.Equal(got.Attributes, attributes) {
					t.Errorf("%s: the stored job has %d units and the attributes %v, want %v", name, got.CostUnits, got.Attributes, attributes)
				}
				must[gq.State](t)(f.Cancel(t.Context(), id, ""))
			}
		}
	}
}
