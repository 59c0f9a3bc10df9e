package native

import (
	"context"

	"github.com/gopherqueue/gq/internal/auth"
	"github.com/gopherqueue/gq/internal/webhook"
	"github.com/gopherqueue/gq/internal/wire"
)

// Admin is what the faces need for those who run the installation. Package admin
// has it.
type Admin interface {
	CreateToken(ctx context.Context, t auth.Token) (auth.Token, string, error)
	Tokens(ctx context.Context) ([]auth.Token, error)
	RevokeToken(ctx context.Context, name string) (auth.Token, error)
	Deliveries(ctx context.Context, state webhook.State, cursor string, limit int) (webhook.Page, error)
	RetryDelivery(ctx context.Context, id string) (webhook.Delivery, error)
	WebhookSecret(ctx context.Context) (webhook.Secret, error)
}

// grants reads grants, and gathers what is wrong with their scopes.
func grants(given []wire.Grant) (all []auth.Grant, err error) {
	for _, g := range given {
		grant := auth.Grant{Queues: g.Queues}
		for _, name := range g.Scopes {
			scope, err := auth.ParseScope(name)
			if err != nil {
				return nil, err
			}
			grant.Scopes |= scope
		}
		all = append(all, grant)
	}
	return all, nil
}

func wireToken(t *auth.Token, text string) wire.Token {
	out := wire.Token{ID: t.ID, Name: t.Name, Rate: t.Rate, CreatedAt: t.CreatedAt.UTC(), ExpiresAt: t.ExpiresAt, Token: text}
	for _, g := range t.Grants {
		out.Grants = append(out.Grants, wire.Grant{Scopes: g.Scopes.Names(), Queues: g.Queues})
	}
	return out
}

func wireDelivery(d *webhook.Delivery) wire.Delivery {
	return wire.Delivery{
		ID: d.ID, Job: d.Job, Queue: d.Queue, Type: d.Type, URL: d.URL, State: string(d.State), Attempts: d.Attempts,
		CreatedAt: d.CreatedAt, NextAt: d.NextAt, LastAt: d.LastAt, LastStatus: d.Status, Reason: d.Reason,
	}
}
