package native

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
)

var rewrite = flag.Bool("rewrite", false, "write golden files instead of comparing with them")

var _ engine.API = (*engine.Engine)(nil)

func TestOpenAPIIsAsWrittenDown(t *testing.T) {
	const golden = "testdata/openapi.json"
	got := NewHTTP(nil, HTTPOptions{}).OpenAPI()
	if *rewrite {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the API's description has changed; if it was meant to, run go test ./internal/faces/native -run OpenAPI -rewrite and look at the difference")
	}
}

func TestEveryRouteOfTheContractIsDescribed(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	got := s.want(200, "GET", "/openapi.json")
	if got.str("openapi") != "3.1.0" {
		t.Errorf("OpenAPI %q", got.str("openapi"))
	}
	for _, route := range []string{
		"post /v1/jobs", "get /v1/jobs", "post /v1/jobs/batch", "post /v1/jobs/cancel", "get /v1/jobs/{id}", "patch /v1/jobs/{id}",
		"post /v1/jobs/{id}/cancel", "post /v1/jobs/{id}/replay", "get /v1/jobs/{id}/events", "get /v1/jobs/{id}/explain", "get /v1/jobs/{id}/wait",
		"post /v1/claim", "post /v1/leases/{id}/start", "post /v1/leases/{id}/heartbeat", "post /v1/leases/{id}/complete",
		"post /v1/leases/{id}/fail", "post /v1/leases/{id}/release",
		"get /v1/queues", "get /v1/queues/{name}", "put /v1/queues/{name}", "patch /v1/queues/{name}", "get /v1/queues/{name}/keys", "get /v1/queues/{name}/history", "get /v1/history", "get /v1/activity", "put /v1/queues/{name}/keys/{key}", "delete /v1/queues/{name}/keys/{key}", "post /v1/queues/{name}/declare", "post /v1/queues/{name}/pause", "post /v1/queues/{name}/resume",
		"get /v1/pools", "put /v1/pools/{name}",
		"get /v1/schedules", "get /v1/schedules/{name}", "put /v1/schedules/{name}", "delete /v1/schedules/{name}",
		"post /v1/schedules/{name}/declare", "post /v1/schedules/{name}/pause", "post /v1/schedules/{name}/resume",
		"get /v1/workers", "delete /v1/workers/{name}", "get /v1/stats", "get /healthz", "get /readyz",
	} {
		method, path, _ := strings.Cut(route, " ")
		if got.at("paths", path, method, "operationId") == nil {
			t.Errorf("%s is not described", route)
		}
	}
	if strings.Contains(got.text, "ErrorModel") {
		t.Error("it speaks of a form of errors that is never used")
	}
}

func TestDocsNeedNothingFromElsewhere(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	got := s.want(200, "GET", "/docs")
	for _, foreign := range []string{"http://", "https://", "<script", "@import", "url("} {
		if strings.Contains(got.text, foreign) {
			t.Errorf("the page contains %q", foreign)
		}
	}
	if policy := got.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "sha256-") {
		t.Errorf("policy %q", policy)
	}
	for _, want := range []string{"/v1/jobs/{id}/explain", "/v1/leases/{id}/heartbeat", "idempotency_key", "DEAD_LETTER"} {
		if !strings.Contains(got.text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

func TestHealth(t *testing.T) {
	var log bytes.Buffer
	s := newSite(t, HTTPOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if got := s.want(200, "GET", "/healthz"); got.text != "{\"status\":\"ok\"}\n" {
		t.Errorf("healthz says %q", got.text)
	}
	s.want(200, "GET", "/readyz")
	s.face.Drain()
	if got := s.want(503, "GET", "/readyz"); got.str("reason") != "the server is about to stop" {
		t.Errorf("readyz says %s", got.text)
	}
	s.want(200, "GET", "/healthz")
	if log.Len() > 0 {
		t.Errorf("a server that stops complains: %s", log.String())
	}
}

func TestJobsHaveOneForm(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	described, _ := s.want(200, "GET", "/openapi.json").at("components", "schemas", "Job", "properties").(map[string]any)
	id := s.submit(`{"type":"a","queue":"q/1","tags":{"k":"v"},"correlation_id":"c","callback_url":"https://example.com/x","priority":"HIGH",
		"requires":["gpu"],"cost_units":3,"attributes":{"x":"y"},"idempotency_key":"key","payload":{"n":1},"limit_key":"l","fair_key":"f","requester":"r","tier":"t","max_fee":5}`)
	check := func(when string, job map[string]any, state string) {
		t.Helper()
		for name, v := range job {
			if described[name] == nil {
				t.Errorf("%s: the field %s is not described", when, name)
			}
			if text, ok := v.(string); ok && strings.HasSuffix(name, "_at") && !strings.HasSuffix(text, "Z") {
				t.Errorf("%s: %s is %q, not in UTC", when, name, text)
			}
		}
		for _, name := range []string{"id", "queue", "type", "state", "priority", "attempt", "created_at", "updated_at", "policy"} {
			if job[name] == nil {
				t.Errorf("%s: %s is missing", when, name)
			}
		}
		if job["state"] != state || job["id"] != id || job["priority"] != "HIGH" {
			t.Errorf("%s: state %v, id %v, priority %v", when, job["state"], job["id"], job["priority"])
		}
	}
	check("submitted", s.want(200, "GET", "/v1/jobs/"+id).body, "SCHEDULED")
	job, l := s.claim(`,"queues":["q/1"],"offers":["gpu"],"n":1`)
	check("claimed", job, "RUNNING")
	for _, name := range []string{"id", "version", "worker", "expires_at"} {
		if (reply{body: job}).at("lease", name) == nil {
			t.Errorf("the lease has no %s", name)
		}
	}
	check("failed", s.want(200, "POST", lease(l, "fail"), `{"category":"PERMANENT","code":"bad","message":"no"}`).body, "FAILED")
	got := s.want(200, "GET", "/v1/jobs/"+id)
	check("read", got.body, "FAILED")
	if got.str("failure", "category") != "PERMANENT" || got.str("failure", "code") != "bad" || got.str("failure", "message") != "no" {
		t.Errorf("failure %v", got.at("failure"))
	}
	listed, _ := s.want(200, "GET", "/v1/jobs?queue=q%2F1").at("jobs", 0).(map[string]any)
	check("listed", listed, "FAILED")
}

func TestMain(m *testing.M) { leaktest.Main(m) }
