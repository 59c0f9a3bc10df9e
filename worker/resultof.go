package worker

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/spelling"
)

// reader is what ResultOf needs of a queue if a result did not come with the claim.
type reader interface {
	Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error)
	Workflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error)
}

// ResultOf returns the result of another job of the same workflow by its name. The results of
// the jobs that this one depends on came with the claim, up to [gq.MaxInputs] of them and
// [gq.MaxInputBytes] together; ResultOf reads larger ones and those of other jobs from the queue.
//
//	receipt, err := worker.ResultOf(job, Charge, "charge")
//
// The kind says how to decode the result; for a signal any kind with its result type will do. The
// error is a [*gq.JobError] if the job has not completed, and [gq.ErrNotFound] if the workflow
// has no job with this name, which is a permanent failure for the handler to return.
func ResultOf[A, R any](job AnyJob, k gq.Kind[A, R], ref string) (R, error) {
	r := job.run()
	other, err := r.input(ref)
	if err != nil {
		return *new(R), err
	}
	return k.Result(other)
}

// WorkflowStatus returns what has become of the workflow of a final job: the status of its jobs that
// are not final, which came with the claim. In a job that is not final it reads the workflow from
// the queue and returns [gq.WorkflowRunning].
//
//	if status, err := worker.WorkflowStatus(job); err == nil && status != gq.WorkflowSucceeded { … }
func WorkflowStatus(job AnyJob) (gq.WorkflowStatus, error) {
	r := job.run()
	if r.job.WorkflowOutcome != 0 {
		return r.job.WorkflowOutcome, nil
	}
	if r.Workflow().IsZero() {
		return 0, gq.Permanent(gq.ErrNotFound.Errorf("job %s is not a part of a workflow", r.ID()), "no_workflow")
	}
	q, ok := r.worker.queue.(reader)
	if !ok {
		return 0, fmt.Errorf("worker: %T cannot read workflows", r.worker.queue)
	}
	w, err := q.Workflow(r.Context(), r.Workflow())
	return w.Outcome, err
}

// Workflow returns the workflow that the job is a part of; zero if it is not.
func (r *Run) Workflow() gq.WorkflowID { return r.job.Spec.Workflow }

// Ref returns the name of the job in its workflow.
func (r *Run) Ref() string { return r.job.Spec.Ref }

// Inputs returns the results that came with the claim. The handler must not modify them.
func (r *Run) Inputs() []gq.Input { return r.job.Inputs }

// WorkflowOutcome returns the status of the jobs of the workflow that are not final, as it came with
// the claim of a final job; zero in other jobs.
func (r *Run) WorkflowOutcome() gq.WorkflowStatus { return r.job.WorkflowOutcome }

// input returns a job of the same workflow with its result.
func (r *Run) input(ref string) (gq.Job, error) {
	if r.Workflow().IsZero() {
		return gq.Job{}, unknownRef("job %s is not a part of a workflow and so has no input %q", r.ID(), ref)
	}
	for _, in := range r.job.Inputs {
		if in.Ref == ref && !in.Omitted {
			return gq.Job{State: gq.State{ID: in.Job, Status: in.Status}, Result: in.Result}, nil
		}
		if in.Ref == ref {
			return r.readResult(in.Job)
		}
	}
	q, ok := r.worker.queue.(reader)
	if !ok {
		return gq.Job{}, errNoReads(r.worker.queue)
	}
	w, err := q.Workflow(r.Context(), r.Workflow())
	if err != nil {
		return gq.Job{}, err
	}
	other, ok := w.Job(ref)
	if !ok {
		names := make([]string, len(w.Jobs))
		for i := range w.Jobs {
			names[i] = w.Jobs[i].Ref
		}
		hint := ""
		if near := spelling.Nearest(ref, names); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return gq.Job{}, unknownRef("workflow %s has no job %q%s", r.Workflow(), ref, hint)
	}
	return r.readResult(other.ID)
}

func (r *Run) readResult(id gq.JobID) (gq.Job, error) {
	q, ok := r.worker.queue.(reader)
	if !ok {
		return gq.Job{}, errNoReads(r.worker.queue)
	}
	return q.Get(r.Context(), id, gq.WithResult)
}

// unknownRef returns a permanent failure: another attempt would not find the name either.
func unknownRef(format string, args ...any) error {
	return gq.Permanent(gq.ErrNotFound.Errorf(format, args...), "unknown_ref")
}

func errNoReads(q Queue) error {
	return fmt.Errorf("worker: the result did not come with the claim, and %T cannot read jobs", q)
}
