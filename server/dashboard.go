package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/server/config"
)

// newDashboard creates the dashboard over the guarded engine.
func newDashboard(e *engine.Engine, cfg *config.Config, a *door, m *matchmaker.Dispatcher, o Options) (*dashboard.Dashboard, error) {
	return dashboard.New(dashboardEngine{a.guard, e, a.feed}, dashboard.Options{
		Version: o.Version, Log: o.Log, Access: visitors{a.gate},
		Sources: dashboard.Sources{
			Tokens: a.tokens, Trail: a.auditTrail, Deliveries: a.deliveries, Redeliver: a.redeliver,
			Matching: matchmaker.DefaultQueue, Providers: providersOf(a.guard, m), Rounds: roundsOf(a.guard, m), Round: roundOf(a.guard, m), Settings: settingsOf(a.guard, cfg),
		},
	})
}

// withDashboard serves the dashboard beside the APIs. To a browser its own pages come first, and a path
// that neither knows is its business; a program gets only its first page, so that a path such as
// /jobs, which the scheduler API has below its base, is none for it. The dashboard checks the host
// of requests itself, because a proxy on this machine may serve it under any name once visitors have to sign in.
func withDashboard(d *dashboard.Dashboard, apis http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.Handles(r) && (forAll(r.URL.Path) || byBrowser(r)) || !ofAPIs(r.URL.Path) && strings.Contains(r.Header.Get("Accept"), "text/html") {
			d.ServeHTTP(w, r)
			return
		}
		apis.ServeHTTP(w, r)
	})
}

// forAll reports whether the dashboard answers a path whoever asks.
func forAll(path string) bool {
	return path == "/" || path == "/live" || strings.HasPrefix(path, "/assets/")
}

// byBrowser reports whether a browser navigates or sends a form, or a script of the dashboard
// reads a page.
func byBrowser(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") || strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded")
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

// Follow is the guard's, without reading the log for each caller. The dashboard has taken the caller's place by
// Subscribe.
func (e dashboardEngine) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	s, err := e.feed.OpenPlaced(ctx, &after, feed.Filter{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Run(ctx, 0, func(b feed.Batch, _ uint64) error { return f(b.Events()) })
}

// Events also serves callers who may read only some queues, and leaves out the others. Like the
// guard's it hides the content of jobs from those who may not see it.
func (e dashboardEngine) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	may, err := e.Reader(ctx, nil)
	if err != nil {
		return nil, err
	}
	events, err := e.engine.Events(ctx, after, limit)
	content := e.Content(ctx)
	if err != nil || may == nil && content == nil {
		return events, err
	}
	var seen []gq.Event
	for _, one := range events {
		if may != nil && !may(one.Queue) {
			continue
		}
		if content != nil && !content(one.Queue) {
			one = e.RedactEvent(one)
		}
		seen = append(seen, one)
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
	dashboard.Read: access.Read, dashboard.Submit: access.Submit, dashboard.Admin: access.Admin,
}

func visitor(i *access.Identity) *dashboard.Visitor {
	return &dashboard.Visitor{
		Name: i.Name,
		Key:  i.Token + "/" + i.Name,
		Context: func(ctx context.Context) context.Context {
			return access.Through(access.With(ctx, i), access.Via{Face: "dashboard", From: dashboard.RemoteAddr(ctx)})
		},
		Valid: i.Valid,
		May: func(p dashboard.Permission, queue string) bool {
			if p == dashboard.Payloads {
				return i.MaySeeContent(queue)
			}
			if queue == "" {
				return i.MayEverywhere(scopes[p])
			}
			return i.May(scopes[p], queue)
		},
	}
}
