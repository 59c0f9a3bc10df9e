package matching_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/faces/matching"
)

// walk reads all pages of a list and returns a member of every entry.
func (f *fixture) walk(path, list, member string) (got []string) {
	f.Helper()
	joint := "?"
	if strings.Contains(path, "?") {
		joint = "&"
	}
	for cursor := ""; ; {
		page := f.must("GET", path+joint+"limit=2&cursor="+cursor, "")
		for _, v := range page[list].([]any) {
			got = append(got, fmt.Sprint(v.(object)[member]))
		}
		if cursor = page["next_cursor"].(string); cursor == "" {
			return got
		}
	}
}

func TestListsAndCancels(t *testing.T) {
	f := newFixture(t, matching.Options{})
	f.register("p")
	submit := func(body string) string { f.Helper(); return f.must("POST", "/jobs", body)["id"].(string) }
	first := submit(`{"kind":"AI","requester":"r"}`)
	f.must("POST", "/rounds", "")
	second := submit(`{"kind":"AI"}`)
	f.must("POST", "/rounds", "")
	waiting := submit(`{"kind":"QUANTUM","spec":{"depth":6}}`)
	equal := func(what string, got []string, want ...string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	equal("jobs", f.walk("/jobs", "jobs", "id"), waiting, second, first)
	equal("queued jobs", f.walk("/jobs?state=QUEUED", "jobs", "id"), waiting)
	equal("jobs of a requester", f.walk("/jobs?requester=r", "jobs", "id"), first)
	equal("jobs of no requester", f.walk("/jobs?requester=", "jobs", "id"), waiting, second)
	equal("jobs of a kind", f.walk("/jobs?kind=QUANTUM", "jobs", "id"), waiting)
	equal("leases", f.walk("/leases", "leases", "job_id"), first, second)
	equal("leases of p", f.walk("/leases?provider_id=p", "leases", "job_id"), first, second)
	equal("what p holds", f.walk("/providers/p/leases", "leases", "job_id"), first, second)
	equal("rounds", f.walk("/rounds", "rounds", "round"), "2", "1")

	lease := f.must("GET", "/jobs/"+second, "")["lease_id"].(string)
	if got := f.must("POST", "/leases/"+lease+"/cancel", `{"reason":"maintenance"}`); got["status"] != "CANCELLED" || got["reason"] != "lease_cancelled: maintenance" {
		t.Errorf("cancel a lease: %v", got)
	}
	if got := f.must("POST", "/rounds/1/cancel", ""); len(got["cancelled"].([]any)) != 1 || got["ended_before"] != 0.0 {
		t.Errorf("cancel a round: %v", got)
	}
	equal("leases after that", f.walk("/leases", "leases", "job_id"))
	if got := f.must("POST", "/jobs/"+waiting+"/cancel", `{"reason":"not needed"}`); got["state"] != "CANCELLED" || got["reason"] != "not needed" || got["tombstoned"] != true {
		t.Errorf("cancel a job: %v", got)
	}
	equal("cancelled jobs", f.walk("/jobs?state=CANCELLED", "jobs", "id"), waiting)

	for path, field := range map[string]string{
		"/jobs?limit=0": "limit", "/jobs?limit=1001": "limit", "/jobs?limit=x": "limit", "/jobs?state=DONE": "state", "/jobs?kind=BIO": "kind", "/jobs?status=x": "status",
		"/jobs?cursor=x": "cursor", "/leases?cursor=-1": "cursor", "/leases?cursor=0": "cursor", "/providers/p/leases?limit=0": "limit", "/providers/p/leases?cursor=x": "cursor",
		"/rounds?limit=101": "limit", "/rounds?cursor=1.5": "cursor", "/rounds?limit=1&limit=2": "limit",
	} {
		got := f.refused("GET", path, "", http.StatusBadRequest, "invalid")
		faults, _ := got["faults"].([]any)
		if len(faults) == 0 || faults[0].(object)["field"] != field {
			t.Errorf("%s: %v", path, got)
		}
	}
	long := fmt.Sprintf(`{"reason":%q}`, strings.Repeat("x", 1025))
	for _, path := range []string{"/jobs/" + first + "/cancel", "/leases/" + lease + "/cancel", "/rounds/2/cancel"} {
		f.refused("POST", path, long, http.StatusBadRequest, "invalid")
		f.refused("POST", path, `{"why":"x"}`, http.StatusBadRequest, "invalid")
	}
	f.refused("POST", "/rounds/x/cancel", "", http.StatusBadRequest, "invalid")
	f.refused("POST", "/rounds/77/cancel", "", http.StatusNotFound, "not_found")
	f.refused("POST", "/jobs/x/cancel", "", http.StatusBadRequest, "invalid")
	f.refused("POST", "/jobs/00000000-0000-4000-8000-000000000000/cancel", "", http.StatusNotFound, "not_found")
	f.refused("POST", "/leases/x/cancel", "", http.StatusNotFound, "not_found")
	f.refused("GET", "/leases?provider_id=nobody", "", http.StatusNotFound, "not_found")
}

func TestSubmitTwice(t *testing.T) {
	f := newFixture(t, matching.Options{})
	status, first := f.call("POST", "/jobs", `{"kind":"AI","idempotency_key":"k","payload":[1]}`)
	if status != http.StatusCreated {
		t.Fatalf("%d %v", status, first)
	}
	status, again := f.call("POST", "/jobs", `{"kind":"AI","idempotency_key":"k","payload":[1]}`)
	if status != http.StatusOK || again["id"] != first["id"] {
		t.Errorf("again: %d %v", status, again)
	}
	status, again = f.call("POST", "/jobs", `{"kind":"AI","payload":[1]}`, "Idempotency-Key", "k")
	if status != http.StatusOK || again["id"] != first["id"] {
		t.Errorf("with the header: %d %v", status, again)
	}
	other := f.refused("POST", "/jobs", `{"kind":"AI","idempotency_key":"k","payload":[2]}`, http.StatusConflict, "key_reused")
	if !strings.Contains(other["detail"].(string), first["id"].(string)) {
		t.Errorf("the refusal does not name the job: %v", other)
	}
	f.refused("POST", "/jobs", fmt.Sprintf(`{"kind":"AI","idempotency_key":%q}`, strings.Repeat("k", 257)), http.StatusBadRequest, "invalid")
	if status, out := f.call("POST", "/jobs", `{"kind":"AI","idempotency_key":"a"}`, "Idempotency-Key", "b"); status != http.StatusBadRequest {
		t.Errorf("two keys: %d %v", status, out)
	}
	if jobs := f.walk("/jobs", "jobs", "id"); len(jobs) != 1 {
		t.Errorf("%d jobs", len(jobs))
	}
}

func TestRemoveProvider(t *testing.T) {
	f := newFixture(t, matching.Options{})
	f.register("p")
	got := f.refused("DELETE", "/providers/p", "", http.StatusConflict, "conflict")
	if !strings.Contains(got["detail"].(string), "retire it first") {
		t.Errorf("no remedy: %v", got)
	}
	f.must("POST", "/providers/p/status", `{"status":"RETIRED"}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, f.url+"/providers/p", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		t.Errorf("status %d", answer.StatusCode)
	}
	f.refused("GET", "/providers/p", "", http.StatusNotFound, "not_found")
	f.refused("DELETE", "/providers/p", "", http.StatusNotFound, "not_found")
}
