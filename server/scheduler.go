package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/faces/scheduler"
	"github.com/gopherqueue/gq/server/config"
)

// newScheduling is the scheduler API as configured.
func newScheduling(ctx context.Context, e engine.API, cfg *config.Config, o Options, failed func(error)) (*scheduler.Face, error) {
	face, err := scheduler.New(e, scheduler.Options{
		Log: o.Log, Version: o.Version, Failed: failed,
		Capacity: &cfg.Scheduler.Capacity, ClaimHold: cfg.Scheduler.ClaimHold, LeaseTTL: cfg.Scheduler.LeaseTTL,
		Requeue: cfg.Scheduler.OnLeaseExpiry == "requeue", NoIdempotency: !cfg.Scheduler.Idempotency,
		MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout,
	})
	if err != nil {
		return nil, err
	}
	return face, face.Setup(ctx)
}

// route hands requests to the API that their path belongs to.
func route(other, scheduling, matched http.Handler) http.Handler {
	below := func(path, base string) bool { return strings.HasPrefix(path, base+"/") }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == scheduler.Base, below(path, scheduler.Base):
			scheduling.ServeHTTP(w, r)
		case below(path, matching.Base):
			matched.ServeHTTP(w, r)
		default:
			other.ServeHTTP(w, r)
		}
	})
}
