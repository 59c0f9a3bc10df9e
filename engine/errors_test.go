package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
)

// faulty fails unless an error has one fault with this field and these words.
func faulty(t *testing.T, what string, err error, field, words string) {
	t.Helper()
	invalid, ok := errors.AsType[*gq.InvalidError](err)
	if !ok || len(invalid.Faults) != 1 || invalid.Faults[0].Field != field || !strings.Contains(invalid.Faults[0].Problem, words) {
		t.Errorf("%s: %v; want a fault of %s with %q", what, err, field, words)
	}
}

func TestErrorsOfWorkflowsNameJobs(t *testing.T) {
	e := newEngine(t, open(t), engine.Options{})
	ctx := t.Context()
	draft := gq.Draft{Spec: gq.Spec{Type: "t"}}
	self := gq.NewWorkflow("")
	self.Add("charge", draft, gq.After(gq.Ref("charge")))
	_, err := e.SubmitWorkflow(ctx, self)
	faulty(t, "a job that needs itself", err, "jobs[0].needs[0].ref", `"charge" depends on itself`)

	last := gq.NewWorkflow("")
	last.Add("charge", draft, gq.After(gq.Ref("notify")))
	last.Finally("notify", draft)
	_, err = e.SubmitWorkflow(ctx, last)
	faulty(t, "a job that needs a final one", err, "jobs[0].needs[0].ref", `"notify" is a final job`)

	flow := gq.NewWorkflow("")
	flow.Add("charge", draft)
	flow.Finally("notify", draft)
	id := must[gq.WorkflowID](t)(e.SubmitWorkflow(ctx, flow))
	more := gq.NewWorkflow("")
	more.Add("gift", draft, gq.After(gq.Ref("notify")))
	_, err = e.AddToWorkflow(ctx, id, more)
	faulty(t, "an added job that needs a final one", err, "jobs[0].needs[0].ref", `"notify" is a final job`)
	self = gq.NewWorkflow("")
	self.Add("gift", draft, gq.After(gq.Ref("gift")))
	_, err = e.AddToWorkflow(ctx, id, self)
	faulty(t, "an added job that needs itself", err, "jobs[0].needs[0].ref", `"gift" depends on itself`)
	if w := must[gq.Workflow](t)(e.Workflow(ctx, id)); len(w.Jobs) != 2 {
		t.Errorf("the workflow has %d jobs", len(w.Jobs))
	}

	alone := gq.NewWorkflow("")
	alone.Add("charge", draft)
	id = must[gq.WorkflowID](t)(e.SubmitWorkflow(ctx, alone))
	must[gq.CancelReport](t)(e.CancelWorkflow(ctx, id, ""))
	more = gq.NewWorkflow("")
	more.Add("gift", draft)
	if _, err = e.AddToWorkflow(ctx, id, more); !errors.Is(err, gq.ErrIllegalMove) || !strings.Contains(err.Error(), "has ended (CANCELLED)") {
		t.Errorf("adding to a workflow that has ended: %v", err)
	}
}

func TestErrorsOfSchedulesNameThem(t *testing.T) {
	e := newEngine(t, open(t), engine.Options{})
	ctx := t.Context()
	now := time.Now()
	for verb, call := range map[string]func() error{
		"backfill": func() error {
			_, err := e.BackfillSchedule(ctx, gq.Backfill{Schedule: "nope", From: now.Add(-time.Hour), To: now})
			return err
		},
		"trigger": func() error { _, err := e.TriggerSchedule(ctx, "nope"); return err },
		"pause":   func() error { _, err := e.PauseSchedule(ctx, "nope"); return err },
		"resume":  func() error { _, err := e.ResumeSchedule(ctx, "nope"); return err },
		"get":     func() error { _, err := e.Schedule(ctx, "nope"); return err },
		"delete":  func() error { return e.DeleteSchedule(ctx, "nope") },
	} {
		if err := call(); !errors.Is(err, gq.ErrNotFound) || err.Error() != `no schedule "nope"` {
			t.Errorf("%s: %v", verb, err)
		}
	}
	_, err := e.PutSchedule(ctx, gq.Schedule{Name: "s", Every: time.Hour, Missed: gq.MissedSkip, MissedLimit: 5, Template: gq.Spec{Type: "t"}})
	faulty(t, "a limit that does not count", err, "missed_limit", "set missed to all")
}

// A start deadline can be a time. Repeating a submission with it is no reuse of its key.
func TestStartBefore(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		by := time.Now().Add(time.Hour)
		id := f.submit(gq.Spec{}, gq.StartBefore(by), gq.Key("k"))
		time.Sleep(time.Minute)
		spec := gq.Spec{Type: "t"}
		gq.StartBefore(by)(&spec)
		gq.Key("k")(&spec)
		if out := must[gq.SubmitResult](t)(f.Submit(t.Context(), spec)); out.ID() != id || !out.Same {
			t.Errorf("the same submission again: %+v", out)
		}
		time.Sleep(59 * time.Minute)
		if s := must[gq.State](t)(f.Advance(t.Context(), id)); s.Status != gq.StatusCancelled || s.Reason != machine.ReasonStartDeadline {
			t.Errorf("the job is %s (%s) after its deadline", s.Status, s.Reason)
		}
		if jobs := must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1})); len(jobs) != 0 {
			t.Error("the job was claimed after its deadline")
		}
		late := gq.Spec{Type: "t"}
		gq.StartBefore(by)(&late)
		_, err := f.Submit(t.Context(), late)
		faulty(t, "a deadline that has passed", err, "policy.start_within", "choose a later one")
	})
}

// A worker that stops is not listed any more, at once.
func TestWorkerLeaves(t *testing.T) {
	e := newEngine(t, open(t), engine.Options{})
	ctx := t.Context()
	listed := func() int { return len(must[[]gq.LiveWorker](t)(e.Workers(ctx))) }
	must[gq.SubmitResult](t)(e.Submit(ctx, gq.Spec{Type: "t"}))
	through, end, err := e.Connected(ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := e.Connected(ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	jobs := must[[]gq.Job](t)(e.Claim(through, gq.ClaimRequest{Worker: "w", N: 1}))
	if end(false); listed() != 1 {
		t.Error("a worker with another stream is not listed")
	}
	if _, err := e.Complete(ctx, jobs[0].State.Lease.Ref(), nil); err != nil {
		t.Fatal(err)
	}
	if other(true); listed() != 0 {
		t.Error("a worker that has stopped is listed")
	}
	must[[]gq.Job](t)(e.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 1}))
	if listed() != 1 {
		t.Error("a worker that is back is not listed")
	}
}
