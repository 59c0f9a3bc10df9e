package native

import (
	"context"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/trail"
	"github.com/gopherqueue/gq/internal/wire"
)

type auditInput struct {
	Since  instantText `query:"since" doc:"Not before this instant."`
	Until  instantText `query:"until" doc:"Before this instant."`
	By     string      `query:"by" doc:"Only of this token, by name or id."`
	Verb   string      `query:"verb" doc:"Only this action, such as pause."`
	Cursor string      `query:"cursor" doc:"next_cursor of the page before."`
	Limit  countText   `query:"limit" doc:"Entries on the page; 50 unless given, at most 1000."`
}

func (h *HTTP) audit(ctx context.Context, in *auditInput, _ *httpx.None) (*httpx.Answer[wire.Audit], error) {
	var p parameters
	q := trail.Query{
		Since: p.instant("since", in.Since), Until: p.instant("until", in.Until), By: in.By, Verb: in.Verb,
		Cursor: in.Cursor, Limit: p.count("limit", in.Limit, trail.MaxPage),
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	page, err := h.options.Admin.Audit(ctx, q)
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.Audit{Entries: make([]wire.AuditEntry, len(page.Entries)), NextCursor: page.Next})
	for i, e := range page.Entries {
		out.Body.Entries[i] = wire.AuditEntry{
			At: e.At, By: e.By, TokenID: e.Token, Face: e.Face, From: e.From, Verb: e.Verb, Object: e.Object,
			Count: e.Count, Detail: e.Detail, Outcome: e.Outcome,
		}
	}
	return out, nil
}

func (s *adminServer) ListAudit(ctx context.Context, r *pb.ListAuditRequest) (*pb.ListAuditResponse, error) {
	q := trail.Query{By: r.GetBy(), Verb: r.GetVerb(), Cursor: r.GetCursor(), Limit: int(min(max(r.GetLimit(), -1), trail.MaxPage+1))}
	if at := r.GetSince(); at != nil {
		q.Since = at.AsTime()
	}
	if at := r.GetUntil(); at != nil {
		q.Until = at.AsTime()
	}
	page, err := s.options.Admin.Audit(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &pb.ListAuditResponse{NextCursor: page.Next}
	for _, e := range page.Entries {
		out.Entries = append(out.Entries, &pb.AuditEntry{
			At: stamp(e.At), By: e.By, TokenId: e.Token, Face: e.Face, From: e.From, Verb: e.Verb, Object: e.Object,
			Count: e.Count, Detail: e.Detail, Outcome: e.Outcome,
		})
	}
	return out, nil
}
