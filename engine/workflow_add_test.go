package engine_test

import (
	"errors"
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

// The final job waits for each of several jobs that are added in one call, whichever ends last.
func TestFinalWaitsForAllAddedJobs(t *testing.T) {
	for _, last := range []string{"a", "b", "c"} {
		bubble(t, func(t *testing.T, f *fixture) {
			flow := gq.NewWorkflow("order")
			flow.Add("first", gq.Draft{Spec: gq.Spec{Type: "t", Queue: "first"}})
			flow.Finally("end", gq.Draft{Spec: gq.Spec{Type: "t", Queue: "end"}})
			id := must[gq.WorkflowID](t)(f.SubmitWorkflow(t.Context(), flow))
			more := gq.NewWorkflow("")
			queues := []string{"first"}
			for _, name := range []string{"a", "b", "c"} {
				more.Add(name, gq.Draft{Spec: gq.Spec{Type: "t", Queue: name}})
				if name != last {
					queues = append(queues, name)
				}
			}
			must[gq.Workflow](t)(f.AddToWorkflow(t.Context(), id, more))
			for _, queue := range append(queues, last) {
				w := must[gq.Workflow](t)(f.Workflow(t.Context(), id))
				if end, _ := w.Job("end"); end.Job.State.Status != gq.StatusPending {
					t.Errorf("before %s the final job is %s", queue, end.Job.State.Status)
				}
				_, lease := f.take(on(queue))
				must[gq.State](t)(f.Complete(t.Context(), lease, nil))
				f.sweep()
			}
			f.take(on("end"))
		})
	}
}

// A workflow in which a job has failed still runs, and jobs can be added to it. Its final job for
// success has ended and stays as it is; the one for either end waits for the new jobs too.
func TestWorkflowAddedToAfterAFailure(t *testing.T) {
	for _, end := range []struct {
		how    gq.Failure
		status gq.Status
	}{
		{gq.Failure{Category: gq.CategoryPermanent}, gq.StatusFailed},
		{gq.Failure{Category: gq.CategoryTemporary}, gq.StatusDeadLetter},
	} {
		bubble(t, func(t *testing.T, f *fixture) {
			job := func(queue string) gq.Draft {
				policy := gq.PresetSemantics.Policy()
				policy.MaxAttempts = 1
				return gq.Draft{Spec: gq.Spec{Type: "t", Queue: queue, Policy: policy}}
			}
			flow := gq.NewWorkflow("order")
			flow.Add("fails", job("first"))
			flow.Add("later", job("second"))
			flow.Finally("thank", job("thank"), gq.OnSuccess)
			flow.Finally("clean", job("clean"))
			id := must[gq.WorkflowID](t)(f.SubmitWorkflow(t.Context(), flow))
			_, lease := f.take(on("first"))
			must[gq.State](t)(f.Fail(t.Context(), lease, end.how))
			f.sweep()
			more := gq.NewWorkflow("")
			more.Add("more", job("more"))
			w, err := f.AddToWorkflow(t.Context(), id, more)
			if err != nil {
				t.Fatal(err)
			}
			thank, _ := w.Job("thank")
			if thank.Job.State.Status != end.status || thank.Job.State.Reason != "dependency" {
				t.Errorf("the final job for success is %+v", thank.Job.State)
			}
			for _, queue := range []string{"second", "more"} {
				w := must[gq.Workflow](t)(f.Workflow(t.Context(), id))
				if clean, _ := w.Job("clean"); clean.Job.State.Status != gq.StatusPending {
					t.Errorf("before %s the last job is %s", queue, clean.Job.State.Status)
				}
				_, lease := f.take(on(queue))
				must[gq.State](t)(f.Complete(t.Context(), lease, nil))
				f.sweep()
			}
			_, lease = f.take(on("clean"))
			must[gq.State](t)(f.Complete(t.Context(), lease, nil))
			if w := must[gq.Workflow](t)(f.Workflow(t.Context(), id)); w.Status != gq.WorkflowFailed {
				t.Errorf("the workflow is %s", w.Status)
			}
			if _, err := f.AddToWorkflow(t.Context(), id, more); !errors.Is(err, gq.ErrIllegalMove) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}
