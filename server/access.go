package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/admin"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/observe"
	"github.com/gopherqueue/gq/internal/trail"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/webhook"
)

// door is everything between the engine and the APIs: access control, metrics, traces,
// events and webhooks.
type door struct {
	guard        *access.Guard
	gate         *access.Gate
	feed         *feed.Feed
	admin        *admin.Admin
	trail        *trail.Trail
	observed     *observe.Observed
	metrics      *observe.Metrics
	tls          *tls.Config          // nil is off
	certificates *access.Certificates // nil without TLS
	own          ownHost

	ready func(ctx context.Context) error // nil, or why the server cannot do its work

	hub   *feed.Hub
	hooks *delivery.Hooks
	flush func(ctx context.Context) error // sends the remaining traces
}

// newDoor wraps an engine.
func newDoor(ctx context.Context, cfg *config.Config, e *engine.Engine, o Options) (*door, error) {
	a := &door{}
	s, log := e.Store(), o.Log
	ring, err := access.NewKeyring(s, o.AdminToken)
	if err != nil {
		return nil, err
	}
	if o.clock != nil {
		ring.UseClock(o.clock)
	}
	empty, err := ring.Empty(ctx)
	if err != nil {
		return nil, err
	}
	a.gate = access.NewGate(ring, cfg.Auth.Required || !empty, log)
	a.own = ownHost{cfg.Insecure, a.gate, log}
	if cfg.Auth.Required && empty {
		log.Warn("tokens are required and there is none: make one with gq token create --store, or start with GQ_ADMIN_TOKEN")
	}
	if cfg.Auth.TLSCert != "" {
		if a.certificates, err = access.NewCertificates(cfg.Auth.TLSCert, cfg.Auth.TLSKey, cfg.Auth.ClientCA, log); err != nil {
			return nil, err
		}
		a.tls = a.certificates.TLS()
	}
	tracer, flush, err := observe.Tracing(ctx, log)
	if err != nil {
		return nil, err
	}
	a.flush = flush
	a.ready = func(ctx context.Context) error { return usable(ctx, e) }
	a.observed = observe.New(e, tracer)
	a.observed.Describe(func() gq.ServerState { return a.state(cfg) })
	a.trail = trail.New(s, log, nil)
	a.guard = access.NewGuard(a.trail.Engine(a.observed))
	a.guard.OnRefused(a.observed.Refused)
	a.gate.OnRefused(a.observed.Refused)
	a.hub = feed.New(e)
	if a.hooks, err = newHooks(cfg, s, a.hub, log); err != nil {
		return nil, err
	}
	if err := a.hooks.Prepare(ctx); err != nil {
		return nil, err
	}
	e.UseCallbacks(a.hooks)
	a.feed = feed.NewFeed(a.hub, a.guard)
	a.admin = admin.New(a.guard, ring, a.hooks, admin.Backups{Store: s, Dir: cfg.Backup.Dir, Keep: cfg.Backup.Keep}, a.trail)
	a.metrics = observe.NewMetrics(a.observed, e, a.guard.Oversee, slices.Concat(webhookMetrics(a.hooks), a.processMetrics(cfg, o.Version))...)
	a.hub.Seen(a.metrics.Happened)
	return a, nil
}

// usable returns why the store of an engine cannot be used: it does not answer, or has no space for
// any change.
func usable(ctx context.Context, e *engine.Engine) error {
	if m, ok := e.Store().(store.Meter); ok {
		if disk := m.Meter(); disk.DiskRefuses == gq.RefusesWrites {
			return fmt.Errorf("claims and all other changes are refused, since %d KiB are free where the store is: %w", disk.DiskFree>>10, gq.ErrDiskFull)
		}
	}
	_, err := e.Counts(ctx, gq.DefaultQueue)
	return err
}

func newHooks(cfg *config.Config, s store.Store, events delivery.Engine, log *slog.Logger) (*delivery.Hooks, error) {
	allow, err := delivery.ParseAllow(cfg.Webhooks.Allow)
	if err != nil {
		return nil, err
	}
	_, embedded := s.(*local.Store) // used by one process only
	o := delivery.Options{Allow: allow, Log: log, Exclusive: embedded}
	if cfg.Webhooks.Secret != "" {
		if o.Secret, err = webhook.ParseSecret(cfg.Webhooks.Secret); err != nil {
			return nil, err
		}
	}
	return delivery.New(events, s, o), nil
}

func webhookMetrics(h *delivery.Hooks) []prometheus.Collector {
	counter := func(name, help string, value func(delivery.Totals) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return value(h.Totals()) })
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gq_webhooks_outstanding", Help: "Deliveries that have not been made."},
			func() float64 { return float64(h.Totals().Outstanding) }),
		counter("gq_webhooks_delivered_total", "Deliveries made.", func(t delivery.Totals) float64 { return float64(t.Delivered) }),
		counter("gq_webhooks_failed_total", "Attempts of deliveries that failed.", func(t delivery.Totals) float64 { return float64(t.Failed) }),
		counter("gq_webhooks_dead_total", "Deliveries given up.", func(t delivery.Totals) float64 { return float64(t.Dead) }),
	}
}

// secured reports whether callers must authenticate.
func (a *door) secured(ctx context.Context, cfg *config.Config) bool {
	return a.gate.Required(ctx) || cfg.Auth.ClientCA != ""
}

// identify authenticates the caller of a request and extracts its trace context.
func (a *door) identify(r *http.Request) (context.Context, error) {
	ctx, err := a.gate.HTTP(r)
	if err != nil {
		return nil, err
	}
	return observe.Extract(ctx, r.Header.Get), nil
}

// http completes the options of the HTTP face.
func (a *door) http(o native.HTTPOptions) native.HTTPOptions {
	o.Ready = a.ready
	o.Identify, o.Feed, o.Admin, o.Metrics = a.identify, a.feed, a.admin, a.metrics
	return o
}

// grpc completes the options of the gRPC face.
func (a *door) grpc(o native.GRPCOptions) native.GRPCOptions {
	o.Unary = append(o.Unary, a.own.unary, a.gate.Unary, traceUnary)
	o.Stream = append(o.Stream, a.own.stream, a.gate.Stream)
	o.Ready, o.Feed, o.Admin = a.ready, a.feed, a.admin
	if a.tls != nil {
		o.Server = append(o.Server, grpc.Creds(credentials.NewTLS(a.tls.Clone())))
	}
	return o
}

// traceUnary extracts the trace context of a call.
func traceUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	return handle(observe.Extract(ctx, func(name string) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[0]
		}
		return ""
	}), request)
}

// parts are the background tasks.
func (a *door) parts() []func(context.Context) error {
	all := []func(context.Context) error{a.gate.Run, a.hub.Run, a.hooks.Run, a.metrics.Run, a.trail.Run}
	if a.certificates != nil {
		all = append(all, a.certificates.Run)
	}
	return all
}

// schedulerEngine is the guarded engine for the scheduler API. What the API does on its
// own behalf runs without access checks. ChangeQueue first reads the queue as the caller,
// so a caller without access to a queue cannot have it set up.
type schedulerEngine struct{ *access.Guard }

// Get also accepts workers: they read a job before they report on it.
func (e schedulerEngine) Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	return e.GetFor(ctx, access.Read|access.Work, id, parts)
}

func (e schedulerEngine) ConfigurePool(ctx context.Context, p gq.Pool) error {
	return e.Guard.ConfigurePool(access.With(ctx, access.Everyone()), p)
}

func (e schedulerEngine) Sample(ctx context.Context, pool string) error {
	return e.Guard.Sample(access.With(ctx, access.Everyone()), pool)
}

func (e schedulerEngine) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	if _, err := e.Queue(ctx, name); err != nil && errs.KindOf(err) != gq.KindNotFound {
		return gq.Queue{}, err
	}
	return e.Guard.ChangeQueue(access.With(ctx, access.Everyone()), name, change)
}

// matchingEngine is the guarded engine for matching: calls run with the caller's
// identity, and what rounds do on their own behalf runs without access checks.
type matchingEngine struct {
	*access.Guard
	engine *engine.Engine
}

// Get also accepts submitters: the response to a submission is the job.
func (e matchingEngine) Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	return e.GetFor(ctx, access.Read|access.Submit, id, parts)
}

func (e matchingEngine) Queue(ctx context.Context, name string) (gq.Queue, error) {
	return e.Guard.Queue(access.With(ctx, access.Everyone()), name)
}

func (e matchingEngine) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	return e.Guard.ChangeQueue(access.With(ctx, access.Everyone()), name, change)
}

func (e matchingEngine) Delegate(queue string, d engine.Delegate) {
	e.engine.Delegate(queue, d)
}

func (e matchingEngine) Now() time.Time { return e.engine.Now() }
