package native

import (
	"context"
	"fmt"
	"math"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

type (
	replayManyBody struct {
		Queue         string            `json:"queue,omitzero" doc:"Only of this queue."`
		States        []gq.Status       `json:"states" doc:"Which: COMPLETED, FAILED, DEAD_LETTER or CANCELLED."`
		CreatedAfter  instantText       `json:"created_after,omitzero"`
		CreatedBefore instantText       `json:"created_before,omitzero"`
		Types         []string          `json:"types,omitempty" doc:"Only of these types."`
		Tags          map[string]string `json:"tags,omitempty" doc:"Only with these tags, all of them."`
		Cursor        string            `json:"cursor,omitzero" doc:"next_cursor of the call before."`
		Limit         int               `json:"limit,omitzero" doc:"Jobs of this call; 500 unless told, at most 1000."`
	}
	countManyBody struct {
		Queue         string            `json:"queue,omitzero" doc:"Only of this queue."`
		States        []gq.Status       `json:"states,omitempty" doc:"Only in these states."`
		CreatedAfter  instantText       `json:"created_after,omitzero"`
		CreatedBefore instantText       `json:"created_before,omitzero"`
		Types         []string          `json:"types,omitempty" doc:"Only of these types."`
		Tags          map[string]string `json:"tags,omitempty" doc:"Only with these tags, all of them."`
		Cursor        string            `json:"cursor,omitzero" doc:"next_cursor of the call before."`
	}
)

func (h *HTTP) replayMany(ctx context.Context, _ *httpx.None, body *replayManyBody) (*httpx.Answer[wire.ReplayReport], error) {
	var p parameters
	q := gq.Query{
		Queue: body.Queue, Statuses: body.States,
		CreatedAfter: p.instant("created_after", body.CreatedAfter), CreatedBefore: p.instant("created_before", body.CreatedBefore),
		Types: body.Types, Tags: body.Tags, Cursor: body.Cursor, Limit: body.Limit,
	}
	if q.Queue != "" {
		p.faults = append(p.faults, errs.FaultsOf(machine.CheckQueueName(q.Queue))...)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	report, err := h.engine.ReplayWhere(ctx, q)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.ReplayReportOf(&report)), nil
}

func (h *HTTP) countMany(ctx context.Context, _ *httpx.None, body *countManyBody) (*httpx.Answer[wire.CountReport], error) {
	var p parameters
	q := gq.Query{
		Queue: body.Queue, Statuses: body.States,
		CreatedAfter: p.instant("created_after", body.CreatedAfter), CreatedBefore: p.instant("created_before", body.CreatedBefore),
		Types: body.Types, Tags: body.Tags, Cursor: body.Cursor,
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	report, err := h.engine.CountWhere(ctx, q)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.CountReport{Jobs: report.Jobs, NextCursor: report.Next}), nil
}

func (s *jobsServer) ReplayWhere(ctx context.Context, r *pb.ReplayWhereRequest) (*pb.ReplayReport, error) {
	q, err := pbconv.QueryFromProto(r.GetQuery())
	if err != nil {
		return nil, fmt.Errorf("replay many: %w", err)
	}
	q.Cursor, q.Limit = r.GetCursor(), int(min(max(r.GetLimit(), math.MinInt32), math.MaxInt32)) // out-of-range values stay out of range
	report, err := s.engine.ReplayWhere(ctx, q)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoReplayReport(&report), nil
}

func (s *jobsServer) CountWhere(ctx context.Context, r *pb.CountWhereRequest) (*pb.CountReport, error) {
	q, err := pbconv.QueryFromProto(r.GetQuery())
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	q.Cursor = r.GetCursor()
	report, err := s.engine.CountWhere(ctx, q)
	if err != nil {
		return nil, err
	}
	return &pb.CountReport{Jobs: report.Jobs, NextCursor: report.Next}, nil
}
