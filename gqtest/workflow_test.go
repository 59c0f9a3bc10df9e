package gqtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/gqtest"
	"github.com/gopherqueue/gq/worker"
)

type order struct{ ID string }

type receipt struct{ Number string }

var (
	charge  = gq.NewKind[order, receipt]("order.charge")
	pack    = gq.NewKind[order, string]("order.pack", gq.MaxAttempts(1))
	tell    = gq.NewKind[string, gq.None]("tell")
	approve = gq.NewKind[gq.None, string](gq.SignalType)
)

// shop is a queue with handlers for orders.
type shop struct {
	*gqtest.Queue
	told    []string
	charged int
	packing error
}

func newShop(t *testing.T) *shop {
	s := &shop{Queue: gqtest.New(t)}
	w := worker.New(s.Queue, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	worker.HandleResult(w, charge, func(_ context.Context, job *worker.Job[order]) (receipt, error) {
		s.charged++
		return receipt{"r-" + job.Args.ID}, nil
	})
	worker.HandleResult(w, pack, func(_ context.Context, job *worker.Job[order]) (string, error) {
		r, err := worker.ResultOf(job, charge, "charge")
		if err != nil {
			return "", err
		}
		return "box for " + r.Number, s.packing
	})
	worker.Handle(w, tell, func(_ context.Context, job *worker.Job[string]) error {
		s.told = append(s.told, job.Args)
		return nil
	})
	s.AddWorker(w)
	return s
}

// place submits an order with three final jobs.
func (s *shop) place(t *testing.T) gq.WorkflowID {
	t.Helper()
	o := order{"7"}
	flow := gq.NewWorkflow("order 7")
	paid := flow.Add("charge", charge.With(o))
	flow.Add("pack", pack.With(o), gq.After(paid))
	flow.Finally("either", tell.With("either"))
	flow.Finally("good", tell.With("good"), gq.OnSuccess)
	flow.Finally("bad", tell.With("bad"), gq.OnFailure)
	id, err := s.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *shop) workflow(t *testing.T, id gq.WorkflowID) gq.Workflow {
	t.Helper()
	w, err := s.Workflow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (s *shop) want(t *testing.T, id gq.WorkflowID, status gq.WorkflowStatus, told string) gq.Workflow {
	t.Helper()
	w := s.workflow(t, id)
	if w.Status != status || strings.Join(s.told, " ") != told {
		t.Errorf("the workflow is %s and told %q, want %s and %q:\n%s", w.Status, s.told, status, told, w.Text())
	}
	return w
}

func TestWorkflow(t *testing.T) {
	s := newShop(t)
	id := s.place(t)
	w := s.want(t, id, gq.WorkflowRunning, "")
	const picture = `charge order.charge SCHEDULED
pack order.pack PENDING after charge
either tell PENDING after the end of charge pack
good tell PENDING after charge pack
bad tell PENDING after the end of charge pack
`
	if w.Name != "order 7" || w.Text() != picture || !strings.Contains(w.SVG(), "pack order.pack") {
		t.Errorf("%s:\n%s", w.Name, w.Text())
	}
	s.RunUntilIdle()
	w = s.want(t, id, gq.WorkflowSucceeded, "either good")
	packed, _ := w.Job("pack")
	if box, err := pack.Wait(t.Context(), s.Client, packed.ID); err != nil || box != "box for r-7" || packed.Job.Spec.Workflow != id {
		t.Errorf("%q, %v", box, err)
	}
	page, err := s.Workflows(t.Context(), gq.WorkflowQuery{})
	if err != nil || len(page.Workflows) != 1 || page.Workflows[0].ID != id {
		t.Errorf("%+v, %v", page, err)
	}
}

// A name that the workflow does not have fails the job at once, and says which one was meant.
func TestResultOfUnknownName(t *testing.T) {
	q := gqtest.New(t)
	w := worker.New(q, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	worker.HandleResult(w, charge, func(context.Context, *worker.Job[order]) (receipt, error) { return receipt{}, nil })
	late := gq.NewKind[gq.None, gq.None]("late", gq.Resilient)
	worker.Handle(w, late, func(_ context.Context, job *worker.Job[gq.None]) error {
		_, err := worker.ResultOf(job, charge, "chrage")
		if !errors.Is(err, gq.ErrNotFound) {
			t.Errorf("ResultOf: %v", err)
		}
		return err
	})
	q.AddWorker(w)
	flow := gq.NewWorkflow("two")
	a := flow.Add("charge", charge.With(order{}))
	flow.Add("late", late.With(gq.None{}, gq.After(a)))
	id, err := q.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	alone := submit(t, q, late, gq.None{})
	q.RunUntilIdle()
	all, err := q.Workflow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	job, _ := all.Job("late")
	for id, want := range map[gq.JobID]string{job.ID: `has no job "chrage"; did you mean "charge"?`, alone: `is not a part of a workflow`} {
		if s := get(t, q, id).State; s.Status != gq.StatusFailed || s.Failure.Code != "unknown_ref" || !strings.Contains(s.Failure.Message, want) {
			t.Errorf("the job is %v: %+v", s.Status, s.Failure)
		}
	}
}

// A workflow that failed is retried from the failure: what completed stays.
func TestWorkflowRetry(t *testing.T) {
	s := newShop(t)
	s.packing = gq.Permanent(errors.New("no boxes"), "no_boxes")
	id := s.place(t)
	if _, err := s.RetryWorkflow(t.Context(), id); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("retry while it runs: %v", err)
	}
	s.RunUntilIdle()
	before := s.want(t, id, gq.WorkflowFailed, "either bad")
	s.packing, s.told = nil, nil
	again, err := s.RetryWorkflow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i, ref := range []string{"charge", "pack", "either", "good", "bad"} {
		was, now := before.Jobs[i], again.Jobs[i]
		if now.Ref != ref || (now.ID == was.ID) != (ref == "charge") || ref != "charge" && now.Job.Spec.ReplayOf != was.ID {
			t.Errorf("%s was %s and is %s, a replay of %s", ref, was.ID, now.ID, now.Job.Spec.ReplayOf)
		}
	}
	s.RunUntilIdle()
	s.want(t, id, gq.WorkflowSucceeded, "either good")
	if s.charged != 1 {
		t.Errorf("charged %d times", s.charged)
	}
	if _, err := s.RetryWorkflow(t.Context(), id); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("retry after success: %v", err)
	}
}

func TestWorkflowCancel(t *testing.T) {
	s := newShop(t)
	id := s.place(t)
	report, err := s.CancelWorkflow(t.Context(), id, "changed my mind")
	if err != nil || report.Cancelled != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	s.RunUntilIdle()
	s.want(t, id, gq.WorkflowCancelled, "either bad")
}

// Steps are added while a workflow runs, and its final jobs wait for them too.
func TestWorkflowAdd(t *testing.T) {
	s := newShop(t)
	id := s.place(t)
	more := gq.NewWorkflow("")
	more.Add("gift", tell.With("gift"), gq.After(gq.Ref("pack")))
	w, err := s.AddToWorkflow(t.Context(), id, more)
	if err != nil || len(w.Jobs) != 6 {
		t.Fatalf("%v\n%s", err, w.Text())
	}
	last, _ := w.Job("good")
	if old, err := s.Get(t.Context(), last.Job.Spec.Replaces, 0); err != nil || old.State.ReplacedBy != last.ID || old.Spec.Ref != "good" {
		t.Errorf("the final job replaced %+v, %v", old.State, err)
	}
	if _, err := s.AddToWorkflow(t.Context(), id, more); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("the same name twice: %v", err)
	}
	s.RunUntilIdle()
	s.want(t, id, gq.WorkflowSucceeded, "gift either good")
	late := gq.NewWorkflow("")
	late.Add("late", tell.With("late"))
	if _, err := s.AddToWorkflow(t.Context(), id, late); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("after the end: %v", err)
	}
}

// Final jobs follow each other, see what has become of the workflow, and stay in order when it is
// retried.
func TestFinalJobsInOrder(t *testing.T) {
	clean := gq.NewKind[string, gq.None]("clean")
	for _, c := range []struct {
		fails       bool
		told        string
		status, saw gq.WorkflowStatus
	}{
		{true, "refund mail close", gq.WorkflowFailed, gq.WorkflowFailed},
		{false, "close", gq.WorkflowSucceeded, gq.WorkflowSucceeded},
	} {
		s := newShop(t)
		if c.fails {
			s.packing = gq.Permanent(errors.New("no boxes"), "no_boxes")
		}
		w := newWorker(s.Queue)
		worker.Handle(w, clean, func(_ context.Context, job *worker.Job[string]) error {
			s.told = append(s.told, job.Args)
			if saw, err := worker.WorkflowStatus(job); err != nil || saw != c.saw {
				t.Errorf("%s sees %s, %v, want %s", job.Args, saw, err, c.saw)
			}
			return nil
		})
		s.AddWorker(w)
		flow := gq.NewWorkflow("order 7")
		flow.Finally("close", clean.With("close", gq.AfterEnd(gq.Ref("mail"))))
		flow.Finally("mail", clean.With("mail", gq.AfterEnd(gq.Ref("refund"))), gq.OnFailure)
		flow.Finally("refund", clean.With("refund"), gq.OnFailure)
		flow.Add("pack", pack.With(order{"7"}, gq.After(flow.Add("charge", charge.With(order{"7"})))))
		id, err := s.SubmitWorkflow(t.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		more := gq.NewWorkflow("")
		more.Add("more", charge.With(order{"8"}))
		if _, err := s.AddToWorkflow(t.Context(), id, more); !errors.Is(err, gq.ErrIllegalMove) || !strings.Contains(err.Error(), "have no order") {
			t.Errorf("jobs are added before final jobs in an order: %v", err)
		}
		if state := s.workflow(t, id); state.Outcome != gq.WorkflowRunning {
			t.Errorf("at first the outcome is %s", state.Outcome)
		}
		s.RunUntilIdle()
		s.want(t, id, c.status, c.told)
		if c.fails {
			s.told = nil
			if _, err := s.RetryWorkflow(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			s.RunUntilIdle()
			s.want(t, id, c.status, c.told)
		}
	}
}

// A final job on failure can wait for the success of another one, and both have nothing to do together.
func TestFinalJobsOnFailureInOrder(t *testing.T) {
	s := newShop(t)
	flow := gq.NewWorkflow("order 7")
	flow.Add("charge", charge.With(order{"7"}))
	refund := flow.Finally("refund", tell.With("refund"), gq.OnFailure)
	flow.Finally("mail", tell.With("mail", gq.After(refund)), gq.OnFailure)
	id, err := s.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	s.RunUntilIdle()
	w := s.want(t, id, gq.WorkflowSucceeded, "")
	for _, ref := range []string{"refund", "mail"} {
		if j, _ := w.Job(ref); j.Job.State.Status != gq.StatusCancelled || j.Job.State.Reason != "no_failure" {
			t.Errorf("%s is %s for %q", ref, j.Job.State.Status, j.Job.State.Reason)
		}
	}
}

// CancelNext cancels a job while its handler runs, without waiting.
func TestCancelNext(t *testing.T) {
	q := gqtest.New(t)
	w := newWorker(q)
	var causes []error
	worker.Handle(w, sendEmail, func(ctx context.Context, _ *worker.Job[Email]) error {
		causes = append(causes, context.Cause(ctx))
		return context.Cause(ctx)
	})
	q.AddWorker(w)
	q.CancelNext(sendEmail)
	one, two := submit(t, q, sendEmail, Email{"ada"}), submit(t, q, sendEmail, Email{"bob"})
	q.RunUntilIdle()
	if len(causes) != 2 || !errors.Is(causes[0], worker.ErrCancelRequested) || causes[1] != nil {
		t.Errorf("the contexts ended with %v", causes)
	}
	for id, want := range map[gq.JobID]gq.Status{one: gq.StatusCancelled, two: gq.StatusCompleted} {
		if got := get(t, q, id).State.Status; got != want {
			t.Errorf("the job is %s, want %s", got, want)
		}
	}
}

func TestWorkflowSignal(t *testing.T) {
	s := newShop(t)
	flow := gq.NewWorkflow("order 8")
	paid := flow.Add("charge", charge.With(order{"8"}))
	ok := flow.Signal("approved", time.Hour, gq.After(paid))
	flow.Add("pack", pack.With(order{"8"}), gq.After(paid, ok))
	id, err := s.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	s.RunUntilIdle()
	s.Advance(time.Minute)
	if w := s.workflow(t, id); w.Status != gq.WorkflowRunning || !strings.Contains(w.Text(), "approved gq.signal PENDING (waits for a signal)") {
		t.Errorf("%s\n%s", w.Status, w.Text())
	}
	for name, ref := range map[string]string{"unknown": "denied", "no signal": "pack"} {
		if _, err := s.Signal(t.Context(), id, ref, 1); !errors.Is(err, gq.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 { // the second changes nothing
		if state, err := s.Signal(t.Context(), id, "approved", "by ada"); err != nil || state.Status != gq.StatusCompleted {
			t.Errorf("%v, %v", state.Status, err)
		}
	}
	if _, err := s.Signal(t.Context(), id, "approved", "by bob"); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("another value: %v", err)
	}
	s.RunUntilIdle()
	w := s.want(t, id, gq.WorkflowSucceeded, "")
	signal, _ := w.Job("approved")
	if who, err := approve.Wait(t.Context(), s.Client, signal.ID); err != nil || who != "by ada" {
		t.Errorf("%q, %v", who, err)
	}
}

func TestWorkflowSignalDeadline(t *testing.T) {
	s := newShop(t)
	flow := gq.NewWorkflow("order 9")
	flow.Signal("approved", time.Hour)
	flow.Finally("late", tell.With("late"), gq.OnFailure)
	id, err := s.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Hour)
	w := s.want(t, id, gq.WorkflowFailed, "late")
	if signal, _ := w.Job("approved"); signal.Job.State.Failure == nil || signal.Job.State.Failure.Code != "signal_timeout" {
		t.Errorf("%+v", signal.Job.State)
	}
	if _, err := s.Signal(t.Context(), id, "approved", true); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("after the deadline: %v", err)
	}
}

// A batch of thousands of jobs has one last job.
func TestBatch(t *testing.T) {
	s := newShop(t)
	jobs := make([]gq.Draft, 9999) // the most
	for i := range jobs {
		jobs[i] = charge.With(order{fmt.Sprint(i)})
	}
	id, err := s.SubmitWorkflow(t.Context(), gq.NewBatch("many", jobs, tell.With("done")))
	if err != nil {
		t.Fatal(err)
	}
	s.RunUntilIdle()
	s.want(t, id, gq.WorkflowSucceeded, "done")
}

// A flow with an id can be submitted again.
func TestWorkflowSubmitAgain(t *testing.T) {
	s := newShop(t)
	flow := gq.NewWorkflow("order 7")
	flow.ID = gq.WorkflowID{1, 6: 0x70, 8: 0x80}
	flow.Add("charge", charge.With(order{"7"}))
	for range 2 {
		if id, err := s.SubmitWorkflow(t.Context(), flow); err != nil || id != flow.ID {
			t.Errorf("%s, %v", id, err)
		}
	}
	s.RunUntilIdle()
	if s.charged != 1 {
		t.Errorf("charged %d times", s.charged)
	}
	flow.Add("more", tell.With("more"))
	if _, err := s.SubmitWorkflow(t.Context(), flow); !errors.Is(err, gq.ErrKeyReused) {
		t.Errorf("other jobs with the same id: %v", err)
	}
}

func TestWorkflowRefused(t *testing.T) {
	s := newShop(t)
	for name, build := range map[string]func(*gq.Flow){
		"no jobs":      func(*gq.Flow) {},
		"only final":   func(f *gq.Flow) { f.Finally("x", tell.With("x")) },
		"no name":      func(f *gq.Flow) { f.Add("", tell.With("x")) },
		"name twice":   func(f *gq.Flow) { f.Add("x", tell.With("x")); f.Add("x", tell.With("x")) },
		"unknown need": func(f *gq.Flow) { f.Add("x", tell.With("x"), gq.After(gq.Ref("y"))) },
		"cycle":        func(f *gq.Flow) { f.Add("x", tell.With("x"), gq.After(gq.Ref("x"))) },
		"final after one that is not": func(f *gq.Flow) {
			f.Finally("x", tell.With("x", gq.After(f.Add("a", tell.With("a")))))
		},
		"final after a job outside": func(f *gq.Flow) {
			f.Add("a", tell.With("a"))
			f.Finally("x", tell.With("x", gq.After(gq.JobID{6: 0x40, 8: 0x80})))
		},
		"final after any": func(f *gq.Flow) {
			f.Add("a", tell.With("a"))
			f.Finally("x", tell.With("x", gq.AfterAny(f.Finally("y", tell.With("y")))))
		},
		"final after the success of one for a failure": func(f *gq.Flow) {
			f.Add("a", tell.With("a"))
			f.Finally("x", tell.With("x", gq.After(f.Finally("y", tell.With("y"), gq.OnFailure))))
		},
		"final in a circle": func(f *gq.Flow) {
			f.Add("a", tell.With("a"))
			f.Finally("x", tell.With("x", gq.After(f.Finally("y", tell.With("y", gq.After(gq.Ref("x")))))))
		},
		"key":            func(f *gq.Flow) { f.Add("x", tell.With("x", gq.Key("k"))) },
		"delayed signal": func(f *gq.Flow) { f.Signal("x", time.Hour, gq.Delay(time.Second)) },
		"no wait":        func(f *gq.Flow) { f.Signal("x", 0) },
		"long name":      func(f *gq.Flow) { f.Add(strings.Repeat("x", 65), tell.With("x")) },
	} {
		flow := gq.NewWorkflow(name)
		build(flow)
		_, err := s.SubmitWorkflow(t.Context(), flow)
		if !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "final after any" && !strings.Contains(fmt.Sprint(err), `(job "x")`) {
			t.Errorf("%s: the error does not name the job: %v", name, err)
		}
	}
	if _, err := s.Submit(t.Context(), gq.Spec{Type: "tell", Ref: "x"}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a plain job with a reference: %v", err)
	}
	if _, err := s.Workflow(t.Context(), gq.WorkflowID{1}); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if page, err := s.Workflows(t.Context(), gq.WorkflowQuery{}); err != nil || len(page.Workflows) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}
