package native

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

type (
	claimBody struct {
		Worker     string         `json:"worker" doc:"Who asks; unique among live workers."`
		Queues     []string       `json:"queues,omitempty" doc:"Tried in this order; without any, \"default\". mail.* is every queue whose name begins with mail."`
		Types      []string       `json:"types,omitempty" doc:"Job types it can run; none is any."`
		Offers     []string       `json:"offers,omitempty" doc:"Its capabilities."`
		MaxCost    int64          `json:"max_cost,omitzero" doc:"Largest cost_units; 0 is any."`
		N          *int           `json:"n,omitempty" doc:"At most this many jobs; 1 unless told." minimum:"1"`
		Wait       *wire.Duration `json:"wait,omitempty" doc:"How long to wait for the first one; at most 10m."`
		TTL        *wire.Duration `json:"ttl,omitempty" doc:"Of the leases; that of each job's policy unless told."`
		DefaultTTL *wire.Duration `json:"default_ttl,omitempty" doc:"For claimants that renew their leases: the lease time of jobs whose policy has the lease time of its preset, if that is longer. A ttl takes precedence."`
		Hold       bool           `json:"hold,omitzero" doc:"Claim only; the execution begins with start."`
	}
	leaseInput struct {
		ID string `path:"id" doc:"The lease's id."`
	}
	// holder has the optional members of every call under a lease.
	holder struct {
		Version uint64 `json:"version,omitzero" doc:"Of the lease; checked where it is given."`
		Worker  string `json:"worker,omitzero" doc:"Its holder; checked where it is given."`
	}
	startBody struct {
		holder
		TTL *wire.Duration `json:"ttl,omitempty" doc:"Of the lease; that of the policy unless told."`
	}
	heartbeatBody struct {
		holder
		Progress         *float64        `json:"progress,omitempty" doc:"0 to 1."`
		Note             string          `json:"note,omitzero" doc:"For people."`
		Checkpoint       json.RawMessage `json:"checkpoint,omitempty" doc:"Kept for the next attempt."`
		CheckpointBase64 *[]byte         `json:"checkpoint_base64,omitempty"`
		Spawn            []wire.Child    `json:"spawn,omitempty" doc:"Children, accepted together with the checkpoint or not at all."`
	}
	completeBody struct {
		holder
		Result       json.RawMessage `json:"result,omitempty" doc:"Any JSON."`
		ResultBase64 *[]byte         `json:"result_base64,omitempty" doc:"Instead: any bytes."`
		Spawn        []wire.Child    `json:"spawn,omitempty" doc:"Children, accepted together with the result or not at all."`
	}
	failBody struct {
		holder
		Category   *gq.Category   `json:"category,omitempty" doc:"TEMPORARY unless told."`
		Code       string         `json:"code,omitzero" doc:"Stable, for programs."`
		Message    string         `json:"message,omitzero" doc:"For people."`
		RetryAfter *wire.Duration `json:"retry_after,omitempty" doc:"The next attempt starts no earlier."`
	}
	releaseBody struct {
		holder
		Delay  *wire.Duration `json:"delay,omitempty" doc:"Not claimable before."`
		Reason string         `json:"reason,omitzero"`
	}
)

func (h *HTTP) leaseRoutes() []httpx.Route {
	under := func(verb, summary, description string, large bool) httpx.Route {
		return httpx.Route{
			Method: http.MethodPost, Path: "/v1/leases/{id}/" + verb, ID: verb + "-lease", Tag: "work", Optional: true, Large: large,
			Summary: summary, Description: description,
		}
	}
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/claim", ID: "claim-jobs", Tag: "work", Summary: "Claim jobs",
			Description: "Each comes started, under a lease whose id is needed for everything that follows, with its payload and checkpoint. Without a job for it the answer is an empty list.",
		}, h.claim),
		httpx.Handle(under("start", "Start a held job", "Begins the execution of a job that was claimed with hold.", false), h.start),
		httpx.Handle(under("heartbeat", "Keep a lease alive",
			"And report progress. cancel_requested in the answer means that the job should stop.", true), h.heartbeat),
		httpx.Handle(under("complete", "Complete a job", "The very same call again is answered as before.", true), h.complete),
		httpx.Handle(under("fail", "End an attempt without success",
			"Whether the job is tried again follows from the category and the job's policy.", false), h.fail),
		httpx.Handle(under("release", "Give a job back", "Without fault; it uses up no attempt.", false), h.release),
	}
}

func (h *HTTP) claim(ctx context.Context, _ *httpx.None, body *claimBody) (*httpx.Answer[wire.Claimed], error) {
	wait := lasting(body.Wait)
	if wait > MaxHTTPWait || wait < 0 {
		var p parameters
		p.fault("wait", "%v is not between 0s and %v", wait, MaxHTTPWait)
		return nil, p.err()
	}
	n := 1
	if body.N != nil {
		n = *body.N // the engine rejects 0
	}
	if h.draining.Err() != nil {
		return nil, errStopping // an empty response would make the client poll in a tight loop
	}
	httpx.CallOf(ctx).AnswerAfter(wait)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	jobs, err := h.engine.Claim(ctx, gq.ClaimRequest{
		Worker: body.Worker, Queues: body.Queues, Types: body.Types, Offers: body.Offers,
		MaxCost: body.MaxCost, N: n, Wait: wait, TTL: lasting(body.TTL), DefaultTTL: lasting(body.DefaultTTL), Hold: body.Hold,
	})
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.Claimed{Jobs: make([]wire.Job, len(jobs))})
	for i := range jobs {
		out.Body.Jobs[i] = wire.JobOf(&jobs[i])
	}
	return out, nil
}

func lasting(d *wire.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(*d)
}

func (l *leaseInput) ref(by holder) gq.LeaseRef {
	return gq.LeaseRef{ID: gq.LeaseID(l.ID), Version: gq.LeaseVersion(by.Version), Worker: by.Worker}
}

func (h *HTTP) start(ctx context.Context, in *leaseInput, body *startBody) (*httpx.Answer[wire.Job], error) {
	state, err := h.engine.Start(ctx, in.ref(body.holder), lasting(body.TTL))
	if err != nil {
		return nil, err
	}
	return h.jobIn(ctx, &state)
}

func (h *HTTP) heartbeat(ctx context.Context, in *leaseInput, body *heartbeatBody) (*httpx.Answer[wire.Job], error) {
	beat := gq.Heartbeat{Lease: in.ref(body.holder), Progress: -1, Note: body.Note}
	if body.Progress != nil {
		beat.Progress = *body.Progress
		if beat.Progress < 0 || beat.Progress > 1 {
			var p parameters
			p.fault("progress", "%v is not between 0 and 1", beat.Progress)
			return nil, p.err()
		}
	}
	var err error
	if beat.Checkpoint, err = wire.Contents("checkpoint", body.Checkpoint, body.CheckpointBase64); err != nil {
		return nil, err
	}
	if beat.Spawn, err = wire.Children(body.Spawn, h.queuePolicy(ctx)); err != nil {
		return nil, err
	}
	answers, err := h.engine.Heartbeat(ctx, []gq.Heartbeat{beat})
	return h.answer(ctx, answers, err)
}

func (h *HTTP) answer(ctx context.Context, answers []gq.LeaseResult, err error) (*httpx.Answer[wire.Job], error) {
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return nil, err
	}
	return h.jobIn(ctx, &answers[0].State)
}

func (h *HTTP) settle(ctx context.Context, o gq.Outcome) (*httpx.Answer[wire.Job], error) {
	answers, err := h.engine.Settle(ctx, []gq.Outcome{o})
	return h.answer(ctx, answers, err)
}

func (h *HTTP) complete(ctx context.Context, in *leaseInput, body *completeBody) (*httpx.Answer[wire.Job], error) {
	result, err := wire.Contents("result", body.Result, body.ResultBase64)
	if err != nil {
		return nil, err
	}
	spawn, err := wire.Children(body.Spawn, h.queuePolicy(ctx))
	if err != nil {
		return nil, err
	}
	return h.settle(ctx, gq.Outcome{Lease: in.ref(body.holder), Verdict: gq.VerdictComplete, Result: result, Spawn: spawn})
}

func (h *HTTP) fail(ctx context.Context, in *leaseInput, body *failBody) (*httpx.Answer[wire.Job], error) {
	f := gq.Failure{Category: gq.CategoryTemporary, Code: body.Code, Message: body.Message, RetryAfter: lasting(body.RetryAfter)}
	if body.Category != nil {
		f.Category = *body.Category
	}
	return h.settle(ctx, gq.Outcome{Lease: in.ref(body.holder), Verdict: gq.VerdictFail, Failure: f})
}

func (h *HTTP) release(ctx context.Context, in *leaseInput, body *releaseBody) (*httpx.Answer[wire.Job], error) {
	return h.settle(ctx, gq.Outcome{
		Lease: in.ref(body.holder), Verdict: gq.VerdictRelease, Delay: lasting(body.Delay), Reason: body.Reason,
	})
}

type workersServer struct {
	pb.UnimplementedWorkersServiceServer
	*GRPC
}

func (s *workersServer) Claim(ctx context.Context, r *pb.ClaimRequest) (*pb.ClaimResponse, error) {
	claim, err := pbconv.ClaimFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("claim for worker %.80q: %w", r.GetWorker(), err)
	}
	claim.N = given(claim.N)
	if s.draining.Err() != nil {
		return nil, errStopping // an empty response would make the client poll in a tight loop
	}
	waiting, done := s.whileServing(ctx)
	defer done()
	jobs, err := s.engine.Claim(waiting, claim)
	if err != nil {
		return nil, err
	}
	return &pb.ClaimResponse{Jobs: pbconv.ProtoJobs(jobs)}, nil
}

func (s *workersServer) Start(ctx context.Context, r *pb.StartRequest) (*pb.State, error) {
	ttl, err := pbconv.DurationFromProto("ttl", r.GetTtl())
	if err != nil {
		return nil, fmt.Errorf("start under lease %.80q: %w", r.GetLease().GetId(), err)
	}
	return answerState(s.engine.Start(ctx, pbconv.LeaseRefFromProto(r.GetLease()), ttl))
}

func (s *workersServer) Heartbeat(ctx context.Context, r *pb.HeartbeatRequest) (*pb.Answers, error) {
	return s.heartbeat(ctx, r)
}

func (s *workersServer) Settle(ctx context.Context, r *pb.SettleRequest) (*pb.Answers, error) {
	return s.settle(ctx, r)
}

func (g *GRPC) heartbeat(ctx context.Context, r *pb.HeartbeatRequest) (*pb.Answers, error) {
	return answerEach(ctx, g, "heartbeat", "beats", r.GetBeats(), pbconv.Bases(g.base(ctx)).Beat, g.engine.Heartbeat)
}

func (g *GRPC) settle(ctx context.Context, r *pb.SettleRequest) (*pb.Answers, error) {
	return answerEach(ctx, g, "settle", "outcomes", r.GetOutcomes(), pbconv.Bases(g.base(ctx)).Outcome,
		func(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
			answers, err := g.engine.Settle(ctx, outcomes)
			for i := range answers {
				if outcomes[i].NoState {
					answers[i].State = gq.State{}
				}
			}
			return answers, err
		})
}

// leased is a heartbeat or an outcome.
type leased interface{ GetLease() *pb.LeaseRef }

// answerEach applies do to the valid items of a batch and returns a result for every
// item.
func answerEach[M leased, V any](ctx context.Context, g *GRPC, verb, field string, items []M,
	decode func(M) (V, error), do func(context.Context, []V) ([]gq.LeaseResult, error),
) (*pb.Answers, error) {
	if err := checkItems(field, len(items)); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	values, at, faults, err := decodeEach(items, decode)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	answers, err := do(ctx, values)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		all := make([]gq.LeaseResult, len(items))
		for k, i := range at {
			all[i] = answers[k]
		}
		for i, fault := range faults {
			all[i].Err = fmt.Errorf("%s under lease %.80q: %w", verb, items[i].GetLease().GetId(), fault)
		}
		answers = all
	}
	c, request := rpcOf(ctx), ""
	for i := range answers {
		if answers[i].Err != nil {
			g.note(c, answers[i].Err)
			request = c.request()
		}
		for k := range answers[i].Spawned {
			if err := answers[i].Spawned[k].Err; err != nil {
				g.note(c, err)
				request = c.request()
			}
		}
	}
	return pbconv.ProtoAnswers(answers, request), nil
}

// giveBackWithin is the time limit for giving jobs back.
const giveBackWithin = 30 * time.Second

// giveBack releases jobs that could not be sent to their worker.
func (g *GRPC) giveBack(ctx context.Context, jobs []gq.Job) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	outcomes := make([]gq.Outcome, len(jobs))
	for i := range jobs {
		outcomes[i] = gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictRelease, Reason: "the connection to the worker broke"}
	}
	if _, err := g.engine.Settle(ctx, outcomes); err != nil {
		g.options.Log.Warn("give back jobs of a broken connection; their leases will expire",
			slog.Int("jobs", len(jobs)), slog.Any("error", err))
	}
}

// given returns how many jobs a claim asks for. In protobuf 0 means unset, which is 1.
func given(n int) int {
	if n == 0 {
		return 1
	}
	return n
}
