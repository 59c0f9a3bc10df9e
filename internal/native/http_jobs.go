package native

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// maxPage is the most jobs on a page.
const maxPage = 1000

type (
	submitInput struct {
		Key string `header:"Idempotency-Key" doc:"Instead of idempotency_key in the body."`
	}
	listInput struct {
		Queue         string      `query:"queue" doc:"Only of this queue."`
		State         []stateText `query:"state" doc:"Only in these states; repeated, or with commas."`
		CreatedAfter  instantText `query:"created_after" doc:"Not submitted before this instant."`
		CreatedBefore instantText `query:"created_before" doc:"Submitted before this instant."`
		Type          []string    `query:"type,explode" doc:"Only of these types; repeated. See below about pages."`
		Tag           []string    `query:"tag,explode" doc:"Only with this tag, as name=value; repeated, all of them. See below about pages."`
		Order         orderText   `query:"order" doc:"By submission; newest first unless told."`
		Cursor        string      `query:"cursor" doc:"next_cursor of the page before."`
		Limit         countText   `query:"limit" doc:"Jobs on the page; 50 unless told, at most 1000."`
	}
	cancelManyBody struct {
		Queue         string            `json:"queue,omitzero" doc:"Only of this queue."`
		States        []gq.Status       `json:"states,omitempty" doc:"Only in these states; finished jobs are never touched."`
		CreatedAfter  instantText       `json:"created_after,omitzero"`
		CreatedBefore instantText       `json:"created_before,omitzero"`
		Types         []string          `json:"types,omitempty" doc:"Only of these types."`
		Tags          map[string]string `json:"tags,omitempty" doc:"Only with these tags, all of them."`
		All           bool              `json:"all,omitzero" doc:"Needed where nothing else is given: every live job."`
		Reason        string            `json:"reason,omitzero"`
	}
	purgeBody struct {
		Queue         string            `json:"queue,omitzero" doc:"Only of this queue."`
		States        []gq.Status       `json:"states" doc:"Which: COMPLETED, FAILED, DEAD_LETTER or CANCELLED."`
		CreatedAfter  instantText       `json:"created_after,omitzero"`
		CreatedBefore instantText       `json:"created_before,omitzero"`
		Types         []string          `json:"types,omitempty" doc:"Only of these types."`
		Tags          map[string]string `json:"tags,omitempty" doc:"Only with these tags, all of them."`
	}
)

func (h *HTTP) jobRoutes() []httpx.Route {
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs", ID: "submit-job", Tag: "jobs", Large: true, Status: http.StatusCreated,
			Summary: "Submit a job",
			Description: "Answers when the job is durable. Where the idempotency key is taken the answer is 200 with the job that has it, " +
				"existing true, and same true if it was submitted with the same content.",
			Headers: map[string]string{"Location": "Where the job is."},
			Also:    map[int]string{http.StatusOK: "The idempotency key was taken; this is the job that has it."},
		}, h.submit),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/batch", ID: "submit-batch", Tag: "jobs", Large: true,
			Summary: "Submit many jobs",
			Description: "Each job has its own answer, in order: the job, or {\"problem\": …}; one that is wrong does not keep the others out. Where jobs name each other by ref and needs, " +
				"or with atomic, all are accepted or none.",
		}, h.submitBatch),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/jobs", ID: "list-jobs", Tag: "jobs", Summary: "List jobs",
			Description: "By order of submission, without payloads and results. By queue, state and time a page is full unless it is the last. " +
				"Jobs have no order by type or tag: for those the server looks at up to 10,000 jobs that the other parameters select, " +
				"so that a page may have fewer jobs than its limit, or none, while next_cursor says that there is more to look at.",
		}, h.list),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/cancel", ID: "cancel-jobs", Tag: "jobs", Summary: "Cancel all jobs that a filter selects",
			Description: "Live jobs only. If the call does not end well it can be repeated.",
		}, h.cancelMany),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/purge", ID: "purge-jobs", Tag: "jobs", Summary: "Remove all finished jobs that a filter selects",
			Description: "Before their retention is over, and for good. If the call does not end well it can be repeated.",
		}, h.purgeMany),
	}
}

// queuePolicy is what jobs of a queue start from.
func (h *HTTP) queuePolicy(ctx context.Context) func(string) (gq.Policy, error) {
	return func(name string) (gq.Policy, error) {
		q, err := h.engine.Queue(ctx, name)
		switch {
		case errors.Is(err, gq.ErrNotFound):
			return machine.DefaultPolicy(), nil
		case err != nil:
			return gq.Policy{}, err
		}
		return q.Policy, nil
	}
}

func (h *HTTP) submit(ctx context.Context, in *submitInput, body *wire.Spec) (*httpx.Answer[wire.Submitted], error) {
	if in.Key != "" {
		if body.IdempotencyKey != "" && body.IdempotencyKey != in.Key {
			return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "idempotency_key", Problem: "is not that of the header Idempotency-Key"}}}
		}
		body.IdempotencyKey = in.Key
	}
	spec, err := body.Domain(h.queuePolicy(ctx))
	if err != nil {
		return nil, err
	}
	s, err := h.engine.Submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	out, err := h.submitted(ctx, spec, s)
	if err != nil {
		return nil, err
	}
	httpx.CallOf(ctx).Header().Set("Location", jobPath(s.ID()))
	answer := httpx.OK(out)
	if s.Existing {
		answer.Status = http.StatusOK
	}
	return answer, nil
}

func jobPath(id gq.JobID) string { return "/v1/jobs/" + url.PathEscape(id.String()) }

// submitted is the job that a submission led to.
func (h *HTTP) submitted(ctx context.Context, spec gq.Spec, s gq.SubmitResult) (wire.Submitted, error) {
	if s.Existing {
		job, err := h.engine.Get(ctx, s.ID(), gq.WithPayload)
		if errs.KindOf(err) == gq.KindDenied { // it may submit, not read
			return wire.Submitted{Job: wire.StateOf(&s.State), Existing: true, Same: s.Same}, nil
		}
		if err != nil {
			return wire.Submitted{}, err
		}
		return wire.Submitted{Job: wire.JobOf(&job), Existing: true, Same: s.Same}, nil
	}
	spec = spec.WithDefaults()
	spec.ID = s.ID()
	if s.State.Policy != nil {
		spec.Policy = *s.State.Policy
	}
	return wire.Submitted{Job: wire.JobOf(&gq.Job{Spec: spec, State: s.State, Metadata: spec.Metadata})}, nil
}

func (h *HTTP) submitBatch(ctx context.Context, _ *httpx.None, body *wire.Batch) (*httpx.Answer[wire.BatchAnswers], error) {
	drafts, refused, err := body.Domain(h.queuePolicy(ctx))
	if err != nil {
		return nil, err
	}
	var all []gq.SubmitResult
	if body.Graph() {
		all, err = h.engine.SubmitGraph(ctx, drafts)
	} else {
		all, err = h.submitEach(ctx, drafts, refused)
	}
	if err != nil {
		return nil, err
	}
	named := map[string]gq.JobID{}
	for i := range drafts {
		if drafts[i].Ref != "" {
			named[drafts[i].Ref] = all[i].ID()
		}
	}
	out := httpx.OK(wire.BatchAnswers{Jobs: make([]wire.BatchAnswer, len(all))})
	for i, s := range all {
		answer := &out.Body.Jobs[i]
		err := s.Err
		if err == nil {
			spec := drafts[i].Spec
			for _, n := range drafts[i].Needs {
				spec.DependsOn = append(slices.Clip(spec.DependsOn), gq.Dependency{Kind: n.Kind, Job: named[n.Ref]})
			}
			answer.Submitted, err = h.submitted(ctx, spec, s)
		}
		if err != nil {
			answer.Problem = problem(ctx, err)
		}
	}
	return out, nil
}

// submitEach submits the jobs that could be read and puts all answers in their
// places.
func (h *HTTP) submitEach(ctx context.Context, drafts []gq.GraphJob, refused map[int]error) ([]gq.SubmitResult, error) {
	specs, at := make([]gq.Spec, 0, len(drafts)), make([]int, 0, len(drafts))
	for i := range drafts {
		if refused[i] == nil {
			specs, at = append(specs, drafts[i].Spec), append(at, i)
		}
	}
	answers, err := h.engine.SubmitBatch(ctx, specs)
	if err != nil {
		return nil, err
	}
	all := make([]gq.SubmitResult, len(drafts))
	for k, i := range at {
		all[i] = answers[k]
	}
	for i, err := range refused {
		all[i].Err = err
	}
	return all, nil
}

func (h *HTTP) list(ctx context.Context, in *listInput, _ *httpx.None) (*httpx.Answer[wire.Jobs], error) {
	var p parameters
	q := gq.Query{
		Queue: in.Queue, Statuses: p.statuses(in.State),
		CreatedAfter: p.instant("created_after", in.CreatedAfter), CreatedBefore: p.instant("created_before", in.CreatedBefore),
		Types: in.Type, Tags: p.tags(in.Tag),
		Cursor: in.Cursor, Limit: p.count("limit", in.Limit, maxPage),
	}
	switch in.Order {
	case "", "newest":
	case "oldest":
		q.OldestFirst = true
	default:
		p.fault("order", "%.64q is not newest or oldest", string(in.Order))
	}
	if q.Queue != "" {
		p.faults = append(p.faults, errs.FaultsOf(machine.CheckQueueName(q.Queue))...)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	page, err := h.engine.List(ctx, q)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.JobsOf(page)), nil
}

func (h *HTTP) cancelMany(ctx context.Context, _ *httpx.None, body *cancelManyBody) (*httpx.Answer[wire.CancelReport], error) {
	var p parameters
	q := gq.Query{
		Queue: body.Queue, Statuses: body.States,
		CreatedAfter: p.instant("created_after", body.CreatedAfter), CreatedBefore: p.instant("created_before", body.CreatedBefore),
		Types: body.Types, Tags: body.Tags,
	}
	filtered := body.Queue != "" || len(body.States) > 0 || body.CreatedAfter != "" || body.CreatedBefore != "" || q.Picks()
	if !filtered && !body.All {
		p.fault("all", "say {\"all\": true} to cancel every live job")
	}
	if q.Queue != "" {
		p.faults = append(p.faults, errs.FaultsOf(machine.CheckQueueName(q.Queue))...)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	report, err := h.engine.CancelWhere(ctx, q, body.Reason)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.CancelReport(report)), nil
}

func (h *HTTP) purgeMany(ctx context.Context, _ *httpx.None, body *purgeBody) (*httpx.Answer[wire.PurgeReport], error) {
	var p parameters
	q := gq.Query{
		Queue: body.Queue, Statuses: body.States,
		CreatedAfter: p.instant("created_after", body.CreatedAfter), CreatedBefore: p.instant("created_before", body.CreatedBefore),
		Types: body.Types, Tags: body.Tags,
	}
	if q.Queue != "" {
		p.faults = append(p.faults, errs.FaultsOf(machine.CheckQueueName(q.Queue))...)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	n, err := h.engine.PurgeWhere(ctx, q)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.PurgeReport{Purged: n}), nil
}
