package native

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

type (
	workflowInput struct {
		ID string `path:"id" doc:"The workflow's id." format:"uuid"`
	}
	flowInput struct {
		View *viewText `query:"view" doc:"With jobmodel the jobs may have timeouts."`
	}
	addInput struct {
		ID   string    `path:"id" doc:"The workflow's id." format:"uuid"`
		View *viewText `query:"view" doc:"With jobmodel the jobs may have timeouts."`
	}
	workflowsInput struct {
		Statuses []string  `query:"status" doc:"RUNNING, SUCCEEDED, FAILED or CANCELLED; any unless told."`
		Cursor   string    `query:"cursor" doc:"next_cursor of the previous page."`
		Limit    countText `query:"limit" doc:"Workflows to read for a page; 20 unless told, at most 100."`
	}
	signalInput struct {
		ID   string `path:"id" doc:"The workflow's id." format:"uuid"`
		Name string `path:"name" doc:"The ref of the job that waits for the signal."`
	}
)

func (h *HTTP) workflowRoutes() []httpx.Route {
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/workflows", ID: "submit-workflow", Tag: "workflows", Status: http.StatusCreated, Large: true, Summary: "Submit a workflow",
			Description: "Jobs with names that depend on each other, all or none.",
		}, h.submitWorkflow),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/workflows", ID: "list-workflows", Tag: "workflows", Summary: "List workflows", Description: "Newest first.",
		}, h.workflows),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/workflows/{id}", ID: "get-workflow", Tag: "workflows", Summary: "Read a workflow",
			Description: "Its status, its jobs as they stand at this moment, and a picture as text.",
		}, h.workflow),
		picture("svg", "Draw a workflow", "An image: a box for each job, to the right of those that it depends on.", "image/svg+xml", func(w *gq.Workflow) string { return w.SVG() }, h),
		picture("txt", "Draw a workflow as text", "One line for each job.", "text/plain; charset=utf-8", func(w *gq.Workflow) string { return w.Text() }, h),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/workflows/{id}/cancel", ID: "cancel-workflow", Tag: "workflows", Optional: true, Summary: "Cancel a workflow",
			Description: "All its live jobs except the final ones, which run if they are for this end.",
		}, h.cancelWorkflow),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/workflows/{id}/retry", ID: "retry-workflow", Tag: "workflows", Optional: true, Summary: "Retry a workflow from its failure",
			Description: "What did not complete is submitted again, as new jobs with the same refs after the completed ones.",
		}, h.retryWorkflow),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/workflows/{id}/jobs", ID: "add-to-workflow", Tag: "workflows", Large: true, Summary: "Add jobs to a workflow",
			Description: "While it runs.",
		}, h.addToWorkflow),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/workflows/{id}/signals/{name}", ID: "signal-workflow", Tag: "workflows", Optional: true, Large: true, Summary: "Send a signal to a workflow",
			Description: "Completes the job that waits for it; the value becomes its result. The same value again changes nothing.",
		}, h.signalWorkflow),
	}
}

// picture is the route of a picture of a workflow.
func picture(ending, summary, description, contentType string, draw func(*gq.Workflow) string, h *HTTP) httpx.Route {
	medium, _, _ := strings.Cut(contentType, ";")
	return httpx.Stream(httpx.Route{
		Method: http.MethodGet, Path: "/v1/workflows/{id}/graph." + ending, ID: "draw-workflow-" + ending, Tag: "workflows", Summary: summary, Description: description,
		Responses: map[string]*httpx.Response{"200": {
			Description: description, Content: httpx.Content{medium: {Schema: &httpx.Schema{Type: "string"}}},
		}},
	}, func(c *httpx.Call, in *workflowInput) error {
		id, err := wire.ParseWorkflowID(in.ID)
		if err != nil {
			return err
		}
		w, err := h.engine.Workflow(c.Request.Context(), id)
		if err != nil {
			return err
		}
		c.Header().Set("Content-Type", contentType)
		c.Header().Set("Content-Security-Policy", "default-src 'none'")
		c.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(c, draw(&w)) // an error means that the client has gone
		return nil
	})
}

// flow converts a flow, in the view that is asked for.
func (h *HTTP) flow(ctx context.Context, in *flowInput, body *wire.Flow) (*gq.Flow, limits, error) {
	var p parameters
	v := p.view(in.View)
	if err := p.err(); err != nil {
		return nil, nil, err
	}
	f, err := body.Domain(h.queuePolicy(ctx), v == view.JobModel)
	return f, limitsOf(body.Jobs, func(j *wire.FlowJob) *wire.TimeoutsBody { return j.Timeouts }), err
}

func (h *HTTP) submitWorkflow(ctx context.Context, in *flowInput, body *wire.Flow) (*httpx.Answer[wire.WorkflowCreated], error) {
	f, given, err := h.flow(ctx, in, body)
	if err != nil {
		return nil, err
	}
	id, err := h.engine.SubmitWorkflow(ctx, f)
	if err != nil {
		return nil, given.named(err)
	}
	return httpx.OK(wire.WorkflowCreated{ID: id}), nil
}

func (h *HTTP) workflows(ctx context.Context, in *workflowsInput, _ *httpx.None) (*httpx.Answer[wire.Workflows], error) {
	var p parameters
	q := gq.WorkflowQuery{Cursor: in.Cursor, Limit: p.count("limit", in.Limit, 100)}
	for i, name := range in.Statuses {
		var s gq.WorkflowStatus
		for _, f := range errs.FaultsOf(s.UnmarshalText([]byte(name))) {
			p.fault(fmt.Sprintf("status[%d]", i), "%s", f.Problem)
		}
		q.Statuses = append(q.Statuses, s)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	page, err := h.engine.Workflows(ctx, q)
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.Workflows{Workflows: make([]wire.Workflow, len(page.Workflows)), NextCursor: page.Next})
	for i := range page.Workflows {
		out.Body.Workflows[i] = wire.WorkflowBrief(&page.Workflows[i])
	}
	return out, nil
}

func shown(w gq.Workflow, err error) (*httpx.Answer[wire.Workflow], error) {
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.WorkflowOf(&w)), nil
}

func (h *HTTP) workflow(ctx context.Context, in *workflowInput, _ *httpx.None) (*httpx.Answer[wire.Workflow], error) {
	id, err := wire.ParseWorkflowID(in.ID)
	if err != nil {
		return nil, err
	}
	return shown(h.engine.Workflow(ctx, id))
}

func (h *HTTP) cancelWorkflow(ctx context.Context, in *workflowInput, body *cancelBody) (*httpx.Answer[wire.CancelReport], error) {
	id, err := wire.ParseWorkflowID(in.ID)
	if err != nil {
		return nil, err
	}
	report, err := h.engine.CancelWorkflow(ctx, id, body.Reason)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.CancelReport(report)), nil
}

func (h *HTTP) retryWorkflow(ctx context.Context, in *workflowInput, _ *emptyBody) (*httpx.Answer[wire.Workflow], error) {
	id, err := wire.ParseWorkflowID(in.ID)
	if err != nil {
		return nil, err
	}
	return shown(h.engine.RetryWorkflow(ctx, id))
}

func (h *HTTP) addToWorkflow(ctx context.Context, in *addInput, body *wire.FlowJobs) (*httpx.Answer[wire.Workflow], error) {
	id, err := wire.ParseWorkflowID(in.ID)
	if err != nil {
		return nil, err
	}
	f, given, err := h.flow(ctx, &flowInput{in.View}, &wire.Flow{Jobs: body.Jobs})
	if err != nil {
		return nil, err
	}
	w, err := h.engine.AddToWorkflow(ctx, id, f)
	return shown(w, given.named(err))
}

func (h *HTTP) signalWorkflow(ctx context.Context, in *signalInput, body *wire.Signal) (*httpx.Answer[wire.Job], error) {
	id, err := wire.ParseWorkflowID(in.ID)
	if err != nil {
		return nil, err
	}
	value, err := wire.Contents("value", body.Value, body.ValueBase64)
	if err != nil {
		return nil, err
	}
	state, err := h.engine.Signal(ctx, id, in.Name, value)
	if err != nil {
		return nil, err
	}
	return h.jobIn(ctx, &state)
}

type workflowsServer struct {
	pb.UnimplementedWorkflowsServiceServer
	*GRPC
}

func answerWorkflow(w gq.Workflow, err error) (*pb.Workflow, error) {
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoWorkflow(&w), nil
}

func (s *workflowsServer) SubmitWorkflow(ctx context.Context, r *pb.SubmitWorkflowRequest) (*pb.SubmitWorkflowResponse, error) {
	f, err := pbconv.Bases(s.base(ctx)).Flow(r.GetId(), r.GetName(), r.GetJobs())
	if err != nil {
		return nil, fmt.Errorf("submit workflow: %w", err)
	}
	given, err := draftLimits(r.GetView(), r.GetJobs(), f.Jobs)
	if err != nil {
		return nil, fmt.Errorf("submit workflow: %w", err)
	}
	id, err := s.engine.SubmitWorkflow(ctx, f)
	if err != nil {
		return nil, given.named(err)
	}
	return &pb.SubmitWorkflowResponse{Id: id.String()}, nil
}

func (s *workflowsServer) GetWorkflow(ctx context.Context, r *pb.GetWorkflowRequest) (*pb.Workflow, error) {
	id, err := pbconv.WorkflowIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("get workflow: %w", err)
	}
	return answerWorkflow(s.engine.Workflow(ctx, id))
}

func (s *workflowsServer) ListWorkflows(ctx context.Context, r *pb.ListWorkflowsRequest) (*pb.ListWorkflowsResponse, error) {
	q, err := pbconv.WorkflowQueryFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("list workflows: %w", err)
	}
	page, err := s.engine.Workflows(ctx, q)
	if err != nil {
		return nil, err
	}
	answer := &pb.ListWorkflowsResponse{Workflows: make([]*pb.Workflow, len(page.Workflows)), NextCursor: page.Next}
	for i := range page.Workflows {
		answer.Workflows[i] = pbconv.ProtoWorkflow(&page.Workflows[i])
	}
	return answer, nil
}

func (s *workflowsServer) CancelWorkflow(ctx context.Context, r *pb.CancelWorkflowRequest) (*pb.CancelReport, error) {
	id, err := pbconv.WorkflowIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("cancel workflow: %w", err)
	}
	report, err := s.engine.CancelWorkflow(ctx, id, r.GetReason())
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoCancelReport(report), nil
}

func (s *workflowsServer) RetryWorkflow(ctx context.Context, r *pb.RetryWorkflowRequest) (*pb.Workflow, error) {
	id, err := pbconv.WorkflowIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("retry workflow: %w", err)
	}
	return answerWorkflow(s.engine.RetryWorkflow(ctx, id))
}

func (s *workflowsServer) AddToWorkflow(ctx context.Context, r *pb.AddToWorkflowRequest) (*pb.Workflow, error) {
	id, err := pbconv.WorkflowIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("add to workflow: %w", err)
	}
	f, err := pbconv.Bases(s.base(ctx)).Flow("", "", r.GetJobs())
	if err != nil {
		return nil, fmt.Errorf("add to workflow: %w", err)
	}
	given, err := draftLimits(r.GetView(), r.GetJobs(), f.Jobs)
	if err != nil {
		return nil, fmt.Errorf("add to workflow: %w", err)
	}
	w, err := s.engine.AddToWorkflow(ctx, id, f)
	return answerWorkflow(w, given.named(err))
}

func (s *workflowsServer) SignalWorkflow(ctx context.Context, r *pb.SignalWorkflowRequest) (*pb.State, error) {
	id, err := pbconv.WorkflowIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("signal workflow: %w", err)
	}
	state, err := s.engine.Signal(ctx, id, r.GetName(), r.GetValue())
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoState(&state), nil
}
