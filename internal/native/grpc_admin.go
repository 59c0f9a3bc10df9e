package native

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/wire"
)

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
		state = "unknown" // refused with the rest
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
