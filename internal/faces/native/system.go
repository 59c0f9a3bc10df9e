package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

type (
	health struct {
		Status string `json:"status" doc:"ok, or not_ready."`
		Reason string `json:"reason,omitzero" doc:"Why it is not ready."`
	}
	statsInput struct {
		Cursor string    `query:"cursor" doc:"next_cursor of the page before."`
		Limit  countText `query:"limit" doc:"Queues on the page; 1000 unless told, which is also the most."`
	}
	workerInput struct {
		Name string `path:"name" doc:"The worker's name; a slash in it is %2F."`
	}
)

func (h *HTTP) systemRoutes() []httpx.Route {
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/workers", ID: "list-workers", Tag: "system", Summary: "List workers",
			Description: "Those that claimed jobs or sent heartbeats within the last minute, to any server on the database.",
		}, h.workers),
		httpx.Handle(httpx.Route{
			Method: http.MethodDelete, Path: "/v1/workers/{name}", ID: "stop-worker", Tag: "system", Status: http.StatusNoContent, Summary: "Say that a worker has stopped",
			Description: "The last call of a worker that stops: it is no longer listed. Without it a worker is listed for a minute after its last call. It is refused while the worker holds jobs: complete, fail or release them first. A worker that claims again is listed again.",
		}, h.stopWorker),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/stats", ID: "stats", Tag: "system", Summary: "Count jobs by queue and state",
			Description: "Queues come by name, a page at a time; everything else is about all of them on every page.",
		}, h.stats),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/healthz", ID: "health", Tag: "system", Open: true, Summary: "Is the process alive?",
		}, func(context.Context, *httpx.None, *httpx.None) (*httpx.Answer[health], error) {
			return httpx.OK(health{Status: "ok"}), nil
		}),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/readyz", ID: "ready", Tag: "system", Open: true, Summary: "Can the server do its work?",
			Also: map[int]string{http.StatusServiceUnavailable: "It cannot; the reason is told."},
		}, h.ready),
		httpx.Plain(http.MethodGet, "/docs", h.docs),
	}
}

func (h *HTTP) workers(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[wire.Workers], error) {
	workers, err := h.engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.WorkersOf(workers)), nil
}

func (h *HTTP) stopWorker(ctx context.Context, in *workerInput, _ *httpx.None) (*httpx.Answer[httpx.None], error) {
	return nil, h.engine.WorkerStopped(ctx, in.Name)
}

func (h *HTTP) stats(ctx context.Context, in *statsInput, _ *httpx.None) (*httpx.Answer[wire.Stats], error) {
	var p parameters
	limit := cmp.Or(p.count("limit", in.Limit, maxPage), maxPage)
	checkQueueCursor(&p, in.Cursor)
	if err := p.err(); err != nil {
		return nil, err
	}
	s, err := h.engine.Stats(ctx)
	if err != nil {
		return nil, err
	}
	first, found := slices.BinarySearchFunc(s.Queues, in.Cursor, func(c gq.Count, name string) int { return strings.Compare(c.Queue, name) })
	if found {
		first++
	}
	s.Queues = s.Queues[first:]
	var next string
	if len(s.Queues) > limit {
		s.Queues, next = s.Queues[:limit], s.Queues[limit-1].Queue
	}
	out := wire.StatsOf(&s)
	out.NextCursor = next
	return httpx.OK(out), nil
}

// readyWithin is how long the store may take to respond to a readiness probe.
const readyWithin = 2 * time.Second

func (h *HTTP) ready(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[health], error) {
	within, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := h.readiness(within); err != nil {
		reason := err.Error()
		// A probe that gave up says nothing about the store.
		if errs.KindOf(err) == gq.KindInternal && !errors.Is(err, errDraining) && ctx.Err() == nil {
			h.options.Log.Error("not ready", "error", err)
		}
		return &httpx.Answer[health]{Status: http.StatusServiceUnavailable, Body: health{Status: "not_ready", Reason: reason}}, nil
	}
	return httpx.OK(health{Status: "ok"}), nil
}

func (h *HTTP) readiness(ctx context.Context) error {
	if h.draining.Err() != nil {
		return errDraining
	}
	if h.options.Ready != nil {
		return h.options.Ready(ctx)
	}
	_, err := h.engine.Counts(ctx, gq.DefaultQueue)
	return err
}

func (h *HTTP) metrics(c *httpx.Call) error {
	c.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	return h.options.Metrics.Write(c.Request.Context(), c)
}

func (s *jobsServer) Count(ctx context.Context, r *pb.CountRequest) (*pb.CountResponse, error) {
	if err := checkItems("queues", len(r.GetQueues())); err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	counts, err := s.engine.Counts(ctx, r.GetQueues()...)
	if err != nil {
		return nil, err
	}
	answer := &pb.CountResponse{Queues: make([]*pb.QueueCount, len(counts))}
	for i := range counts {
		answer.Queues[i] = pbconv.ProtoCount(&counts[i])
	}
	return answer, nil
}

func (s *jobsServer) Stats(ctx context.Context, _ *pb.StatsRequest) (*pb.StatsResponse, error) {
	stats, err := s.engine.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoStats(&stats), nil
}

func (s *workersServer) WorkerStopped(ctx context.Context, r *pb.WorkerStoppedRequest) (*pb.WorkerStoppedResponse, error) {
	if err := s.engine.WorkerStopped(ctx, r.GetWorker()); err != nil {
		return nil, err
	}
	return &pb.WorkerStoppedResponse{}, nil
}

func (s *workersServer) ListWorkers(ctx context.Context, _ *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	workers, err := s.engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.ListWorkersResponse{Workers: make([]*pb.LiveWorker, len(workers))}
	for i := range workers {
		answer.Workers[i] = pbconv.ProtoLiveWorker(&workers[i])
	}
	return answer, nil
}
