package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq/internal/config"
	"github.com/gopherqueue/gq/internal/scheduler"
)

// newScheduling is the scheduler API as configured.
func newScheduling(ctx context.Context, e scheduler.Engine, cfg *config.Config, log *slog.Logger, failed func(error)) (*scheduler.Face, error) {
	face, err := scheduler.New(e, scheduler.Options{
		Log: log, Version: version(), Failed: failed,
		Capacity: &cfg.Scheduler.Capacity, ClaimHold: cfg.Scheduler.ClaimHold, LeaseTTL: cfg.Scheduler.LeaseTTL,
		Requeue: cfg.Scheduler.OnLeaseExpiry == "requeue", NoIdempotency: !cfg.Scheduler.Idempotency,
		MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout,
	})
	if err != nil {
		return nil, err
	}
	return face, face.Setup(ctx)
}

// beside serves the scheduler API below its base and everything else by another
// handler.
func beside(other, face http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == scheduler.Base || strings.HasPrefix(r.URL.Path, scheduler.Base+"/") {
			face.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}
