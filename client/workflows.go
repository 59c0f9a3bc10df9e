package client

import (
	"context"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// SubmitWorkflow stores the jobs of a workflow and its record: all of it or nothing. A flow
// without an id gets one here, so that the call can be repeated after a broken connection.
func (c *Client) SubmitWorkflow(ctx context.Context, f *gq.Flow) (gq.WorkflowID, error) {
	if err := f.Check(); err != nil {
		return gq.WorkflowID{}, err
	}
	id := f.ID
	if id.IsZero() {
		id = gq.NewWorkflowID()
	}
	_, err := invoke(ctx, c, repeat, c.flows.SubmitWorkflow, &pb.SubmitWorkflowRequest{Id: id.String(), Name: f.Name, Jobs: pbconv.ProtoDrafts(f)})
	if err != nil && f.ID.IsZero() {
		return gq.WorkflowID{}, err
	}
	return id, err
}

func readWorkflow(m *pb.Workflow, err error) (gq.Workflow, error) {
	if err != nil {
		return gq.Workflow{}, err
	}
	return read("workflow", m, pbconv.WorkflowFromProto)
}

// Workflow returns a workflow with the current states of its jobs.
func (c *Client) Workflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error) {
	return readWorkflow(invoke(ctx, c, repeat, c.flows.GetWorkflow, &pb.GetWorkflowRequest{Id: id.String()}))
}

// Workflows lists workflows, newest first.
func (c *Client) Workflows(ctx context.Context, q gq.WorkflowQuery) (gq.WorkflowPage, error) {
	m, err := invoke(ctx, c, repeat, c.flows.ListWorkflows, pbconv.ProtoWorkflowQuery(&q))
	if err != nil {
		return gq.WorkflowPage{}, err
	}
	all, err := readAll("list workflows", m.GetWorkflows(), pbconv.WorkflowFromProto)
	return gq.WorkflowPage{Workflows: all, Next: m.GetNextCursor()}, err
}

// CancelWorkflow cancels all live jobs of a workflow except the final ones.
func (c *Client) CancelWorkflow(ctx context.Context, id gq.WorkflowID, reason string) (gq.CancelReport, error) {
	m, err := invoke(ctx, c, repeat, c.flows.CancelWorkflow, &pb.CancelWorkflowRequest{Id: id.String(), Reason: reason})
	if err != nil {
		return gq.CancelReport{}, err
	}
	return pbconv.CancelReportFromProto(m), nil
}

// RetryWorkflow submits again what did not complete in a workflow that has ended.
func (c *Client) RetryWorkflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error) {
	return readWorkflow(invoke(ctx, c, once, c.flows.RetryWorkflow, &pb.RetryWorkflowRequest{Id: id.String()}))
}

// AddToWorkflow adds the jobs of a flow to a workflow that has not ended.
func (c *Client) AddToWorkflow(ctx context.Context, id gq.WorkflowID, f *gq.Flow) (gq.Workflow, error) {
	if err := f.Check(); err != nil {
		return gq.Workflow{}, err
	}
	return readWorkflow(invoke(ctx, c, once, c.flows.AddToWorkflow, &pb.AddToWorkflowRequest{Id: id.String(), Jobs: pbconv.ProtoDrafts(f)}))
}

// Signal completes the job of a workflow that waits for the signal with this name.
func (c *Client) Signal(ctx context.Context, id gq.WorkflowID, name string, value any) (gq.State, error) {
	data, err := gq.Encode(value)
	if err != nil {
		return gq.State{}, &gq.InvalidError{Faults: []gq.Fault{{Field: "value", Problem: err.Error()}}}
	}
	m, err := invoke(ctx, c, repeat, c.flows.SignalWorkflow, &pb.SignalWorkflowRequest{Id: id.String(), Name: name, Value: data})
	if err != nil {
		return gq.State{}, err
	}
	return read("signal", m, pbconv.StateFromProto)
}
