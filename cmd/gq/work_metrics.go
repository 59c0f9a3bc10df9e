package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/observe"
	"github.com/gopherqueue/gq/worker/workerprom"
)

// serveMetrics serves the metrics of a worker at an address until stop is called. An address
// without a host is on loopback.
func serveMetrics(ctx context.Context, address string, log *slog.Logger) (m *workerprom.Metrics, stop func(), err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, cli.Invalid("metrics", fmt.Sprintf("%.64q is not HOST:PORT or :PORT", address))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, nil, fmt.Errorf("serve metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	m = workerprom.New(registry)
	mux := http.NewServeMux()
	mux.Handle("/metrics", observe.Page(registry))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until it is closed
	}()
	log.Info("serving metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	return m, func() {
		_ = server.Close()
		<-ended
	}, nil
}
