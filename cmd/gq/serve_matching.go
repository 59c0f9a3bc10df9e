package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/config"
	"github.com/gopherqueue/gq/internal/dispatch"
	"github.com/gopherqueue/gq/internal/matching"
	"github.com/gopherqueue/gq/store"
)

// market is matching as a server has it: who holds rounds, and its API.
type market struct {
	*dispatch.Dispatcher
	face *matching.Face
}

func newMatching(e *engine.Engine, s store.Store, cfg *config.Config, a *access, log *slog.Logger, failed func(error)) (*market, error) {
	d, err := dispatch.New(matchingEngine{a.guard, e}, s, dispatch.Options{Log: log, Settings: &cfg.Matching, Meter: a.observed})
	if err != nil {
		return nil, err
	}
	return &market{d, matching.Handler(d, a.guard, matching.Options{
		Log: log, Version: version(), MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout, Failed: failed, Identify: a.identify, Guard: a.guard,
	})}, nil
}

// Run holds rounds until the context ends, and then ends the sockets of the API.
func (m *market) Run(ctx context.Context) error {
	defer m.face.Drain()
	return m.Dispatcher.Run(ctx)
}

// beside serves the matching API below its base and everything else by another
// handler.
func (m *market) beside(other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, matching.Base+"/") {
			m.face.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}
