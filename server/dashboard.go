package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/server/config"
)

// newDashboard creates the dashboard over the guarded engine.
func newDashboard(e *engine.Engine, cfg *config.Config, a *door, m *matchmaker.Dispatcher, o Options) (*dashboard.Dashboard, error) {
	return dashboard.New(dashboardEngine{a.guard, e, a.feed}, dashboard.Options{
		Version: o.Version, Log: o.Log, Access: visitors{a.gate},
		Sources: dashboard.Sources{
			Tokens: a.tokens, Deliveries: a.deliveries, Redeliver: a.redeliver,
			Providers: providersOf(a.guard, m), Settings: settingsOf(a.guard, cfg),
		},
	})
}

// tokens lists the tokens for the dashboard.
func (a *door) tokens(ctx context.Context) ([]dashboard.Token, error) {
	tokens, err := a.admin.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]dashboard.Token, len(tokens))
	for i, t := range tokens {
		list[i] = dashboard.Token{ID: t.ID, Name: t.Name, Rate: t.Rate, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, UsedAt: t.UsedAt}
		for _, g := range t.Grants {
			list[i].Grants = append(list[i].Grants, g.String())
		}
	}
	return list, nil
}

// deliveries lists webhook deliveries for the dashboard.
func (a *door) deliveries(ctx context.Context, state, cursor string, limit int) ([]dashboard.Delivery, string, error) {
	page, err := a.admin.Deliveries(ctx, delivery.State(state), cursor, limit)
	if err != nil {
		return nil, "", err
	}
	list := make([]dashboard.Delivery, len(page.Deliveries))
	for i, d := range page.Deliveries {
		list[i] = dashboard.Delivery{
			ID: d.ID, State: string(d.State), Job: d.Job, Queue: d.Queue, Type: d.Type, URL: d.URL, Attempts: d.Attempts,
			CreatedAt: d.CreatedAt, NextAt: d.NextAt, LastAt: d.LastAt, LastStatus: d.Status, Reason: d.Reason,
		}
	}
	return list, page.Next, nil
}

func (a *door) redeliver(ctx context.Context, id string) error {
	_, err := a.admin.RetryDelivery(ctx, id)
	return err
}

// providersOf lists the providers of matching for callers who may read its jobs, as its API does.
func providersOf(g *access.Guard, m *matchmaker.Dispatcher) func(ctx context.Context, after string, limit int) ([]dashboard.Provider, error) {
	return func(ctx context.Context, after string, limit int) ([]dashboard.Provider, error) {
		if err := g.Allow(ctx, access.Read, matchmaker.DefaultQueue, nil); err != nil {
			return nil, err
		}
		providers, err := m.Providers(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		list := make([]dashboard.Provider, len(providers))
		for i := range providers {
			p := &providers[i]
			list[i] = dashboard.Provider{
				ID: p.ID, Status: p.Status.String(), Reason: p.Reason, Region: p.Region, Models: p.Models, Eligible: p.Eligible,
				Leases: p.LeasesActive, Stake: p.Stake, Health: float64(p.Health) / 1e9, Fails: p.Fails,
			}
			if p.LastHeartbeatAt > 0 {
				list[i].SeenAt = time.Unix(p.LastHeartbeatAt, 0)
			}
			for _, k := range p.Capabilities {
				list[i].Kinds = append(list[i].Kinds, k.String())
			}
		}
		return list, nil
	}
}

// settingsOf lists the configuration for administrators.
func settingsOf(g *access.Guard, cfg *config.Config) func(context.Context) ([]dashboard.Setting, error) {
	return func(ctx context.Context) ([]dashboard.Setting, error) {
		if err := g.Administer(ctx); err != nil {
			return nil, err
		}
		var list []dashboard.Setting
		for _, s := range cfg.Settings() {
			if !s.Short {
				list = append(list, dashboard.Setting{Name: s.Key, Value: s.Text(), Usage: s.Usage})
			}
		}
		return list, nil
	}
}

// withDashboard serves the dashboard beside the APIs. Its own pages come first; a path that
// neither knows is its business if a browser asks. It checks the host of requests itself,
// because a proxy on this machine may serve it under any name once visitors have to sign in.
func withDashboard(d *dashboard.Dashboard, apis http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.Handles(r) || !ofAPIs(r.URL.Path) && strings.Contains(r.Header.Get("Accept"), "text/html") {
			d.ServeHTTP(w, r)
			return
		}
		apis.ServeHTTP(w, r)
	})
}

// ofAPIs reports whether a path belongs to an API, whether or not there is anything.
func ofAPIs(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "v1", "api", "healthz", "readyz", "docs", "openapi.json", "metrics":
		return true
	}
	return false
}

// dashboardEngine is the guarded engine for the dashboard. Open pages share the server's one
// reader of the log.
type dashboardEngine struct {
	*access.Guard
	engine *engine.Engine
	feed   *feed.Feed
}

// Follow is the guard's, without reading the log for each caller.
func (e dashboardEngine) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	s, err := e.feed.Open(ctx, &after, feed.Filter{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Run(ctx, 0, func(b feed.Batch, _ uint64) error { return f(b.Events()) })
}

// Events also serves callers who may read only some queues, and leaves out the others.
func (e dashboardEngine) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	may, err := e.Reader(ctx, nil)
	if err != nil {
		return nil, err
	}
	events, err := e.engine.Events(ctx, after, limit)
	if err != nil || may == nil {
		return events, err
	}
	var seen []gq.Event
	for i := range events {
		if may(events[i].Queue) {
			seen = append(seen, events[i])
		}
	}
	return seen, nil
}

// visitors signs people in with the tokens of the server.
type visitors struct{ gate *access.Gate }

func (v visitors) Required(ctx context.Context) bool { return v.gate.Required(ctx) }

func (v visitors) Anonymous() *dashboard.Visitor { return visitor(access.Everyone()) }

func (v visitors) SignIn(ctx context.Context, token, from string) (*dashboard.Visitor, error) {
	ctx, err := v.gate.Identify(ctx, []string{"Bearer " + token}, from)
	if err != nil {
		return nil, err
	}
	i, err := access.From(ctx)
	if err != nil {
		return nil, err
	}
	return visitor(i), nil
}

// scopes maps what visitors do to what tokens allow.
var scopes = map[dashboard.Permission]access.Scope{
	dashboard.Read: access.Read, dashboard.Payloads: access.Read, dashboard.Submit: access.Submit, dashboard.Admin: access.Admin,
}

func visitor(i *access.Identity) *dashboard.Visitor {
	return &dashboard.Visitor{
		Name:    i.Name,
		Context: func(ctx context.Context) context.Context { return access.With(ctx, i) },
		Valid:   i.Valid,
		May: func(p dashboard.Permission, queue string) bool {
			if queue == "" {
				return i.MayEverywhere(scopes[p])
			}
			return i.May(scopes[p], queue)
		},
	}
}
