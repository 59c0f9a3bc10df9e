package access

import (
	"context"

	"github.com/gopherqueue/gq"
)

// SubmitWorkflow needs submit on the queues of all its jobs.
func (g *Guard) SubmitWorkflow(ctx context.Context, f *gq.Flow) (gq.WorkflowID, error) {
	ctx, err := g.submitsFlow(ctx, f)
	if err != nil {
		return gq.WorkflowID{}, err
	}
	return g.engine.SubmitWorkflow(ctx, f)
}

// AddToWorkflow needs submit on the queues of all jobs of the workflow and of the new ones, and the
// content of jobs whose results the new ones get.
func (g *Guard) AddToWorkflow(ctx context.Context, id gq.WorkflowID, f *gq.Flow) (gq.Workflow, error) {
	ctx, err := g.submitsFlow(ctx, f)
	if err != nil {
		return gq.Workflow{}, err
	}
	return g.engine.AddToWorkflow(ctx, id, f)
}

// submitsFlow checks the jobs of a flow, and lets the engine check those of the workflow.
func (g *Guard) submitsFlow(ctx context.Context, f *gq.Flow) (context.Context, error) {
	specs := make([]gq.Spec, len(f.Jobs))
	for i := range f.Jobs {
		specs[i] = f.Jobs[i].Spec
	}
	if _, err := g.submits(ctx, specs...); err != nil {
		return ctx, err
	}
	return g.asking(ctx, Submit)
}

// Workflows lists the workflows of which the caller may read all jobs.
func (g *Guard) Workflows(ctx context.Context, q gq.WorkflowQuery) (gq.WorkflowPage, error) {
	ctx, err := g.asking(ctx, Read)
	if err != nil {
		return gq.WorkflowPage{}, err
	}
	return g.engine.Workflows(ctx, q)
}
