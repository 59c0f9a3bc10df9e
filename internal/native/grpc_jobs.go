package native

import (
	"context"
	"fmt"
	"math"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
)

type jobsServer struct {
	pb.UnimplementedJobsServiceServer
	*GRPC
}

func (s *jobsServer) Submit(ctx context.Context, r *pb.SubmitRequest) (*pb.Submitted, error) {
	spec, err := wire.Bases(s.base(ctx)).Spec(r.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("submit %.80q: %w", r.GetSpec().GetType(), err)
	}
	if _, ends := ctx.Deadline(); !ends {
		ctx = context.WithoutCancel(ctx) // the engine bounds it, more cheaply for those whom nobody ends
	}
	out, err := s.engine.Submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	return wire.ProtoSubmitted(&out, ""), nil
}

func (s *jobsServer) SubmitBatch(ctx context.Context, r *pb.SubmitBatchRequest) (*pb.SubmitBatchResponse, error) {
	if err := checkItems("specs", len(r.GetSpecs())); err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	bases := wire.Bases(s.base(ctx))
	specs, at, faults, err := decodeEach(r.GetSpecs(), bases.Spec)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	out, err := s.engine.SubmitBatch(ctx, specs)
	if err != nil {
		return nil, err
	}
	c := rpcOf(ctx)
	answers := make([]*pb.Submitted, len(r.GetSpecs()))
	for k, i := range at {
		answers[i] = s.submitted(c, &out[k])
	}
	for i, fault := range faults {
		answers[i] = s.submitted(c, &gq.SubmitResult{Err: fmt.Errorf("submit %.80q: %w", r.GetSpecs()[i].GetType(), fault)})
	}
	return &pb.SubmitBatchResponse{Submitted: answers}, nil
}

func (g *GRPC) submitted(c *rpc, s *gq.SubmitResult) *pb.Submitted {
	if s.Err == nil {
		return wire.ProtoSubmitted(s, "")
	}
	g.note(c, s.Err)
	return wire.ProtoSubmitted(s, c.request())
}

// decodeEach reads the items of a batch: those that are good, where they stood,
// and what is wrong with the others. An error is none of an item.
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
	bases := wire.Bases(s.base(ctx))
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
	out, err := s.engine.SubmitGraph(ctx, drafts)
	if err != nil {
		return nil, err
	}
	answer := &pb.SubmitGraphResponse{Submitted: make([]*pb.Submitted, len(out))}
	for i := range out {
		answer.Submitted[i] = wire.ProtoSubmitted(&out[i], "")
	}
	return answer, nil
}

func (s *jobsServer) Get(ctx context.Context, r *pb.GetRequest) (*pb.Job, error) {
	id, err := wire.JobIDFromProto(r.GetId())
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
		parts |= gq.WithCheckpoint
	}
	return answerJob(s.engine.Get(ctx, id, parts))
}

func answerJob(job gq.Job, err error) (*pb.Job, error) {
	if err != nil {
		return nil, err
	}
	return wire.ProtoJob(&job), nil
}

func (s *jobsServer) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	q, err := wire.QueryFromProto(r.GetQuery())
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	q.Cursor, q.Limit = r.GetCursor(), int(min(max(r.GetLimit(), math.MinInt32), math.MaxInt32)) // what is out of range stays so
	page, err := s.engine.List(ctx, q)
	if err != nil {
		return nil, err
	}
	return &pb.ListResponse{Jobs: wire.ProtoJobs(page.Jobs), NextCursor: page.Next}, nil
}

func (s *jobsServer) Update(ctx context.Context, r *pb.UpdateRequest) (*pb.Job, error) {
	id, patch, err := wire.UpdateFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	return answerJob(s.engine.UpdateMetadata(ctx, id, patch))
}

func (s *jobsServer) Cancel(ctx context.Context, r *pb.CancelRequest) (*pb.State, error) {
	id, err := wire.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("cancel: %w", err)
	}
	return answerState(s.engine.Cancel(ctx, id, r.GetReason()))
}

func answerState(state gq.State, err error) (*pb.State, error) {
	if err != nil {
		return nil, err
	}
	return wire.ProtoState(&state), nil
}

// brokenOffError carries how far a CancelWhere came.
type brokenOffError struct {
	report gq.CancelReport
	error
}

func (e *brokenOffError) Unwrap() error { return e.error }

func (s *jobsServer) CancelWhere(ctx context.Context, r *pb.CancelWhereRequest) (*pb.CancelReport, error) {
	q, err := wire.QueryFromProto(r.GetQuery())
	if err != nil {
		return nil, fmt.Errorf("cancel many: %w", err)
	}
	report, err := s.engine.CancelWhere(ctx, q, r.GetReason())
	if err != nil {
		return nil, &brokenOffError{report, err}
	}
	return wire.ProtoCancelReport(report), nil
}

func (s *jobsServer) Replay(ctx context.Context, r *pb.ReplayRequest) (*pb.Submitted, error) {
	id, err := wire.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	out, err := s.engine.Replay(ctx, id)
	if err != nil {
		return nil, err
	}
	return wire.ProtoSubmitted(&out, ""), nil
}

func (s *jobsServer) Purge(ctx context.Context, r *pb.PurgeRequest) (*pb.PurgeResponse, error) {
	id, err := wire.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("purge: %w", err)
	}
	if err := s.engine.Purge(ctx, id); err != nil {
		return nil, err
	}
	return &pb.PurgeResponse{}, nil
}

func (s *jobsServer) PurgeWhere(ctx context.Context, r *pb.PurgeWhereRequest) (*pb.PurgeReport, error) {
	q, err := wire.QueryFromProto(r.GetQuery())
	if err != nil {
		return nil, fmt.Errorf("purge many: %w", err)
	}
	n, err := s.engine.PurgeWhere(ctx, q)
	if err != nil {
		return nil, err
	}
	return &pb.PurgeReport{Purged: int64(n)}, nil
}

func (s *jobsServer) Wait(ctx context.Context, r *pb.WaitRequest) (*pb.Job, error) {
	id, err := wire.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	timeout, err := wire.DurationFromProto("timeout", r.GetTimeout())
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
	return answerJob(awaitJob(ctx, waiting, s.engine, id))
}

func (s *jobsServer) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.Explanation, error) {
	id, err := wire.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	x, err := s.engine.Explain(ctx, id)
	if err != nil {
		return nil, err
	}
	return wire.ProtoExplanation(&x), nil
}

func (s *jobsServer) History(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	id, err := wire.JobIDFromProto(r.GetId())
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	events, err := s.engine.History(ctx, id)
	if err != nil {
		return nil, err
	}
	return &pb.HistoryResponse{Events: wire.ProtoEvents(events)}, nil
}

func (s *jobsServer) Count(ctx context.Context, r *pb.CountRequest) (*pb.CountResponse, error) {
	if err := checkItems("queues", len(r.GetQueues())); err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	counts, err := s.engine.Counts(ctx, r.GetQueues()...)
	if err != nil {
		return nil, err
	}
	answer := &pb.CountResponse{Queues: make([]*pb.QueueCount, len(counts))}
	for i := range counts {
		answer.Queues[i] = wire.ProtoCount(&counts[i])
	}
	return answer, nil
}

func (s *jobsServer) Stats(ctx context.Context, _ *pb.StatsRequest) (*pb.StatsResponse, error) {
	stats, err := s.engine.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return wire.ProtoStats(&stats), nil
}
