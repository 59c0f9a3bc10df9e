package engine_test

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/match"
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
