package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// flow submits a workflow of two jobs of the type t.
func (f *fixture) flow(name string) gq.WorkflowID {
	f.Helper()
	flow := gq.NewWorkflow(name)
	spec := gq.Spec{Type: "t"}
	spec.Overrides.Lifetime = gq.Unlimited
	first := flow.Add("first", gq.Draft{Spec: spec})
	flow.Add("second", gq.Draft{Spec: spec}, gq.After(first))
	id, err := f.SubmitWorkflow(f.Context(), flow)
	if err != nil {
		f.Fatal(err)
	}
	return id
}

// records counts the records of workflows in the store.
func (f *fixture) records() int {
	f.Helper()
	docs, err := f.store.Docs(f.Context(), "workflow", "", store.MaxPage)
	if err != nil {
		f.Fatal(err)
	}
	return len(docs)
}

// A record goes when retention has removed the last job of its workflow, and not before: an hour
// later at most. Those of workflows with jobs stay, however old they are.
func TestWorkflowForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openKept(t, 3*time.Hour)
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		const ended = 120 // more than a sweep checks
		for i := range ended {
			id := f.flow(fmt.Sprint(i))
			if _, err := f.CancelWorkflow(f.Context(), id, "no need"); err != nil {
				t.Fatal(err)
			}
		}
		half, live := f.flow("half"), f.flow("live")
		job, lease := f.take()
		if job.Spec.Workflow != half {
			t.Fatalf("got a job of workflow %s", job.Spec.Workflow)
		}
		must[gq.State](t)(f.Complete(f.Context(), lease, nil))
		f.run()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := f.records(); n != ended+2 {
			t.Errorf("%d records before the end of the retention, want %d", n, ended+2)
		}
		time.Sleep(2*time.Hour + 2*time.Minute)
		synctest.Wait()
		if n := f.records(); n != 2 {
			t.Errorf("%d records after it, want 2", n)
		}
		for _, id := range []gq.WorkflowID{half, live} {
			w, err := f.Workflow(f.Context(), id)
			if err != nil || w.Status != gq.WorkflowRunning {
				t.Errorf("%v, %v", w.Status, err)
			}
		}
		if _, err := f.CancelWorkflow(f.Context(), half, "too late"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if n := f.records(); n != 1 {
			t.Errorf("%d records, want 1", n)
		}
		if _, err := f.Workflow(f.Context(), half); !errors.Is(err, gq.ErrNotFound) {
			t.Errorf("the forgotten workflow: %v", err)
		}
	})
}

// A job that waits for a signal says so, with what sends it.
func TestExplainSignal(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		flow := gq.NewWorkflow("order")
		first := flow.Add("first", gq.Draft{Spec: gq.Spec{Type: "t"}})
		flow.Signal("approved", time.Hour, gq.After(first))
		flow.Signal("paid", gq.Unlimited)
		id, err := f.SubmitWorkflow(f.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		explain := func(ref string) gq.Explanation {
			t.Helper()
			w, err := f.Workflow(f.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			job, _ := w.Job(ref)
			return must[gq.Explanation](t)(f.Explain(f.Context(), job.ID))
		}
		want := func(ref string, until time.Time, summary, remedy string, causes ...gq.Cause) {
			t.Helper()
			x := explain(ref)
			var got []gq.Cause
			var r gq.Reason
			for _, reason := range append([]gq.Reason{x.Reason}, x.Also...) {
				if got = append(got, reason.Cause); reason.Cause == gq.CauseSignal {
					r = reason
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(causes) || r.Summary != summary || r.Remedy != remedy || !r.Until.Equal(until) {
				t.Errorf("%s: %v, %q, %q, until %v", ref, got, r.Summary, r.Remedy, r.Until)
			}
		}
		send := func(ref string) string { return fmt.Sprintf("send it: gq workflow signal %s %s", id, ref) }
		want("paid", time.Time{}, fmt.Sprintf("waits for signal paid of workflow %s, without a deadline", id), send("paid"), gq.CauseSignal)
		want("approved", time.Time{}, fmt.Sprintf("waits for signal approved of workflow %s, for 1h0m0s from the end of its dependencies", id),
			send("approved"), gq.CauseDependency, gq.CauseSignal)
		_, lease := f.take()
		must[gq.State](t)(f.Complete(f.Context(), lease, nil))
		end := f.Now().Add(time.Hour)
		time.Sleep(time.Minute)
		f.sweep()
		want("approved", end, fmt.Sprintf("waits for signal approved of workflow %s, for 59m0s more; it then fails, at %s", id, end.UTC().Format(time.RFC3339)),
			send("approved"), gq.CauseSignal)
		if _, err := f.Signal(f.Context(), id, "approved", true); err != nil {
			t.Fatal(err)
		}
		want("approved", time.Time{}, "", "", gq.CauseFinished)
	})
}

// Jobs of a workflow are not replayed or edited one by one, and the type of signals is reserved.
func TestWorkflowJobsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.flow("order")
		w, err := f.Workflow(f.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		first := w.Jobs[0].ID
		if _, err := f.Edit(f.Context(), first, gq.JobEdit{Queue: "other"}); !errors.Is(err, gq.ErrIllegalMove) || !strings.Contains(err.Error(), "workflow "+id.String()) {
			t.Errorf("edited: %v", err)
		}
		if _, err := f.CancelWorkflow(f.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Replay(f.Context(), first); !errors.Is(err, gq.ErrIllegalMove) || !strings.Contains(err.Error(), "gq workflow retry "+id.String()) {
			t.Errorf("replayed: %v", err)
		}
		alone := f.submit(gq.Spec{})
		must[gq.State](t)(f.Cancel(f.Context(), alone, ""))
		report, err := f.ReplayWhere(f.Context(), gq.Query{Statuses: []gq.Status{gq.StatusCancelled}})
		if err != nil || len(report.Jobs) != 1 || report.Refused != 2 || !strings.Contains(report.Problem, "gq workflow retry") {
			t.Errorf("replayed by a filter: %+v, %v", report, err)
		}

		if _, err := f.Submit(f.Context(), gq.Spec{Type: gq.SignalType}); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("a job of the reserved type: %v", err)
		}
		if out, err := f.SubmitBatch(f.Context(), []gq.Spec{{Type: gq.SignalType}}); err != nil || !errors.Is(out[0].Err, gq.ErrInvalid) {
			t.Errorf("in a batch: %v, %v", out, err)
		}
		for _, j := range []gq.GraphJob{{Ref: "a", Spec: gq.Spec{Type: gq.SignalType}}, {Ref: "a", Spec: gq.Spec{Type: "t", Gate: gq.GateSignal}}} {
			if _, err := f.SubmitWorkflow(f.Context(), &gq.Flow{Jobs: []gq.GraphJob{j}}); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "jobs[0].type") {
				t.Errorf("%+v in a workflow: %v", j.Spec, err)
			}
		}
		if _, err := f.SubmitGraph(f.Context(), []gq.GraphJob{{Ref: "a", Spec: gq.Spec{Type: gq.SignalType}}}); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("in a graph: %v", err)
		}
	})
}

// TestSignalTooLarge: a value that is too large is refused by its name, and the workflow waits on.
func TestSignalTooLarge(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		e := newEngine(t, again(), engine.Options{})
		flow := gq.NewWorkflow("w")
		flow.Signal("approved", time.Hour)
		id := must[gq.WorkflowID](t)(e.SubmitWorkflow(t.Context(), flow))
		_, err := e.Signal(t.Context(), id, "approved", strings.Repeat("x", machine.DefaultLimits().ResultBytes))
		if faults := errs.FaultsOf(err); len(faults) != 1 || faults[0].Field != "value" {
			t.Errorf("%v", err)
		}
		must[gq.State](t)(e.Signal(t.Context(), id, "approved", true))
	})
}

// A job of a workflow has as many dependencies as any other job, at its submission and when it
// is added later. Only final jobs stand behind more.
func TestWorkflowBreadth(t *testing.T) {
	spec.Covers(t, "J-82")
	bubble(t, func(t *testing.T, f *fixture) {
		job := gq.Draft{Spec: gq.Spec{Type: "t"}}
		var all []gq.Option
		flow, wide := gq.NewWorkflow("most"), gq.NewWorkflow("too many")
		for i := range gq.MaxDependencies + 1 {
			all = append(all, gq.After(flow.Add(fmt.Sprint(i), job)))
			wide.Add(fmt.Sprint(i), job)
		}
		flow.Add("widest", job, all[1:]...)
		flow.Finally("last", job)
		flow.Finally("saved", job, gq.OnSuccess)
		wide.Add("first", job, all...)
		wide.Add("second", job, all[1:]...)
		wide.Add("third", job, all...)
		id, err := f.SubmitWorkflow(f.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		w, err := f.Workflow(f.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for ref, want := range map[string]int{"widest": gq.MaxDependencies, "last": gq.MaxDependencies + 2, "saved": gq.MaxDependencies + 2} {
			if j, _ := w.Job(ref); j.Job.State.Waits != want {
				t.Errorf("%s waits for %d jobs, want %d", ref, j.Job.State.Waits, want)
			}
		}
		refused := func(call string, err error, want ...gq.Fault) {
			t.Helper()
			if got := errs.FaultsOf(err); !errors.Is(err, gq.ErrInvalid) || !slices.Equal(got, want) {
				t.Errorf("%s: %v\nwant %v", call, err, want)
			}
		}
		tooMany := func(i int, name string) gq.Fault {
			return gq.Fault{Field: fmt.Sprintf("jobs[%d].depends_on", i), Problem: fmt.Sprintf("1001 dependencies are more than 1000 (job %q)", name)}
		}
		before := f.records()
		_, err = f.SubmitWorkflow(f.Context(), wide)
		refused("submit", err, tooMany(gq.MaxDependencies+1, "first"), tooMany(gq.MaxDependencies+3, "third"))
		if now := f.records(); now != before {
			t.Errorf("%d workflows after a refused one, want %d", now, before)
		}
		more := &gq.Flow{}
		more.Add("more", job, all[1:]...)
		more.Add("most", job, all...)
		_, err = f.AddToWorkflow(f.Context(), id, more)
		refused("add", err, tooMany(1, "most"))
		more.Jobs = more.Jobs[:1]
		must[gq.Workflow](t)(f.AddToWorkflow(f.Context(), id, more))
	})
}

// A job of a retried workflow waits for all of the jobs that are tried again.
func TestRetriedJobWaitsForAll(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		job := func(queue string) gq.Draft {
			policy := gq.PresetSemantics.Policy()
			policy.MaxAttempts = 1
			return gq.Draft{Spec: gq.Spec{Type: "t", Queue: queue, Policy: policy}}
		}
		names := []string{"a", "b", "c"}
		flow := gq.NewWorkflow("w")
		var refs []gq.Ref
		for _, name := range names {
			refs = append(refs, flow.Add(name, job(name)))
		}
		flow.Add("join", job("join"), gq.After(refs...))
		id := must[gq.WorkflowID](t)(f.SubmitWorkflow(t.Context(), flow))
		for _, name := range names {
			_, lease := f.take(on(name))
			must[gq.State](t)(f.Fail(t.Context(), lease, gq.Failure{Category: gq.CategoryPermanent}))
		}
		f.sweep()
		must[gq.Workflow](t)(f.RetryWorkflow(t.Context(), id))
		for _, name := range []string{"b", "a", "c"} {
			w := must[gq.Workflow](t)(f.Workflow(t.Context(), id))
			if join, _ := w.Job("join"); join.Job.State.Status != gq.StatusPending {
				t.Errorf("before %s the last job is %s", name, join.Job.State.Status)
			}
			_, lease := f.take(on(name))
			must[gq.State](t)(f.Complete(t.Context(), lease, nil))
			f.sweep()
		}
		f.take(on("join"))
	})
}
