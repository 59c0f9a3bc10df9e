package engine_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gopherqueue/gq"
)

// Callers that add jobs at the same time replace the final job one after another: each succeeds,
// and a reader in between sees a workflow that runs.
func TestWorkflowAddedToAtOnce(t *testing.T) {
	const callers, each = 30, 3
	bubble(t, func(t *testing.T, f *fixture) {
		flow := gq.NewWorkflow("order")
		flow.Signal("go", gq.Unlimited)
		flow.Finally("end", gq.Draft{Spec: gq.Spec{Type: "t"}})
		id, err := f.SubmitWorkflow(f.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for i := range each {
					more := gq.NewWorkflow("")
					more.Add(fmt.Sprintf("%d-%d", caller, i), gq.Draft{Spec: gq.Spec{Type: "t"}})
					if _, err := f.AddToWorkflow(f.Context(), id, more); err != nil {
						t.Errorf("add: %v", err)
					}
				}
			})
			all.Go(func() {
				w, err := f.Workflow(f.Context(), id)
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				if end, _ := w.Job("end"); end.Job.State.Status != gq.StatusPending || end.ID != end.Job.State.ID {
					t.Errorf("the final job %s is %s, %s", end.ID, end.Job.State.ID, end.Job.State.Status)
				}
			})
		}
		all.Wait()
		w, err := f.Workflow(f.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		end, _ := w.Job("end")
		if want := 2 + callers*each; len(w.Jobs) != want || len(end.Job.Spec.DependsOn) != want-1 {
			t.Errorf("%d jobs, of which the final one waits for %d; want %d", len(w.Jobs), len(end.Job.Spec.DependsOn), want)
		}
	})
}
