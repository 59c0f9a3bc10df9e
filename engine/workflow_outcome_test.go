package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// docReads counts the reads of documents.
type docReads struct {
	store.Store
	store.Changer
	n int
}

func (s *docReads) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	s.n++
	return s.Store.Doc(ctx, kind, name)
}

// The claim of a final job says what has become of its workflow, also after a retry and after jobs
// were added. The claims of other jobs do not, and an engine reads no record for them that it wrote
// itself, and one of another engine once.
func TestClaimOfFinalJobHasTheOutcome(t *testing.T) {
	s := open(t)
	docs := &docReads{Store: s, Changer: s.(store.Changer)}
	e := newEngine(t, docs, engine.Options{})
	f := &fixture{T: t, Engine: e}
	job := func(queue string) gq.Draft { return gq.Draft{Spec: gq.Spec{Type: "t", Queue: queue}} }
	of := func(queue string) func(*gq.ClaimRequest) {
		return func(r *gq.ClaimRequest) { r.Queues = []string{queue} }
	}
	submit := func(queue string) gq.WorkflowID {
		t.Helper()
		flow := gq.NewWorkflow(queue)
		second := flow.Add("second", job(queue), gq.After(flow.Add("first", job(queue))))
		flow.Add("third", job(queue), gq.After(second))
		flow.Finally("mail", job(queue))
		flow.Finally("close", job(queue), gq.OnFailure)
		return must[gq.WorkflowID](t)(e.SubmitWorkflow(t.Context(), flow))
	}
	// next claims the next job of a queue, which has the name and the outcome, and ends it.
	next := func(queue, ref string, outcome gq.WorkflowStatus, succeeds bool) {
		t.Helper()
		j, l := f.take(of(queue))
		if j.Spec.Ref != ref || j.WorkflowOutcome != outcome {
			t.Errorf("claimed %s of %s with the outcome %d, want %s with %d", j.Spec.Ref, queue, j.WorkflowOutcome, ref, outcome)
		}
		if succeeds {
			must[gq.State](t)(e.Complete(t.Context(), l, nil))
		} else {
			must[gq.State](t)(e.Fail(t.Context(), l, gq.Failure{Category: gq.CategoryPermanent}))
		}
	}
	good, bad := submit("good"), submit("bad")
	next("good", "first", 0, true)
	next("bad", "first", 0, true)
	next("good", "second", 0, true)
	next("bad", "second", 0, false)
	if docs.n != 0 {
		t.Errorf("the claims of jobs that are not final read %d records", docs.n)
	}
	flow := gq.NewWorkflow("other")
	for i, after := range []gq.Option{nil, gq.After(gq.Ref("0")), gq.After(gq.Ref("1"))} {
		flow.Add(fmt.Sprint(i), job("other"), []gq.Option{after}[:min(i, 1)]...)
	}
	must[gq.WorkflowID](t)(newEngine(t, s, engine.Options{}).SubmitWorkflow(t.Context(), flow))
	for i := range 3 {
		next("other", fmt.Sprint(i), 0, true)
	}
	if docs.n != 1 {
		t.Errorf("the claims of jobs of another engine's workflow read its record %d times, want once", docs.n)
	}
	more := &gq.Flow{}
	more.Add("more", job("good"), gq.After(gq.Ref("first")))
	must[gq.Workflow](t)(e.AddToWorkflow(t.Context(), good, more))
	for range 2 { // in either order
		j, l := f.take(of("good"))
		if j.WorkflowOutcome != 0 {
			t.Errorf("%s has the outcome %s", j.Spec.Ref, j.WorkflowOutcome)
		}
		must[gq.State](t)(e.Complete(t.Context(), l, nil))
	}
	next("good", "mail", gq.WorkflowSucceeded, true)
	next("bad", "mail", gq.WorkflowFailed, true)
	next("bad", "close", gq.WorkflowFailed, true)
	must[gq.Workflow](t)(e.RetryWorkflow(t.Context(), bad))
	next("bad", "second", 0, true)
	next("bad", "third", 0, true)
	next("bad", "mail", gq.WorkflowSucceeded, true)
}
