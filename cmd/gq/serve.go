package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/logline"
	"github.com/gopherqueue/gq/internal/observe"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
)

func newServe(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server: HTTP and gRPC over one store. The first line on standard output is

  listening http=HOST:PORT grpc=HOST:PORT

and appears once both accept connections. Logs go to standard error.

On SIGTERM, SIGINT or SIGHUP the server answers /readyz with 503 and ends open
waits. It keeps listening until the calls in progress are done, for at most --drain,
and then exits. If a load balancer polls /readyz, give it time to notice with
--drain-lag. A second SIGTERM or SIGINT ends the server at once. If the store fails,
for example because its disk does, the server exits with an error.

The HTTP address also serves a dashboard at /, unless --dashboard=false is given.

Without authentication it listens on loopback only, unless --insecure is given. A
token in GQ_ADMIN_TOKEN may do everything, before there is any other. Under systemd
use Type=notify. Traces go where OTEL_EXPORTER_OTLP_ENDPOINT says; the other
standard OTEL_ variables hold too.

With --auth-tls-cert and --auth-tls-key both addresses speak TLS. Clients then set
GQ_TLS=1 or GQ_TLS_CA (gq --help).

` + configHelp,
		Example: `  gq serve
  gq serve --store memory: --http 127.0.0.1:0 --grpc 127.0.0.1:0
  gq serve --data /var/lib/gq --config /etc/gq.yaml
  curl -s localhost:8780/healthz`,
		Args: cli.NoArguments,
	}
	f := newConfigFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := f.load(c, p)
		if err != nil {
			return err
		}
		return serve(c.Context(), p, loaded.Config)
	}
	return c
}

// serve runs the server until the context ends.
func serve(ctx context.Context, p process, cfg config.Config) error {
	log := newLog(p, cfg.Log)
	cli.LimitMemory(cfg.Memory, log)
	s, err := server.Open(ctx, cfg, server.Options{Log: log, Version: version(), AdminToken: p.getenv("GQ_ADMIN_TOKEN")})
	if err != nil {
		return err
	}
	if err := s.Listen(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	fmt.Fprintf(p.stdout, "listening http=%s grpc=%s\n", s.HTTPAddr(), s.GRPCAddr())
	greet(p, cfg, s.HTTPAddr(), s.GRPCAddr())
	log.Info("ready", "store", config.Redact(cfg.Store), "default_preset", cfg.DefaultPreset.String(), "http", s.HTTPAddr().String(), "grpc", s.GRPCAddr().String())
	notify(p.getenv, "READY=1")
	told := make(chan struct{})
	stopping := context.AfterFunc(ctx, func() {
		defer close(told)
		notify(p.getenv, "STOPPING=1")
	})
	err = s.Run(ctx)
	if !stopping() {
		<-told // before the process ends
	}
	if closing := s.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return &cli.StatusError{Status: cli.ExitFailure, Err: err}
	}
	log.Info("stopped")
	return nil
}

// greet prints how to try the server.
func greet(p process, cfg config.Config, http, grpc net.Addr) {
	addr := ""
	if grpc.String() != defaultAddr {
		addr = " --addr " + grpc.String()
	}
	s := newScreen(p.stdout, p.getenv)
	s.line("store %s", config.Redact(cfg.Store))
	s.line("preset %s, for queues without a policy of their own%s", cfg.DefaultPreset, advice(cfg.DefaultPreset))
	if !isTerminal(p.stdout) { // hints are for people; files and journals get only what programs parse
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
	s.line("  curl %s://%s/v1/stats", scheme, http)
	if cfg.Dashboard {
		s.line("Dashboard: %s://%s/", scheme, http)
	}
	s.line("API: %s://%s/docs   stop: Ctrl-C", scheme, http)
}

// advice names the preset that survives outages.
func advice(p gq.Preset) string {
	if p == gq.PresetResilient {
		return ""
	}
	return fmt.Sprintf(": %d attempts (--default-preset resilient retries through an outage of hours)", p.Policy().MaxAttempts)
}

// newLog returns the server's logger.
func newLog(p process, l config.Log) *slog.Logger {
	if l.Format == "json" {
		return observe.NewLog(p.stderr, "gq", l.Level)
	}
	return logline.NewText(p.stderr, l.Level)
}

// workerLog returns the log of a process that works for a server, in the form of the server's: JSON
// if that is asked for with a flag or with GQ_LOG_FORMAT.
func workerLog(p process, inJSON bool) *slog.Logger {
	l := config.Log{Format: p.getenv("GQ_LOG_FORMAT")}
	if inJSON {
		l.Format = "json"
	}
	return newLog(p, l)
}

// notify tells systemd the state of the service, if systemd asked for that.
func notify(getenv func(string) string, state string) {
	name := getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if name[0] == '@' { // an abstract socket
		name = "\x00" + name[1:]
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return // the notification is optional
	}
	defer socket.Close() //nolint:errcheck // nothing was kept
	_ = socket.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = socket.Write([]byte(state))
}
