package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
)

// While the database is down, calls are retried for five seconds in all, whether they share a
// transaction or not, and the page of metrics has what the process knows, for callers with a token of
// the database too, however long the outage lasts.
func TestOutage(t *testing.T) {
	cluster, err := pgtest.Run()
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(cluster.Stop)
	defer stop()
	cfg := config.Default()
	cfg.Store, cfg.HTTP, cfg.GRPC = cluster.URL("postgres"), "", ""
	var later atomic.Int64 // how much later it is for the server
	s, err := server.Open(t.Context(), cfg, server.WithClock(server.Options{Version: "v9", AdminToken: adminToken}, func() time.Time {
		return time.Now().Add(time.Duration(later.Load()))
	}))
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	defer func() {
		end()
		<-ended
		s.Close()
	}()
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	token := makeToken(t, web, `{"name":"prometheus","grants":[{"scopes":["admin"],"queues":["*"]}]}`)
	call := func(method, path, body string) (status int, text string, took time.Duration) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, web.URL+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		began := time.Now()
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		all, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		return answer.StatusCode, string(all), time.Since(began)
	}
	const job = `{"type":"t"}`
	if status, text, _ := call(http.MethodPost, "/v1/jobs", job); status != http.StatusCreated {
		t.Fatalf("submit: %d %s", status, text)
	}
	if status, text, _ := call(http.MethodGet, "/metrics", ""); status != http.StatusOK || !strings.Contains(text, "\ngq_store_up 1\n") || !strings.Contains(text, "\ngq_nodes 1\n") {
		t.Errorf("metrics: %d %s", status, text)
	}
	stop()
	time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // the pool tests connections that were idle for a second; what is sent on a dead one may have happened
	for range 2 {
		var calls sync.WaitGroup
		for _, path := range []string{"/v1/jobs", "/v1/jobs", "/v1/jobs", "/v1/jobs", "/v1/claim"} {
			calls.Go(func() {
				body := job
				if path == "/v1/claim" {
					body = `{"worker":"w"}`
				}
				status, text, took := call(http.MethodPost, path, body)
				if status != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"store_unavailable"`) {
					t.Errorf("%s: %d %s", path, status, text)
				}
				if took < 3*time.Second || took > 7500*time.Millisecond {
					t.Errorf("%s was retried for %v", path, took)
				}
			})
		}
		calls.Wait()
	}
	var calls sync.WaitGroup
	for range 24 { // each reads and writes, waits for the others, and is recorded in the audit trail
		calls.Go(func() {
			status, text, took := call(http.MethodPut, "/v1/queues/q", `{"paused":true}`)
			if status != http.StatusServiceUnavailable || took < 3*time.Second || took > 7500*time.Millisecond {
				t.Errorf("a queue was configured for %v: %d %s", took, status, text)
			}
		})
	}
	calls.Wait()
	later.Store(int64(10 * time.Minute)) // longer than the server trusts tokens elsewhere
	for range 5 {
		calls.Go(func() {
			status, text, took := call(http.MethodGet, "/v1/jobs", "")
			if status != http.StatusServiceUnavailable || took > 7500*time.Millisecond {
				t.Errorf("with an old token the server answered after %v: %d %s", took, status, text)
			}
		})
	}
	calls.Wait()
	status, text, took := call(http.MethodGet, "/metrics", "")
	for _, part := range []string{
		"\ngq_store_up 0\n", `gq_submissions_total{outcome="refused"} 8`, `gq_refused_total{call="submit",reason="store_unavailable"} 8`,
		`gq_build_info{goversion="go`, `version="v9"} 1`, "\nprocess_resident_memory_bytes ", "\nprocess_start_time_seconds ", "\nprocess_cpu_seconds_total ",
		"\nprocess_open_fds ", "\ngo_memstats_heap_alloc_bytes ", "\ngo_goroutines ",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in the metrics", part)
		}
	}
	if status != http.StatusOK || took > 2*time.Second || strings.Contains(text, "gq_nodes") {
		t.Errorf("metrics: %d after %v", status, took)
	}
}
