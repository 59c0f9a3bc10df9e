package main

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

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/config"
	"github.com/gopherqueue/gq/internal/native"
	"github.com/gopherqueue/gq/internal/webhook"
)

func newServe(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server: HTTP and gRPC over one store. The first line on standard output is

  listening http=HOST:PORT grpc=HOST:PORT

and comes when both can be used. Logs go to standard error.

On SIGINT or SIGTERM /readyz turns to 503 at once and those who wait are answered.
Both listeners stay until the calls under way are done, for --drain at the longest;
where there are none the server ends at once. Behind a load balancer that only
looks at readiness now and then, have it stay longer with --drain-lag. A second
signal ends it at once. If the store fails, which is when its disk does, the server
ends with an error.

Without authentication it listens on loopback only, unless --insecure is given.
Under systemd use Type=notify.

` + configHelp,
		Example: `  gq serve
  gq serve --store memory: --http 127.0.0.1:0 --grpc 127.0.0.1:0
  gq serve --data /var/lib/gq --config /etc/gq.yaml
  curl -s localhost:8780/healthz`,
		Args: noArguments,
	}
	f := newConfigFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := f.load(c, p)
		if err != nil {
			return err
		}
		return serve(c.Context(), p, loaded)
	}
	return c
}

// serve runs the server until the context ends.
func serve(ctx context.Context, p process, loaded config.Loaded) (err error) {
	cfg := &loaded.Config
	log := newLog(p, cfg.Log)
	limitMemory(cfg.Memory, log)
	if tokenless(p, cfg) {
		if err := checkListeners(ctx, cfg, false); err != nil {
			return err // before there is a store
		}
	}
	store, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() {
		if closing := store.Close(); closing != nil && err == nil {
			err = fmt.Errorf("close the store: %w", closing)
		}
	}()
	allow, err := webhook.ParseAllow(cfg.Webhooks.Allow)
	if err != nil {
		return err
	}
	var a *access
	e, err := engine.New(store, engine.Options{
		Log: log, Limits: cfg.Limits.Limits, KeyWindow: cfg.Limits.KeyWindow, CheckCallback: allow.CheckURL,
		BeforePurge: func(ctx context.Context) error { return a.hooks.CatchUp(ctx) },
	})
	if err != nil {
		return err
	}
	a, err = newAccess(ctx, p, cfg, store, e, log)
	if err != nil {
		return err
	}
	if err := checkListeners(ctx, cfg, a.secured(ctx, cfg)); err != nil {
		return err
	}
	s := &server{log: log, drain: cfg.Drain, lag: cfg.DrainLag, failed: make(chan error, 4)}
	scheduling, err := newScheduling(ctx, schedulerEngine{a.guard}, cfg, log, s.fail)
	if err != nil {
		return err
	}
	matched, err := newMatching(e, store, cfg, a, log, s.fail)
	if err != nil {
		return err
	}
	listeners, err := listen(ctx, cfg)
	if err != nil {
		return err
	}
	s.http = native.NewHTTP(a.guard, a.http(native.HTTPOptions{
		Log: log, Version: version(), MaxBody: int64(cfg.Limits.BodyBytes), BodyTimeout: cfg.Limits.BodyTimeout, Failed: s.fail,
	}))
	s.grpc = native.NewGRPC(a.guard, a.grpc(native.GRPCOptions{
		Log: log, Limits: cfg.Limits.Limits, Failed: s.fail, Register: taskQueueService(a.guard), Server: s.calls.grpc(),
	}))
	s.unready = []func(){s.http.Drain, s.grpc.Drain, matched.face.Drain}
	s.web = &http.Server{
		Handler:           s.calls.http(oneEnd(a.own.http(matched.beside(beside(s.http, a.identified(scheduling)))))),
		ConnContext:       native.WithConn,
		TLSConfig:         a.tls,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       cfg.Limits.IdleTimeout,
		MaxHeaderBytes:    cfg.Limits.HeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients that misbehave
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.start(func() error { return e.Run(running) })
	s.start(func() error { return scheduling.Run(running) })
	s.start(func() error { return matched.Run(running) })
	a.start(running, s)
	startTaskQueueWorkers(running, s, a.guard, cfg.TaskQueue.Slots)
	s.start(func() error { return ignore(s.serveWeb(listeners.http), http.ErrServerClosed) })
	s.start(func() error { return s.grpc.Serve(listeners.grpc) })

	fmt.Fprintf(p.stdout, "listening http=%s grpc=%s\n", listeners.http.Addr(), listeners.grpc.Addr())
	greet(p, cfg, listeners)
	log.Info("ready", "store", config.Redact(cfg.Store), "http", listeners.http.Addr().String(), "grpc", listeners.grpc.Addr().String())
	notify(p.getenv, "READY=1")

	select {
	case <-ctx.Done():
		log.Info("stopping", "drain", cfg.Drain)
	case err = <-s.failed:
		log.Error("stopping", "error", err)
	}
	notify(p.getenv, "STOPPING=1")
	s.stop(err != nil)
	stop()
	err = errors.Join(err, s.wait())
	flushed, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if failed := a.stop(flushed); failed != nil {
		log.Warn("the last traces were not sent", "error", failed)
	}
	if err != nil {
		return &statusError{exitFailure, err}
	}
	log.Info("stopped")
	return nil
}

// greet says how to try the server.
func greet(p process, cfg *config.Config, l listeners) {
	addr := ""
	if l.grpc.Addr().String() != defaultAddr {
		addr = " --addr " + l.grpc.Addr().String()
	}
	s := newScreen(p.stdout, p.getenv)
	s.line("store %s", config.Redact(cfg.Store))
	if !isTerminal(p.stdout) { // hints are for people; a file or a journal keeps what programs read
		return
	}
	s.line("")
	s.line("Try it from another terminal:")
	s.line("  gq work --type shout --exec 'tr a-z A-Z'%s", addr)
	s.line("  gq submit shout --payload '\"hello\"' --wait%s", addr)
	scheme := "http"
	if cfg.Auth.TLSCert != "" {
		scheme = "https"
		s.line("  (with TLS: name its authority, GQ_TLS_CA=FILE for gq and --cacert FILE for curl)")
	}
	s.line("  curl %s://%s/v1/stats", scheme, l.http.Addr())
	s.line("API: %s://%s/docs   stop: Ctrl-C", scheme, l.http.Addr())
}

// server is what runs under gq serve.
type server struct {
	log        *slog.Logger
	drain, lag time.Duration
	http       *native.HTTP
	web        *http.Server
	grpc       *native.GRPC
	calls      calls
	unready    []func()   // has the faces say that they stop, and end waits
	failed     chan error // the first reason to stop before being told to

	tasks []chan error
}

// serveWeb serves HTTP, with TLS where it is configured.
func (s *server) serveWeb(l net.Listener) error {
	if s.web.TLSConfig != nil {
		return s.web.ServeTLS(l, "", "")
	}
	return s.web.Serve(l)
}

// fail tells of a reason to stop.
func (s *server) fail(err error) {
	select {
	case s.failed <- err:
	default: // others were faster
	}
}

// start runs a part of the server. One that ends by itself with an error ends the
// server.
func (s *server) start(f func() error) {
	done := make(chan error, 1)
	s.tasks = append(s.tasks, done)
	go func() {
		err := f()
		if err != nil {
			s.fail(err)
		}
		done <- nil
	}()
}

func (s *server) wait() error {
	var all error
	for _, done := range s.tasks {
		all = errors.Join(all, <-done)
	}
	return all
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

type listeners struct{ http, grpc net.Listener }

func listen(ctx context.Context, cfg *config.Config) (l listeners, err error) {
	var lc net.ListenConfig
	if l.http, err = lc.Listen(ctx, "tcp", cfg.HTTP); err != nil {
		return l, fmt.Errorf("listen for HTTP: %w", err)
	}
	if l.grpc, err = lc.Listen(ctx, "tcp", cfg.GRPC); err != nil {
		return l, errors.Join(fmt.Errorf("listen for gRPC: %w", err), l.http.Close())
	}
	return l, nil
}

// tokenless reports whether it is clear, without a look into the store, that
// nobody will be asked who he is: a store that is yet to be made has no tokens.
func tokenless(p process, cfg *config.Config) bool {
	if cfg.Auth.Required || cfg.Auth.ClientCA != "" || p.getenv("GQ_ADMIN_TOKEN") != "" {
		return false
	}
	u, err := parseAnyStoreURL(cfg.Store)
	if err != nil || u.scheme != "file" {
		return err == nil && u.scheme == "memory"
	}
	_, err = os.Stat(u.dir)
	return errors.Is(err, fs.ErrNotExist)
}

// checkListeners refuses to listen where others could come in.
func checkListeners(ctx context.Context, cfg *config.Config, secured bool) error {
	if cfg.Insecure || secured {
		return nil
	}
	var faults []gq.Fault
	for _, a := range []struct{ key, address string }{{"http", cfg.HTTP}, {"grpc", cfg.GRPC}} {
		if !loopback(ctx, a.address) {
			faults = append(faults, gq.Fault{Field: a.key, Problem: fmt.Sprintf(
				"%s can be reached from other machines, and nobody is asked who he is; make a token, listen on 127.0.0.1, or say --insecure", a.address)})
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
