// Package server is the GopherQueue server: all APIs over one engine, behind one access
// check, with metrics, traces and webhooks.
//
// gq serve is this package with command-line flags. A program that wants the APIs next to
// its own embeds it:
//
//	cfg := config.Default()
//	cfg.HTTP, cfg.GRPC = "", "" // the server opens no listeners
//	s, err := server.New(ctx, queue, cfg, server.Options{})
//	…
//	mux.Handle("/", s.Handler())
//	err = s.Run(ctx)
//
// New serves nothing yet. Run runs the engine, listens on the configured addresses, and
// drains when its context ends. Without tokens the server listens on loopback only; a
// program that serves Handler or GRPC on other addresses must set Auth.Required itself.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/server/config"
)

// Options are a program's additions to the configuration. The zero value selects the
// defaults.
type Options struct {
	Log        *slog.Logger // nil discards
	Version    string       // reported by the APIs
	AdminToken string       // accepted with every scope, in addition to the tokens of the store

	// Matching connects the matching queue to a program's own systems. It takes precedence
	// over the configured sinks and checks.
	Matching match.Hooks

	// Register adds a program's own services to the gRPC server. They share the access
	// check and the interceptors.
	Register func(grpc.ServiceRegistrar)

	outage *outage          // behind Log; see quiet
	clock  func() time.Time // tells how old the known tokens are; nil is time.Now
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// quiet makes the logger write one line for each outage of the store.
func (o Options) quiet() Options {
	if o.outage == nil {
		o.outage = newOutage(o.Log)
		o.Log = o.outage.quiet()
	}
	return o
}

// Server serves the APIs over an engine.
type Server struct {
	config  config.Config
	log     *slog.Logger
	close   func() error // closes the store, if Open opened it
	access  *door
	handler http.Handler
	http    *native.HTTP
	grpc    *native.GRPC
	web     *http.Server

	httpListener, grpcListener net.Listener // nil until Listen

	calls   calls
	unready []func()                              // tell the APIs to report not ready and end waits
	parts   []func(running context.Context) error // run alongside the listeners
	failed  chan error                            // the first reason to stop early
	tasks   []chan struct{}
}

// Open opens the configured store and creates a server for it. Close the server after
// Run.
func Open(ctx context.Context, cfg config.Config, o Options) (*Server, error) {
	o = o.withDefaults().quiet()
	if o.AdminToken == "" && withoutTokens(&cfg) {
		if err := checkListeners(ctx, &cfg, false); err != nil {
			return nil, err // before there is a store
		}
	}
	store, err := OpenStore(ctx, &cfg, o.Log)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(store, engine.Options{Log: o.Log, Preset: cfg.DefaultPreset, KeyWindow: cfg.Limits.KeyWindow, ReadRequest: wire.ReadRequest})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s, err := New(ctx, e, cfg, o)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s.close = store.Close
	return s, nil
}

// New creates a server for an engine. Run runs the engine and delivers its callbacks. New
// ignores the configured store, and Run does not listen on an empty address. Close the
// server if you never run it.
func New(ctx context.Context, e *engine.Engine, cfg config.Config, o Options) (*Server, error) {
	o = o.withDefaults().quiet()
	s := &Server{config: cfg, log: o.Log, failed: make(chan error, 4), close: func() error { return nil }}
	var err error
	if s.access, err = newDoor(ctx, &s.config, e, o); err != nil {
		return nil, err
	}
	if err := checkListeners(ctx, &s.config, s.access.secured(ctx, &s.config)); err != nil {
		return nil, err
	}
	scheduling, err := newScheduling(ctx, &s.config, s.access, o, s.fail)
	if err != nil {
		return nil, err
	}
	matching, err := newMatching(ctx, e, &s.config, s.access, o, s.fail)
	if err != nil {
		return nil, err
	}
	s.http = native.NewHTTP(s.access.guard, s.access.http(native.HTTPOptions{
		DefaultPreset: cfg.DefaultPreset,
		Log:           o.Log, Version: o.Version, MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout, Failed: s.fail,
	}))
	s.grpc = native.NewGRPC(s.access.guard, s.access.grpc(native.GRPCOptions{
		DefaultPreset: cfg.DefaultPreset,
		Log:           o.Log, Limits: cfg.Limits.Limits, Streams: access.NewStreams(), CancelRequests: e.CancelRequests, Failed: s.fail, Register: registering(taskQueueService(s.access.guard), o.Register), Server: s.calls.grpc(),
	}))
	s.unready = []func(){s.grpc.Drain, matching.face.Drain, s.http.Drain} // HTTP last, since it reports readiness
	apis := s.access.own.http(route(s.http, scheduling, matching.face))
	if cfg.Dashboard {
		d, err := newDashboard(e, &s.config, s.access, matching.Dispatcher, o)
		if err != nil {
			return nil, err
		}
		s.unready = append(s.unready, d.Close)
		apis = withDashboard(d, apis)
	}
	s.handler = s.calls.http(closeAfterChunked(apis))
	s.web = &http.Server{
		Handler:           s.handler,
		ConnContext:       native.WithConn,
		TLSConfig:         s.access.tls,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       cfg.Limits.IdleTimeout,
		MaxHeaderBytes:    cfg.Limits.HeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // caused by misbehaving clients
	}
	s.parts = append(s.access.parts(), e.Run, scheduling.Run, matching.Run, func(ctx context.Context) error {
		return o.outage.watch(ctx, func(ctx context.Context) error {
			_, err := e.LastEvent(ctx)
			return err
		})
	})
	if cfg.TaskQueue.Slots > 0 {
		s.parts = append(s.parts, taskQueueWorkers(s.access.guard, cfg.TaskQueue.Slots, o.Log))
	}
	return s, nil
}

// registering calls each non-nil function.
func registering(all ...func(grpc.ServiceRegistrar)) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		for _, f := range all {
			if f != nil {
				f(r)
			}
		}
	}
}

// Handler returns the HTTP API: /v1, the scheduler's, matching's, metrics and health, and
// the dashboard. It
// works while Run runs; before that, calls that depend on time or events may block.
func (s *Server) Handler() http.Handler { return s.handler }

// GRPC returns the gRPC server, with all services registered. Run serves it on the
// configured address; a program without one serves it on its own listener.
func (s *Server) GRPC() *grpc.Server { return s.grpc.Server }

// Listen opens the configured addresses. Run does it too; calling Listen first makes the
// addresses known when the port is 0.
func (s *Server) Listen(ctx context.Context) error {
	var lc net.ListenConfig
	var err error
	if s.config.HTTP != "" && s.httpListener == nil {
		if s.httpListener, err = lc.Listen(ctx, "tcp", s.config.HTTP); err != nil {
			return fmt.Errorf("listen for HTTP: %w", err)
		}
	}
	if s.config.GRPC != "" && s.grpcListener == nil {
		if s.grpcListener, err = lc.Listen(ctx, "tcp", s.config.GRPC); err != nil {
			return fmt.Errorf("listen for gRPC: %w", err)
		}
	}
	return nil
}

// HTTPAddr returns the HTTP address, nil before Listen or if none is configured.
func (s *Server) HTTPAddr() net.Addr { return addrOf(s.httpListener) }

// GRPCAddr returns the gRPC address, nil before Listen or if none is configured.
func (s *Server) GRPCAddr() net.Addr { return addrOf(s.grpcListener) }

func addrOf(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Run serves until the context ends, and then drains: readiness turns false at once,
// waits end, and calls in progress get the configured time. It returns nil after a clean
// stop, and an error if the store has failed permanently or an address cannot be opened.
func (s *Server) Run(ctx context.Context) (err error) {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	for _, part := range s.parts {
		s.start(func() error { return part(running) })
	}
	if l := s.httpListener; l != nil {
		s.start(func() error { return ignore(s.serveWeb(l), http.ErrServerClosed) })
	}
	if l := s.grpcListener; l != nil {
		s.start(func() error { return s.grpc.Serve(l) })
	}
	select {
	case <-ctx.Done():
		s.log.Info("stopping", "cause", context.Cause(ctx), "drain_ms", s.config.Drain.Milliseconds())
	case err = <-s.failed:
		s.log.Error("stopping", "error", err)
	}
	s.stop(err != nil)
	stop()
	s.wait()
	flushed, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if failed := s.access.flush(flushed); failed != nil {
		s.log.Warn("the last traces were not sent", "error", failed)
	}
	return err
}

// Close releases the resources of New and Listen, and closes the store that [Open]
// opened. Call it after Run has returned, or instead of Run.
func (s *Server) Close() error {
	s.grpc.Stop() // it starts goroutines when created
	for _, l := range []net.Listener{s.httpListener, s.grpcListener} {
		if l != nil {
			_ = l.Close() // Run has closed it already, or nobody was served
		}
	}
	if err := s.close(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// serveWeb serves HTTP, with TLS if configured.
func (s *Server) serveWeb(l net.Listener) error {
	if s.web.TLSConfig != nil {
		return s.web.ServeTLS(l, "", "")
	}
	return s.web.Serve(l)
}

// fail reports a reason to stop to Run.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // an earlier reason is pending
	}
}

// start runs a part of the server. If it returns an error by itself, the server stops.
func (s *Server) start(f func() error) {
	done := make(chan struct{})
	s.tasks = append(s.tasks, done)
	go func() {
		defer close(done)
		if err := f(); err != nil {
			s.fail(err)
		}
	}()
}

func (s *Server) wait() {
	for _, done := range s.tasks {
		<-done
	}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// withoutTokens reports whether no caller will need a token, as far as that is known
// without reading the store: a store that does not exist yet has no tokens.
func withoutTokens(cfg *config.Config) bool {
	if cfg.Auth.Required || cfg.Auth.ClientCA != "" {
		return false
	}
	u, err := storeurl.Parse(cfg.Store)
	if err != nil || u.Scheme != "file" {
		return err == nil && u.Scheme == "memory"
	}
	_, err = os.Stat(u.Dir)
	return errors.Is(err, fs.ErrNotExist)
}

// checkListeners rejects addresses that other hosts can reach while authentication is
// off.
func checkListeners(ctx context.Context, cfg *config.Config, secured bool) error {
	if cfg.Insecure || secured {
		return nil
	}
	var faults []gq.Fault
	for _, a := range []struct{ key, address string }{{"http", cfg.HTTP}, {"grpc", cfg.GRPC}} {
		if a.address != "" && !loopback(ctx, a.address) {
			faults = append(faults, gq.Fault{Field: a.key, Problem: fmt.Sprintf(
				"%s is reachable from other hosts but authentication is off; create a token, listen on 127.0.0.1, or pass --insecure", a.address)})
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// loopback reports whether only this machine can reach an address.
func loopback(ctx context.Context, address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil || len(ips) == 0 {
		return false
	}
	for _, ip := range ips {
		if !ip.IP.IsLoopback() {
			return false
		}
	}
	return true
}
