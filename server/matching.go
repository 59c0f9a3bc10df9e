package server

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/matchmaker/sink"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store/local"
)

// market is matching in a server: the dispatcher that runs rounds, and its API.
type market struct {
	*matchmaker.Dispatcher
	face *matching.Face
}

func newMatching(ctx context.Context, e *engine.Engine, cfg *config.Config, a *door, o Options, failed func(error)) (*market, error) {
	hooks, err := matchingHooks(ctx, e, cfg, a, o.Matching)
	if err != nil {
		return nil, err
	}
	_, embedded := e.Store().(*local.Store) // used by one process only
	d, err := matchmaker.New(matchingEngine{a.guard, e}, e.Store(), matchmaker.Options{
		Log: o.Log, Settings: &cfg.Matching, Hooks: hooks, Meter: a.observed, Exclusive: embedded,
	})
	if err != nil {
		return nil, err
	}
	a.metrics.Register(newMatchingMetrics(d))
	return &market{d, matching.Handler(d, a.guard, matching.Options{
		Log: o.Log, Version: o.Version, MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout, Failed: failed, Identify: a.identify, Guard: a.guard,
	})}, nil
}

// matchingHooks adds the configured sinks and checks to those of the program, which go
// first.
func matchingHooks(ctx context.Context, e *engine.Engine, cfg *config.Config, a *door, h match.Hooks) (match.Hooks, error) {
	secret, err := a.hooks.Secret(ctx)
	if err != nil {
		return h, err
	}
	at := sink.Environment{Queue: e, Secret: secret}
	if url := cfg.Checks.Proofs; url != "" && h.Proofs == nil {
		h.Proofs = sink.ProofsAt(url, at)
	}
	if url := cfg.Checks.SLA; url != "" && h.SLA == nil {
		h.SLA = sink.JudgeAt(url, at)
	}
	err = errors.Join(
		openSink(&h.Claims, "matching.sinks.claims", cfg.Sinks.Claims, at),
		openSink(&h.Rulings, "matching.sinks.sla", cfg.Sinks.SLA, at),
		openSink(&h.Rounds, "matching.sinks.rounds", cfg.Sinks.Rounds, at))
	return h, err
}

func openSink[T sink.Record](to *match.Sink[T], key, target string, e sink.Environment) error {
	if target == "" || *to != nil {
		return nil
	}
	parsed, err := sink.Parse(target)
	if err == nil {
		*to, err = sink.Open[T](parsed, e)
	}
	if err != nil {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: key, Problem: err.Error()}}}
	}
	return nil
}

// Run runs rounds until the context ends, and then closes the API's WebSockets.
func (m *market) Run(ctx context.Context) error {
	defer m.face.Drain()
	return m.Dispatcher.Run(ctx)
}
