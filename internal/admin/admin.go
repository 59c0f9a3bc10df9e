// Package admin has the operations of administrators: creating and revoking tokens, and
// managing webhook deliveries. Each call asks the guard first, as calls for jobs and
// queues do.
package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/trail"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/webhook"
)

// Admin runs administrative operations behind the guard.
type Admin struct {
	guard *access.Guard
	ring  *access.Keyring
	hooks *delivery.Hooks
	saves Backups
	trail *trail.Trail
}

// Backups is where and how backups are taken.
type Backups struct {
	Store store.Store
	Dir   string // empty is nowhere
	Keep  int    // generations; 0 is all
}

// New returns an Admin that uses the given guard, keyring, deliveries, backups and audit trail.
func New(g *access.Guard, k *access.Keyring, h *delivery.Hooks, b Backups, t *trail.Trail) *Admin {
	return &Admin{guard: g, ring: k, hooks: h, saves: b, trail: t}
}

// Audit returns a page of the audit trail, newest first. It needs admin on all queues.
func (a *Admin) Audit(ctx context.Context, q trail.Query) (trail.Page, error) {
	if err := a.guard.Administer(ctx); err != nil {
		return trail.Page{}, err
	}
	return a.trail.Read(ctx, q)
}

// Backup takes a backup of the store, which goes on serving, into the configured directory. It needs
// admin on all queues.
func (a *Admin) Backup(ctx context.Context) (gq.Backup, error) {
	if err := a.guard.Administer(ctx); err != nil {
		return gq.Backup{}, err
	}
	refuse := func(field, problem string) (gq.Backup, error) {
		return gq.Backup{}, fmt.Errorf("back up: %w", &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: problem}}})
	}
	s, ok := a.saves.Store.(store.Backuper)
	if !ok {
		return refuse("store", "a server can back up only a file: store; run gq backup FILE for a database, which need not be stopped for it")
	}
	if a.saves.Dir == "" {
		return refuse("backup.dir", "is not set; start the server with --backup-dir DIR")
	}
	out, err := s.Backup(ctx, a.saves.Dir, a.saves.Keep)
	a.trail.Record(ctx, "back up", "store", "", 0, err)
	return out, err
}

// CreateToken creates a token and returns its text, which is never shown again. It needs
// admin on all queues. The first token must have that scope itself: from then on the
// server requires a token, and no other token could create a second one.
func (a *Admin) CreateToken(ctx context.Context, t access.Token) (access.Token, string, error) {
	if err := a.guard.Administer(ctx); err != nil {
		return access.Token{}, "", err
	}
	if first, err := a.ring.Empty(ctx); err != nil {
		return access.Token{}, "", err
	} else if first && !t.Administers() {
		return access.Token{}, "", fmt.Errorf("create token: %w", &gq.InvalidError{Faults: []gq.Fault{{
			Field:   "grants",
			Problem: "the first token must have admin on all queues, or everybody would be locked out; make that one first, or start the server with GQ_ADMIN_TOKEN",
		}}})
	}
	created, text, err := a.ring.Create(ctx, t)
	grants := make([]string, len(t.Grants))
	for i, g := range t.Grants {
		grants[i] = g.String()
	}
	a.trail.Record(ctx, "create", "token "+t.Name, strings.Join(grants, " "), 0, err)
	return created, text, err
}

// Tokens lists all tokens. It needs admin on all queues.
func (a *Admin) Tokens(ctx context.Context) ([]access.Token, error) {
	if err := a.guard.Administer(ctx); err != nil {
		return nil, err
	}
	return a.ring.List(ctx)
}

// RevokeToken revokes a token, given its id or its name. It needs admin on all queues.
func (a *Admin) RevokeToken(ctx context.Context, name string) (access.Token, error) {
	if err := a.guard.Administer(ctx); err != nil {
		return access.Token{}, err
	}
	revoked, err := a.ring.Revoke(ctx, name)
	a.trail.Record(ctx, "revoke", "token "+name, "", 0, err)
	return revoked, err
}

// Deliveries returns a page of webhook deliveries, without those of queues that the
// caller may not read.
func (a *Admin) Deliveries(ctx context.Context, state delivery.State, cursor string, limit int) (delivery.Page, error) {
	may, err := a.guard.Reader(ctx, nil)
	if err != nil {
		return delivery.Page{}, err
	}
	page, err := a.hooks.List(ctx, state, cursor, limit)
	if err != nil {
		return delivery.Page{}, err
	}
	seen := page.Deliveries[:0]
	for _, d := range page.Deliveries {
		if may == nil || may(d.Queue) {
			seen = append(seen, d)
		}
	}
	page.Deliveries = seen
	return page, nil
}

// RetryDelivery retries a delivery that was given up. It needs submit on the queue of its
// job.
func (a *Admin) RetryDelivery(ctx context.Context, id string) (delivery.Delivery, error) {
	if err := a.guard.Known(ctx); err != nil {
		return delivery.Delivery{}, err
	}
	d, err := a.hooks.Get(ctx, id)
	if err != nil {
		return delivery.Delivery{}, err
	}
	if err := a.guard.Submitter(ctx, d.Queue); err != nil {
		return delivery.Delivery{}, err
	}
	again, err := a.hooks.Retry(ctx, id)
	a.trail.Record(ctx, "retry", "delivery "+id, "", 0, err)
	return again, err
}

// WebhookSecret returns the secret that signs deliveries. It needs admin on all queues.
func (a *Admin) WebhookSecret(ctx context.Context) (webhook.Secret, error) {
	if err := a.guard.Administer(ctx); err != nil {
		return nil, err
	}
	secret, err := a.hooks.Secret(ctx)
	a.trail.Record(ctx, "read", "webhook secret", "", 0, err)
	return secret, err
}
