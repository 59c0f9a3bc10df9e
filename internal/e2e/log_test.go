package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// At its default level, a server logs nothing from payloads and results, whether it
// accepts, rejects or runs them.
func TestTheLogHoldsNoPayload(t *testing.T) {
	spec.Covers(t, "J-132")
	const secret = "s3cr3t-s3cr3t"
	s := startServer(t, nil, "--store", "memory:", "--log-format", "json")
	post := func(want int, path, body string) string {
		t.Helper()
		response, err := http.Post("http://"+s.http+path, "application/json", strings.NewReader(strings.ReplaceAll(body, "SECRET", secret)))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode/100 != want {
			t.Errorf("POST %s %s: %d %s", path, body, response.StatusCode, text)
		}
		return string(text)
	}
	const job = `{"type":"log","payload":{"card":"SECRET"}}`
	post(2, "/v1/jobs", job)
	post(2, "/v1/jobs", `{"type":"log","payload_base64":"czNjcjN0LXMzY3IzdA==","content_type":"application/octet-stream"}`)
	post(2, "/v1/jobs/batch", `{"jobs":[`+job+`]}`)
	post(4, "/v1/jobs", `{"type":"log","payload":{"card":"SECRET"`)
	post(4, "/v1/jobs", `{"type":"log","payload":{"card":"SECRET"},"unheard_of":"SECRET"}`)
	post(4, "/v1/jobs", `{"type":"","payload":{"card":"SECRET"}}`)
	post(4, "/v1/jobs", `{"type":"log","payload":"`+strings.Repeat("SECRET", 100_000)+`"}`)
	post(2, "/api/scheduler/jobs/submit", `{"addon_id":"a","job_type":"log","priority":"URGENT","cost_units":1,"constraints":{},"payload":{"card":"SECRET"}}`)
	post(4, "/api/scheduler/jobs/submit", `{"addon_id":"a","job_type":"log","payload":{"card":"SECRET"`)
	post(2, "/api/matching/jobs", `{"kind":"AI","spec":{"model":"m"},"payload":{"prompt":"SECRET"},"requester":"r","max_fee":1,"size_bytes":1,"units":1}`)

	claimed := post(2, "/v1/claim", `{"worker":"w","types":["log"]}`)
	_, lease, _ := strings.Cut(claimed, `"lease":{"id":"`)
	lease, _, found := strings.Cut(lease, `"`)
	if !found || !strings.Contains(claimed, secret) {
		t.Fatalf("claimed %s", claimed)
	}
	post(2, "/v1/leases/"+lease+"/heartbeat", `{"checkpoint":{"card":"SECRET"}}`)
	post(2, "/v1/leases/"+lease+"/complete", `{"result":{"card":"SECRET"}}`)
	post(4, "/v1/leases/"+lease+"/complete", `{"result":{"card":"SECRET again"}}`)
	if got := s.gq("submit", "log", "--payload", `{"card":"`+secret+`"}`); got.status != 0 {
		t.Errorf("%+v", got)
	}
	if got := s.gq("submit", "log", "--payload", secret); got.status != 0 { // as text
		t.Errorf("%+v", got)
	}

	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("it ended with %d", status)
	}
	log := s.Stderr.String()
	if !strings.Contains(log, `"message":"ready"`) {
		t.Errorf("this is no log:\n%s", log)
	}
	if form := cmdtest.Reveals(log, secret); form != "" {
		t.Errorf("a payload stands in the log, %s:\n%s", form, log)
	}
}
