package native

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/wire"
)

// MaxHTTPWait is the longest that a claim or a wait for a job may take over
// HTTP.
const MaxHTTPWait = 10 * time.Minute

// HTTPOptions are what the HTTP face can be told. The zero value is the default.
type HTTPOptions struct {
	Log         *slog.Logger  // nil is silence
	Version     string        // of the program, for the API's description
	MaxBody     int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout time.Duration // in which a body must have come; 0 is 30 s
	WriteWithin time.Duration // in which an answer must be taken; 0 is 1 min

	// Ready tells why the server is not ready, nil where it is. Without it the
	// engine is asked.
	Ready func(ctx context.Context) error

	// Failed is told of errors that mean that the store has failed for good.
	Failed func(error)

	// Identify finds out who calls and puts that into the context of the request.
	// nil asks nobody.
	Identify func(r *http.Request) (context.Context, error)

	Feed    *feed.Feed  // of events; nil serves none
	Events  EventLimits // of its subscribers
	Admin   Admin       // nil serves none of it
	Metrics Metrics     // at /metrics; nil is none
}

// Metrics is a page of numbers in the text format of Prometheus. Where Write has an
// error it has written nothing.
type Metrics interface {
	Write(ctx context.Context, w io.Writer) error
}

// HTTP is the native face over HTTP. It is an [http.Handler].
type HTTP struct {
	*httpx.API

	engine  engine.API
	options HTTPOptions
	page    docsPage

	draining context.Context // ends when long waits should
	drain    context.CancelFunc
	sockets  sync.WaitGroup // WebSockets, which an HTTP server does not wait for
}

// NewHTTP makes the face over a queue.
func NewHTTP(e engine.API, o HTTPOptions) *HTTP {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &HTTP{engine: e, options: o}
	h.draining, h.drain = context.WithCancel(context.Background())
	schemas := newSchemas()
	routes := slices.Concat(h.jobRoutes(), h.oneJobRoutes(schemas), h.leaseRoutes(), h.queueRoutes(), h.scheduleRoutes(), h.systemRoutes(),
		h.eventRoutes(schemas), h.adminRoutes())
	if o.Metrics != nil {
		routes = append(routes, httpx.Plain(http.MethodGet, "/metrics", h.metrics))
	}
	h.API = httpx.New(httpx.Options{
		Info: httpx.Info{
			Title: "GopherQueue", Version: "v1",
			Description: "A lease-based job queue. Instants are RFC 3339 in UTC, durations as Go writes them, " +
				"errors RFC 9457 problems with a stable code. Unknown fields and parameters are refused.",
		},
		Tags: h.tags(), Schemas: schemas, Log: o.Log, MaxBody: o.MaxBody, BodyTimeout: o.BodyTimeout, WriteTimeout: o.WriteWithin,
		Identify: o.Identify, Failed: o.Failed,
	}, routes)
	h.page = newDocsPage(h.Document())
	return h
}

func (h *HTTP) tags() []httpx.Tag {
	all := []httpx.Tag{
		{Name: "jobs", Description: "Submit jobs and follow them."},
		{Name: "work", Description: "Claim jobs, keep their leases, say how they ended."},
		{Name: "queues", Description: "Queues and the capacity they share."},
		{Name: "schedules", Description: "Jobs that come again and again."},
		{Name: "system", Description: "How the server stands."},
	}
	if h.options.Feed != nil {
		all = append(all, httpx.Tag{Name: "events", Description: "Follow what happens to jobs."})
	}
	if h.options.Admin != nil {
		all = append(all, httpx.Tag{Name: "admin", Description: "Tokens and webhook deliveries."})
	}
	return all
}

// Drain ends waits: claims answer with no job, and waits for a job with the job
// as it stands. It is called when a server is about to stop.
func (h *HTTP) Drain() { h.drain() }

// Wait waits for the WebSockets that Drain has ended.
func (h *HTTP) Wait() { h.sockets.Wait() }

// problem is an error as an item of an answer.
func problem(ctx context.Context, err error) *wire.Problem {
	c := httpx.CallOf(ctx)
	return wire.ProblemOf(c.Told(err), c.ID)
}
