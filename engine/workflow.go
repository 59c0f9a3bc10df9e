package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// kindWorkflow is the kind of the documents that record workflows.
const kindWorkflow = "workflow"

// flowRecord is the document of a workflow. What happens to its jobs is not in it.
type flowRecord struct {
	Name        string      `json:"name,omitempty"`
	Created     time.Time   `json:"created"`
	Fingerprint uint64      `json:"fingerprint,omitempty"` // of the submission, to recognise a repeated one
	Queues      []string    `json:"queues"`                // of all jobs, for the check of access
	Jobs        []recordJob `json:"jobs"`
}

type recordJob struct {
	Ref   string   `json:"r"`
	ID    gq.JobID `json:"j"`
	Final gq.Final `json:"f,omitzero"`
}

// docName is the name of a workflow's document: its id with every hexadecimal digit d replaced
// by 15-d, so that a store lists the newest first.
func docName(id gq.WorkflowID) string {
	for i := range id {
		id[i] = ^id[i]
	}
	return id.String()
}

func workflowOf(name string) (id gq.WorkflowID, ok bool) {
	raw, ok := gq.LeaseID(name).UUID()
	for i := range raw {
		id[i] = ^raw[i]
	}
	return id, ok && id.Valid()
}

// SubmitWorkflow stores the jobs of a workflow and its record in one commit. If the flow has an
// id and a workflow with it exists, it returns the id, or [gq.ErrKeyReused] if that one was
// submitted with other jobs.
//
// Errors: [gq.ErrInvalid] with every fault, [gq.ErrQueueFull], [gq.ErrDiskFull],
// [gq.ErrTimeout].
func (e *Engine) SubmitWorkflow(ctx context.Context, f *gq.Flow) (gq.WorkflowID, error) {
	c, ok := e.store.(store.Changer)
	if !ok {
		return gq.WorkflowID{}, errNoWorkflows
	}
	ctx, explain, cancel := e.limited(ctx)
	defer cancel()
	id, err := e.submitWorkflow(ctx, c, f)
	if err != nil {
		return id, fmt.Errorf("submit workflow: %w", explain(err))
	}
	return id, nil
}

// named adds the names of jobs to faults that have only their places in a flow.
func named(err error, f *gq.Flow) error {
	faults := errs.FaultsOf(err)
	if len(faults) == 0 {
		return err
	}
	faults = slices.Clone(faults)
	for i := range faults {
		var at int
		if _, none := fmt.Sscanf(faults[i].Field, "jobs[%d]", &at); none == nil && at >= 0 && at < len(f.Jobs) && f.Jobs[at].Ref != "" {
			faults[i].Problem = fmt.Sprintf("%s (job %q)", faults[i].Problem, f.Jobs[at].Ref)
		}
	}
	return &gq.InvalidError{Faults: faults}
}

var errNoWorkflows = gq.ErrInvalid.Errorf("this store cannot change documents and jobs together, so it has no workflows")

func (e *Engine) submitWorkflow(ctx context.Context, into store.Changer, f *gq.Flow) (gq.WorkflowID, error) {
	id, err := e.submitFlow(ctx, into, f)
	if err != nil {
		return gq.WorkflowID{}, named(err, f)
	}
	return id, nil
}

func (e *Engine) submitFlow(ctx context.Context, into store.Changer, f *gq.Flow) (gq.WorkflowID, error) {
	id := f.ID
	if id.IsZero() {
		id = machine.NewWorkflowID(e.Now(), e.random.bytes())
	}
	faults := append(errs.FaultsOf(f.Check()), checkFlow(id, f)...)
	if len(f.Jobs) > 0 && !slices.ContainsFunc(f.Jobs, func(j gq.GraphJob) bool { return j.Final == 0 }) {
		faults = append(faults, gq.Fault{Field: "jobs", Problem: "a workflow needs at least one job that is not final"})
	}
	if len(faults) > 0 {
		return gq.WorkflowID{}, &gq.InvalidError{Faults: faults}
	}
	jobs, err := e.resolveFlow(ctx, id, f, nil)
	if err != nil {
		return gq.WorkflowID{}, err
	}
	r := flowRecord{Name: f.Name, Created: e.Now().UTC(), Fingerprint: flowPrint(f)}
	r.add(jobs, f)
	doc, err := r.encode(id, 0)
	if err != nil {
		return gq.WorkflowID{}, err
	}
	_, err = into.Change(ctx, store.Change{Docs: []store.Doc{doc}, Insert: jobs})
	if err == nil {
		e.flowSizes.put(id, r.notFinal())
	}
	if errors.Is(err, gq.ErrConflict) && !f.ID.IsZero() {
		old, _, readErr := e.readWorkflow(ctx, id)
		switch {
		case readErr != nil:
			return id, readErr
		case old.Fingerprint != r.Fingerprint:
			return id, fmt.Errorf("workflow %s: %w", id, gq.ErrKeyReused)
		}
		return id, nil
	}
	return id, inserting(err)
}

// inserting removes what a change says of an error of its jobs.
func inserting(err error) error {
	if c, ok := errors.AsType[*store.ChangeError](err); ok {
		return c.Err
	}
	return err
}

// checkFlow lists what is wrong with a flow, except what is wrong with its single jobs.
func checkFlow(id gq.WorkflowID, f *gq.Flow) (faults []gq.Fault) {
	if !id.Valid() {
		faults = append(faults, gq.Fault{Field: "id", Problem: "must be a version 7 UUID, or empty"})
	}
	if f.Name != "" {
		faults = append(faults, errs.FaultsOf(machine.CheckName("name", f.Name))...)
	}
	finals := make(map[string]gq.Final)
	for i := range f.Jobs {
		if f.Jobs[i].Final != 0 {
			finals[f.Jobs[i].Ref] = f.Jobs[i].Final
		}
	}
	for i := range f.Jobs {
		at := fmt.Sprintf("jobs[%d].", i)
		j := &f.Jobs[i]
		switch {
		case !j.Final.Valid():
			faults = append(faults, gq.Fault{Field: at + "final", Problem: "must be EITHER, SUCCESS, FAILURE or nothing"})
		case j.Final == 0:
		case len(j.Spec.DependsOn) > 0:
			faults = append(faults, gq.Fault{Field: at + "depends_on", Problem: "a final job waits for all others and can follow other final jobs; remove the rest of its dependencies"})
		case len(j.Needs) > 0:
			faults = append(faults, needsOfFinal(at, j, finals)...)
		case j.Spec.Gate != 0:
			faults = append(faults, gq.Fault{Field: at + "gate", Problem: "a final job cannot wait for a signal; add the signal as a job of its own"})
		}
		if j.Spec.Gate == gq.GateSignal && j.Spec.Type != gq.SignalType {
			faults = append(faults, gq.Fault{Field: at + "type", Problem: "no worker runs a job that waits for a signal; leave the type out"})
		}
		if j.Spec.Key.Name != "" {
			faults = append(faults, gq.Fault{Field: at + "idempotency_key", Problem: "a job of a workflow has none: submitting the workflow again is safe by its id; remove the key"})
		}
		if j.Ref == "" {
			faults = append(faults, gq.Fault{Field: at + "ref", Problem: "is missing; every job of a workflow has a name"})
		}
		if j.Final == 0 {
			faults = append(faults, needsFinal(at, j, finals)...)
		}
	}
	return faults
}

// needsFinal lists the dependencies of a job on final jobs, which wait for it themselves.
func needsFinal(at string, j *gq.GraphJob, finals map[string]gq.Final) (faults []gq.Fault) {
	for k, n := range j.Needs {
		if n.Ref != "" && finals[n.Ref] != 0 {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("%sneeds[%d].ref", at, k), Problem: fmt.Sprintf(
				"%.80q is a final job, which waits for all others; no other job can wait for it. Remove the dependency, or make this job final too", n.Ref)})
		}
	}
	return faults
}

// needsOfFinal lists what is wrong with the dependencies of a final job on other final jobs, which
// put them in an order.
func needsOfFinal(at string, j *gq.GraphJob, finals map[string]gq.Final) (faults []gq.Fault) {
	for k, n := range j.Needs {
		field := fmt.Sprintf("%sneeds[%d]", at, k)
		before := finals[n.Ref]
		switch {
		case before == 0:
			faults = append(faults, gq.Fault{Field: field + ".ref", Problem: fmt.Sprintf(
				"a final job waits for all others; remove its dependency on %.80q, which is not final", n.Ref)})
		case n.Kind == gq.DependencyAfter && before == gq.OnFailure && j.Final != gq.OnFailure:
			faults = append(faults, gq.Fault{Field: field + ".kind", Problem: fmt.Sprintf(
				"%.80q completes only after a failure; use FAN_IN (gq.AfterEnd) to wait for its end in any case", n.Ref)})
		case n.Kind != gq.DependencyAfter && n.Kind != gq.DependencyFanIn:
			faults = append(faults, gq.Fault{Field: field + ".kind", Problem: "a final job can follow another one with AFTER or FAN_IN"})
		}
	}
	if j.Final == gq.OnFailure && len(j.Needs) > 1 {
		faults = append(faults, gq.Fault{Field: at + "needs", Problem: "a job that runs on FAILURE can follow one other final job; put them in a row"})
	}
	return faults
}

// resolveFlow returns the specs of a flow's jobs. known has the ids of the jobs that the
// workflow already has.
func (e *Engine) resolveFlow(ctx context.Context, id gq.WorkflowID, f *gq.Flow, known map[string]gq.JobID) ([]gq.Spec, error) {
	drafts := slices.Clone(f.Jobs)
	for i := range drafts {
		d := &drafts[i]
		d.Needs = slices.Clone(d.Needs)
		d.Spec.DependsOn = slices.Clone(d.Spec.DependsOn)
		if d.Final != 0 {
			kind, gate := machine.FinalDependency(d.Final)
			d.Spec.Gate = gate
			for k := range d.Needs {
				d.Needs[k].Kind = machine.FollowsFinal(d.Final, d.Needs[k].Kind)
			}
			for k := range f.Jobs {
				if f.Jobs[k].Final == 0 {
					d.Needs = append(d.Needs, gq.Dependency{Kind: kind, Ref: f.Jobs[k].Ref})
				}
			}
			continue
		}
		d.Needs = slices.DeleteFunc(d.Needs, func(n gq.Dependency) bool {
			other, ok := known[n.Ref]
			if ok {
				d.Spec.DependsOn = append(d.Spec.DependsOn, gq.Dependency{Kind: n.Kind, Job: other})
			}
			return ok
		})
	}
	return e.resolve(ctx, drafts, id)
}

func (r *flowRecord) add(jobs []gq.Spec, f *gq.Flow) {
	for i := range jobs {
		r.Jobs = append(r.Jobs, recordJob{Ref: f.Jobs[i].Ref, ID: jobs[i].ID, Final: f.Jobs[i].Final})
		if !slices.Contains(r.Queues, jobs[i].Queue) {
			r.Queues = append(r.Queues, jobs[i].Queue)
		}
	}
}

// notFinal counts the jobs that are not final.
func (r *flowRecord) notFinal() (n int) {
	for i := range r.Jobs {
		if r.Jobs[i].Final == 0 {
			n++
		}
	}
	return n
}

// ids returns the id of each job by its name.
func (r *flowRecord) ids() map[string]gq.JobID {
	ids := make(map[string]gq.JobID, len(r.Jobs))
	for _, j := range r.Jobs {
		ids[j.Ref] = j.ID
	}
	return ids
}

func (r *flowRecord) encode(id gq.WorkflowID, version uint64) (store.Doc, error) {
	data, err := json.Marshal(r)
	if err == nil && len(data) > store.MaxDocBytes {
		err = &gq.InvalidError{Faults: []gq.Fault{{
			Field: "jobs", Problem: fmt.Sprintf("the record of the workflow has %d bytes, more than %d; use shorter references or fewer jobs", len(data), store.MaxDocBytes),
		}}}
	}
	return store.Doc{Kind: kindWorkflow, Name: docName(id), Version: version, Data: data}, err
}

// flowPrint distinguishes submissions with the same id.
func flowPrint(f *gq.Flow) uint64 {
	var sum uint64
	for i := range f.Jobs {
		j := &f.Jobs[i]
		s := j.Spec
		s.Overrides = gq.Spec{}.Overrides
		one := fingerprint(s, j.Spec.Overrides.Over(s.Policy), append([]gq.Dependency{{Kind: gq.DependencyKind(j.Final), Ref: j.Ref}}, j.Needs...))
		sum = sum*1099511628211 ^ one
	}
	return fingerprint(gq.Spec{Type: f.Name, Payload: gq.Payload{Data: binary.BigEndian.AppendUint64(nil, sum)}}, gq.Policy{}, nil)
}

// readWorkflow reads a record and asks whether the caller may see it.
func (e *Engine) readWorkflow(ctx context.Context, id gq.WorkflowID) (r flowRecord, version uint64, err error) {
	doc, err := e.workflowDoc(ctx, id)
	if refused, ok := errors.AsType[*refusedSubmission](err); ok {
		return r, 0, gq.ErrNotFound.Errorf("workflow %s does not exist: it was refused after its transaction had committed: %s", id, refused.problem)
	}
	if errors.Is(err, gq.ErrNotFound) {
		return r, 0, gq.ErrNotFound.Errorf("workflow %s not found", id)
	}
	if err != nil {
		return r, 0, err
	}
	if err := json.Unmarshal(doc.Data, &r); err != nil {
		return r, 0, fmt.Errorf("workflow %s: %w: %w", id, gq.ErrCorrupt, err)
	}
	for _, queue := range r.Queues {
		if err := authorize(ctx, queue); err != nil {
			return r, 0, err
		}
	}
	return r, doc.Version, nil
}

// Workflow returns a workflow with the current states of its jobs.
func (e *Engine) Workflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error) {
	r, _, err := e.readWorkflow(ctx, id)
	if err != nil {
		return gq.Workflow{}, workflowError("get", id, err)
	}
	w, err := e.load(ctx, id, &r)
	if err != nil {
		return gq.Workflow{}, workflowError("get", id, err)
	}
	return w, nil
}

// workflowError returns the error of a call about a workflow.
func workflowError(verb string, id gq.WorkflowID, err error) error {
	if refused, ok := unwrapRefusal(err); ok {
		return refused
	}
	if errors.Is(err, gq.ErrNotFound) || errors.Is(err, gq.ErrIllegalMove) {
		return err // names the workflow
	}
	return fmt.Errorf("%s workflow %s: %w", verb, id, err)
}

// load reads the jobs of a workflow. The record may be older than the jobs: AddToWorkflow may have
// replaced a final job meanwhile, and then its successor counts.
func (e *Engine) load(ctx context.Context, id gq.WorkflowID, r *flowRecord) (gq.Workflow, error) {
	w := gq.Workflow{ID: id, Name: r.Name, Created: r.Created, Jobs: make([]gq.WorkflowJob, len(r.Jobs))}
	read := make([]*gq.WorkflowJob, len(r.Jobs))
	for i := range r.Jobs {
		w.Jobs[i].Ref, w.Jobs[i].ID, w.Jobs[i].Final = r.Jobs[i].Ref, r.Jobs[i].ID, r.Jobs[i].Final
		read[i] = &w.Jobs[i]
	}
	for len(read) > 0 {
		var replaced []*gq.WorkflowJob
		for some := range slices.Chunk(read, store.MaxPage) {
			if err := e.loadJobs(ctx, some); err != nil {
				return w, err
			}
			for _, j := range some {
				if next := j.Job.State.ReplacedBy; !next.IsZero() {
					j.ID = next
					replaced = append(replaced, j)
				}
			}
		}
		read = replaced
	}
	var states, before []*gq.State // of all, and of those that are not final
	for i := range w.Jobs {
		if s := &w.Jobs[i].Job.State; !s.ID.IsZero() {
			states = append(states, s)
			if w.Jobs[i].Final == 0 {
				before = append(before, s)
			}
		}
	}
	if len(states) == 0 {
		return w, gq.ErrNotFound.Errorf("workflow %s not found: retention has removed its jobs", id)
	}
	w.Status, w.Outcome = machine.WorkflowStatus(states), machine.WorkflowStatus(before)
	return w, nil
}

// loadJobs reads jobs by their ids. One that retention has removed is zero.
func (e *Engine) loadJobs(ctx context.Context, jobs []*gq.WorkflowJob) error {
	refs := make([]store.Ref, len(jobs))
	for i, j := range jobs {
		refs[i].Job = j.ID
	}
	found, err := e.store.Get(ctx, refs, 0)
	if err != nil {
		return err
	}
	for i := range found {
		switch {
		case errors.Is(found[i].Err, gq.ErrNotFound):
			jobs[i].Job = gq.Job{}
		case found[i].Err != nil:
			return found[i].Err
		default:
			jobs[i].Job = found[i].Job
		}
	}
	return nil
}

// Limits of a page of workflows.
const (
	defaultWorkflows = 20
	maxWorkflows     = 100
)

// Workflows lists workflows, newest first. It leaves out those that the caller may not see, and
// those whose jobs retention has removed.
func (e *Engine) Workflows(ctx context.Context, q gq.WorkflowQuery) (page gq.WorkflowPage, err error) {
	var faults []gq.Fault
	if q.Limit == 0 {
		q.Limit = defaultWorkflows
	}
	if q.Limit < 1 || q.Limit > maxWorkflows {
		faults = append(faults, gq.Fault{Field: "limit", Problem: fmt.Sprintf("%d is not between 1 and %d", q.Limit, maxWorkflows)})
	}
	for i, s := range q.Statuses {
		if !s.Valid() {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("statuses[%d]", i), Problem: "must be one of RUNNING, SUCCEEDED, FAILED, CANCELLED"})
		}
	}
	if _, ok := workflowOf(q.Cursor); q.Cursor != "" && !ok {
		faults = append(faults, gq.Fault{Field: "cursor", Problem: "is not one that a list has returned"})
	}
	if len(faults) > 0 {
		return page, fmt.Errorf("list workflows: %w", &gq.InvalidError{Faults: faults})
	}
	docs, err := e.store.Docs(ctx, kindWorkflow, q.Cursor, q.Limit)
	if err != nil {
		return page, fmt.Errorf("list workflows: %w", err)
	}
	if len(docs) == q.Limit {
		page.Next = docs[len(docs)-1].Name
	}
	for _, doc := range docs {
		id, ok := workflowOf(doc.Name)
		var r flowRecord
		if err := json.Unmarshal(doc.Data, &r); err != nil || !ok {
			return page, fmt.Errorf("list workflows: document %s: %w", doc.Name, gq.ErrCorrupt)
		}
		if slices.ContainsFunc(r.Queues, func(queue string) bool { return authorize(ctx, queue) != nil }) {
			continue
		}
		w, err := e.load(ctx, id, &r)
		if errors.Is(err, gq.ErrNotFound) {
			continue
		}
		if err != nil {
			return page, fmt.Errorf("list workflows: %w", err)
		}
		if len(q.Statuses) == 0 || slices.Contains(q.Statuses, w.Status) {
			page.Workflows = append(page.Workflows, w)
		}
	}
	return page, nil
}
