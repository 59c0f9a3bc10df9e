package native

import (
	"context"
	"net/http"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

type inboxInput struct {
	Cursor string    `query:"cursor" doc:"next_cursor of the page before."`
	Limit  countText `query:"limit" doc:"Submissions on the page; 50 unless told, at most 1000."`
}

func (h *HTTP) inboxRoutes() []httpx.Route {
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/inbox", ID: "read-inbox", Tag: "inbox", Summary: "Read the inbox",
			Description: "Counts the submissions that applications wrote with SQL or a *sql.Tx and that are not jobs yet, and lists those that were refused.",
		}, h.inbox),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/inbox/retry", ID: "retry-refused", Tag: "inbox", Summary: "Retry refused submissions",
		}, h.retryRefused),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/inbox/discard", ID: "discard-refused", Tag: "inbox", Summary: "Delete refused submissions",
		}, h.discardRefused),
	}
}

func (h *HTTP) inbox(ctx context.Context, in *inboxInput, _ *httpx.None) (*httpx.Answer[wire.Inbox], error) {
	var p parameters
	limit := p.count("limit", in.Limit, maxPage)
	if err := p.err(); err != nil {
		return nil, err
	}
	inbox, err := h.engine.Inbox(ctx, in.Cursor, limit)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.InboxOf(&inbox)), nil
}

func (h *HTTP) retryRefused(ctx context.Context, _ *httpx.None, body *wire.RefusedSelection) (*httpx.Answer[wire.RefusedCount], error) {
	return refusedCount(h.engine.RetryRefused(ctx, body.Domain()))
}

func (h *HTTP) discardRefused(ctx context.Context, _ *httpx.None, body *wire.RefusedSelection) (*httpx.Answer[wire.RefusedCount], error) {
	return refusedCount(h.engine.DiscardRefused(ctx, body.Domain()))
}

func refusedCount(n int, err error) (*httpx.Answer[wire.RefusedCount], error) {
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.RefusedCount{Submissions: n}), nil
}

type inboxServer struct {
	pb.UnimplementedInboxServiceServer
	*GRPC
}

func (s *inboxServer) ReadInbox(ctx context.Context, r *pb.ReadInboxRequest) (*pb.ReadInboxResponse, error) {
	limit := int(min(max(r.GetLimit(), -1), maxPage+1)) // out-of-range values stay out of range
	inbox, err := s.engine.Inbox(ctx, r.GetCursor(), limit)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoInbox(&inbox), nil
}

func (s *inboxServer) RetryRefused(ctx context.Context, r *pb.RetryRefusedRequest) (*pb.RetryRefusedResponse, error) {
	which, err := pbconv.RefusedSelectionFromProto(r.GetJobIds(), r.GetAll())
	if err != nil {
		return nil, err
	}
	n, err := s.engine.RetryRefused(ctx, which)
	return &pb.RetryRefusedResponse{Submissions: int64(n)}, err
}

func (s *inboxServer) DiscardRefused(ctx context.Context, r *pb.DiscardRefusedRequest) (*pb.DiscardRefusedResponse, error) {
	which, err := pbconv.RefusedSelectionFromProto(r.GetJobIds(), r.GetAll())
	if err != nil {
		return nil, err
	}
	n, err := s.engine.DiscardRefused(ctx, which)
	return &pb.DiscardRefusedResponse{Submissions: int64(n)}, err
}
