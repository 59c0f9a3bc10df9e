package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

// Matching uses the same guard and the same metrics as every other face.
func TestMatchingIsGuardedAndMeasured(t *testing.T) {
	s := startServer(t, []string{"GQ_ADMIN_TOKEN=bootstrap-bootstrap"}, "--store", "memory:")
	admin := []string{"GQ_TOKEN=bootstrap-bootstrap"}
	token := func(name, grant string) string {
		out := s.gqAs(admin, "token", "create", name, "--grant", grant)
		if out.status != 0 {
			t.Fatalf("%+v", out)
		}
		return "Bearer " + strings.TrimSpace(out.stdout)
	}
	submitter, foreign := token("submitter", "submit@matching"), token("foreign", "submit@other")
	if status, text := s.ask(s.http, foreign, "POST", "/api/matching/jobs", `{"kind":"AI"}`); status != http.StatusForbidden {
		t.Errorf("a token for another queue: %d %s", status, text)
	}
	const jobs = 3
	for range jobs {
		if status, text := s.ask(s.http, submitter, "POST", "/api/matching/jobs", `{"kind":"AI"}`); status != http.StatusCreated {
			t.Fatalf("submit: %d %s", status, text)
		}
	}
	_, page := s.ask(s.http, "Bearer bootstrap-bootstrap", "GET", "/metrics", "")
	for _, want := range []string{`gq_submissions_total{outcome="accepted"} 3`, `gq_call_seconds_count{call="submit"} 3`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}
