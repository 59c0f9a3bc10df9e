package native

import (
	"cmp"
	"context"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

type (
	queueKeyInput struct {
		Name string `path:"name" doc:"The queue's name; a slash in it is %2F."`
		Key  string `path:"key" doc:"The limit key; a slash in it is %2F."`
	}
	queueKeysInput struct {
		Name   string    `path:"name" doc:"The queue's name; a slash in it is %2F."`
		Cursor string    `query:"cursor" doc:"next_cursor of the page before."`
		Limit  countText `query:"limit" doc:"Keys on the page; 1000 unless told, which is also the most."`
	}
)

// keyPage returns a page of limit keys and the cursor of the next one, the last name of this one.
func keyPage(ctx context.Context, e engine.API, queue, cursor string, limit int) (page []gq.QueueKey, next string, err error) {
	page, err = e.QueueKeys(ctx, queue, cursor, limit)
	if err == nil && len(page) == limit { // there may be more
		next = page[limit-1].Key
	}
	return page, next, err
}

func (h *HTTP) queueKeys(ctx context.Context, in *queueKeysInput, _ *httpx.None) (*httpx.Answer[wire.QueueKeys], error) {
	var p parameters
	limit := cmp.Or(p.count("limit", in.Limit, maxPage), maxPage)
	if err := p.err(); err != nil {
		return nil, err
	}
	page, next, err := keyPage(ctx, h.engine, in.Name, in.Cursor, limit)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.QueueKeysOf(page, next)), nil
}

func (h *HTTP) setQueueKey(ctx context.Context, in *queueKeyInput, body *wire.QueueKeyLimits) (*httpx.Answer[wire.QueueKey], error) {
	k, err := h.engine.SetQueueKey(ctx, gq.QueueKey{Queue: in.Name, Key: in.Key, Limit: body.Limit, Rate: body.Rate.Domain()})
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.QueueKeyOf(&k)), nil
}

func (h *HTTP) unsetQueueKey(ctx context.Context, in *queueKeyInput, _ *httpx.None) (*httpx.Answer[httpx.None], error) {
	return nil, h.engine.UnsetQueueKey(ctx, in.Name, in.Key)
}

func (s *queuesServer) ListQueueKeys(ctx context.Context, r *pb.ListQueueKeysRequest) (*pb.ListQueueKeysResponse, error) {
	var p parameters
	if r.GetLimit() < 0 || r.GetLimit() > maxPage {
		p.fault("limit", "%d is not between 0, which is %d, and %d", r.GetLimit(), maxPage, maxPage)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	page, next, err := keyPage(ctx, s.engine, r.GetQueue(), r.GetCursor(), cmp.Or(int(r.GetLimit()), maxPage))
	if err != nil {
		return nil, err
	}
	answer := &pb.ListQueueKeysResponse{Keys: make([]*pb.QueueKey, len(page)), NextCursor: next}
	for i := range page {
		answer.Keys[i] = pbconv.ProtoQueueKey(&page[i])
	}
	return answer, nil
}

func (s *queuesServer) SetQueueKey(ctx context.Context, r *pb.SetQueueKeyRequest) (*pb.QueueKey, error) {
	k, err := pbconv.QueueKeyFromProto(&pb.QueueKey{Queue: r.GetQueue(), Key: r.GetKey(), Limit: r.GetLimit(), Rate: r.GetRate()})
	if err != nil {
		return nil, err
	}
	if k, err = s.engine.SetQueueKey(ctx, k); err != nil {
		return nil, err
	}
	return pbconv.ProtoQueueKey(&k), nil
}

func (s *queuesServer) UnsetQueueKey(ctx context.Context, r *pb.UnsetQueueKeyRequest) (*pb.UnsetQueueKeyResponse, error) {
	if err := s.engine.UnsetQueueKey(ctx, r.GetQueue(), r.GetKey()); err != nil {
		return nil, err
	}
	return &pb.UnsetQueueKeyResponse{}, nil
}
