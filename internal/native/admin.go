package native

import (
	"context"

	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/webhook"
)

// Admin is what the faces need for those who run the installation. Package admin
// has it.
type Admin interface {
	CreateToken(ctx context.Context, t access.Token) (access.Token, string, error)
	Tokens(ctx context.Context) ([]access.Token, error)
	RevokeToken(ctx context.Context, name string) (access.Token, error)
	Deliveries(ctx context.Context, state delivery.State, cursor string, limit int) (delivery.Page, error)
	RetryDelivery(ctx context.Context, id string) (delivery.Delivery, error)
	WebhookSecret(ctx context.Context) (webhook.Secret, error)
}

// grants reads grants, and gathers what is wrong with their scopes.
func grants(given []wire.Grant) (all []access.Grant, err error) {
	for _, g := range given {
		grant := access.Grant{Queues: g.Queues}
		for _, name := range g.Scopes {
			scope, err := access.ParseScope(name)
			if err != nil {
				return nil, err
			}
			grant.Scopes |= scope
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
