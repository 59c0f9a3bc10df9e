package matching_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/faces/matching"
)

// described is the part of an OpenAPI document that tests use.
type described struct {
	OpenAPI string
	Info    struct{ Version string }
	Paths   map[string]map[string]struct {
		OperationID string
		RequestBody struct {
			Content map[string]struct{ Schema schema }
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
	Required   []string
	Items      *schema
	Enum       []any
}

func describedBy(f *fixture) (api described) {
	f.Helper()
	text, err := json.Marshal(f.must("GET", "/openapi.json", ""))
	if err == nil {
		err = json.Unmarshal(text, &api)
	}
	if err != nil {
		f.Fatal(err)
	}
	return api
}

// Every route is described, and nothing else.
func TestOpenAPI(t *testing.T) {
	f := newFixture(t, matching.Options{Version: "1.2.3"})
	api := describedBy(f)
	if api.Info.Version != "1.2.3" || !strings.HasPrefix(api.OpenAPI, "3.1") {
		t.Errorf("the description is %s of version %s", api.OpenAPI, api.Info.Version)
	}
	var got []string
	ids := map[string]bool{}
	for path, operations := range api.Paths {
		for method, op := range operations {
			got = append(got, strings.ToUpper(method)+" "+strings.TrimPrefix(path, matching.Base))
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s %s has the id %q", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	want := slices.DeleteFunc(f.face.Routes(), func(r string) bool { return r == "GET /events/ws" || r == "GET /openapi.json" })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("described are %v, served are %v", got, want)
	}
}

// Responses have the described members and no others.
func TestAnswersAreAsDescribed(t *testing.T) {
	f := newFixture(t, matching.Options{})
	api := describedBy(f)
	job := f.must("POST", "/jobs", `{"kind":"AI","payload":{"a":[1]},"regions":["eu"],"spec":{"model":"m"}}`)["id"].(string)
	registered := f.must("POST", "/providers", fmt.Sprintf(provider, "p"))
	round := f.must("POST", "/rounds", "")
	lease := round["assignments"].([]any)[0].(object)["lease_id"].(string)
	answers := map[string]object{"POST /providers": registered, "POST /rounds": round}
	for _, call := range []struct{ route, method, path, body string }{
		{"GET /providers", "GET", "/providers", ""},
		{"GET /providers/{id}", "GET", "/providers/p", ""},
		{"POST /providers/{id}/heartbeat", "POST", "/providers/p/heartbeat", ""},
		{"GET /providers/{id}/leases", "GET", "/providers/p/leases", ""},
		{"GET /jobs/{id}", "GET", "/jobs/" + job, ""},
		{"GET /leases/{id}", "GET", "/leases/" + lease, ""},
		{"POST /leases/{id}/ack", "POST", "/leases/" + lease + "/ack", ""},
		{"POST /leases/{id}/complete", "POST", "/leases/" + lease + "/complete", completion},
		{"POST /beacon", "POST", "/beacon", `{"chain_id":"c","beacon":"00"}`},
		{"GET /beacon", "GET", "/beacon", ""},
		{"GET /rounds/{n}", "GET", "/rounds/1", ""},
		{"GET /policy", "GET", "/policy", ""},
		{"PUT /policy", "PUT", "/policy", `{"batch_size":9}`},
		{"POST /providers/{id}/status", "POST", "/providers/p/status", `{"status":"JAILED"}`},
	} {
		answers[call.route] = f.must(call.method, call.path, call.body)
	}
	for route, answer := range answers {
		method, path, _ := strings.Cut(route, " ")
		s := api.Paths[matching.Base+path][strings.ToLower(method)].Responses["200"].Content["application/json"].Schema
		for _, fault := range api.faults(s, answer, "") {
			t.Errorf("%s: %s", route, fault)
		}
	}
}

// faults compares a value with its schema.
func (api *described) faults(s schema, v any, at string) (list []string) {
	if s.Ref != "" {
		s = api.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	switch v := v.(type) {
	case object:
		if len(s.Properties) == 0 {
			return nil // any object, or a map
		}
		for name, value := range v {
			p, known := s.Properties[name]
			if !known {
				list = append(list, at+"."+name+" is not described")
				continue
			}
			list = append(list, api.faults(p, value, at+"."+name)...)
		}
		for _, name := range s.Required {
			if _, there := v[name]; !there && name != "$schema" {
				list = append(list, at+"."+name+" is missing")
			}
		}
		return list
	case []any:
		for i := range v {
			if s.Items != nil {
				list = append(list, api.faults(*s.Items, v[i], fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
		return append(list, s.is("array", at)...)
	case string:
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, any(v)) {
			list = append(list, fmt.Sprintf("%s is %s, which is not among %v", at, v, s.Enum))
		}
		return append(list, s.is("string", at)...)
	case float64:
		if v == float64(int64(v)) && s.is("integer", at) == nil {
			return nil
		}
		return s.is("number", at)
	case bool:
		return s.is("boolean", at)
	default:
		return s.is("null", at)
	}
}

func (s *schema) is(kind, at string) []string {
	if s.Type == nil || s.Type == kind {
		return nil
	}
	if several, ok := s.Type.([]any); ok && slices.Contains(several, any(kind)) {
		return nil
	}
	return []string{fmt.Sprintf("%s is a value of type %s, described is %v", at, kind, s.Type)}
}

// Request bodies accept the described members and no others.
func TestBodiesAreAsDescribed(t *testing.T) {
	f := newFixture(t, matching.Options{})
	api := describedBy(f)
	for path, members := range map[string]string{
		"post /providers":             "allow attestation_expires_at capabilities deny gates health_ppb id last_heartbeat_at max_depth max_width models precisions region stake status",
		"post /jobs":                  "idempotency_key kind max_fee payload regions requester size_bytes spec tier ttl_abs units",
		"put /policy":                 "ack_timeout_ms batch_size cooldown depth_max dispatch_interval_ms eligibility health lease priority quotas retries seed sla starvation ttl",
		"post /beacon":                "beacon block_height chain_id epoch_id",
		"post /providers/{id}/status": "reason status",
		"post /leases/{id}/ack":       "provider_id",
		"post /leases/{id}/renew":     "provider_id",
		"post /leases/{id}/decline":   "provider_id reason",
		"post /leases/{id}/fail":      "provider_id reason",
		"post /leases/{id}/complete":  "meta output_digest proof provider_id",
		"post /leases/{id}/proof":     "flaw",
	} {
		method, path, _ := strings.Cut(path, " ")
		s := api.Paths[matching.Base+path][method].RequestBody.Content["application/json"].Schema
		if got := strings.Join(slices.Sorted(maps.Keys(s.Properties)), " "); got != members {
			t.Errorf("%s %s takes %s\nwant %s", method, path, got, members)
		}
	}
	for path, operations := range api.Paths {
		for method, op := range operations {
			s := op.RequestBody.Content["application/json"].Schema
			if len(s.Properties) == 0 {
				continue
			}
			path := strings.NewReplacer("{id}", "none").Replace(strings.TrimPrefix(path, matching.Base))
			for _, name := range append(slices.Sorted(maps.Keys(s.Properties)), "bogus") {
				status, answer := f.call(strings.ToUpper(method), path, fmt.Sprintf(`{%q:null}`, name))
				unknown := status == http.StatusBadRequest && strings.Contains(fmt.Sprint(answer["detail"]), name+": is not a known ")
				if unknown != (name == "bogus") {
					t.Errorf("%s %s with %q: %d %v", method, path, name, status, answer["detail"])
				}
			}
		}
	}
}
