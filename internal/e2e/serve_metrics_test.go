package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// eventually waits for values of the metrics page.
func (s *served) eventually(want map[string]string) {
	s.t.Helper()
	var wrong string
	defer func() {
		if s.t.Failed() {
			s.t.Log(wrong)
		}
	}()
	cmdtest.WaitFor(s.t, "the metrics", func() bool {
		got := s.Metrics()
		wrong = ""
		for series, value := range want {
			if got[series] != value {
				wrong += fmt.Sprintf("%s is %q, want %q\n", series, got[series], value)
			}
		}
		return wrong == ""
	})
}

// The page has the rounds, providers, leases and sinks of matching.
func TestMatchingMetrics(t *testing.T) {
	claims := filepath.Join(t.TempDir(), "claims.jsonl")
	s := startServer(t, nil, "--store", "memory:", "--matching-queue-ack-timeout-ms", "170000", "--matching-sinks-claims", "file:"+claims)
	s.eventually(map[string]string{
		`gq_matching_providers{status="ACTIVE"}`: "0", `gq_matching_providers{status="RETIRED"}`: "0", `gq_matching_rounds_total{outcome="assigned"}`: "0",
		`gq_matching_assignments_total`: "0", `gq_matching_waiting_jobs`: "0", `gq_matching_sink_records_total{sink="claims"}`: "0", `gq_matching_sink_up{sink="claims"}`: "1",
	})
	s.matching(http.MethodPut, "/policy", `{"eligibility":{"heartbeat_timeout_secs":10000},"quotas":{"leases_max_per_provider":2}}`)
	for i := range 1002 {
		s.matching(http.MethodPost, "/providers", fmt.Sprintf(`{"id":"p%04d","capabilities":["AI"],"stake":10000,"attestation_expires_at":8589934591,"region":"r%d"}`, i, i))
	}
	s.matching(http.MethodPost, "/providers/p0003/status", `{"status":"RETIRED"}`)
	for _, region := range []string{"r1", "r1", "r1", "r1001", "nowhere"} {
		s.matching(http.MethodPost, "/jobs", fmt.Sprintf(`{"kind":"AI","regions":[%q]}`, region))
	}
	s.matching(http.MethodPost, "/rounds", "")
	s.eventually(map[string]string{
		`gq_matching_providers{status="ACTIVE"}`: "1001", `gq_matching_providers{status="RETIRED"}`: "1", `gq_matching_eligible_providers`: "1001",
		`gq_matching_assignments_total`: "3", `gq_matching_leases`: "3", `gq_matching_waiting_jobs`: "2",
		`gq_matching_provider_leases{provider="p0001"}`: "2", `gq_matching_provider_leases{provider="p0002"}`: "0", `gq_matching_provider_leases{provider=""}`: "1",
		`gq_matching_provider_health_ratio{provider="p0001"}`: "1",
	})
	lines := 0
	for series := range s.Metrics() {
		if strings.HasPrefix(series, "gq_matching_provider_leases{") {
			lines++
		}
	}
	if lines != 1001 {
		t.Errorf("%d providers have lines", lines)
	}
	if n := s.Metrics()[`gq_matching_round_seconds_count`]; n == "" || n == "0" {
		t.Errorf("%q rounds were measured", n)
	}
	var page struct {
		Leases []struct {
			ID string `json:"lease_id"`
		}
	}
	if err := json.Unmarshal([]byte(s.matching(http.MethodGet, "/providers/p0001/leases", "")), &page); err != nil {
		t.Fatal(err)
	}
	s.matching(http.MethodPost, "/leases/"+page.Leases[0].ID+"/ack", "")
	if err := os.RemoveAll(filepath.Dir(claims)); err != nil { // the sink fails from now on
		t.Fatal(err)
	}
	s.matching(http.MethodPost, "/leases/"+page.Leases[0].ID+"/complete", fmt.Sprintf(`{"output_digest":%q}`, strings.Repeat("ab", 32)))
	s.eventually(map[string]string{`gq_matching_sink_up{sink="claims"}`: "0", `gq_matching_sink_records_total{sink="claims"}`: "0"})
	if err := os.MkdirAll(filepath.Dir(claims), 0o700); err != nil {
		t.Fatal(err)
	}
	s.eventually(map[string]string{`gq_matching_sink_up{sink="claims"}`: "1", `gq_matching_sink_records_total{sink="claims"}`: "1"})
}

// The page has the capacity of the scheduler and how much of it is in use.
func TestCapacityMetrics(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--capacity", "70")
	s.eventually(map[string]string{`gq_pool_capacity_units{pool="scheduler"}`: "70", `gq_pool_used_units{pool="scheduler"}`: "0"})
	call := func(method, path, body string) map[string]any {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http+"/api/scheduler"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var out map[string]any
		if err := json.NewDecoder(answer.Body).Decode(&out); err != nil || answer.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %v %v", method, path, answer.StatusCode, out, err)
		}
		return out
	}
	job := call("POST", "/jobs/submit", `{"addon_id":"a","job_type":"t","priority":"HIGH","cost_units":30,"payload":null}`)["job"].(map[string]any)["job_id"].(string)
	call("POST", "/jobs/claim", `{"addon_id":"a","worker_id":"w"}`)
	lease := call("POST", "/lease/request", fmt.Sprintf(`{"job_id":%q,"ttl_sec":3600}`, job))["lease"].(map[string]any)["lease_id"].(string)
	s.eventually(map[string]string{`gq_pool_used_units{pool="scheduler"}`: "30"})
	call("PUT", "/admin/capacity", `{"total":100}`)
	call("POST", "/lease/"+lease+"/release", fmt.Sprintf(`{"job_id":%q,"worker_id":"w","status":"SUCCEEDED"}`, job))
	s.eventually(map[string]string{`gq_pool_capacity_units{pool="scheduler"}`: "100", `gq_pool_used_units{pool="scheduler"}`: "0"})
}
