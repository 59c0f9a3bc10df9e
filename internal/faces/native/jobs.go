package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
)

// maxPage is the largest page of jobs.
const maxPage = 1000

type (
	submitInput struct {
		Key  string    `header:"Idempotency-Key" doc:"Instead of idempotency_key in the body."`
		View *viewText `query:"view" doc:"With jobmodel the body may have timeouts, and the answer is in the states and members of the document."`
	}
	// submitBody is a submission, in a view with members of its document.
	submitBody struct {
		wire.Spec
		Timeouts *wire.TimeoutsBody `json:"timeouts,omitempty" doc:"Only with view=jobmodel: limits in the names of the job model, instead of those of the policy."`
	}
	batchInput struct {
		View *viewText `query:"view" doc:"With jobmodel the jobs may have timeouts, and the answers are in the states and members of the document."`
	}
	listInput struct {
		Queue         string      `query:"queue" doc:"Only of this queue."`
		State         []stateText `query:"state" doc:"Only in these states, in a view in those of the view; repeated, or with commas."`
		CreatedAfter  instantText `query:"created_after" doc:"Not submitted before this instant."`
		CreatedBefore instantText `query:"created_before" doc:"Submitted before this instant."`
		Type          []string    `query:"type,explode" doc:"Only of these types; repeated. See below about pages."`
		Tag           []string    `query:"tag,explode" doc:"Only with this tag, as name=value; repeated, all of them. See below about pages."`
		Key           []string    `query:"key,explode" doc:"Only with this idempotency or unique key, or replays of the job with this id; repeated, any of them. An index finds them at once."`
		Order         orderText   `query:"order" doc:"By submission; newest first unless told."`
		Cursor        string      `query:"cursor" doc:"next_cursor of the page before."`
		Limit         countText   `query:"limit" doc:"Jobs on the page; 50 unless told, at most 1000."`
		MaxScan       countText   `query:"max_scan" doc:"Jobs that are looked at for the page; no limit unless told. See below about pages."`
		View          *viewText   `query:"view" doc:"In the states and members of a document, and no others. See below about pages."`
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

func (h *HTTP) jobRoutes(schemas *httpx.Schemas) []httpx.Route {
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs", ID: "submit-job", Tag: "jobs", Large: true, Status: http.StatusCreated,
			Summary: "Submit a job",
			Description: "Answers when the job is durable. Where the idempotency key is taken the answer is 200 with the job that has it, " +
				"existing true, and same true if it was submitted with the same content.",
			Headers: map[string]string{"Location": "Where the job is."},
			Also:    map[int]string{http.StatusOK: "The idempotency key was taken; this is the job that has it."},
			Forms:   viewForms(schemas, false),
		}, h.submit),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/batch", ID: "submit-batch", Tag: "jobs", Large: true,
			Summary: "Submit many jobs",
			Description: "Each job has its own answer, in order: the job, or {\"problem\": …}; one that is wrong does not keep the others out. Where jobs name each other by ref and needs, " +
				"or with atomic, all are accepted or none.",
			Forms: batchForms(schemas),
		}, h.submitBatch),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/jobs", ID: "list-jobs", Tag: "jobs", Summary: "List jobs",
			Description: "By order of submission, without payloads and results. By queue, state and time a page is full unless it is the last. " +
				"Jobs have no order by type or tag: for those the server looks at up to 10,000 jobs that the other parameters select, " +
				"so that a page may have fewer jobs than its limit, or none, while next_cursor says that there is more to look at. " +
				"The same is true by state in a view.",
			Forms: viewForms(schemas, true),
		}, h.list),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/cancel", ID: "cancel-jobs", Tag: "jobs", Summary: "Cancel all jobs that a filter selects",
			Description: "Live jobs only. If the call does not end well it can be repeated.",
		}, h.cancelMany),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/purge", ID: "purge-jobs", Tag: "jobs", Summary: "Remove all finished jobs that a filter selects",
			Description: "Before their retention is over, and for good. If the call does not end well it can be repeated.",
		}, h.purgeMany),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/replay", ID: "replay-jobs", Tag: "jobs", Summary: "Submit all finished jobs that a filter selects again",
			Description: "Oldest first, a page a call: repeat the call with next_cursor until it is absent. The old jobs stay as they ended, and jobs submitted after the first call are not selected.",
		}, h.replayMany),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/jobs/count", ID: "count-jobs", Tag: "jobs", Optional: true, Summary: "Count the jobs that a filter selects",
			Description: "By queue and state in one call. By type, tag or time the server looks at up to 10,000 jobs a call: repeat it with next_cursor and add up.",
		}, h.countMany),
	}
}

// queuePolicy returns the policy of a queue, which fills the gaps in a job's policy.
func (h *HTTP) queuePolicy(ctx context.Context) func(string) (gq.Policy, error) {
	return func(name string) (gq.Policy, error) {
		q, err := h.engine.Queue(ctx, name)
		switch {
		case errors.Is(err, gq.ErrNotFound):
			return h.options.DefaultPreset.Policy(), nil
		case err != nil:
			return gq.Policy{}, err
		}
		return q.Policy, nil
	}
}

func (h *HTTP) submit(ctx context.Context, in *submitInput, body *submitBody) (*httpx.Answer[wire.Submitted], error) {
	var p parameters
	v := p.view(in.View)
	if err := p.err(); err != nil {
		return nil, err
	}
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
	if faults := body.Timeouts.Limit(&spec, body.Policy, v == view.JobModel); len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults}
	}
	s, err := h.engine.Submit(ctx, spec)
	if err != nil {
		return nil, timeoutsAlone(body.Timeouts).named(err)
	}
	job, err := h.submitted(ctx, spec, s)
	if err != nil {
		return nil, err
	}
	httpx.CallOf(ctx).Header().Set("Location", jobPath(s.ID()))
	answer := &httpx.Answer[wire.Submitted]{}
	if v != nil {
		answer.Form, answer.Other = viewForm(v), copyInView(v, job)
	} else {
		answer.Body = submittedOf(&job, &s)
	}
	if s.Existing {
		answer.Status = http.StatusOK
	}
	return answer, nil
}

func jobPath(id gq.JobID) string { return "/v1/jobs/" + url.PathEscape(id.String()) }

// submitted returns the job that answers a submission. Callers that may submit but not read get
// the state of a job that existed, and nothing else.
func (h *HTTP) submitted(ctx context.Context, spec gq.Spec, s gq.SubmitResult) (gq.Job, error) {
	if s.Existing {
		job, err := h.engine.Get(ctx, s.ID(), gq.WithPayload)
		if errs.KindOf(err) == gq.KindDenied {
			return gq.Job{State: s.State, Redacted: true}, nil
		}
		return job, err
	}
	spec = spec.WithDefaults()
	match.CountUnits(&spec)
	spec.ID, spec.Replaces = s.ID(), s.Replaces
	if s.State.Policy != nil {
		spec.Policy = *s.State.Policy
	}
	return gq.Job{Spec: spec, State: s.State, Metadata: spec.Metadata}, nil
}

// submittedOf returns the response to a submission. The type of a job that the caller may not read
// is empty.
func submittedOf(job *gq.Job, s *gq.SubmitResult) wire.Submitted {
	out := wire.Submitted{Existing: s.Existing, Same: s.Same}
	if out.Job = wire.JobOf(job); job.Spec.Type == "" {
		out.Job = wire.StateOf(&job.State)
	}
	return out
}

func (h *HTTP) submitBatch(ctx context.Context, in *batchInput, body *wire.Batch) (*httpx.Answer[wire.BatchAnswers], error) {
	var p parameters
	v := p.view(in.View)
	if err := p.err(); err != nil {
		return nil, err
	}
	drafts, refused, err := body.Domain(h.queuePolicy(ctx), v == view.JobModel)
	if err != nil {
		return nil, err
	}
	var all []gq.SubmitResult
	if body.Graph() {
		all, err = h.engine.SubmitGraph(ctx, drafts)
		err = limitsOf(body.Jobs, func(d *wire.Draft) *wire.TimeoutsBody { return d.Timeouts }).named(err)
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
	var viewed struct {
		Jobs []any `json:"jobs"`
	}
	for i, s := range all {
		answer := &out.Body.Jobs[i]
		err := timeoutsAlone(body.Jobs[i].Timeouts).named(s.Err)
		var job gq.Job
		if err == nil {
			spec := drafts[i].Spec
			for _, n := range drafts[i].Needs {
				spec.DependsOn = append(slices.Clip(spec.DependsOn), gq.Dependency{Kind: n.Kind, Job: named[n.Ref]})
			}
			job, err = h.submitted(ctx, spec, s)
		}
		switch {
		case err != nil:
			answer.Problem = problem(ctx, err)
			viewed.Jobs = append(viewed.Jobs, wire.Refused{Problem: answer.Problem})
		case v != nil:
			viewed.Jobs = append(viewed.Jobs, v.Job(&job))
		default:
			answer.Submitted = submittedOf(&job, &all[i])
		}
	}
	if v != nil {
		out.Form, out.Other = viewForm(v), viewed
	}
	return out, nil
}

// submitEach submits the valid jobs and returns the results of all, in the original
// order.
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
	q, v := gq.Query{
		Queue:        in.Queue,
		CreatedAfter: p.instant("created_after", in.CreatedAfter), CreatedBefore: p.instant("created_before", in.CreatedBefore),
		Types: in.Type, Tags: p.tags(in.Tag), Keys: in.Key,
		Cursor: in.Cursor, Limit: p.count("limit", in.Limit, maxPage),
		MaxScan: p.count("max_scan", in.MaxScan, math.MaxInt32),
	}, p.view(in.View)
	if v == nil {
		q.Statuses = p.statuses(in.State)
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
	if v != nil {
		page, err := v.List(ctx, h.engine, q, split(in.State))
		if err != nil {
			return nil, err
		}
		return &httpx.Answer[wire.Jobs]{Form: viewForm(v), Other: v.Page(page)}, nil
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

type jobsServer struct {
	pb.UnimplementedJobsServiceServer
	*GRPC
}

func (s *jobsServer) Submit(ctx context.Context, r *pb.SubmitRequest) (*pb.Submitted, error) {
	spec, err := pbconv.Bases(s.base(ctx)).Spec(r.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("submit %.80q: %w", r.GetSpec().GetType(), err)
	}
	v, err := view.Named(r.GetView())
	given, faults := protoLimits(&spec, v, r.GetTimeouts(), r.GetSpec().GetPolicy())
	if faults = append(errs.FaultsOf(err), faults...); len(faults) > 0 {
		return nil, fmt.Errorf("submit %.80q: %w", r.GetSpec().GetType(), &gq.InvalidError{Faults: faults})
	}
	if _, ends := ctx.Deadline(); !ends {
		ctx = context.WithoutCancel(ctx) // the engine sets the limit, at a lower cost for a context that cannot end
	}
	out, err := s.engine.Submit(ctx, spec)
	if err != nil {
		return nil, timeoutsAlone(given).named(err)
	}
	return pbconv.ProtoSubmitted(&out, ""), nil
}

// batchRequest is a SubmitBatchRequest. What most submissions have is decoded directly: then
// the message is empty. A batch that is too large is only counted.
type batchRequest struct {
	*pb.SubmitBatchRequest
	direct []gq.Spec
	n      int
}

func (r *batchRequest) unmarshal(data mem.BufferSlice) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if r.n = pbconv.CountSubmissions(whole.ReadOnlyData()); r.n > MaxItems {
		return nil
	}
	var ok bool
	if r.direct, ok = pbconv.DecodeSubmissions(whole.ReadOnlyData()); ok {
		return nil
	}
	return proto.Unmarshal(whole.ReadOnlyData(), r.SubmitBatchRequest)
}

// jobsService is the description of the service in which SubmitBatch has a [batchRequest].
func jobsService() grpc.ServiceDesc {
	d := pb.JobsService_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		if d.Methods[i].MethodName != "SubmitBatch" {
			continue
		}
		d.Methods[i].Handler = func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			r := &batchRequest{SubmitBatchRequest: new(pb.SubmitBatchRequest)}
			if err := decode(r); err != nil {
				return nil, err
			}
			info := &grpc.UnaryServerInfo{Server: server, FullMethod: pb.JobsService_SubmitBatch_FullMethodName}
			return intercept(ctx, r, info, func(ctx context.Context, _ any) (any, error) {
				return server.(*jobsServer).submitBatch(ctx, r)
			})
		}
	}
	return d
}

func (s *jobsServer) SubmitBatch(ctx context.Context, r *pb.SubmitBatchRequest) (*pb.SubmitBatchResponse, error) {
	return s.submitBatch(ctx, &batchRequest{SubmitBatchRequest: r, n: len(r.GetSpecs())})
}

func (s *jobsServer) submitBatch(ctx context.Context, r *batchRequest) (*pb.SubmitBatchResponse, error) {
	if err := checkItems("specs", r.n); err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	specs, faults := r.direct, map[int]error(nil)
	var given []*wire.TimeoutsBody // of the valid specs, if the request has any
	if len(r.GetSpecs()) > 0 {
		var err error
		if specs, given, faults, err = s.batchSpecs(ctx, r.SubmitBatchRequest); err != nil {
			return nil, fmt.Errorf("submit: %w", err)
		}
	}
	out, err := s.engine.SubmitBatch(ctx, specs)
	if err != nil {
		return nil, err
	}
	c := rpcOf(ctx)
	encoded := make([]byte, 0, 192*r.n) // most answers are below that
	for i, next := 0, 0; i < r.n; i++ {
		var answer *gq.SubmitResult
		if fault := faults[i]; fault != nil {
			answer = &gq.SubmitResult{Err: fmt.Errorf("submit %.80q: %w", r.GetSpecs()[i].GetType(), fault)}
		} else {
			answer = &out[next]
			if given != nil {
				answer.Err = timeoutsAlone(given[next]).named(answer.Err)
			}
			next++
		}
		request := ""
		if answer.Err != nil {
			s.note(c, answer.Err)
			request = c.request()
		}
		if encoded, err = pbconv.AppendSubmitted(encoded, answer, request); err != nil {
			return nil, err
		}
	}
	response := new(pb.SubmitBatchResponse)
	response.ProtoReflect().SetUnknown(encoded) // sent as it is
	return response, nil
}

// batchSpecs decodes the specs of a batch with their limits, and returns the faults of those that are wrong.
func (s *jobsServer) batchSpecs(ctx context.Context, r *pb.SubmitBatchRequest) (specs []gq.Spec, given []*wire.TimeoutsBody, faults map[int]error, err error) {
	v, err := view.Named(r.GetView())
	if n := len(r.GetTimeouts()); err == nil && n > 0 && n != len(r.GetSpecs()) {
		err = &gq.InvalidError{Faults: []gq.Fault{{Field: "timeouts", Problem: fmt.Sprintf("are %d for %d specs; give one for each, or none", n, len(r.GetSpecs()))}}}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	bases := pbconv.Bases(s.base(ctx))
	if len(r.GetTimeouts()) == 0 {
		specs, _, faults, err = decodeEach(r.GetSpecs(), bases.Spec)
		return specs, nil, faults, err
	}
	i := -1
	specs, _, faults, err = decodeEach(r.GetSpecs(), func(m *pb.Spec) (gq.Spec, error) {
		i++
		spec, err := bases.Spec(m)
		if err != nil {
			return spec, err
		}
		t, wrong := protoLimits(&spec, v, r.GetTimeouts()[i], m.GetPolicy())
		if len(wrong) > 0 {
			return spec, &gq.InvalidError{Faults: wrong}
		}
		given = append(given, t)
		return spec, nil
	})
	return specs, given, faults, err
}

// decodeEach decodes the items of a batch. It returns the valid ones with their indexes,
// and the faults of the others. An error means that the whole batch failed.
func decodeEach[M, V any](items []M, decode func(M) (V, error)) (good []V, at []int, faults map[int]error, err error) {
	good, at = make([]V, 0, len(items)), make([]int, 0, len(items))
	for i, m := range items {
		v, err := decode(m)
		switch {
		case err == nil:
			good, at = append(good, v), append(at, i)
		case errs.KindOf(err) == gq.KindInvalid:
			if faults == nil {
				faults = make(map[int]error)
			}
			faults[i] = err
		default:
			return nil, nil, nil, err
		}
	}
	return good, at, faults, nil
}

func (s *jobsServer) SubmitGraph(ctx context.Context, r *pb.SubmitGraphRequest) (*pb.SubmitGraphResponse, error) {
	bases := pbconv.Bases(s.base(ctx))
	drafts := make([]gq.GraphJob, len(r.GetDrafts()))
	var faults []gq.Fault
	for i, m := range r.GetDrafts() {
		var err error
		if drafts[i], err = bases.Draft(m); err != nil && errs.KindOf(err) != gq.KindInvalid {
			return nil, fmt.Errorf("submit graph: %w", err)
		}
		for _, f := range errs.FaultsOf(err) {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("jobs[%d].%s", i, f.Field), Problem: f.Problem})
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("submit graph: %w", &gq.InvalidError{Faults: faults})
	}
	given, err := draftLimits(r.GetView(), r.GetDrafts(), drafts)
	if err != nil {
		return nil, fmt.Errorf("submit graph: %w", err)
	}
	out, err := s.engine.SubmitGraph(ctx, drafts)
	if err != nil {
		return nil, given.named(err)
	}
	answer := &pb.SubmitGraphResponse{Submitted: make([]*pb.Submitted, len(out))}
	for i := range out {
		answer.Submitted[i] = pbconv.ProtoSubmitted(&out[i], "")
	}
	return answer, nil
}

func (s *jobsServer) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	q, err := pbconv.QueryFromProto(r.GetQuery())
	v, unknown := view.Named(r.GetView())
	if err = errors.Join(err, unknown); err == nil {
		err = checkViewStates(v, r)
	}
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	q.Cursor, q.Limit = r.GetCursor(), int(min(max(r.GetLimit(), math.MinInt32), math.MaxInt32)) // out-of-range values stay out of range
	if v != nil {
		page, err := v.List(ctx, s.engine, q, r.GetStates())
		if err != nil {
			return nil, err
		}
		return &pb.ListResponse{Jobs: protoJobsIn(v, page.Jobs), NextCursor: page.Next}, nil
	}
	page, err := s.engine.List(ctx, q)
	if err != nil {
		return nil, err
	}
	return &pb.ListResponse{Jobs: pbconv.ProtoJobs(page.Jobs), NextCursor: page.Next}, nil
}

// brokenOffError carries the progress of an action on many jobs that failed halfway.
type brokenOffError struct {
	report protoadapt.MessageV1
	error
}

func (e *brokenOffError) Unwrap() error { return e.error }

// Times of actions on many jobs that stop for the deadline of their call.
const (
	spareShare = 8 // of the time left, so that the report arrives before the deadline
	spareMost  = time.Second
)

// beforeDeadline returns a context that ends somewhat earlier.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/spareShare, spareMost)))
}

func (s *jobsServer) CancelWhere(ctx context.Context, r *pb.CancelWhereRequest) (*pb.CancelReport, error) {
	q, err := pbconv.QueryFromProto(r.GetQuery())
	if err != nil {
		return nil, fmt.Errorf("cancel many: %w", err)
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	report, err := s.engine.CancelWhere(ctx, q, r.GetReason())
	if err != nil {
		return nil, &brokenOffError{pbconv.ProtoCancelReport(report), err}
	}
	return pbconv.ProtoCancelReport(report), nil
}

func (s *jobsServer) PurgeWhere(ctx context.Context, r *pb.PurgeWhereRequest) (*pb.PurgeReport, error) {
	q, err := pbconv.QueryFromProto(r.GetQuery())
	if err != nil {
		return nil, fmt.Errorf("purge many: %w", err)
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	n, err := s.engine.PurgeWhere(ctx, q)
	report := &pb.PurgeReport{Purged: int64(n)}
	if err != nil {
		return nil, &brokenOffError{report, err}
	}
	return report, nil
}
