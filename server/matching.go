package server

import (
	"context"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/server/config"
)

// market is matching in a server: the dispatcher that runs rounds, and its API.
type market struct {
	*matchmaker.Dispatcher
	face *matching.Face
}

func newMatching(e *engine.Engine, cfg *config.Config, a *door, o Options, failed func(error)) (*market, error) {
	d, err := matchmaker.New(matchingEngine{a.guard, e}, e.Store(), matchmaker.Options{Log: o.Log, Settings: &cfg.Matching, Meter: a.observed})
	if err != nil {
		return nil, err
	}
	return &market{d, matching.Handler(d, a.guard, matching.Options{
		Log: o.Log, Version: o.Version, MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout, Failed: failed, Identify: a.identify, Guard: a.guard,
	})}, nil
}

// Run runs rounds until the context ends, and then closes the API's WebSockets.
func (m *market) Run(ctx context.Context) error {
	defer m.face.Drain()
	return m.Dispatcher.Run(ctx)
}
