package engine

import (
	"context"

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
