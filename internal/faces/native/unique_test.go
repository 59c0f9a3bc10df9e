package native

import (
	"fmt"
	"strings"
	"testing"
)

// Over HTTP a collision returns the existing job, is refused with the job that holds the key, or
// replaces or postpones it.
func TestUniqueOverHTTP(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	unique := func(key, rule string) string {
		return fmt.Sprintf(`{"type":"sync","delay":"1h","idempotency_key":%q,"unique":%s}`, key, rule)
	}
	first := s.submit(unique("a", `{"while":"live"}`))
	if got := s.want(200, "POST", "/v1/jobs", unique("a", `{"while":"live"}`)); got.str("id") != first {
		t.Errorf("existing: %s", got.text)
	}
	got := s.want(409, "POST", "/v1/jobs", unique("a", `{"while":"live","on_collision":"refuse"}`))
	if got.str("code") != "not_unique" || got.str("job") != first {
		t.Errorf("refused: %s", got.text)
	}
	next := s.submit(unique("a", `{"while":"waiting","on_collision":"replace"}`))
	old, successor := s.want(200, "GET", "/v1/jobs/"+first), s.want(200, "GET", "/v1/jobs/"+next)
	if old.str("state") != "CANCELLED" || old.str("replaced_by") != next || successor.str("replaces") != first {
		t.Errorf("replaced: %s\n%s", old.text, successor.text)
	}
	before := s.want(200, "GET", "/v1/jobs/"+next).str("run_at")
	if got := s.want(200, "POST", "/v1/jobs", strings.Replace(unique("a", `{"while":"waiting","on_collision":"debounce"}`), "1h", "2h", 1)); got.str("id") != next || got.str("run_at") <= before {
		t.Errorf("debounced from %s: %s", before, got.text)
	}

	// By fields of the payload: the others do not count.
	by := func(payload string) reply {
		return s.do("POST", "/v1/jobs", `{"type":"sync","payload":`+payload+`,"unique":{"fields":["customer"]}}`)
	}
	one, same, other := by(`{"customer":7,"n":1}`), by(`{"n":2,"customer":7}`), by(`{"customer":8}`)
	if one.status != 201 || same.status != 200 || same.str("id") != one.str("id") || other.status != 201 {
		t.Errorf("by fields: %d %d %d", one.status, same.status, other.status)
	}

	count := s.want(200, "POST", "/v1/jobs/count", `{}`).at("jobs")
	for body, field := range map[string]string{
		unique("b", `{"while":"always"}`):                                            "unique.while",
		unique("b", `{"while":"live","on_collision":"fight"}`):                       "unique.on_collision",
		unique("b", `{"while":"period"}`):                                            "unique.period",
		unique("b", `{"while":"live","period":"1h"}`):                                "unique.period",
		`{"type":"t","unique":{"while":"live"}}`:                                     "unique",
		`{"type":"t","idempotency_key":"k","unique":{"fields":["a"]},"payload":{}}`:  "unique.fields",
		`{"type":"t","unique":{"fields":["a"]},"payload":[1]}`:                       "unique.fields",
		`{"type":"t","idempotency_key":"k","unique":{"while":"live"},"order_key":1}`: "order_key",
	} {
		got := s.do("POST", "/v1/jobs", body)
		if got.status != 400 && got.status != 422 || !strings.Contains(got.text, field) {
			t.Errorf("%s: %d, want a fault of %s\n%s", body, got.status, field, got.text)
		}
	}
	if now := s.want(200, "POST", "/v1/jobs/count", `{}`).at("jobs"); now != count {
		t.Errorf("refused submissions made jobs: %v, before %v", now, count)
	}
}

// An edit over HTTP replaces the waiting job; one that a worker holds, or has ended, is refused.
func TestEditOverHTTP(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	first := s.submit(`{"type":"mail","payload":{"to":"ada"},"idempotency_key":"m"}`)
	edited := s.want(201, "POST", "/v1/jobs/"+first+"/edit", `{"payload":{"to":"bob"},"queue":"slow"}`)
	id := edited.str("id")
	job := s.want(200, "GET", "/v1/jobs/"+id+"?payload=true")
	if job.str("payload", "to") != "bob" || job.str("queue") != "slow" || job.str("replaces") != first || job.str("idempotency_key") != "m" {
		t.Errorf("%s", job.text)
	}
	if old := s.want(200, "GET", "/v1/jobs/"+first); old.str("state") != "CANCELLED" || old.str("replaced_by") != id {
		t.Errorf("%s", old.text)
	}
	s.want(409, "POST", "/v1/jobs/"+first+"/edit", `{"queue":"slow"}`)
	s.want(200, "POST", "/v1/claim", `{"worker":"w","queues":["slow"]}`)
	s.want(409, "POST", "/v1/jobs/"+id+"/edit", `{"queue":"fast"}`)
	for _, bad := range []string{`{}`, `{"queue":"no queue"}`, `{"payload":1,"size":2}`, `{"run_at":"soon"}`} {
		if got := s.do("POST", "/v1/jobs/"+id+"/edit", bad); got.status != 400 && got.status != 422 {
			t.Errorf("%s: %d %s", bad, got.status, got.text)
		}
	}
	if now := s.want(200, "GET", "/v1/jobs/"+id); now.str("state") == "CANCELLED" || now.str("queue") != "slow" {
		t.Errorf("a refused edit changed the job: %s", now.text)
	}
}
