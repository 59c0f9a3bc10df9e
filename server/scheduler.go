package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/faces/scheduler"
	"github.com/gopherqueue/gq/server/config"
)

// newScheduling creates the configured scheduler API.
func newScheduling(ctx context.Context, cfg *config.Config, a *door, o Options, failed func(error)) (*scheduler.Face, error) {
	face, err := scheduler.New(schedulerEngine{a.guard}, scheduler.Options{
		Log: o.Log, Version: o.Version, Identify: a.identify, Failed: failed,
		Capacity: &cfg.Scheduler.Capacity, ClaimHold: cfg.Scheduler.ClaimHold, LeaseTTL: cfg.Scheduler.LeaseTTL,
		Requeue: cfg.Scheduler.OnLeaseExpiry == "requeue", NoIdempotency: !cfg.Scheduler.Idempotency,
		MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout,
	})
	if err != nil {
		return nil, err
	}
	return face, face.Setup(ctx)
}

// route dispatches requests to the API that owns their path.
func route(other, scheduling, matched http.Handler) http.Handler {
	in := func(path, base string) bool { return path == base || strings.HasPrefix(path, base+"/") }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case in(path, scheduler.Base):
			scheduling.ServeHTTP(w, r)
		case in(path, matching.Base):
			matched.ServeHTTP(w, r)
		default:
			other.ServeHTTP(w, r)
		}
	})
}
