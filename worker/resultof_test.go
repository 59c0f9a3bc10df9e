package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

// flows is a queue whose jobs are parts of a workflow, with inputs of which one is too large to
// come with the claim.
type flows struct {
	*memory
	small, large gq.JobID
}

func (q flows) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	jobs, err := q.memory.Claim(ctx, r)
	for i := range jobs {
		jobs[i].Spec.Workflow = gq.NewWorkflowID()
		jobs[i].Inputs = []gq.Input{
			{Ref: "large", Job: q.large, Status: gq.StatusCompleted, Omitted: true},
			{Ref: "small", Job: q.small, Status: gq.StatusCompleted, Result: []byte(`"small"`)},
		}
	}
	return jobs, err
}

func (q flows) Get(_ context.Context, id gq.JobID, _ gq.Parts) (gq.Job, error) {
	if id != q.large {
		return gq.Job{}, gq.ErrNotFound
	}
	return gq.Job{State: gq.State{ID: id, Status: gq.StatusCompleted}, Result: []byte(`"large"`)}, nil
}

func (flows) Workflow(context.Context, gq.WorkflowID) (gq.Workflow, error) {
	return gq.Workflow{}, gq.ErrNotFound
}

// ResultOf reads from the queue what did not come with the claim, and nothing else.
func TestResultOfOmittedInput(t *testing.T) {
	bubble(t, func(f *fixture) {
		q := flows{f.memory, machine.NewJobID([16]byte{1}), machine.NewJobID([16]byte{2})}
		w := worker.New(q, worker.Config{Logger: discard()})
		text := gq.NewKind[gq.None, string]("text")
		w.HandleFunc("work", func(_ context.Context, run *worker.Run) error {
			for _, ref := range []string{"small", "large"} {
				if got, err := worker.ResultOf(run, text, ref); err != nil || got != ref {
					t.Errorf("the result of %s: %q, %v", ref, got, err)
				}
			}
			return nil
		})
		id := f.work(nil)
		w.Start(f.Context())
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// finals is a queue whose final jobs come without what has become of the others.
type finals struct{ flows }

func (finals) Workflow(context.Context, gq.WorkflowID) (gq.Workflow, error) {
	return gq.Workflow{Status: gq.WorkflowRunning, Outcome: gq.WorkflowFailed}, nil
}

// A workflow runs until its final jobs have ended. These ask what has become of the others.
func TestWorkflowStatusIsRead(t *testing.T) {
	bubble(t, func(f *fixture) {
		w := worker.New(finals{flows{memory: f.memory}}, worker.Config{Logger: discard()})
		w.HandleFunc("work", func(_ context.Context, run *worker.Run) error {
			if status, err := worker.WorkflowStatus(run); err != nil || status != gq.WorkflowFailed {
				t.Errorf("the workflow is %v, %v", status, err)
			}
			return nil
		})
		id := f.work(nil)
		w.Start(f.Context())
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// named is a queue whose jobs are parts of a workflow with the job "charge", unless it has an error.
type named struct {
	flows
	err error
}

func (q named) Workflow(context.Context, gq.WorkflowID) (gq.Workflow, error) {
	return gq.Workflow{Jobs: []gq.WorkflowJob{{Ref: "charge"}}}, q.err
}

// A name that the workflow does not have is final, also under a policy that retries for hours: no attempt
// finds it. An outage while the workflow is read is not final.
func TestResultOfUnknownName(t *testing.T) {
	text := gq.NewKind[gq.None, string]("text")
	for name, c := range map[string]struct {
		queue  func(f *fixture) worker.Queue
		status gq.Status
		cat    gq.Category
		code   string
		says   string
	}{
		"a typo":      {func(f *fixture) worker.Queue { return named{flows: flows{memory: f.memory}} }, gq.StatusFailed, gq.CategoryPermanent, "unknown_ref", `no job "chrage"; did you mean "charge"?`},
		"no workflow": {func(f *fixture) worker.Queue { return f.memory }, gq.StatusFailed, gq.CategoryPermanent, "unknown_ref", "not a part of a workflow"},
		"an outage":   {func(f *fixture) worker.Queue { return named{flows{memory: f.memory}, gq.ErrUnavailable} }, gq.StatusDeadLetter, gq.CategoryTemporary, "", gq.ErrUnavailable.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				w := worker.New(c.queue(f), worker.Config{Logger: discard()})
				w.HandleFunc("work", func(_ context.Context, run *worker.Run) error {
					_, err := worker.ResultOf(run, text, "chrage")
					return fmt.Errorf("ask for the charge: %w", err)
				})
				id := f.work(func(p *gq.Policy) { *p = gq.PresetResilient.Policy() })
				w.Start(f.Context())
				after(time.Second)
				j := f.wantStatus(id, c.status)
				if e := j.State.Failure; e == nil || e.Category != c.cat || e.Code != c.code || !strings.Contains(e.Message, c.says) {
					t.Errorf("the failure is %+v, want %s: %s", e, c.code, c.says)
				}
				if err := w.Stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
