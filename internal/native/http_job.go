package native

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

type (
	jobInput struct {
		ID string `path:"id" doc:"The job's id." format:"uuid"`
	}
	getInput struct {
		ID         string   `path:"id" doc:"The job's id." format:"uuid"`
		Payload    boolText `query:"payload" doc:"With its payload; true unless told."`
		Result     boolText `query:"result" doc:"With its result; true unless told."`
		Checkpoint boolText `query:"checkpoint" doc:"With its checkpoint; false unless told."`
		Policy     boolText `query:"policy" doc:"With every number of its policy, those of the preset too; false unless told."`
	}
	waitInput struct {
		ID      string       `path:"id" doc:"The job's id." format:"uuid"`
		Timeout durationText `query:"timeout" doc:"How long to wait; 30s unless told, at most 10m."`
	}
	cancelBody struct {
		Reason string `json:"reason,omitzero" doc:"Kept with the job."`
	}
	explainOutput struct{ Body wire.Explanation }
	streamOutput  struct {
		ContentType string `header:"Content-Type"`
		Body        func(huma.Context)
	}
)

func (h *HTTP) registerJob() {
	register(h, route{
		method: http.MethodGet, path: "/v1/jobs/{id}", id: "get-job", tag: "jobs", summary: "Read a job",
		description: "As it stands at this moment, with its payload and result.",
	}, h.get)
	register(h, route{
		method: http.MethodPatch, path: "/v1/jobs/{id}", id: "update-job", tag: "jobs", summary: "Change the metadata of a job",
		description: "While it is live: tags, correlation_id, callback_url, and until the first claim its priority. Everything else is read-only.",
	}, h.update)
	register(h, route{
		method: http.MethodDelete, path: "/v1/jobs/{id}", id: "purge-job", tag: "jobs", status: http.StatusNoContent, summary: "Remove a finished job",
		description: "Before its retention is over, with its payload, result and history, for good. What a subscriber of events is told of it stays.",
	}, h.purge)
	register(h, route{
		method: http.MethodPost, path: "/v1/jobs/{id}/cancel", id: "cancel-job", tag: "jobs", optional: true, summary: "Cancel a job",
		description: "One that is not running ends at once. A running one is asked to stop, which its worker learns with its next heartbeat.",
	}, h.cancel)
	register(h, route{
		method: http.MethodPost, path: "/v1/jobs/{id}/replay", id: "replay-job", tag: "jobs", optional: true, status: http.StatusCreated,
		summary: "Submit a finished job again", description: "As a new job with replay_of set; the old one stays as it ended.",
	}, h.replay)
	register(h, route{
		method: http.MethodGet, path: "/v1/jobs/{id}/events", id: "job-events", tag: "jobs", ndjson: true, summary: "Read the history of a job",
		description: "Oldest first, one event a line.",
	}, h.events)
	register(h, route{
		method: http.MethodGet, path: "/v1/jobs/{id}/explain", id: "explain-job", tag: "jobs", summary: "Why is my job not running?",
	}, h.explain)
	register(h, route{
		method: http.MethodGet, path: "/v1/jobs/{id}/wait", id: "wait-job", tag: "jobs", summary: "Wait until a job has ended",
		description: "Answers with the job and its result as soon as it has ended. When the time is over first, the job is answered as it stands then.",
	}, h.wait)
}

func (h *HTTP) get(ctx context.Context, in *getInput, _ *none) (*jobOutput, error) {
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
	whole := p.boolean("policy", in.Policy, false)
	if err := p.err(); err != nil {
		return nil, err
	}
	job, err := h.engine.Get(ctx, id, parts)
	if err != nil {
		return nil, err
	}
	out := &jobOutput{wire.JobOf(&job)}
	if whole {
		out.Body.Policy = wire.PolicyOf(&job.Spec.Policy)
	}
	return out, nil
}

func (h *HTTP) update(ctx context.Context, in *jobInput, body *wire.Patch) (*jobOutput, error) {
	id, err := machine.ParseJobID(in.ID)
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
	return &jobOutput{wire.JobOf(&job)}, nil
}

func (h *HTTP) cancel(ctx context.Context, in *jobInput, body *cancelBody) (*jobOutput, error) {
	id, err := machine.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	state, err := h.engine.Cancel(ctx, id, body.Reason)
	if err != nil {
		return nil, err
	}
	return h.jobIn(ctx, &state)
}

// jobIn is a job in the state that a call has left it in.
func (h *HTTP) jobIn(ctx context.Context, s *gq.State) (*jobOutput, error) {
	job, err := h.engine.Get(ctx, s.ID, 0)
	if err != nil {
		// The call has succeeded, whatever came after.
		return &jobOutput{wire.StateOf(s)}, nil //nolint:nilerr // see above
	}
	job.State = *s
	return &jobOutput{wire.JobOf(&job)}, nil
}

func (h *HTTP) purge(ctx context.Context, in *jobInput, _ *none) (*struct{}, error) {
	id, err := machine.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, h.engine.Purge(ctx, id)
}

type replayBody struct{}

func (h *HTTP) replay(ctx context.Context, in *jobInput, _ *replayBody) (*submitOutput, error) {
	id, err := machine.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	s, err := h.engine.Replay(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &submitOutput{Status: http.StatusCreated, Location: jobPath(s.ID()), Body: wire.Submitted{Job: wire.StateOf(&s.State)}}
	if job, err := h.engine.Get(ctx, s.ID(), gq.WithPayload); err == nil { // the call has succeeded, whatever comes after
		out.Body.Job = wire.JobOf(&job)
	}
	return out, nil
}

func (h *HTTP) events(ctx context.Context, in *jobInput, _ *none) (*streamOutput, error) {
	id, err := machine.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	events, err := h.engine.History(ctx, id)
	if err != nil {
		return nil, err
	}
	return &streamOutput{ContentType: "application/x-ndjson", Body: func(c huma.Context) {
		for i := range events {
			if wire.EncodeJSON(c.BodyWriter(), wire.EventOf(&events[i])) != nil {
				return // the client has left
			}
		}
	}}, nil
}

func (h *HTTP) explain(ctx context.Context, in *jobInput, _ *none) (*explainOutput, error) {
	id, err := machine.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	x, err := h.engine.Explain(ctx, id)
	if err != nil {
		return nil, err
	}
	return &explainOutput{wire.ExplanationOf(&x)}, nil
}

func (h *HTTP) wait(ctx context.Context, in *waitInput, _ *none) (*jobOutput, error) {
	var p parameters
	id := p.jobID(in.ID)
	if in.Timeout == "" {
		in.Timeout = "30s"
	}
	timeout := p.duration("timeout", in.Timeout, MaxHTTPWait)
	if err := p.err(); err != nil {
		return nil, err
	}
	h.writeWithin(callOf(ctx), timeout)
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	job, err := awaitJob(ctx, waiting, h.engine, id)
	if err != nil {
		return nil, err
	}
	return &jobOutput{wire.JobOf(&job)}, nil
}
