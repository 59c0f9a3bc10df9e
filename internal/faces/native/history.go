package native

import (
	"context"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

const historyText = "What happened over time: one point for each step, oldest first and without gaps. Minutes are kept for 24 hours and hours for 31 days."

type (
	historyRange struct {
		Step  durationText `query:"step" doc:"Of a point: a whole part of an hour in minutes, such as 5m, or whole hours; 1m unless told."`
		Since instantText  `query:"since" doc:"60 steps before until unless told."`
		Until instantText  `query:"until" doc:"Exclusive; now unless told."`
	}
	queueHistoryInput struct {
		Name string `path:"name" doc:"The queue's name; a slash in it is %2F."`
		historyRange
	}
	historyInput struct {
		Queue []string `query:"queue" doc:"Queues to add up, at most 20; all unless told."`
		historyRange
	}
	activityInput struct {
		Queue []string `query:"queue" doc:"Queues; each where anything happened unless told."`
	}
)

func (h *HTTP) queueHistory(ctx context.Context, in *queueHistoryInput, _ *httpx.None) (*httpx.Answer[wire.History], error) {
	return h.historyOf(ctx, []string{in.Name}, &in.historyRange)
}

func (h *HTTP) history(ctx context.Context, in *historyInput, _ *httpx.None) (*httpx.Answer[wire.History], error) {
	return h.historyOf(ctx, in.Queue, &in.historyRange)
}

func (h *HTTP) historyOf(ctx context.Context, queues []string, in *historyRange) (*httpx.Answer[wire.History], error) {
	var p parameters
	q := gq.HistoryQuery{
		Queues: queues, Since: p.instant("since", in.Since), Until: p.instant("until", in.Until),
		Step: p.duration("step", in.Step, gq.HistoryHours),
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	points, err := h.engine.QueueHistory(ctx, q)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.HistoryOf(points)), nil
}

func (h *HTTP) activity(ctx context.Context, in *activityInput, _ *httpx.None) (*httpx.Answer[wire.Activity], error) {
	list, err := h.engine.QueueActivity(ctx, in.Queue...)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.ActivityOf(list)), nil
}

func (s *queuesServer) QueueHistory(ctx context.Context, r *pb.QueueHistoryRequest) (*pb.QueueHistoryResponse, error) {
	q, err := pbconv.HistoryQueryFromProto(r)
	if err != nil {
		return nil, err
	}
	points, err := s.engine.QueueHistory(ctx, q)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoHistory(points), nil
}

func (s *queuesServer) QueueActivity(ctx context.Context, r *pb.QueueActivityRequest) (*pb.QueueActivityResponse, error) {
	list, err := s.engine.QueueActivity(ctx, r.GetQueues()...)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoActivity(list), nil
}
