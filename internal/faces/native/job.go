package native

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

type (
	jobInput struct {
		ID string `path:"id" doc:"The job's id." format:"uuid"`
	}
	getInput struct {
		ID         string    `path:"id" doc:"The job's id." format:"uuid"`
		Payload    boolText  `query:"payload" doc:"With its payload; true unless told."`
		Result     boolText  `query:"result" doc:"With its result; true unless told."`
		Checkpoint boolText  `query:"checkpoint" doc:"With its checkpoint; false unless told."`
		Policy     boolText  `query:"policy" doc:"With every number of its policy, those of the preset too; false unless told."`
		View       *viewText `query:"view" doc:"In the states and members of a document, and no others."`
	}
	jobEventsInput struct {
		ID   string    `path:"id" doc:"The job's id." format:"uuid"`
		View *viewText `query:"view" doc:"In the states and members of a document, and no others."`
	}
	waitInput struct {
		ID      string       `path:"id" doc:"The job's id." format:"uuid"`
		Timeout durationText `query:"timeout" doc:"How long to wait; 30s unless told, at most 10m."`
		View    *viewText    `query:"view" doc:"In the states and members of a document, and no others."`
	}
	rescheduleBody struct {
		RunAt instantText `json:"run_at,omitzero" doc:"When to run; now if it is absent or past."`
	}
	cancelBody struct {
		Reason string `json:"reason,omitzero" doc:"Kept with the job."`
	}
)

func (h *HTTP) oneJobRoutes(schemas *httpx.Schemas) []httpx.Route {
	refusals := httpx.AnyRefusals()
	// Generated clients that look for "json" in the content type would decode a success
	// as the default response.
	refusals["4XX"], refusals["5XX"] = refusals["default"], refusals["default"]
	delete(refusals, "default")
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/jobs/{id}", ID: "get-job", Tag: "jobs", Summary: "Read a job",
			Description: "As it stands at this moment, with its payload and result.", Forms: viewForms(schemas, false),
		}, h.get),
		httpx.Handle(httpx.Route{
			Method: http.MethodPatch, Path: "/v1/jobs/{id}", ID: "update-job", Tag: "jobs", Summary: "Change the metadata of a job",
			Description: "While it is live: tags, correlation_id, callback_url, and its priority while no worker holds it. Everything else is read-only.",
		}, h.update),
		httpx.Handle(httpx.Route{
			Method: http.MethodDelete, Path: "/v1/jobs/{id}", ID: "purge-job", Tag: "jobs", Status: http.StatusNoContent, Summary: "Remove a finished job",
			Description: "Before its retention is over, with its payload, result and history, for good. What a subscriber of events is told of it stays.",
		}, h.purge),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/{id}/cancel", ID: "cancel-job", Tag: "jobs", Optional: true, Summary: "Cancel a job",
			Description: "One that is not running ends at once. A running one is asked to stop, which its worker learns at once over gRPC, and over HTTP with its next heartbeat.",
		}, h.cancel),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/{id}/reschedule", ID: "reschedule-job", Tag: "jobs", Optional: true, Summary: "Run a waiting job now or at another time",
			Description: "A delayed, retrying or claimable job. A claimable one that is to run later is replaced by a copy, as with an edit, and the answer is the copy. One that a worker holds, that has ended or that waits for dependencies is refused.",
		}, h.reschedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/{id}/replay", ID: "replay-job", Tag: "jobs", Optional: true, Status: http.StatusCreated,
			Also:    map[int]string{http.StatusOK: "It was replayed before; this is its replay."},
			Headers: map[string]string{"Location": "Where the job is."}, Summary: "Submit a finished job again",
			Description: "As a new job with replay_of set; the old one stays as it ended. A job is replayed once: if it was replayed before, the answer is its replay, with existing and the status 200. To run it once more, replay that one when it has finished.",
		}, h.replay),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/{id}/edit", ID: "edit-job", Tag: "jobs", Status: http.StatusCreated,
			Headers: map[string]string{"Location": "Where the new job is."}, Summary: "Edit or move a waiting job",
			Description: "Replaces the job by a copy with another payload, queue or run time, which has its key, its deadlines and its place in dependencies. The old job ends CANCELLED in the same commit; replaces and replaced_by link the two.",
		}, h.edit),
		httpx.Stream(httpx.Route{
			Method: http.MethodGet, Path: "/v1/jobs/{id}/events", ID: "job-events", Tag: "jobs", Summary: "Read the history of a job",
			Description: "Oldest first, one event a line. In a view one line for each change of its state.", Refusals: refusals,
			Responses: map[string]*httpx.Response{"200": {
				Description: "One event a line.",
				Content:     httpx.Content{"application/x-ndjson": {Schema: httpx.Lines("One Event as JSON a line, or that of the view.", eventForms(schemas))}},
			}},
		}, h.events),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/jobs/{id}/explain", ID: "explain-job", Tag: "jobs", Summary: "Why is my job not running?",
		}, h.explain),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/jobs/{id}/wait", ID: "wait-job", Tag: "jobs", Summary: "Wait until a job has ended",
			Description: "Answers with the job and its result as soon as it has ended. When the time is over first, the job is answered as it stands then.",
			Forms:       viewForms(schemas, false),
		}, h.wait),
	}
}

func (h *HTTP) get(ctx context.Context, in *getInput, _ *httpx.None) (*httpx.Answer[wire.Job], error) {
	var p parameters
	id := p.jobID(in.ID)
	var parts gq.Parts
	for _, part := range []struct {
		field     string
		text      boolText
		otherwise bool
		bit       gq.Parts
	}{
		{"payload", in.Payload, true, gq.WithPayload},
		{"result", in.Result, true, gq.WithResult},
		{"checkpoint", in.Checkpoint, false, gq.WithCheckpoint},
	} {
		if p.boolean(part.field, part.text, part.otherwise) {
			parts |= part.bit
		}
	}
	whole, v := p.boolean("policy", in.Policy, false), p.view(in.View)
	if whole && v != nil {
		p.fault("policy", "a view has no policy")
	}
	if parts&gq.WithCheckpoint != 0 && v != nil {
		p.fault("checkpoint", "a view has no checkpoint")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	job, err := h.engine.Get(ctx, id, parts)
	if err != nil {
		return nil, err
	}
	if v != nil {
		return &httpx.Answer[wire.Job]{Form: viewForm(v), Other: copyInView(v, job)}, nil
	}
	out := httpx.OK(wire.JobOf(&job))
	if whole {
		out.Body.Policy = wire.PolicyOf(&job.Spec.Policy)
	}
	return out, nil
}

func (h *HTTP) update(ctx context.Context, in *jobInput, body *wire.Patch) (*httpx.Answer[wire.Job], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	patch := body.Domain()
	if patch.Empty() {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "body", Problem: "changes nothing"}}}
	}
	job, err := h.engine.UpdateMetadata(ctx, id, patch)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.JobOf(&job)), nil
}

func (h *HTTP) cancel(ctx context.Context, in *jobInput, body *cancelBody) (*httpx.Answer[wire.Job], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	state, err := h.engine.Cancel(ctx, id, body.Reason)
	if err != nil {
		return nil, err
	}
	return h.jobIn(ctx, &state)
}

func (h *HTTP) reschedule(ctx context.Context, in *jobInput, body *rescheduleBody) (*httpx.Answer[wire.Job], error) {
	var p parameters
	id, at := p.jobID(in.ID), p.instant("run_at", body.RunAt)
	if err := p.err(); err != nil {
		return nil, err
	}
	state, err := h.engine.Reschedule(ctx, id, at)
	if err != nil {
		return nil, err
	}
	return h.jobIn(ctx, &state)
}

// jobIn returns the job in the state that a call left it in.
func (h *HTTP) jobIn(ctx context.Context, s *gq.State) (*httpx.Answer[wire.Job], error) {
	job, err := h.engine.Get(ctx, s.ID, 0)
	if err != nil {
		// The call succeeded; only reading the job back failed.
		return httpx.OK(wire.StateOf(s)), nil //nolint:nilerr // see above
	}
	job.State = *s
	return httpx.OK(wire.JobOf(&job)), nil
}

func (h *HTTP) purge(ctx context.Context, in *jobInput, _ *httpx.None) (*httpx.Answer[httpx.None], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, h.engine.Purge(ctx, id)
}

func (h *HTTP) edit(ctx context.Context, in *jobInput, body *wire.Edit) (*httpx.Answer[wire.Submitted], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	change, err := body.Domain()
	if err != nil {
		return nil, err
	}
	s, err := h.engine.Edit(ctx, id, change)
	if err != nil {
		return nil, err
	}
	httpx.CallOf(ctx).Header().Set("Location", jobPath(s.ID()))
	out := httpx.OK(wire.Submitted{Job: wire.StateOf(&s.State)})
	if job, err := h.engine.Get(ctx, s.ID(), gq.WithPayload); err == nil { // the edit succeeded, whether or not this read does
		out.Body.Job = wire.JobOf(&job)
	}
	return out, nil
}

type replayBody struct{}

func (h *HTTP) replay(ctx context.Context, in *jobInput, _ *replayBody) (*httpx.Answer[wire.Submitted], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	s, err := h.engine.Replay(ctx, id)
	if err != nil {
		return nil, err
	}
	httpx.CallOf(ctx).Header().Set("Location", jobPath(s.ID()))
	out := httpx.OK(wire.Submitted{Job: wire.StateOf(&s.State), Existing: s.Existing, Same: s.Existing})
	if s.Existing {
		out.Status = http.StatusOK
	}
	if job, err := h.engine.Get(ctx, s.ID(), gq.WithPayload); err == nil { // the replay succeeded, whether or not this read does
		out.Body.Job = wire.JobOf(&job)
	}
	return out, nil
}

func (h *HTTP) events(c *httpx.Call, in *jobEventsInput) error {
	var p parameters
	id, v := p.jobID(in.ID), p.view(in.View)
	if err := p.err(); err != nil {
		return err
	}
	events, err := h.engine.History(c.Request.Context(), id)
	if err != nil {
		return err
	}
	c.Header().Set("Content-Type", "application/x-ndjson")
	if v != nil {
		for _, e := range v.History(events) {
			if wire.EncodeJSON(c, e.Shown) != nil {
				break // the client has gone
			}
		}
		return nil
	}
	for i := range events {
		if wire.EncodeJSON(c, wire.EventOf(&events[i])) != nil {
			break // the client has gone
		}
	}
	return nil
}

func (h *HTTP) explain(ctx context.Context, in *jobInput, _ *httpx.None) (*httpx.Answer[wire.Explanation], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	x, err := h.engine.Explain(ctx, id)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.ExplanationOf(&x)), nil
}

func (h *HTTP) wait(ctx context.Context, in *waitInput, _ *httpx.None) (*httpx.Answer[wire.Job], error) {
	var p parameters
	id := p.jobID(in.ID)
	if in.Timeout == "" {
		in.Timeout = "30s"
	}
	timeout, v := p.duration("timeout", in.Timeout, MaxHTTPWait), p.view(in.View)
	if err := p.err(); err != nil {
		return nil, err
	}
	httpx.CallOf(ctx).AnswerAfter(timeout)
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	job, err := awaitJob(ctx, waiting, h.engine, id)
	if err != nil {
		return nil, err
	}
	if v != nil {
		return &httpx.Answer[wire.Job]{Form: viewForm(v), Other: copyInView(v, job)}, nil
	}
	return httpx.OK(wire.JobOf(&job)), nil
}

func (s *jobsServer) Get(ctx context.Context, r *pb.GetRequest) (*pb.Job, error) {
	id, v, err := viewedJob(r.GetId(), r.GetView())
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	var parts gq.Parts
	if r.GetWithPayload() {
		parts |= gq.WithPayload
	}
	if r.GetWithResult() {
		parts |= gq.WithResult
	}
	if r.GetWithCheckpoint() {
		if v != nil {
			return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "with_checkpoint", Problem: "a view has no checkpoint"}}}
		}
		parts |= gq.WithCheckpoint
	}
	job, err := s.engine.Get(ctx, id, parts)
	return answerIn(v, job, err)
}

// viewedJob parses the id of a job and the name of the view to show it in, which is nil for none.
func viewedJob(id, name string) (job gq.JobID, v *view.View, err error) {
	if job, err = pbconv.JobIDFromProto(id); err == nil {
		v, err = view.Named(name)
	}
	return job, v, err
}

func answerJob(job gq.Job, err error) (*pb.Job, error) {
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoJob(&job), nil
}

func (s *jobsServer) Update(ctx context.Context, r *pb.UpdateRequest) (*pb.Job, error) {
	id, patch, err := pbconv.UpdateFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	return answerJob(s.engine.UpdateMetadata(ctx, id, patch))
}

func (s *jobsServer) Cancel(ctx context.Context, r *pb.CancelRequest) (*pb.State, error) {
	id, err := pbconv.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("cancel: %w", err)
	}
	return answerState(s.engine.Cancel(ctx, id, r.GetReason()))
}

func (s *jobsServer) Reschedule(ctx context.Context, r *pb.RescheduleRequest) (*pb.State, error) {
	id, err := pbconv.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("reschedule: %w", err)
	}
	at, err := pbconv.TimeFromProto("run_at", r.GetRunAt())
	if err != nil {
		return nil, fmt.Errorf("reschedule: %w", err)
	}
	return answerState(s.engine.Reschedule(ctx, id, at))
}

func answerState(state gq.State, err error) (*pb.State, error) {
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoState(&state), nil
}

func (s *jobsServer) Edit(ctx context.Context, r *pb.EditRequest) (*pb.Submitted, error) {
	id, change, err := pbconv.EditFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	out, err := s.engine.Edit(ctx, id, change)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoSubmitted(&out, ""), nil
}

func (s *jobsServer) Replay(ctx context.Context, r *pb.ReplayRequest) (*pb.Submitted, error) {
	id, err := pbconv.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	out, err := s.engine.Replay(ctx, id)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoSubmitted(&out, ""), nil
}

func (s *jobsServer) Purge(ctx context.Context, r *pb.PurgeRequest) (*pb.PurgeResponse, error) {
	id, err := pbconv.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("purge: %w", err)
	}
	if err := s.engine.Purge(ctx, id); err != nil {
		return nil, err
	}
	return &pb.PurgeResponse{}, nil
}

func (s *jobsServer) Wait(ctx context.Context, r *pb.WaitRequest) (*pb.Job, error) {
	id, v, err := viewedJob(r.GetId(), r.GetView())
	if err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	timeout, err := pbconv.DurationFromProto("timeout", r.GetTimeout())
	if err == nil && (timeout < 0 || timeout > MaxGRPCWait) {
		err = &gq.InvalidError{Faults: []gq.Fault{{Field: "timeout", Problem: fmt.Sprintf("%v is not between 0 and %v", timeout, MaxGRPCWait)}}}
	}
	if err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	waiting, done := s.whileServing(ctx)
	defer done()
	if timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(waiting, timeout)
		defer cancel()
	}
	job, err := awaitJob(ctx, waiting, s.engine, id)
	return answerIn(v, job, err)
}

func (s *jobsServer) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.Explanation, error) {
	id, err := pbconv.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	x, err := s.engine.Explain(ctx, id)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoExplanation(&x), nil
}

func (s *jobsServer) History(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	id, v, err := viewedJob(r.GetId(), r.GetView())
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	events, err := s.engine.History(ctx, id)
	if err != nil {
		return nil, err
	}
	return &pb.HistoryResponse{Events: protoEventsIn(v, events)}, nil
}
