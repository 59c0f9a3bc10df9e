package native

import (
	"context"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
)

func (s *queuesServer) QueueHistory(ctx context.Context, r *pb.QueueHistoryRequest) (*pb.QueueHistoryResponse, error) {
	q, err := wire.HistoryQueryFromProto(r)
	if err != nil {
		return nil, err
	}
	points, err := s.engine.QueueHistory(ctx, q)
	if err != nil {
		return nil, err
	}
	return wire.ProtoHistory(points), nil
}

func (s *queuesServer) QueueActivity(ctx context.Context, r *pb.QueueActivityRequest) (*pb.QueueActivityResponse, error) {
	list, err := s.engine.QueueActivity(ctx, r.GetQueues()...)
	if err != nil {
		return nil, err
	}
	return wire.ProtoActivity(list), nil
}
