package native

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/wire"
)

// MaxHTTPWait is the longest wait of a claim, or for a job to end, over HTTP.
const MaxHTTPWait = 10 * time.Minute

// HTTPOptions configure the HTTP face. The zero value selects the defaults.
type HTTPOptions struct {
	DefaultPreset gq.Preset     // fills the gaps in the policy of a job whose queue does not exist yet; 0 is PresetJobModel
	Log           *slog.Logger  // nil discards
	Version       string        // of the program, for the OpenAPI document
	MaxBody       int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout   time.Duration // deadline for receiving a body; 0 is 30 s
	WriteWithin   time.Duration // deadline for the client to read a response; 0 is 1 min

	// Ready returns why the server is not ready, or nil. Without it the engine is asked.
	Ready func(ctx context.Context) error

	// Failed is called when the store has failed permanently.
	Failed func(error)

	// Identify authenticates the caller and stores the identity in the request context.
	// nil turns authentication off.
	Identify func(r *http.Request) (context.Context, error)

	Feed    *feed.Feed  // of events; nil turns them off
	Events  EventLimits // for its subscribers
	Admin   Admin       // nil turns the admin routes off
	Metrics Metrics     // at /metrics; nil turns it off
}

// Metrics is a page in the Prometheus text format. If Write returns an error, it has
// written nothing.
type Metrics interface {
	Write(ctx context.Context, w io.Writer) error
}

// HTTP is the native face over HTTP, an [http.Handler].
type HTTP struct {
	*httpx.API

	engine  engine.API
	options HTTPOptions
	page    docsPage

	draining context.Context // ends when long waits should
	drain    context.CancelFunc
	sockets  sync.WaitGroup // WebSockets, which http.Server does not wait for
}

// NewHTTP creates the face for a queue.
func NewHTTP(e engine.API, o HTTPOptions) *HTTP {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.DefaultPreset = cmp.Or(o.DefaultPreset, gq.PresetJobModel)
	h := &HTTP{engine: e, options: o}
	h.draining, h.drain = context.WithCancel(context.Background())
	schemas := newSchemas()
	routes := slices.Concat(h.jobRoutes(schemas), h.oneJobRoutes(schemas), h.leaseRoutes(), h.queueRoutes(), h.scheduleRoutes(), h.workflowRoutes(), h.inboxRoutes(), h.systemRoutes(),
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
		{Name: "inbox", Description: "Submissions from transactions of applications, and those that were refused."},
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

// Drain ends waits: a claim returns no job, and a wait for a job returns its current
// state. Call it before stopping the server.
func (h *HTTP) Drain() { h.drain() }

// Wait waits for the WebSockets that Drain has closed.
func (h *HTTP) Wait() { h.sockets.Wait() }

// problem encodes the error of one item in a response.
func problem(ctx context.Context, err error) *wire.Problem {
	c := httpx.CallOf(ctx)
	return wire.ProblemOf(c.Told(err), c.ID)
}
