package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// CancelWorkflow cancels all live jobs of a workflow except the final ones: those run if they
// are for this end. Cancelling twice changes nothing.
func (e *Engine) CancelWorkflow(ctx context.Context, id gq.WorkflowID, reason string) (report gq.CancelReport, err error) {
	r, _, err := e.readWorkflow(ctx, id)
	if err != nil {
		return report, workflowError("cancel", id, err)
	}
	w, err := e.load(ctx, id, &r)
	if err != nil {
		return report, workflowError("cancel", id, err)
	}
	var live []gq.Job
	for _, j := range w.Jobs {
		if j.Final == 0 && !j.Job.State.ID.IsZero() && j.Job.State.Live() {
			live = append(live, j.Job)
		}
	}
	for some := range slices.Chunk(live, cancelPage) {
		if err := e.cancelAll(ctx, some, reason, &report); err != nil {
			return report, workflowError("cancel", id, err)
		}
	}
	return report, nil
}

// Signal completes the job of a workflow that waits for a signal. The store decides between
// signals and the deadline. The same value again changes nothing.
//
// Errors: [gq.ErrNotFound] if the workflow has no job with this name that waits for a signal,
// [gq.ErrIllegalMove] if the job has ended or already has another value, and [gq.ErrInvalid]
// for a value that is too large.
func (e *Engine) Signal(ctx context.Context, id gq.WorkflowID, name string, v any) (gq.State, error) {
	value, err := gq.Encode(v)
	if err != nil {
		return gq.State{}, &gq.InvalidError{Faults: []gq.Fault{{Field: "value", Problem: err.Error()}}}
	}
	if most := e.config.Limits.ResultBytes; len(value) > most {
		return gq.State{}, workflowError("signal", id, &gq.InvalidError{Faults: []gq.Fault{{
			Field: "value", Problem: fmt.Sprintf("%d bytes are more than the limit of %d; store them elsewhere and send a reference", len(value), most),
		}}})
	}
	r, _, err := e.readWorkflow(ctx, id)
	if err != nil {
		return gq.State{}, workflowError("signal", id, err)
	}
	job, ok := r.ids()[name]
	if !ok {
		return gq.State{}, noSignal(id, name)
	}
	if len(value) == 0 {
		value = []byte("null")
	}
	updated, err := e.store.Update(ctx, []store.Update{{
		Ref: store.Ref{Job: job}, Result: value,
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Signal(s, value, now) },
	}})
	if err == nil {
		err = updated[0].Err
	}
	switch {
	case err == nil:
		e.counters.signals.Add(1)
		return updated[0].State, nil
	case errors.Is(err, gq.ErrIllegalMove), errors.Is(err, gq.ErrNotFound):
		return e.signalled(ctx, id, name, job, value)
	}
	return gq.State{}, workflowError("signal", id, err)
}

func noSignal(id gq.WorkflowID, name string) error {
	return gq.ErrNotFound.Errorf("workflow %s has no job %.80q that waits for a signal", id, name)
}

// signalled answers a signal that came too late: it is the same as the one that the job got, or
// refused.
func (e *Engine) signalled(ctx context.Context, id gq.WorkflowID, name string, job gq.JobID, value []byte) (gq.State, error) {
	found, err := e.store.Get(ctx, []store.Ref{{Job: job}}, gq.WithResult)
	if err == nil {
		err = found[0].Err
	}
	if err != nil {
		return gq.State{}, workflowError("signal", id, jobError("signal", job, err))
	}
	j := &found[0].Job
	switch {
	case j.Spec.Gate != gq.GateSignal:
		return gq.State{}, noSignal(id, name)
	case j.State.Gate == gq.GateSignalled && bytes.Equal(j.Result, value):
		return j.State, nil
	case j.State.Gate == gq.GateSignalled:
		return gq.State{}, gq.ErrIllegalMove.Errorf("workflow %s already got signal %q with another value, which stays", id, name)
	case j.State.Live():
		return gq.State{}, gq.ErrIllegalMove.Errorf("workflow %s no longer waits for signal %q: its deadline has passed", id, name)
	}
	why := ""
	if j.State.Reason != "" {
		why = " (" + j.State.Reason + ")"
	}
	return gq.State{}, gq.ErrIllegalMove.Errorf("workflow %s no longer waits for signal %q: it ended as %s%s; retry the workflow when all its jobs have ended, and send the signal again", id, name, j.State.Status, why)
}

// maxWorkflowTries is how often a change of a record is tried if others change it too. Of those who
// try at the same time one succeeds, so this is how many callers may do so.
const maxWorkflowTries = 100

// changeWorkflow reads a workflow, lets change decide and writes its decision in one commit. It
// repeats that if another caller has changed the record meanwhile.
func (e *Engine) changeWorkflow(ctx context.Context, id gq.WorkflowID, change func(*flowRecord, *gq.Workflow) (store.Change, error)) (gq.Workflow, error) {
	c, ok := e.store.(store.Changer)
	if !ok {
		return gq.Workflow{}, errNoWorkflows
	}
	for try := 1; ; try++ {
		r, version, err := e.readWorkflow(ctx, id)
		if err != nil {
			return gq.Workflow{}, err
		}
		w, err := e.load(ctx, id, &r)
		if err != nil {
			return gq.Workflow{}, err
		}
		if err = e.writeWorkflow(ctx, c, id, &r, version, &w, change); err == nil {
			return e.load(ctx, id, &r)
		}
		if try == maxWorkflowTries || !errors.Is(err, gq.ErrConflict) && !e.movedOn(ctx, id, version) {
			return gq.Workflow{}, inserting(err)
		}
	}
}

// writeWorkflow writes what change decides about a workflow.
func (e *Engine) writeWorkflow(ctx context.Context, c store.Changer, id gq.WorkflowID, r *flowRecord, version uint64, w *gq.Workflow, change func(*flowRecord, *gq.Workflow) (store.Change, error)) error {
	next, err := change(r, w)
	if err != nil {
		return err
	}
	doc, err := r.encode(id, version)
	if err != nil {
		return err
	}
	next.Docs = []store.Doc{doc}
	_, err = c.Change(ctx, next)
	return err
}

// movedOn reports whether the record of a workflow is no longer the one with this version. A refusal
// may then come from jobs that were read after the record had changed.
func (e *Engine) movedOn(ctx context.Context, id gq.WorkflowID, version uint64) bool {
	doc, err := e.workflowDoc(ctx, id)
	return err == nil && doc.Version != version
}

// RetryWorkflow submits again what did not complete in a workflow that has ended: the jobs that
// failed or were cancelled, those that ended with them, and the final ones. The new jobs have the
// same names and ReplayOf set, and depend on the completed ones as before. All of it is one
// commit.
//
// Errors: [gq.ErrNotFound], and [gq.ErrIllegalMove] for a workflow that still runs or succeeded.
func (e *Engine) RetryWorkflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error) {
	w, err := e.changeWorkflow(ctx, id, func(r *flowRecord, w *gq.Workflow) (store.Change, error) { return e.retrying(ctx, r, w) })
	if err != nil {
		return gq.Workflow{}, workflowError("retry", id, err)
	}
	return w, nil
}

func (e *Engine) retrying(ctx context.Context, r *flowRecord, w *gq.Workflow) (c store.Change, err error) {
	if w.Status == gq.WorkflowRunning || w.Status == gq.WorkflowSucceeded {
		return c, gq.ErrIllegalMove.Errorf("workflow %s is %s; only one that failed or was cancelled can be retried", w.ID, w.Status)
	}
	next := make(map[gq.JobID]gq.JobID) // new ids by old ones
	kept := make(map[gq.JobID]bool)
	var refs []store.Ref
	var at []int
	for i := range w.Jobs {
		j := &w.Jobs[i]
		switch {
		case j.Job.State.ID.IsZero(): // removed by retention
		case j.Job.State.Status == gq.StatusCompleted && j.Final == 0:
			kept[j.ID] = true
		default:
			next[j.ID] = e.random.jobID()
			refs, at = append(refs, store.Ref{Job: j.ID}), append(at, i)
		}
	}
	found, err := e.store.Get(ctx, refs, gq.WithPayload)
	if err != nil {
		return c, err
	}
	members := slices.Collect(maps.Values(r.ids()))
	for k, f := range found {
		if f.Err != nil {
			return c, f.Err
		}
		old := f.Spec.ID
		again := f.Spec
		again.ID, again.ReplayOf, again.RunAt, again.Delay = next[old], old, time.Time{}, 0
		again.Metadata = f.Metadata
		again.DependsOn = nil
		for _, d := range f.Spec.DependsOn {
			switch id, retried := next[d.Job]; {
			case retried:
				d.Job = id
			case !kept[d.Job] && slices.Contains(members, d.Job):
				continue // completed, and removed by retention
			}
			again.DependsOn = append(again.DependsOn, d)
		}
		c.Insert = append(c.Insert, again)
		r.Jobs[at[k]].ID = again.ID
	}
	return c, nil
}

// AddToWorkflow adds jobs to a workflow that has not ended. They may need jobs of the workflow
// by name. The final jobs of the workflow, which have not started, are replaced by ones that also
// wait for the new jobs. All of it is one commit.
//
// Errors: [gq.ErrNotFound], [gq.ErrInvalid] with every fault, and [gq.ErrIllegalMove] for a
// workflow that has ended or whose final jobs have started.
func (e *Engine) AddToWorkflow(ctx context.Context, id gq.WorkflowID, f *gq.Flow) (gq.Workflow, error) {
	ctx, explain, cancel := e.limited(ctx)
	defer cancel()
	w, err := e.changeWorkflow(ctx, id, func(r *flowRecord, w *gq.Workflow) (store.Change, error) { return e.adding(ctx, r, w, f) })
	if err != nil {
		return gq.Workflow{}, workflowError("add to", id, explain(named(err, f)))
	}
	return w, nil
}

func (e *Engine) adding(ctx context.Context, r *flowRecord, w *gq.Workflow, f *gq.Flow) (c store.Change, err error) {
	if w.Status.Ended() {
		return c, gq.ErrIllegalMove.Errorf("workflow %s has ended (%s); jobs can be added only while it runs; submit them as a workflow of their own", w.ID, w.Status)
	}
	faults := append(errs.FaultsOf(f.Check()), checkFlow(w.ID, f)...)
	known, finals := r.ids(), make(map[string]gq.Final)
	for _, j := range r.Jobs {
		if j.Final != 0 {
			finals[j.Ref] = j.Final
		}
	}
	for i := range f.Jobs {
		for _, fault := range needsFinal(fmt.Sprintf("jobs[%d].", i), &f.Jobs[i], finals) {
			fault.Problem = strings.TrimSuffix(fault.Problem, ", or make this job final too") // which cannot be added
			faults = append(faults, fault)
		}
		if _, taken := known[f.Jobs[i].Ref]; taken {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("jobs[%d].ref", i), Problem: fmt.Sprintf("%.80q is already a job of the workflow", f.Jobs[i].Ref)})
		}
		if f.Jobs[i].Final != 0 {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("jobs[%d].final", i), Problem: "a final job can only be submitted with the workflow"})
		}
	}
	if n := len(r.Jobs) + len(f.Jobs); n > gq.MaxGroupJobs {
		faults = append(faults, gq.Fault{Field: "jobs", Problem: fmt.Sprintf("the workflow would have %d jobs, more than %d", n, gq.MaxGroupJobs)})
	}
	if len(faults) > 0 {
		return c, &gq.InvalidError{Faults: faults}
	}
	if c.Insert, err = e.resolveFlow(ctx, w.ID, f, known); err != nil {
		return c, err
	}
	added := slices.Clone(c.Insert)
	queues := make(map[gq.JobID]string, len(w.Jobs))
	for i := range w.Jobs {
		queues[w.Jobs[i].ID] = w.Jobs[i].Job.Spec.Queue
	}
	for i := range added {
		for _, d := range added[i].DependsOn {
			if from := queues[d.Job]; from != "" && from != added[i].Queue {
				if err := mayCarry(ctx, from, "a job of another queue that gets its results"); err != nil {
					return c, err
				}
			}
		}
	}
	if err := e.replaceFinals(ctx, r, w, added, &c); err != nil {
		return c, err
	}
	r.add(added, f)
	return c, nil
}

// replaceFinals lets the final jobs of a workflow wait for more jobs.
func (e *Engine) replaceFinals(ctx context.Context, r *flowRecord, w *gq.Workflow, added []gq.Spec, c *store.Change) error {
	finals := make(map[gq.JobID]bool)
	for i := range w.Jobs {
		finals[w.Jobs[i].ID] = w.Jobs[i].Final != 0
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.Final == 0 {
			continue
		}
		if s := &j.Job.State; s.Status.Terminal() && s.Reason == machine.ReasonDependency {
			continue // a job has not succeeded, and more jobs cannot change that
		}
		if !machine.Waiting(&j.Job.State) {
			return gq.ErrIllegalMove.Errorf("the final job %q of workflow %s is %s; jobs can be added only before", j.Ref, w.ID, j.Job.State.Status)
		}
		found, err := e.store.Get(ctx, []store.Ref{{Job: j.ID}}, gq.WithPayload)
		if err == nil {
			err = found[0].Err
		}
		if err != nil {
			return err
		}
		next := found[0].Spec
		if slices.ContainsFunc(next.DependsOn, func(d gq.Dependency) bool { return finals[d.Job] }) {
			return gq.ErrIllegalMove.Errorf("the final job %q of workflow %s follows another final job; jobs can be added only where the final jobs have no order", j.Ref, w.ID)
		}
		next.ID, next.Replaces, next.Metadata = e.random.jobID(), j.ID, found[0].Metadata
		next.DependsOn = slices.Clone(next.DependsOn)
		kind, _ := machine.FinalDependency(j.Final)
		for _, a := range added {
			next.DependsOn = append(next.DependsOn, gq.Dependency{Kind: kind, Job: a.ID})
		}
		c.Insert = append(c.Insert, next)
		r.Jobs[i].ID = next.ID
	}
	return nil
}
