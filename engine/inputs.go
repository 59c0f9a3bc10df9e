package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// maxClaimInputs limits the results that come with all jobs of one claim together.
const maxClaimInputs = 4 << 20

// addInputs adds to claimed jobs of workflows the results of the jobs that they depend on, with
// one read for all of them. If the read fails, workers read the results themselves.
func (e *Engine) addInputs(ctx context.Context, jobs []gq.Job) {
	var refs []store.Ref
	for i := range jobs {
		if s := &jobs[i].Spec; !s.Workflow.IsZero() {
			for _, d := range s.DependsOn[:min(len(s.DependsOn), gq.MaxInputs)] {
				refs = append(refs, store.Ref{Job: d.Job})
			}
		}
	}
	if len(refs) == 0 {
		return
	}
	found := make([]store.Found, 0, len(refs))
	for len(refs) > 0 {
		n := min(len(refs), store.MaxPage)
		some, err := e.store.Get(ctx, refs[:n], gq.WithResult)
		if err != nil {
			if ctx.Err() == nil {
				e.log.Warn("could not read the results that claimed jobs depend on; their workers will", "error", err)
			}
			return
		}
		found, refs = append(found, some...), refs[n:]
	}
	all := 0
	for i := range jobs {
		s := &jobs[i].Spec
		if s.Workflow.IsZero() {
			continue
		}
		own := 0
		for range min(len(s.DependsOn), gq.MaxInputs) {
			f := &found[0]
			found = found[1:]
			if f.Err != nil || f.Spec.Workflow != s.Workflow {
				continue // removed, or not a job of the workflow
			}
			in := gq.Input{Ref: f.Spec.Ref, Job: f.Spec.ID, Status: f.State.Status}
			if size := len(f.Result); own+size > gq.MaxInputBytes || all+size > maxClaimInputs {
				in.Omitted = true
			} else {
				own, all = own+size, all+size
				in.Result = f.Result
			}
			jobs[i].Inputs = append(jobs[i].Inputs, in)
		}
	}
}

// addOutcomes adds to claimed final jobs the status of the jobs of their workflows that are not
// final. If a read fails, workers read the workflow themselves.
func (e *Engine) addOutcomes(ctx context.Context, jobs []gq.Job) {
	for i := range jobs {
		s := &jobs[i].Spec
		if !e.flowSizes.mayBeFinal(s) {
			continue
		}
		outcome, err := e.outcomeFor(ctx, s)
		if err != nil {
			if ctx.Err() == nil {
				e.log.Warn("could not read the workflow of a claimed job; its worker will", "job", s.ID, "workflow", s.Workflow, "error", err)
			}
			return
		}
		jobs[i].WorkflowOutcome = outcome
	}
}

// outcomeFor returns the status of the jobs that a final job waited for; 0 if the job is not final.
func (e *Engine) outcomeFor(ctx context.Context, s *gq.Spec) (gq.WorkflowStatus, error) {
	doc, err := e.store.Doc(ctx, kindWorkflow, docName(s.Workflow))
	if errors.Is(err, gq.ErrNotFound) {
		return 0, nil // removed
	}
	if err != nil {
		return 0, err
	}
	var r flowRecord
	if err := json.Unmarshal(doc.Data, &r); err != nil {
		return 0, fmt.Errorf("workflow %s: %w: %w", s.Workflow, gq.ErrCorrupt, err)
	}
	e.flowSizes.put(s.Workflow, r.notFinal())
	if !slices.ContainsFunc(r.Jobs, func(j recordJob) bool { return j.Final != 0 && j.Ref == s.Ref }) {
		return 0, nil
	}
	w, err := e.load(ctx, s.Workflow, &r)
	return w.Outcome, err
}

// flowSizes remembers how many jobs of workflows are not final. A final job depends on all of
// them, so the claim of a job with fewer dependencies need not read the record of its workflow.
type flowSizes struct {
	mu sync.Mutex
	of map[gq.WorkflowID]int // guarded by mu
}

// maxFlowSizes limits the workflows that are remembered.
const maxFlowSizes = 10_000

func (f *flowSizes) put(id gq.WorkflowID, jobs int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil || len(f.of) >= maxFlowSizes {
		f.of = make(map[gq.WorkflowID]int)
	}
	f.of[id] = jobs
}

// mayBeFinal reports whether a job can be a final one, as far as is known without its workflow.
// The number of a workflow's jobs only grows, so one that is out of date is too small. A repeated
// job has lost its dependencies on jobs that retention has removed.
func (f *flowSizes) mayBeFinal(s *gq.Spec) bool {
	if s.Workflow.IsZero() || len(s.DependsOn) == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(s.DependsOn) >= f.of[s.Workflow] || !s.ReplayOf.IsZero()
}
