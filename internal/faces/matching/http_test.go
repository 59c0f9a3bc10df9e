package matching_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// TestMain fails the package if a goroutine outlives its tests.
func TestMain(m *testing.M) {
	pgtest.Main(m)
	if err := leaktest.Find(); err != nil {
		panic(err)
	}
}

// fixture is a server with the face.
type fixture struct {
	*testing.T
	url    string
	face   *matching.Face
	engine *engine.Engine
}

type object = map[string]any

func newFixture(t *testing.T, o matching.Options) *fixture {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	set := match.DefaultSettings()
	set.AckTimeout, set.Eligibility.HeartbeatTimeout = 50_000, 100_000 // long enough for a slow machine
	return over(t, s, o, matchmaker.Options{Settings: &set})
}

// over starts a server on a store.
func over(t *testing.T, s store.Store, o matching.Options, do matchmaker.Options) *fixture {
	t.Helper()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := matchmaker.New(e, s, do)
	if err != nil {
		t.Fatal(err)
	}
	face := matching.Handler(d, e, o)
	server := httptest.NewServer(face)
	t.Cleanup(func() {
		face.Drain()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &fixture{t, server.URL + matching.Base, face, e}
}

// call makes a request and returns status and body.
func (f *fixture) call(method, path, body string, headers ...string) (int, object) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(text, &out); err != nil {
		f.Fatalf("%s %s answered %s", method, path, text)
	}
	return answer.StatusCode, out
}

// must makes a request that must succeed.
func (f *fixture) must(method, path, body string) object {
	f.Helper()
	status, out := f.call(method, path, body)
	if status != http.StatusOK && status != http.StatusCreated {
		f.Fatalf("%s %s %s: %d %v", method, path, body, status, out)
	}
	return out
}

// refused checks that a request is rejected with a status and a code.
func (f *fixture) refused(method, path, body string, status int, code string) object {
	f.Helper()
	got, out := f.call(method, path, body)
	if got != status || out["code"] != code {
		f.Errorf("%s %s %.200s: %d %v, want %d %s", method, path, body, got, out, status, code)
	}
	return out
}

const provider = `{"id":%q,"capabilities":["AI","QUANTUM"],"models":["m"],"gates":["h"],"max_depth":5,"max_width":5,"region":"eu","stake":10000,"attestation_expires_at":8589934591}`

func (f *fixture) register(id string) {
	f.Helper()
	f.must("POST", "/providers", fmt.Sprintf(provider, id))
}

// A registration says whether the provider was known, however soon it is repeated.
func TestRegisterAgain(t *testing.T) {
	f := newFixture(t, matching.Options{})
	for i, want := range []int{http.StatusCreated, http.StatusOK, http.StatusOK} {
		if status, out := f.call("POST", "/providers", fmt.Sprintf(provider, "p")); status != want {
			t.Errorf("registration %d is answered %d %v, want %d", i+1, status, out, want)
		}
	}
}

func TestStory(t *testing.T) {
	spec.Covers(t, "M-50", "M-53", "M-103", "M-107")
	f := newFixture(t, matching.Options{})
	f.register("p1")
	p := f.must("GET", "/providers/p1", "")
	if p["status"] != "ACTIVE" || p["health_ppb"] != 1e9 || p["eligible"] != true || p["leases_active"] != 0.0 {
		t.Errorf("provider %v", p)
	}
	j := f.must("POST", "/jobs", `{"kind":"AI","spec":{"model":"m"},"requester":"r","tier":"PRO","max_fee":500000,"size_bytes":1000,"units":3,"payload":{"prompt":"hi"}}`)
	for _, column := range []string{
		"id", "kind", "spec", "state", "priority_cache", "enqueue_ts", "attempts", "ttl_abs", "ttl_rel_deadline",
		"requester", "size_bytes", "max_fee", "tier", "last_error", "tombstoned",
	} {
		if _, ok := j[column]; !ok {
			t.Errorf("a job has no %s: %v", column, j)
		}
	}
	if j["state"] != "QUEUED" || j["ttl_abs"] != 86400.0 || j["tombstoned"] != false {
		t.Errorf("job %v", j)
	}
	round := f.must("POST", "/rounds", "")
	assignments := round["assignments"].([]any)
	if len(assignments) != 1 || round["round"] != 1.0 || !slices.Equal(round["order"].([]any), []any{"p1"}) {
		t.Fatalf("round %v", round)
	}
	a := assignments[0].(object)
	if keys := slices.Sorted(maps.Keys(a)); !slices.Equal(keys, []string{"attempt", "job_id", "lease_id", "provider_id", "score_ppb"}) {
		t.Errorf("assignment %v", a)
	}
	lease := "/leases/" + a["lease_id"].(string)
	l := f.must("GET", lease, "")
	for _, column := range []string{"lease_id", "job_id", "provider_id", "attempt", "t_start", "t_deadline", "renew_by", "status"} {
		if _, ok := l[column]; !ok {
			t.Errorf("a lease has no %s: %v", column, l)
		}
	}
	if l["t_deadline"].(float64)-l["t_start"].(float64) != 600 || l["renew_by"].(float64)-l["t_start"].(float64) != 360 || l["status"] != "ACTIVE" {
		t.Errorf("lease %v", l)
	}
	held := f.must("GET", "/providers/p1/leases", "")["leases"].([]any)
	if len(held) != 1 || held[0].(object)["job"].(object)["payload"].(object)["prompt"] != "hi" {
		t.Errorf("leases %v", held)
	}
	if got := f.must("GET", "/jobs/"+j["id"].(string), ""); got["state"] != "ASSIGNED" || got["lease_id"] != a["lease_id"] {
		t.Errorf("job %v", got)
	}
	if got := f.must("GET", "/providers/p1", ""); got["leases_active"] != 1.0 || got["ai_units_used"] != 3.0 {
		t.Errorf("provider %v", got)
	}
	f.refused("POST", lease+"/ack", `{"provider_id":"p2"}`, 409, "stale_lease")
	f.must("POST", lease+"/ack", `{"provider_id":"p1"}`)
	if got := f.must("POST", lease+"/renew", ""); got["status"] != "RENEWED" || got["t_deadline"].(float64)-got["t_start"].(float64) != 900 {
		t.Errorf("renewed %v", got)
	}
	f.refused("POST", lease+"/complete", `{"output_digest":"zz"}`, 400, "invalid")
	done := `{"output_digest":"` + strings.Repeat("ab", 32) + `","meta":{"tokens":5}}`
	if got := f.must("POST", lease+"/complete", done); got["status"] != "COMPLETED" {
		t.Errorf("completed %v", got)
	}
	f.must("POST", lease+"/complete", done) // repeated
	f.refused("POST", lease+"/fail", `{"reason":"late"}`, 409, "stale_lease")
	if got := f.must("GET", "/jobs/"+j["id"].(string), ""); got["state"] != "COMPLETED" || got["tombstoned"] != true || got["output_digest"] != strings.Repeat("ab", 32) {
		t.Errorf("job %v", got)
	}
	if got := f.must("GET", "/providers", ""); len(got["providers"].([]any)) != 1 || got["next_cursor"] != "" {
		t.Errorf("providers %v", got)
	}
	text, err := json.Marshal(f.must("GET", "/rounds/1", ""))
	if err != nil {
		t.Fatal(err)
	}
	var recorded matching.Recorded
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	if err := recorded.Check(); err != nil {
		t.Error(err)
	}
	recorded.Input.Now += 1000
	if recorded.Check() == nil {
		t.Error("another input gives the same round")
	}
}

func TestPolicy(t *testing.T) {
	spec.Covers(t, "M-19", "M-57", "M-65", "M-157")
	f := newFixture(t, matching.Options{})
	before := f.must("GET", "/policy", "")
	if before["batch_size"] != 256.0 || before["lease"].(object)["renew_beta"] != 0.5 {
		t.Errorf("policy %v", before)
	}
	put := f.must("PUT", "/policy", `{"lease":{"ai_secs":60,"renew_beta":1},"priority":{"w_fee_ppb":0}}`)
	if put["lease"].(object)["ai_secs"] != 60.0 || put["lease"].(object)["quantum_secs"] != 180.0 {
		t.Errorf("policy %v", put)
	}
	if diff := cmp.Diff(put, f.must("GET", "/policy", "")); diff != "" {
		t.Errorf("(-put +got):\n%s", diff)
	}
	faults := f.refused("PUT", "/policy", `{"lease":{"renew_beta":1.1},"batch_size":0}`, 400, "invalid")["faults"].([]any)
	if len(faults) != 2 {
		t.Errorf("faults %v", faults)
	}
	if diff := cmp.Diff(put, f.must("GET", "/policy", "")); diff != "" {
		t.Errorf("a refused policy changed something:\n%s", diff)
	}
	f.register("p1")
	f.must("POST", "/jobs", `{"kind":"AI"}`)
	a := f.must("POST", "/rounds", "")["assignments"].([]any)[0].(object)
	l := f.must("GET", "/leases/"+a["lease_id"].(string), "")
	if l["t_deadline"].(float64)-l["t_start"].(float64) != 60 {
		t.Errorf("lease %v", l)
	}
}

// A job that does not name its units counts one, and reads show it.
func TestUnits(t *testing.T) {
	f := newFixture(t, matching.Options{})
	for body, want := range map[string]float64{`{"kind":"AI"}`: 1, `{"kind":"QUANTUM","units":null}`: 1, `{"kind":"AI","units":0}`: 0, `{"kind":"AI","units":4}`: 4} {
		j := f.must("POST", "/jobs", body)
		if again := f.must("GET", "/jobs/"+j["id"].(string), ""); j["units"] != want || again["units"] != want {
			t.Errorf("%s: answered %v, read %v, want %v", body, j["units"], again["units"], want)
		}
	}
}

func TestBeacon(t *testing.T) {
	spec.Covers(t, "M-07")
	f := newFixture(t, matching.Options{})
	if b := f.must("GET", "/beacon", ""); b["chain_id"] != "gq" || b["beacon"] != "" {
		t.Errorf("beacon %v", b)
	}
	b := f.must("POST", "/beacon", `{"chain_id":"testnet-1","epoch_id":42,"block_height":1000,"beacon":"00FF10"}`)
	const seed = "fee89e1301189919159f790b907538af5db699d59d4833542312721ea2ef2bdb"
	if b["seed"] != seed {
		t.Errorf("beacon %v", b)
	}
	if r := f.must("POST", "/rounds", ""); r["seed"] != seed || r["epoch_id"] != 42.0 || r["round"] != nil {
		t.Errorf("round %v", r)
	}
	f.refused("POST", "/beacon", `{"chain_id":"testnet-1","epoch_id":42,"block_height":999}`, 409, "conflict")
	f.refused("POST", "/beacon", `{"chain_id":"testnet-1","epoch_id":42,"block_height":1000,"beacon":"01"}`, 409, "conflict")
	f.must("POST", "/beacon", `{"chain_id":"testnet-1","epoch_id":42,"block_height":1000,"beacon":"00ff10"}`)
	f.must("POST", "/beacon", `{"chain_id":"testnet-1","epoch_id":43,"block_height":1}`)
}

// Invalid input is rejected with a clear error and changes nothing.
func TestBadInput(t *testing.T) {
	spec.Covers(t, "M-03", "M-134", "M-159")
	f := newFixture(t, matching.Options{MaxBody: 100_000})
	f.register("p1")
	before := f.must("GET", "/providers/p1", "")
	for _, test := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/providers", `{"id":"a|b"}`, 400, "invalid"},
		{"POST", "/providers", `{"id":"` + strings.Repeat("x", 256) + `"}`, 400, "invalid"},
		{"POST", "/providers", `{"id":"p2","status":"GONE"}`, 400, "invalid"},
		{"POST", "/providers", `{"id":"p2","capabilities":["GPU"]}`, 400, "invalid"},
		{"POST", "/providers", `{"id":"p2","stake":-1}`, 400, "invalid"},
		{"POST", "/providers", `{"id":"p2","leases_active":3}`, 400, "invalid"},
		{"POST", "/providers", `{"id":"p1","status":"JAILED"}`, 409, "conflict"},
		{"POST", "/providers", `{"id":"p2"`, 400, "invalid"},
		{"POST", "/providers", `{"id":"p2","colour":1}`, 400, "invalid"},
		{"POST", "/providers", `{"id":"p2","region":"` + strings.Repeat("x", 100_000) + `"}`, 413, "body_too_large"},
		{"GET", "/providers/nobody", "", 404, "not_found"},
		{"GET", "/providers?limit=0", "", 400, "invalid"},
		{"POST", "/providers/nobody/heartbeat", "", 404, "not_found"},
		{"POST", "/providers/nobody/status", `{"status":"JAILED"}`, 404, "not_found"},
		{"POST", "/providers/p1/status", `{"status":"FREE"}`, 400, "invalid"},
		{"POST", "/providers/p1/status", `{"state":"JAILED"}`, 400, "invalid"},
		{"GET", "/providers/nobody/leases", "", 404, "not_found"},
		{"POST", "/jobs", `{"kind":"GPU"}`, 400, "invalid"},
		{"POST", "/jobs", `{"kind":"AI","tier":"GOLD"}`, 400, "invalid"},
		{"POST", "/jobs", `{"kind":"AI","max_fee":-1}`, 400, "invalid"},
		{"POST", "/jobs", `{"kind":"AI","id":"mine"}`, 400, "invalid"},
		{"POST", "/jobs", `{"kind":"AI","ttl_abs":315360001}`, 400, "invalid"},
		{"POST", "/jobs", `{"kind":"AI","requester":"a\u0000b"}`, 400, "invalid"},
		{"POST", "/jobs", `{"kind":"QUANTUM","spec":{"gates":["` + strings.Repeat("g", 90_000) + `"]}}`, 400, "invalid"},
		{"GET", "/jobs/xyz", "", 400, "invalid"},
		{"GET", "/jobs/3f0c5e5a-0000-4000-8000-000000000000", "", 404, "not_found"},
		{"GET", "/leases/xyz", "", 404, "not_found"},
		{"POST", "/leases/xyz/ack", "", 404, "not_found"},
		{"POST", "/leases/xyz/renew", "", 404, "not_found"},
		{"POST", "/leases/xyz/decline", "", 404, "not_found"},
		{"POST", "/leases/xyz/fail", "", 404, "not_found"},
		{"POST", "/leases/xyz/proof", `{"flaw":"x"}`, 404, "not_found"},
		{"POST", "/leases/xyz/complete", `{"output_digest":"` + strings.Repeat("00", 32) + `"}`, 404, "not_found"},
		{"POST", "/beacon", `{"chain_id":"","epoch_id":-1}`, 400, "invalid"},
		{"POST", "/beacon", `{"chain_id":"c","beacon":"xyz"}`, 400, "invalid"},
		{"GET", "/rounds/1", "", 404, "not_found"},
		{"GET", "/rounds/first", "", 400, "invalid"},
		{"DELETE", "/policy", "", 405, "method_not_allowed"},
		{"GET", "/nothing", "", 404, "no_such_route"},
	} {
		f.refused(test.method, test.path, test.body, test.status, test.code)
	}
	after := f.must("GET", "/providers/p1", "")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	for path, detail := range map[string]string{
		"/leases/xyz":       `lease "xyz": not found`,
		"/providers/nobody": `provider "nobody": not found`,
		"/rounds/1":         "round 1: no record: it has not run yet, or is older than the horizon",
	} {
		if out := f.refused("GET", path, "", 404, "not_found"); out["detail"] != detail {
			t.Errorf("%s: %v, want %s", path, out["detail"], detail)
		}
	}
	f.must("PUT", "/policy", `{"depth_max":1}`)
	f.must("POST", "/jobs", `{"kind":"AI"}`)
	f.refused("POST", "/jobs", `{"kind":"AI"}`, 429, "queue_full")
}

// Subscribers get the six notices with exactly their documented members.
func TestSocket(t *testing.T) {
	spec.Covers(t, "M-43", "M-120", "M-121", "M-122", "M-123", "M-125", "M-126", "M-127")
	f := newFixture(t, matching.Options{})
	f.must("PUT", "/policy", `{"sla":{"slash_ppb":100000000}}`)
	f.register("p1")
	six, all := f.subscribe("/events/ws"), f.subscribe("/events/ws?all=1")
	j := f.must("POST", "/jobs", `{"kind":"AI"}`)["id"].(string)
	a := f.must("POST", "/rounds", "")["assignments"].([]any)[0].(object)
	lease := a["lease_id"].(string)
	f.must("POST", "/leases/"+lease+"/ack", "")
	renewed := f.must("POST", "/leases/"+lease+"/renew", "")
	f.must("POST", "/leases/"+lease+"/complete", `{"output_digest":"`+strings.Repeat("00", 32)+`"}`)
	started := renewed["t_start"].(float64)
	want := []object{
		{"type": "jobAssigned", "data": object{"jobId": j, "providerId": "p1", "leaseId": lease, "deadline": started + 600}},
		{"type": "leaseRenewed", "data": object{"leaseId": lease, "deadline": renewed["t_deadline"]}},
		{"type": "jobCompleted", "data": object{"jobId": j, "providerId": "p1", "leaseId": lease, "digest": strings.Repeat("00", 32)}},
	}
	for i := range want {
		got := six.next()
		if diff := cmp.Diff(want[i], object{"type": got["type"], "data": got["data"]}); diff != "" {
			t.Errorf("notice %d (-want +got):\n%s", i, diff)
		}
	}
	f.must("POST", "/leases/"+lease+"/proof", `{"flaw":"forged"}`)
	got := six.next()
	if diff := cmp.Diff(object{"providerId": "p1", "reason": "PROOF_INVALID", "penalty": 1000.0}, got["data"]); diff != "" || got["type"] != "providerSlashed" || got["entity"] != "p1" || got["seq"] != 8.0 {
		t.Errorf("%v (-want +got):\n%s", got, diff)
	}
	second := f.must("POST", "/jobs", `{"kind":"AI"}`)["id"].(string)
	lease = f.must("POST", "/rounds", "")["assignments"].([]any)[0].(object)["lease_id"].(string)
	f.must("POST", "/providers/p1/status", `{"status":"JAILED","reason":"fraud"}`)
	six.next()
	if got := six.next(); got["type"] != "leaseCancelled" || !cmp.Equal(got["data"], any(object{"leaseId": lease, "reason": "provider_jailed"})) {
		t.Errorf("cancelled: %v", got)
	}
	var types []string
	var status object
	for range 12 {
		next := all.next()
		if types = append(types, next["type"].(string)); next["type"] == "provider.status" {
			status = next
		}
	}
	if data, _ := status["data"].(object); status["entity"] != "p1" || data["worker"] != "p1" || data["reason"] != "JAILED: fraud" || data["queue"] != "matching" || data["state"] != nil {
		t.Errorf("status: %v", status)
	}
	wantTypes := []string{
		"job.submitted", "job.scheduled", "jobAssigned", "job.started", "leaseRenewed", "jobCompleted", "providerSlashed",
		"job.submitted", "job.scheduled", "jobAssigned", "leaseCancelled", "provider.status",
	}
	if !slices.Equal(types, wantTypes) {
		t.Errorf("%s: all of %v", second, types)
	}
	again := f.subscribe(fmt.Sprintf("/events/ws?after=%v", 0))
	if got := again.next(); got["type"] != "jobAssigned" || got["seq"] == nil {
		t.Errorf("from the beginning: %v", got)
	}
	for range 3 {
		got = again.next()
	}
	if got["type"] != "providerSlashed" || got["seq"] != 8.0 {
		t.Errorf("replayed: %v", got)
	}
	for _, after := range []string{"x", "-1", "1000000"} { // not a number, and one beyond the last event
		if status, out := f.call("GET", "/events/ws?after="+after, ""); status != 400 || !strings.Contains(fmt.Sprint(out), "after") {
			t.Errorf("after %s: %d %v", after, status, out)
		}
	}
	if status, out := f.call("GET", "/events/ws", ""); status != 426 || out["code"] != "upgrade_required" {
		t.Errorf("without an upgrade: %d %v", status, out)
	}
}

type socket struct {
	f    *fixture
	conn *websocket.Conn
}

func (f *fixture) subscribe(path string) *socket {
	f.Helper()
	conn, answer, err := websocket.Dial(f.Context(), f.url+path, nil)
	if err != nil {
		f.Fatal(err)
	}
	if answer.Body != nil {
		answer.Body.Close()
	}
	f.Cleanup(func() { conn.CloseNow() })
	return &socket{f, conn}
}

func (s *socket) next() (out object) {
	s.f.Helper()
	ctx, cancel := context.WithTimeout(s.f.Context(), 2*time.Minute)
	defer cancel()
	_, text, err := s.conn.Read(ctx)
	if err != nil {
		s.f.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil || bytes.ContainsRune(text, '\n') {
		s.f.Fatalf("message %q: %v", text, err)
	}
	return out
}

// Every route authenticates the caller, and a provider's own token is enough for its own
// objects.
func TestScopes(t *testing.T) {
	identities := map[string]*access.Identity{"Bearer all": access.Everyone(), "Bearer none": new(access.Identity)}
	f := newFixture(t, matching.Options{Identify: func(r *http.Request) (context.Context, error) {
		i := identities[r.Header.Get("Authorization")]
		if i == nil {
			return nil, gq.ErrUnauthenticated
		}
		return access.With(r.Context(), i), nil
	}})
	for _, path := range []string{"GET /providers", "POST /providers", "POST /jobs", "GET /policy", "PUT /policy", "POST /rounds", "POST /beacon", "GET /events/ws", "POST /leases/x/ack"} {
		method, path, _ := strings.Cut(path, " ")
		if status, _ := f.call(method, path, "{}"); status != 401 {
			t.Errorf("%s %s without a token: %d", method, path, status)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := answer.Header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer ") {
			t.Errorf("%s %s without a token: WWW-Authenticate %q", method, path, got)
		}
		if status, _ := f.call(method, path, "{}", "Authorization", "Bearer none"); status != 403 {
			t.Errorf("%s %s with a token for nothing: %d", method, path, status)
		}
	}
	if status, out := f.call("GET", "/policy", "", "Authorization", "Bearer all"); status != 200 {
		t.Errorf("with a token for everything: %d %v", status, out)
	}
}
