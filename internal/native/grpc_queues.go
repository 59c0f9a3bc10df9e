package native

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

type queuesServer struct {
	pb.UnimplementedQueuesServiceServer
	*GRPC
}

func answerQueue(q gq.Queue, err error) (*pb.Queue, error) {
	if err != nil {
		return nil, err
	}
	return wire.ProtoQueue(&q), nil
}

func (s *queuesServer) GetQueue(ctx context.Context, r *pb.GetQueueRequest) (*pb.Queue, error) {
	return answerQueue(s.engine.Queue(ctx, r.GetName()))
}

func (s *queuesServer) ListQueues(ctx context.Context, r *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	var p parameters
	if r.GetLimit() < 0 || r.GetLimit() > maxPage {
		p.fault("limit", "%d is not between 0, which is all queues, and %d", r.GetLimit(), maxPage)
	}
	checkQueueCursor(&p, r.GetCursor())
	if err := p.err(); err != nil {
		return nil, err
	}
	queues, next, err := queuePage(ctx, s.engine, r.GetCursor(), int(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	answer := &pb.ListQueuesResponse{Queues: make([]*pb.Queue, len(queues)), NextCursor: next}
	for i := range queues {
		answer.Queues[i] = wire.ProtoQueue(&queues[i])
	}
	return answer, nil
}

func (s *queuesServer) SetQueue(ctx context.Context, r *pb.SetQueueRequest) (*pb.Queue, error) {
	change, err := wire.QueueChangeFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("configure queue %.80q: %w", r.GetName(), err)
	}
	if r.GetDeclare() {
		q := machine.NewQueue(r.GetName())
		change(&q)
		return answerQueue(s.engine.DeclareQueue(ctx, q))
	}
	return answerQueue(s.engine.ChangeQueue(ctx, r.GetName(), change))
}

func (s *queuesServer) PauseQueue(ctx context.Context, r *pb.PauseQueueRequest) (*pb.Queue, error) {
	return answerQueue(s.engine.Pause(ctx, r.GetName()))
}

func (s *queuesServer) ResumeQueue(ctx context.Context, r *pb.ResumeQueueRequest) (*pb.Queue, error) {
	return answerQueue(s.engine.Resume(ctx, r.GetName()))
}

func (s *queuesServer) ListPools(ctx context.Context, _ *pb.ListPoolsRequest) (*pb.ListPoolsResponse, error) {
	pools, err := s.engine.Pools(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.ListPoolsResponse{Pools: make([]*pb.Pool, len(pools))}
	for i := range pools {
		answer.Pools[i] = wire.ProtoPool(&pools[i])
	}
	return answer, nil
}

func (s *queuesServer) SetPool(ctx context.Context, r *pb.SetPoolRequest) (*pb.Pool, error) {
	p := gq.Pool{Name: r.GetName(), Capacity: r.GetCapacity()}
	if err := s.engine.PutPool(ctx, p); err != nil {
		return nil, err
	}
	return wire.ProtoPool(&p), nil
}
