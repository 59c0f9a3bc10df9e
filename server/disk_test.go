package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// fullDisk is a store on a disk that other programs can fill.
type fullDisk struct {
	*local.Store
	refuses atomic.Pointer[string]
}

func (d *fullDisk) Meter() store.Metrics {
	m := d.Store.Meter()
	m.DiskReserve, m.DiskFree, m.DiskRefuses = 1<<20, 0, *d.refuses.Load()
	return m
}

func (d *fullDisk) refused(writes bool) error {
	if r := *d.refuses.Load(); r == gq.RefusesWrites || r != "" && !writes {
		return fmt.Errorf("no byte is free: %w", gq.ErrDiskFull)
	}
	return nil
}

func (d *fullDisk) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	if err := d.refused(false); err != nil {
		return nil, err
	}
	return d.Store.Insert(ctx, groups)
}

func (d *fullDisk) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	if err := d.refused(true); err != nil {
		return nil, err
	}
	return d.Store.Claim(ctx, claims)
}

// A full disk is an error that passes: 503 with Retry-After over HTTP and UNAVAILABLE over gRPC.
// The server is ready while it can work off its jobs, and the page of metrics has the numbers.
func TestFullDisk(t *testing.T) {
	memory, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	disk := &fullDisk{Store: memory}
	set := func(refuses string) { disk.refuses.Store(&refuses) }
	set("")
	e, err := engine.New(disk, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.HTTP, cfg.GRPC = "", "127.0.0.1:0"
	s, err := server.New(t.Context(), e, cfg, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	defer func() { stop(); <-ended }()
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	call := func(method, path, body string) (*http.Response, string) {
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
		return answer, string(text)
	}
	full := func(method, path, body string) {
		t.Helper()
		answer, text := call(method, path, body)
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || !strings.Contains(text, `"code":"disk_full"`) {
			t.Errorf("%s %s: %d %v %s", method, path, answer.StatusCode, answer.Header, text)
		}
	}
	healthy := health(t, s.GRPCAddr())
	ready := func(want int, status healthpb.HealthCheckResponse_ServingStatus, says string) {
		t.Helper()
		if answer, text := call(http.MethodGet, "/readyz", ""); answer.StatusCode != want || !strings.Contains(text, says) {
			t.Errorf("/readyz: %d %s", answer.StatusCode, text)
		}
		if got := healthy(); got != status {
			t.Errorf("health over gRPC: %v, want %v", got, status)
		}
	}
	const job, claim = `{"type":"t"}`, `{"worker":"w","n":1}`
	ready(http.StatusOK, healthpb.HealthCheckResponse_SERVING, "ok")
	set(gq.RefusesSubmissions)
	full(http.MethodPost, "/v1/jobs", job)
	ready(http.StatusOK, healthpb.HealthCheckResponse_SERVING, "ok")
	if _, text := call(http.MethodGet, "/v1/stats", ""); !strings.Contains(text, `"disk_free":0,"disk_reserve":1048576,"disk_refuses":"submissions"`) {
		t.Errorf("stats: %s", text)
	}
	set(gq.RefusesWrites)
	full(http.MethodPost, "/v1/jobs", job)
	full(http.MethodPost, "/v1/claim", claim)
	ready(http.StatusServiceUnavailable, healthpb.HealthCheckResponse_NOT_SERVING, "claims and all other changes are refused")
	_, page := call(http.MethodGet, "/metrics", "")
	for _, line := range []string{
		`gq_refused_total{call="submit",reason="disk_full"} 2`, `gq_refused_total{call="claim",reason="disk_full"} 1`,
		"gq_store_free_bytes 0", "gq_store_reserve_bytes 1.048576e+06",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the metrics have no line %q", line)
		}
	}
	set(gq.RefusesSubmissions)
	retried(t, s.GRPCAddr(), func() { set("") })
	ready(http.StatusOK, healthpb.HealthCheckResponse_SERVING, "ok")
}

// retried submits over gRPC to a full disk that has room soon, and then to one that stays full.
func retried(t *testing.T, addr net.Addr, room func()) {
	t.Helper()
	c, err := client.New(addr.String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hasty, err := client.New(addr.String(), client.Options{RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.Close()
	if _, err := hasty.Enqueue(t.Context(), gq.Spec{Type: "t"}); errs.CodeOf(err) != "disk_full" || errs.KindOf(err) != gq.KindUnavailable {
		t.Errorf("a client without retries: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, room)
	if _, err := c.Enqueue(t.Context(), gq.Spec{Type: "t"}); err != nil {
		t.Errorf("a client that retries: %v", err)
	}
}

// health returns a function that asks the health service.
func health(t *testing.T, addr net.Addr) func() healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	conn, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func() healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		answer, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
}
