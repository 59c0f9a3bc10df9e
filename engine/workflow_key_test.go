package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// The error names the job that has a key.
func TestKeyInWorkflowNamesTheJob(t *testing.T) {
	e := newEngine(t, openKept(t, time.Hour), engine.Options{})
	for _, add := range []bool{false, true} {
		f := &gq.Flow{Name: "order", Jobs: []gq.GraphJob{
			{Ref: "pay", Spec: gq.Spec{Type: "t"}},
			{Ref: "charge", Spec: gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}}},
		}}
		id, err := e.SubmitWorkflow(t.Context(), f)
		if !id.IsZero() {
			t.Errorf("a refused workflow has the id %s", id)
		}
		if add {
			id, first := e.SubmitWorkflow(t.Context(), &gq.Flow{Jobs: []gq.GraphJob{{Ref: "first", Spec: gq.Spec{Type: "t"}}}})
			if first != nil {
				t.Fatal(first)
			}
			_, err = e.AddToWorkflow(t.Context(), id, f)
		}
		if !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "jobs[1].idempotency_key") || !strings.Contains(err.Error(), `job "charge"`) {
			t.Errorf("added %v: %v", add, err)
		}
	}
}
