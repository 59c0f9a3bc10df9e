// Package server is the GopherQueue server: every API over one engine, behind one
// access check, with metrics, traces and webhooks.
//
// gq serve is this package with flags in front of it. A program that wants the APIs
// beside its own embeds it:
//
//	cfg := config.Default()
//	cfg.HTTP, cfg.GRPC = "", "" // no listeners of the server's own
//	s, err := server.New(ctx, queue, cfg, server.Options{})
//	…
//	mux.Handle("/", s.Handler())
//	err = s.Run(ctx)
//
// New serves nothing yet. Run runs the engine, listens where the configuration says, and
// drains when its context ends. Without tokens the server listens on loopback only; a
// program that serves Handler or GRPC on other addresses sets Auth.Required itself.
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
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/server/config"
)

// Options are what a program adds to the configuration. The zero value is the
// default.
type Options struct {
	Log        *slog.Logger // nil discards
	Version    string       // that the APIs report
	AdminToken string       // accepted with every scope, beside the tokens of the store

	// Register adds a program's own services to the gRPC server. Their calls pass the
	// same access check and interceptors.
	Register func(grpc.ServiceRegistrar)
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
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
	unready []func()                              // tell the APIs to refuse readiness and end waits
	parts   []func(running context.Context) error // run beside the listeners
	failed  chan error                            // the first reason to stop before being told to
	tasks   []chan struct{}
}

// Open opens the store that the configuration names and makes a server over it.
// Close it after Run.
func Open(ctx context.Context, cfg config.Config, o Options) (*Server, error) {
	o = o.withDefaults()
	if o.AdminToken == "" && withoutTokens(&cfg) {
		if err := checkListeners(ctx, &cfg, false); err != nil {
			return nil, err // before there is a store
		}
	}
	store, err := OpenStore(ctx, &cfg, o.Log)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(store, engine.Options{Log: o.Log, KeyWindow: cfg.Limits.KeyWindow})
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

// New makes a server over an engine, which it runs in Run and whose callbacks it
// delivers. It ignores the configuration's store and does not listen on an empty address.
// Close the server if it is never run.
func New(ctx context.Context, e *engine.Engine, cfg config.Config, o Options) (*Server, error) {
	o = o.withDefaults()
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
	matching, err := newMatching(e, &s.config, s.access, o, s.fail)
	if err != nil {
		return nil, err
	}
	s.http = native.NewHTTP(s.access.guard, s.access.http(native.HTTPOptions{
		Log: o.Log, Version: o.Version, MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout, Failed: s.fail,
	}))
	s.grpc = native.NewGRPC(s.access.guard, s.access.grpc(native.GRPCOptions{
		Log: o.Log, Limits: cfg.Limits.Limits, Failed: s.fail, Register: registering(taskQueueService(s.access.guard), o.Register), Server: s.calls.grpc(),
	}))
	s.unready = []func(){s.grpc.Drain, matching.face.Drain, s.http.Drain} // its readiness turns last
	s.handler = s.calls.http(closeAfterChunked(s.access.own.http(route(s.http, scheduling, matching.face))))
	s.web = &http.Server{
		Handler:           s.handler,
		ConnContext:       native.WithConn,
		TLSConfig:         s.access.tls,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       cfg.Limits.IdleTimeout,
		MaxHeaderBytes:    cfg.Limits.HeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // clients that misbehave
	}
	s.parts = append(s.access.parts(), e.Run, scheduling.Run, matching.Run)
	if cfg.TaskQueue.Slots > 0 {
		s.parts = append(s.parts, taskQueueWorkers(s.access.guard, cfg.TaskQueue.Slots, o.Log))
	}
	return s, nil
}

// registering calls each function that there is.
func registering(all ...func(grpc.ServiceRegistrar)) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		for _, f := range all {
			if f != nil {
				f(r)
			}
		}
	}
}

// Handler is the HTTP API: /v1, the scheduler's, matching's, metrics and health. It
// answers while Run runs; before, calls that depend on time or events may wait.
func (s *Server) Handler() http.Handler { return s.handler }

// GRPC is the gRPC server, with all services registered. Run serves it on the
// configured address; a program without one serves it on a listener of its own.
func (s *Server) GRPC() *grpc.Server { return s.grpc.Server }

// Listen opens the configured addresses. Run does it too; calling Listen first tells
// the addresses that a port 0 became.
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

// HTTPAddr is the address that HTTP is served on, nil before Listen or without one.
func (s *Server) HTTPAddr() net.Addr { return addrOf(s.httpListener) }

// GRPCAddr is the address that gRPC is served on, nil before Listen or without one.
func (s *Server) GRPCAddr() net.Addr { return addrOf(s.grpcListener) }

func addrOf(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Run serves until the context ends, and then drains: readiness turns to no at once,
// waits end, and calls that are under way have the configured time. It returns nil
// after a clean stop, and an error when the store has failed for good or an address
// cannot be listened on.
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
		s.log.Info("stopping", "drain", s.config.Drain)
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

// Close releases what New and Listen have taken and closes the store that [Open] opened.
// Call it after Run has returned, or instead of Run.
func (s *Server) Close() error {
	s.grpc.Stop() // has workers from the start
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

// serveWeb serves HTTP, with TLS where it is configured.
func (s *Server) serveWeb(l net.Listener) error {
	if s.web.TLSConfig != nil {
		return s.web.ServeTLS(l, "", "")
	}
	return s.web.Serve(l)
}

// fail tells Run of a reason to stop.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // others were faster
	}
}

// start runs a part of the server. One that ends by itself with an error ends the
// server.
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

// withoutTokens reports whether it is clear, without a look into the store, that no
// caller will need a token: a store that does not exist yet has none.
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

// checkListeners refuses addresses that other hosts can reach while authentication
// is off.
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
