package native

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/trail"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/webhook"
)

// Admin has the operations of administrators; package admin implements it.
type Admin interface {
	CreateToken(ctx context.Context, t access.Token) (access.Token, string, error)
	Tokens(ctx context.Context) ([]access.Token, error)
	RevokeToken(ctx context.Context, name string) (access.Token, error)
	Deliveries(ctx context.Context, state delivery.State, cursor string, limit int) (delivery.Page, error)
	RetryDelivery(ctx context.Context, id string) (delivery.Delivery, error)
	WebhookSecret(ctx context.Context) (webhook.Secret, error)
	Backup(ctx context.Context) (gq.Backup, error)
	Audit(ctx context.Context, q trail.Query) (trail.Page, error)
}

// grants parses grants and collects the faults in their scopes.
func grants(given []wire.Grant) (all []access.Grant, err error) {
	for _, g := range given {
		grant := access.Grant{Queues: g.Queues}
		for _, name := range g.Scopes {
			scope, err := access.ParseScope(name)
			if err != nil {
				return nil, err
			}
			grant.Scopes = grant.Scopes.With(scope)
		}
		all = append(all, grant)
	}
	return all, nil
}

func wireToken(t *access.Token, text string) wire.Token {
	out := wire.Token{ID: t.ID, Name: t.Name, Rate: t.Rate, CreatedAt: t.CreatedAt.UTC(), ExpiresAt: t.ExpiresAt, Token: text}
	for _, g := range t.Grants {
		out.Grants = append(out.Grants, wire.Grant{Scopes: g.Scopes.Names(), Queues: g.Queues})
	}
	return out
}

func wireDelivery(d *delivery.Delivery) wire.Delivery {
	return wire.Delivery{
		ID: d.ID, Job: d.Job, Queue: d.Queue, Type: d.Type, URL: d.URL, State: string(d.State), Attempts: d.Attempts,
		CreatedAt: d.CreatedAt, NextAt: d.NextAt, LastAt: d.LastAt, LastStatus: d.Status, Reason: d.Reason,
	}
}

type (
	tokenInput struct {
		Name string `path:"name" doc:"The token's id or name."`
	}
	deliveriesInput struct {
		State  string    `query:"state" doc:"pending, dead or delivered; absent is any."`
		Cursor string    `query:"cursor" doc:"next_cursor of the page before."`
		Limit  countText `query:"limit" doc:"Deliveries on the page; 50 unless given, at most 1000."`
	}
	deliveryInput struct {
		ID string `path:"id" doc:"The delivery's id."`
	}
)

func (h *HTTP) adminRoutes() []httpx.Route {
	if h.options.Admin == nil {
		return nil
	}
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/tokens", ID: "create-token", Tag: "admin", Summary: "Make a token", Status: http.StatusCreated,
			Description: "The answer has the text that callers show. It is told this once.",
		}, h.createToken),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/tokens", ID: "list-tokens", Tag: "admin", Summary: "List tokens",
		}, h.tokens),
		httpx.Handle(httpx.Route{
			Method: http.MethodDelete, Path: "/v1/tokens/{name}", ID: "revoke-token", Tag: "admin", Summary: "Revoke a token",
		}, h.revokeToken),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/webhooks/deliveries", ID: "list-deliveries", Tag: "admin", Summary: "List webhook deliveries",
			Description: "Outstanding ones first, then those given up, then those of the last day.",
		}, h.deliveries),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/webhooks/deliveries/{id}/retry", ID: "retry-delivery", Tag: "admin", Optional: true,
			Summary: "Make a delivery again that was given up",
		}, h.retryDelivery),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/webhooks/secret", ID: "webhook-secret", Tag: "admin", Summary: "Read what deliveries are signed with",
		}, h.webhookSecret),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/backups", ID: "create-backup", Tag: "admin", Optional: true, Summary: "Back up the store", Status: http.StatusCreated,
			Description: "Backs up a file: store into the server's backup directory (backup.dir) while it serves. Files that an earlier backup has are not copied again.",
		}, h.createBackup),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/audit", ID: "list-audit", Tag: "admin", Summary: "Read the audit trail",
			Description: "Changes that operators made, newest first. A page of a filter looks at 10,000 entries at most, so that it may have fewer than its limit while next_cursor says that there is more to look at.",
		}, h.audit),
	}
}

func (h *HTTP) createToken(ctx context.Context, _ *httpx.None, body *wire.NewToken) (*httpx.Answer[wire.Token], error) {
	t := access.Token{Name: body.Name, Rate: body.Rate, ExpiresAt: body.ExpiresAt}
	var err error
	if t.Grants, err = grants(body.Grants); err != nil {
		return nil, err
	}
	made, text, err := h.options.Admin.CreateToken(ctx, t)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wireToken(&made, text)), nil
}

func (h *HTTP) tokens(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[wire.Tokens], error) {
	tokens, err := h.options.Admin.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.Tokens{Tokens: make([]wire.Token, len(tokens))})
	for i := range tokens {
		out.Body.Tokens[i] = wireToken(&tokens[i], "")
	}
	return out, nil
}

func (h *HTTP) revokeToken(ctx context.Context, in *tokenInput, _ *httpx.None) (*httpx.Answer[wire.Token], error) {
	t, err := h.options.Admin.RevokeToken(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wireToken(&t, "")), nil
}

func (h *HTTP) deliveries(ctx context.Context, in *deliveriesInput, _ *httpx.None) (*httpx.Answer[wire.Deliveries], error) {
	var p parameters
	limit := p.count("limit", in.Limit, 1000)
	if err := p.err(); err != nil {
		return nil, err
	}
	page, err := h.options.Admin.Deliveries(ctx, delivery.State(in.State), in.Cursor, limit)
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.Deliveries{Deliveries: make([]wire.Delivery, len(page.Deliveries)), NextCursor: page.Next})
	for i := range page.Deliveries {
		out.Body.Deliveries[i] = wireDelivery(&page.Deliveries[i])
	}
	return out, nil
}

func (h *HTTP) retryDelivery(ctx context.Context, in *deliveryInput, _ *emptyBody) (*httpx.Answer[wire.Delivery], error) {
	d, err := h.options.Admin.RetryDelivery(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wireDelivery(&d)), nil
}

func (h *HTTP) webhookSecret(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[wire.WebhookSecret], error) {
	s, err := h.options.Admin.WebhookSecret(ctx)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.WebhookSecret{Secret: s.Text()}), nil
}

type adminServer struct {
	pb.UnimplementedAdminServiceServer
	*GRPC
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func protoToken(t *access.Token) *pb.Token {
	out := &pb.Token{Id: t.ID, Name: t.Name, Rate: int64(t.Rate), CreatedAt: stamp(t.CreatedAt), ExpiresAt: stamp(t.ExpiresAt)}
	for _, g := range t.Grants {
		out.Grants = append(out.Grants, &pb.Grant{Scopes: g.Scopes.Names(), Queues: g.Queues})
	}
	return out
}

func (s *adminServer) CreateToken(ctx context.Context, r *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
	given := make([]wire.Grant, len(r.GetGrants()))
	for i, g := range r.GetGrants() {
		given[i] = wire.Grant{Scopes: g.GetScopes(), Queues: g.GetQueues()}
	}
	t := access.Token{Name: r.GetName(), Rate: int(r.GetRate())}
	var err error
	if t.Grants, err = grants(given); err != nil {
		return nil, err
	}
	if at := r.GetExpiresAt(); at != nil {
		t.ExpiresAt = at.AsTime()
	}
	made, text, err := s.options.Admin.CreateToken(ctx, t)
	if err != nil {
		return nil, err
	}
	return &pb.CreateTokenResponse{Token: protoToken(&made), Text: text}, nil
}

func (s *adminServer) ListTokens(ctx context.Context, _ *pb.ListTokensRequest) (*pb.ListTokensResponse, error) {
	tokens, err := s.options.Admin.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.ListTokensResponse{Tokens: make([]*pb.Token, len(tokens))}
	for i := range tokens {
		answer.Tokens[i] = protoToken(&tokens[i])
	}
	return answer, nil
}

func (s *adminServer) RevokeToken(ctx context.Context, r *pb.RevokeTokenRequest) (*pb.Token, error) {
	t, err := s.options.Admin.RevokeToken(ctx, r.GetToken())
	if err != nil {
		return nil, err
	}
	return protoToken(&t), nil
}

var deliveryStates = map[pb.DeliveryState]delivery.State{
	pb.DeliveryState_DELIVERY_STATE_UNSPECIFIED: "",
	pb.DeliveryState_DELIVERY_STATE_PENDING:     delivery.Pending,
	pb.DeliveryState_DELIVERY_STATE_DELIVERED:   delivery.Delivered,
	pb.DeliveryState_DELIVERY_STATE_DEAD:        delivery.Dead,
}

func protoDelivery(d *delivery.Delivery) *pb.Delivery {
	out := &pb.Delivery{
		Id: d.ID, JobId: d.Job.String(), Queue: d.Queue, Type: pb.EventType(d.Type), Url: d.URL, Attempts: int64(d.Attempts),
		CreatedAt: stamp(d.CreatedAt), NextAt: stamp(d.NextAt), LastAt: stamp(d.LastAt), LastStatus: int64(d.Status), Reason: d.Reason,
	}
	for state, name := range deliveryStates {
		if name == d.State {
			out.State = state
		}
	}
	return out
}

func (s *adminServer) ListDeliveries(ctx context.Context, r *pb.ListDeliveriesRequest) (*pb.ListDeliveriesResponse, error) {
	state, ok := deliveryStates[r.GetState()]
	if !ok {
		state = "unknown" // rejected together with the other faults
	}
	page, err := s.options.Admin.Deliveries(ctx, state, r.GetCursor(), int(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	answer := &pb.ListDeliveriesResponse{Deliveries: make([]*pb.Delivery, len(page.Deliveries)), NextCursor: page.Next}
	for i := range page.Deliveries {
		answer.Deliveries[i] = protoDelivery(&page.Deliveries[i])
	}
	return answer, nil
}

func (s *adminServer) RetryDelivery(ctx context.Context, r *pb.RetryDeliveryRequest) (*pb.Delivery, error) {
	d, err := s.options.Admin.RetryDelivery(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return protoDelivery(&d), nil
}

func (s *adminServer) GetWebhookSecret(ctx context.Context, _ *pb.GetWebhookSecretRequest) (*pb.GetWebhookSecretResponse, error) {
	secret, err := s.options.Admin.WebhookSecret(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.GetWebhookSecretResponse{Secret: secret.Text()}, nil
}
