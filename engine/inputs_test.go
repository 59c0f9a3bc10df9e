package engine_test

import (
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// A claim brings the results that its jobs depend on, as far as those of one job together are not
// too large. Each of several jobs has its own allowance.
func TestInputsOfAJobAddUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		flow := gq.NewWorkflow("large")
		var needs []gq.Option
		for _, ref := range []string{"a", "b", "c", "d"} {
			needs = append(needs, gq.After(flow.Add(ref, gq.Draft{Spec: gq.Spec{Type: "part"}})))
		}
		for _, ref := range []string{"x", "y"} {
			flow.Add(ref, gq.Draft{Spec: gq.Spec{Type: "join"}}, needs...)
		}
		must[gq.WorkflowID](t)(f.SubmitWorkflow(t.Context(), flow))
		sizes := map[string]int{"a": gq.MaxInputBytes / 2, "b": gq.MaxInputBytes / 4, "c": gq.MaxInputBytes/4 + 1, "d": gq.MaxInputBytes / 4}
		for _, job := range f.claim(4) {
			result := []byte(`"` + strings.Repeat("x", sizes[job.Spec.Ref]-2) + `"`)
			must[gq.State](t)(f.Complete(t.Context(), job.State.Lease.Ref(), result))
		}
		f.sweep()
		for _, job := range f.claim(2) {
			if len(job.Inputs) != 4 {
				t.Fatalf("%s has %d inputs, want 4", job.Spec.Ref, len(job.Inputs))
			}
			for _, in := range job.Inputs {
				if omitted := in.Ref == "c"; in.Omitted != omitted || len(in.Result) != sizes[in.Ref] && !omitted || omitted && len(in.Result) > 0 {
					t.Errorf("%s: the result of %s has %d bytes and is omitted: %t; want %d and %t", job.Spec.Ref, in.Ref, len(in.Result), in.Omitted, sizes[in.Ref], omitted)
				}
			}
		}
	})
}
