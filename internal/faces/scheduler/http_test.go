package scheduler

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/httpx"
)

// Every kind of error has a code, and every code has one status and one meaning.
func TestCodesTotal(t *testing.T) {
	for _, k := range enum.All[gq.ErrorKind]() {
		if _, known := ofKind[k]; !known {
			t.Errorf("kind %s has no code", k)
		}
	}
	seen := map[Code]bool{}
	for _, m := range meanings {
		if seen[m.Code] || m.Status < 400 || m.Text == "" || !regexp.MustCompile(`^[a-z_]+$`).MatchString(string(m.Code)) {
			t.Errorf("the table has %+v", m)
		}
		seen[m.Code] = true
	}
	for k, code := range ofKind {
		if !seen[code] {
			t.Errorf("kind %s has the code %s, which is not in the table", k, code)
		}
	}
	for _, r := range routes(nil) {
		for _, code := range r.codes {
			if !seen[code] {
				t.Errorf("%s can end with %s, which is not in the table", r.ID, code)
			}
		}
	}
}

// The routes are those of the contract, plus our additions.
func tellRoutes(f *fixture) {
	want := []string{
		"POST /jobs/submit", "POST /jobs/claim", "GET /jobs/{job_id}", "POST /jobs/{job_id}/status", "POST /jobs/{job_id}/cancel", "GET /jobs",
		"GET /jobs/{job_id}/events", "POST /lease/request", "POST /lease/{lease_id}/heartbeat", "POST /lease/{lease_id}/release", "GET /lease/{lease_id}",
		"GET /stats/snapshot", "GET /stats/timeseries",
		// Not part of the contract.
		"GET /facts/job_runs", "GET /facts/lease_runs", "GET /facts/events", "GET /admin/capacity", "PUT /admin/capacity",
		"GET /lease", "POST /lease/{lease_id}/cancel",
	}
	a := f.try(http.MethodGet, "/openapi.json", nil)
	var got []string
	for path, operations := range member(a.body, "paths") {
		for method := range operations.(object) {
			got = append(got, strings.ToUpper(method)+" "+strings.TrimPrefix(path, Base))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.Errorf("the routes are %q, want %q", got, want)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		f.Fatal(err)
	}
	for _, said := range []string{string(text), string(a.raw)} {
		if strings.Contains(said, "scheduler_queue_definitions") {
			f.Error("something is said to follow from a document that nobody has")
		}
	}
	for _, route := range want { // each is served and gives its own response
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{job_id}", "x", "{lease_id}", "x").Replace(path)
		if a := f.try(method, path, nil); a.body["code"] == string(CodeRouteNotFound) || a.body["code"] == string(CodeMethod) {
			f.Errorf("%s: %d %s", route, a.status, a.raw)
		}
		f.refused(method, path+"?nonsense=1", nil, http.StatusBadRequest, CodeInvalidRequest)
	}
}

func tellNoSuchRoute(f *fixture) {
	f.refused(http.MethodGet, "", nil, http.StatusNotFound, CodeRouteNotFound)
	f.refused(http.MethodGet, "/nothing", nil, http.StatusNotFound, CodeRouteNotFound)
	f.refused(http.MethodPost, "/jobs/", object{}, http.StatusNotFound, CodeRouteNotFound)
	f.refused(http.MethodDelete, "/jobs/submit", nil, http.StatusMethodNotAllowed, CodeMethod)
	f.refused(http.MethodGet, "/lease/request/x/y", nil, http.StatusNotFound, CodeRouteNotFound)
	if a := f.try(http.MethodPut, "/jobs/claim", object{}); a.header.Get("Allow") == "" {
		f.Errorf("a wrong method is not told the right ones: %v", a.header)
	}
	for _, r := range routes(nil) {
		if a := f.try(r.Method, r.Path, nil); a.body["code"] == string(CodeRouteNotFound) {
			f.Errorf("%s %s below the base is not there", r.Method, r.Path)
		}
		if a := f.send(f.request(r.Method, r.Path, nil)); a.status != http.StatusNotFound {
			f.Errorf("%s %s without the base answers %d", r.Method, r.Path, a.status)
		}
	}
}

func tellBodies(f *fixture) {
	f.refused(http.MethodPost, "/jobs/submit", submission("payload", strings.Repeat("x", 2<<20)), http.StatusRequestEntityTooLarge, CodeBodyTooLarge)
	send := func(contentType string, body []byte) answer {
		r := f.request(http.MethodPost, Base+"/jobs/submit", body)
		r.Header.Set("Content-Type", contentType)
		return f.send(r)
	}
	body := encoded(submission())
	for contentType, want := range map[string]int{
		"application/json": 201, "application/json; charset=utf-8": 201, "application/x-www-form-urlencoded": 201, "application/vnd.x+json": 201,
		"text/plain": 415, "application/json; charset=latin1": 415, "application/xml": 415, ";;": 415,
	} {
		if a := send(contentType, body); a.status != want {
			f.Errorf("a body of type %q: %d %s, want %d", contentType, a.status, a.raw, want)
		}
	}
	if a := send("application/json", []byte("{\"addon_id\":\"\xff\"}")); a.status != http.StatusBadRequest {
		f.Errorf("a body that is not UTF-8: %d", a.status)
	}
	if a := send("application/json", []byte(strings.Repeat("[", 500))); a.status != http.StatusBadRequest {
		f.Errorf("a deep body: %d", a.status)
	}
	done, lease := f.running("addon_id", "audio")
	f.release(done, lease, "SUCCEEDED")
	for _, p := range []object{
		f.refused(http.MethodPost, "/jobs/submit", `{}`, http.StatusBadRequest, CodeInvalidRequest),
		f.refused(http.MethodGet, "/jobs/x", nil, http.StatusNotFound, CodeJobNotFound),
		f.refused(http.MethodPost, "/jobs/"+done+"/cancel", nil, http.StatusConflict, CodeJobFinished),
	} {
		f.hasKeys("an error", p, "detail", "code")
	}
}

// Every timestamp in a job's whole life is ISO 8601 in UTC.
func tellTimestamps(f *fixture) {
	f.sleep(123456789)
	for _, s := range jobStateNames()[1:] {
		job, _ := f.in(s)
		f.list("/jobs/"+job+"/events", "events")
	}
	dear := id(f.submit("cost_units", 500))
	f.claim()
	f.denied(dear)
	f.list("/jobs", "jobs")
	f.list("/facts/job_runs", "job_runs")
	f.list("/facts/lease_runs", "lease_runs")
	f.list("/facts/events", "events")
	f.get("/stats/timeseries?metric=jobs_done&bucket=1h&range=3h")
	form := regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z$`)
	if len(f.seen) < 100 {
		f.Errorf("only %d timestamps were seen", len(f.seen))
	}
	for _, s := range f.seen {
		if !form.MatchString(s) {
			f.Errorf("a timestamp is %q", s)
		}
	}
}

// Internal errors are logged but not shown; others reach the client.
func TestEngineErrors(t *testing.T) {
	var failed error
	f := newFixture(t, Options{Failed: func(err error) { failed = err }})
	c := &httpx.Call{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), ID: "r1"}
	told := func(err error) *Problem { return problemOf(f.face.Told(c, err), c.ID) }
	for _, test := range []struct {
		err    error
		code   Code
		hidden bool
	}{
		{errors.New("secret"), CodeInternal, true},
		{gq.ErrCorrupt, CodeInternal, true},
		{gq.ErrQueueFull, CodeLimitReached, false},
		{gq.ErrStoreFailed, CodeUnavailable, false},
		{gq.ErrTimeout, CodeTimeout, false},
		{t.Context().Err(), CodeInternal, true},
		{&gq.InvalidError{Faults: []gq.Fault{{Field: "queue", Problem: "is wrong"}, {Field: "types[2]", Problem: "too"}}}, CodeInvalidRequest, false},
	} {
		if test.err == nil {
			continue
		}
		p := told(test.err)
		if got := encode(test.err, "id").Code; got != string(test.code) {
			t.Errorf("%v is logged as %s", test.err, got)
		}
		if p.Code != test.code || test.hidden == strings.Contains(p.Detail, test.err.Error()) && test.hidden {
			t.Errorf("%v is told as %+v", test.err, p)
		}
	}
	if p := told(&gq.InvalidError{Faults: []gq.Fault{{Field: "queue", Problem: "x"}, {Field: "types[2]", Problem: "y"}}}); p.Detail != "addon_id: x; accept_job_types[2]: y" {
		t.Errorf("faults are told as %q", p.Detail)
	}
	if !errors.Is(failed, gq.ErrStoreFailed) {
		t.Errorf("of a failed store was told %v", failed)
	}
}

func TestPanic(t *testing.T) {
	w := httptest.NewRecorder()
	broken := httpx.Plain(http.MethodGet, "/", func(*httpx.Call) error { panic("oops") })
	httpx.New(httpx.Options{Encode: encode}, []httpx.Route{broken}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"code":"internal"`) || strings.Contains(w.Body.String(), "oops") {
		t.Errorf("a panic answers %d %s", w.Code, w.Body)
	}
}

func TestOptions(t *testing.T) {
	f := newFixture(t, Options{})
	less := int64(-1)
	for _, o := range []Options{{Capacity: &less}, {ClaimHold: -1}, {LeaseTTL: -time.Second}} {
		if _, err := New(f.engine, o); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestOpenAPI(t *testing.T) {
	f := newFixture(t, Options{Version: "1.2.3"})
	var api struct {
		OpenAPI string
		Info    struct{ Version, Description string }
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]struct{ Content map[string]any }
		}
	}
	a := f.try(http.MethodGet, "/openapi.json", nil)
	if a.status != http.StatusOK || json.Unmarshal(a.raw, &api) != nil {
		t.Fatalf("%d %.200s", a.status, a.raw)
	}
	for _, r := range routes(nil) {
		op, there := api.Paths[Base+r.Path][strings.ToLower(r.Method)]
		if !there || op.OperationID != r.ID || len(op.Responses) < 3 {
			t.Errorf("%s is described as %+v", r.ID, op)
		}
	}
	for _, m := range meanings {
		if !strings.Contains(api.Info.Description, "`"+string(m.Code)+"`") {
			t.Errorf("code %s is not described", m.Code)
		}
	}
	if api.Info.Version != "1.2.3" || !strings.HasPrefix(api.OpenAPI, "3.1") {
		t.Errorf("the description is %s of version %s", api.OpenAPI, api.Info.Version)
	}
}
