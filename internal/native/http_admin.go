package native

import (
	"context"
	"net/http"

	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/wire"
)

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
	tokenOutput      struct{ Body wire.Token }
	tokensOutput     struct{ Body wire.Tokens }
	deliveryOutput   struct{ Body wire.Delivery }
	deliveriesOutput struct{ Body wire.Deliveries }
	secretOutput     struct{ Body wire.WebhookSecret }
)

func (h *HTTP) registerAdmin() {
	if h.options.Admin == nil {
		return
	}
	register(h, route{
		method: http.MethodPost, path: "/v1/tokens", id: "create-token", tag: "admin", summary: "Make a token", status: http.StatusCreated,
		description: "The answer has the text that callers show. It is told this once.",
	}, h.createToken)
	register(h, route{
		method: http.MethodGet, path: "/v1/tokens", id: "list-tokens", tag: "admin", summary: "List tokens",
	}, h.tokens)
	register(h, route{
		method: http.MethodDelete, path: "/v1/tokens/{name}", id: "revoke-token", tag: "admin", summary: "Revoke a token",
	}, h.revokeToken)
	register(h, route{
		method: http.MethodGet, path: "/v1/webhooks/deliveries", id: "list-deliveries", tag: "admin", summary: "List webhook deliveries",
		description: "Outstanding ones first, then those given up, then those of the last day.",
	}, h.deliveries)
	register(h, route{
		method: http.MethodPost, path: "/v1/webhooks/deliveries/{id}/retry", id: "retry-delivery", tag: "admin", optional: true,
		summary: "Make a delivery again that was given up",
	}, h.retryDelivery)
	register(h, route{
		method: http.MethodGet, path: "/v1/webhooks/secret", id: "webhook-secret", tag: "admin", summary: "Read what deliveries are signed with",
	}, h.webhookSecret)
}

func (h *HTTP) createToken(ctx context.Context, _ *none, body *wire.NewToken) (*tokenOutput, error) {
	t := access.Token{Name: body.Name, Rate: body.Rate, ExpiresAt: body.ExpiresAt}
	var err error
	if t.Grants, err = grants(body.Grants); err != nil {
		return nil, err
	}
	made, text, err := h.options.Admin.CreateToken(ctx, t)
	if err != nil {
		return nil, err
	}
	return &tokenOutput{wireToken(&made, text)}, nil
}

func (h *HTTP) tokens(ctx context.Context, _ *none, _ *none) (*tokensOutput, error) {
	tokens, err := h.options.Admin.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	out := &tokensOutput{wire.Tokens{Tokens: make([]wire.Token, len(tokens))}}
	for i := range tokens {
		out.Body.Tokens[i] = wireToken(&tokens[i], "")
	}
	return out, nil
}

func (h *HTTP) revokeToken(ctx context.Context, in *tokenInput, _ *none) (*tokenOutput, error) {
	t, err := h.options.Admin.RevokeToken(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &tokenOutput{wireToken(&t, "")}, nil
}

func (h *HTTP) deliveries(ctx context.Context, in *deliveriesInput, _ *none) (*deliveriesOutput, error) {
	var p parameters
	limit := p.count("limit", in.Limit, 1000)
	if err := p.err(); err != nil {
		return nil, err
	}
	page, err := h.options.Admin.Deliveries(ctx, delivery.State(in.State), in.Cursor, limit)
	if err != nil {
		return nil, err
	}
	out := &deliveriesOutput{wire.Deliveries{Deliveries: make([]wire.Delivery, len(page.Deliveries)), NextCursor: page.Next}}
	for i := range page.Deliveries {
		out.Body.Deliveries[i] = wireDelivery(&page.Deliveries[i])
	}
	return out, nil
}

func (h *HTTP) retryDelivery(ctx context.Context, in *deliveryInput, _ *emptyBody) (*deliveryOutput, error) {
	d, err := h.options.Admin.RetryDelivery(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &deliveryOutput{wireDelivery(&d)}, nil
}

func (h *HTTP) webhookSecret(ctx context.Context, _ *none, _ *none) (*secretOutput, error) {
	s, err := h.options.Admin.WebhookSecret(ctx)
	if err != nil {
		return nil, err
	}
	return &secretOutput{wire.WebhookSecret{Secret: s.Text()}}, nil
}
