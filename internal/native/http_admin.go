package native

import (
	"context"
	"net/http"

	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/httpx"
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
