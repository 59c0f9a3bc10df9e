package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store/local"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// embedded creates a server in this process for an engine of the program, without
// listeners.
func embedded(t *testing.T, o server.Options) (*server.Server, *engine.Engine) {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.HTTP, cfg.GRPC = "", ""
	served, err := server.New(t.Context(), e, cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- served.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return served, e
}

func TestEmbeddedOverHTTP(t *testing.T) {
	s, e := embedded(t, server.Options{Version: "mine"})
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler())
	mux.HandleFunc("/own", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") })
	web := httptest.NewServer(mux)
	defer web.Close()
	call := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, web.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	defer http.DefaultClient.CloseIdleConnections()
	if status, text := call("POST", "/v1/jobs", `{"type":"t"}`); status != http.StatusCreated {
		t.Errorf("submit: %d %s", status, text)
	}
	if page, err := e.List(t.Context(), gq.Query{}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("the program's own engine has %d jobs, %v", len(page.Jobs), err)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/metrics": 200, "/own": 200, "/v1/nothing": 404,
		"/api/scheduler/jobs": 200, "/api/matching/providers": 200,
	} {
		if status, text := call("GET", path, ""); status != want {
			t.Errorf("%s: %d %.200s, want %d", path, status, text, want)
		}
	}
}

func TestEmbeddedOverGRPC(t *testing.T) {
	registered := false
	s, _ := embedded(t, server.Options{Register: func(grpc.ServiceRegistrar) { registered = true }})
	if !registered {
		t.Error("the program's own services were not registered")
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.GRPC().Serve(listener) }()
	c, err := client.New(listener.Addr().String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), gq.Spec{Type: "t"}); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s.GRPC().GracefulStop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Addresses that others can reach are rejected before anything is opened.
func TestOpenRefusesOpenListeners(t *testing.T) {
	cfg := config.Default()
	cfg.Store, cfg.HTTP = "file:"+t.TempDir()+"/never", "0.0.0.0:0"
	_, err := server.Open(t.Context(), cfg, server.Options{})
	if faults := errs.FaultsOf(err); len(faults) != 1 || faults[0].Field != "http" || !strings.Contains(faults[0].Problem, "authentication is off") {
		t.Errorf("refused with %v", err)
	}
}

// An address in use is an error of Listen, and leaves nothing behind.
func TestListenTwice(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := config.Default()
	cfg.Store, cfg.HTTP, cfg.GRPC = "memory:", "127.0.0.1:0", taken.Addr().String()
	s, err := server.Open(t.Context(), cfg, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "listen for gRPC") {
		t.Errorf("listening on a taken address: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A configuration that gives up what a damaged log has lost is told at each start.
func TestAcceptLossIsTold(t *testing.T) {
	for _, accept := range []bool{true, false} {
		var lines strings.Builder
		cfg := config.Default()
		cfg.Store, cfg.AcceptLoss = "file:"+t.TempDir(), accept
		s, err := server.OpenStore(t.Context(), &cfg, slog.New(slog.NewTextHandler(&lines, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(lines.String(), "level=WARN msg=\"accept_loss is set") != accept {
			t.Errorf("accept_loss %v: %s", accept, lines.String())
		}
	}
}
