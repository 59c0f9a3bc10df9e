package native

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
)

type (
	workersOutput struct{ Body wire.Workers }
	statsOutput   struct{ Body wire.Stats }
	health        struct {
		Status string `json:"status" doc:"ok, or not_ready."`
		Reason string `json:"reason,omitzero" doc:"Why it is not ready."`
	}
	healthOutput struct {
		Status int
		Body   health
	}
)

func (h *HTTP) registerSystem() {
	register(h, route{
		method: http.MethodGet, path: "/v1/workers", id: "list-workers", tag: "system", summary: "List workers",
		description: "Those that have shown themselves to this server within the last minute.",
	}, h.workers)
	register(h, route{
		method: http.MethodGet, path: "/v1/stats", id: "stats", tag: "system", summary: "Count jobs by queue and state",
	}, h.stats)
	register(h, route{
		method: http.MethodGet, path: "/healthz", id: "health", tag: "system", open: true, summary: "Is the process alive?",
	}, func(context.Context, *none, *none) (*healthOutput, error) {
		return &healthOutput{Status: http.StatusOK, Body: health{Status: "ok"}}, nil
	})
	register(h, route{
		method: http.MethodGet, path: "/readyz", id: "ready", tag: "system", open: true, summary: "Can the server do its work?",
		also: map[int]string{http.StatusServiceUnavailable: "It cannot; the reason is told."},
	}, h.ready)
	h.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(h.openapi) // the client has left
	})
	h.mux.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) { h.page.serve(w) })
}

func (h *HTTP) workers(ctx context.Context, _ *none, _ *none) (*workersOutput, error) {
	workers, err := h.engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	return &workersOutput{wire.WorkersOf(workers)}, nil
}

func (h *HTTP) stats(ctx context.Context, _ *none, _ *none) (*statsOutput, error) {
	s, err := h.engine.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return &statsOutput{wire.StatsOf(&s)}, nil
}

// readyWithin is how long the store may take to show that it is there.
const readyWithin = 2 * time.Second

func (h *HTTP) ready(ctx context.Context, _ *none, _ *none) (*healthOutput, error) {
	within, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := h.readiness(within); err != nil {
		reason := err.Error()
		// A probe that gave up says nothing about the store.
		if errs.KindOf(err) == gq.KindInternal && !errors.Is(err, errDraining) && ctx.Err() == nil {
			h.options.Log.Error("not ready", "error", err)
		}
		return &healthOutput{Status: http.StatusServiceUnavailable, Body: health{Status: "not_ready", Reason: reason}}, nil
	}
	return &healthOutput{Status: http.StatusOK, Body: health{Status: "ok"}}, nil
}

func (h *HTTP) readiness(ctx context.Context) error {
	if h.draining.Err() != nil {
		return errDraining
	}
	if h.options.Ready != nil {
		if err := h.options.Ready(ctx); err != nil {
			return err
		}
	}
	_, err := h.engine.Counts(ctx, gq.DefaultQueue)
	return err
}

func (h *HTTP) metrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if err := h.options.Metrics.Write(r.Context(), w); err != nil {
		h.refuse(w, callOf(r.Context()), h.problem(r.Context(), err))
	}
}
