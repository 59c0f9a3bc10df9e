package native

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
)

type workersServer struct {
	pb.UnimplementedWorkersServiceServer
	*GRPC
}

func (s *workersServer) Claim(ctx context.Context, r *pb.ClaimRequest) (*pb.ClaimResponse, error) {
	claim, err := wire.ClaimFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("claim for worker %.80q: %w", r.GetWorker(), err)
	}
	claim.N = given(claim.N)
	if s.draining.Err() != nil {
		return nil, errStopping // or who polls would do so in a loop
	}
	waiting, done := s.whileServing(ctx)
	defer done()
	jobs, err := s.engine.Claim(waiting, claim)
	if err != nil {
		return nil, err
	}
	return &pb.ClaimResponse{Jobs: wire.ProtoJobs(jobs)}, nil
}

func (s *workersServer) Start(ctx context.Context, r *pb.StartRequest) (*pb.State, error) {
	ttl, err := wire.DurationFromProto("ttl", r.GetTtl())
	if err != nil {
		return nil, fmt.Errorf("start under lease %.80q: %w", r.GetLease().GetId(), err)
	}
	return answerState(s.engine.Start(ctx, wire.LeaseRefFromProto(r.GetLease()), ttl))
}

func (s *workersServer) Heartbeat(ctx context.Context, r *pb.HeartbeatRequest) (*pb.Answers, error) {
	return s.heartbeat(ctx, r)
}

func (s *workersServer) Settle(ctx context.Context, r *pb.SettleRequest) (*pb.Answers, error) {
	return s.settle(ctx, r)
}

func (g *GRPC) heartbeat(ctx context.Context, r *pb.HeartbeatRequest) (*pb.Answers, error) {
	return answerEach(ctx, g, "heartbeat", "beats", r.GetBeats(), wire.Bases(g.base(ctx)).Beat, g.engine.Heartbeat)
}

func (g *GRPC) settle(ctx context.Context, r *pb.SettleRequest) (*pb.Answers, error) {
	return answerEach(ctx, g, "settle", "outcomes", r.GetOutcomes(), wire.Bases(g.base(ctx)).Outcome, g.engine.Settle)
}

// leased is a beat or an outcome.
type leased interface{ GetLease() *pb.LeaseRef }

// answerEach does with the items of a batch what is to be done, each with its
// own answer.
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
	return wire.ProtoAnswers(answers, request), nil
}

func (s *workersServer) ListWorkers(ctx context.Context, _ *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	workers, err := s.engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.ListWorkersResponse{Workers: make([]*pb.LiveWorker, len(workers))}
	for i := range workers {
		answer.Workers[i] = wire.ProtoLiveWorker(&workers[i])
	}
	return answer, nil
}

// giveBackWithin is how long giving jobs back may take.
const giveBackWithin = 30 * time.Second

// giveBack returns jobs that could not be handed to their worker.
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

// given is how many jobs a claim asks for. In a message 0 is the same as not given, which
// is 1.
func given(n int) int {
	if n == 0 {
		return 1
	}
	return n
}
