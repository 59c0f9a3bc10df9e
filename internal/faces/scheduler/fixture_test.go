package scheduler

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// TestMain fails the package if a goroutine outlives its tests.
func TestMain(m *testing.M) {
	if os.Getenv(echoVariable) != "" {
		panic(serveEcho())
	}
	cmdtest.WaitTogether(8) // stories mostly wait for a server, or for time to pass
	pgtest.Main(m)
	cmdtest.Remove()
	if err := leaktest.Find(); err != nil {
		panic(err)
	}
}

// object is a JSON object.
type object = map[string]any

// fixture is the API under test: the face over an engine on an in-memory store, or a
// server in another process.
type fixture struct {
	testing.TB
	send    func(*http.Request) answer
	connect func() *client         // opens another connection
	again   func(Options) *fixture // restarts the server
	seen    []string               // every timestamp in a response

	short time.Duration // lifetime of what should expire; 0 is brief
	timed bool          // the story waits for an expiry
	slept time.Duration

	face   *Face // nil for a process, like the others
	engine *engine.Engine
	store  store.Store
}

// bubble runs a test in a bubble, where time passes only when everyone waits. No sweep
// runs unless the test runs one.
func bubble(t *testing.T, o Options, story func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		story(newFixture(t, o))
	})
}

func newFixture(t testing.TB, o Options) *fixture {
	t.Helper()
	kept := 48 * time.Hour
	s, err := local.OpenMemory(local.Options{Config: store.Config{
		Retention: store.Retention{Completed: kept, Cancelled: kept, Failed: kept, DeadLetter: kept},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return over(t, s, o)
}

// over creates a fixture on a store.
func over(t testing.TB, s store.Store, o Options) *fixture {
	t.Helper()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	face, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{TB: t, face: face, engine: e, store: s, again: func(o Options) *fixture { return over(t, s, o) }}
	f.connect = func() *client {
		return &client{base: func() string { return "http://gq.test" + Base }, http: &http.Client{Transport: direct{face}}}
	}
	f.send = func(r *http.Request) answer {
		w := httptest.NewRecorder()
		face.ServeHTTP(w, r)
		return answer{status: w.Code, header: w.Header(), raw: w.Body.Bytes()}
	}
	return f
}

// brief returns the duration of a hold or TTL that should expire in this story.
func (f *fixture) brief() time.Duration {
	f.timed = true
	return cmp.Or(f.short, brief)
}

// sleep waits for time to pass.
func (f *fixture) sleep(d time.Duration) {
	f.slept += d
	time.Sleep(d)
}

// direct passes requests to a handler without a network.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   object
}

// try makes a request. A string is sent unchanged as the body; anything else is encoded.
func (f *fixture) try(method, path string, body any) answer {
	f.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			f.Fatal(err)
		}
	}
	r := f.request(method, Base+path, text)
	if text != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	a := f.send(r)
	if len(a.raw) > 0 {
		if got := a.header.Get("Content-Type"); got != "application/json" {
			f.Errorf("%s %s answers with the type %q", method, path, got)
		}
		d := json.NewDecoder(bytes.NewReader(a.raw))
		d.UseNumber()
		if err := d.Decode(&a.body); err != nil {
			f.Fatalf("%s %s answers %q: %v", method, path, a.raw, err)
		}
		f.stamps(a.body)
	}
	return a
}

func (f *fixture) request(method, path string, body []byte) *http.Request {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, "http://gq.test"+path, bytes.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// stamps collects everything that looks like a time, by member name.
func (f *fixture) stamps(v any) {
	switch v := v.(type) {
	case object:
		for name, value := range v {
			if s, is := value.(string); is && (strings.HasSuffix(name, "_at") || name == "ts") {
				f.seen = append(f.seen, s)
			}
			f.stamps(value)
		}
	case []any:
		for _, value := range v {
			f.stamps(value)
		}
	}
}

// do makes a request and checks its status.
func (f *fixture) do(method, path string, body any, want int) object {
	f.Helper()
	a := f.try(method, path, body)
	if a.status != want {
		f.Fatalf("%s %s %v: %d %s, want %d", method, path, body, a.status, a.raw, want)
	}
	return a.body
}

func (f *fixture) post(path string, body any) object {
	f.Helper()
	return f.do(http.MethodPost, path, body, http.StatusOK)
}

func (f *fixture) get(path string) object {
	f.Helper()
	return f.do(http.MethodGet, path, nil, http.StatusOK)
}

// refused checks that a request is rejected with a status and code.
func (f *fixture) refused(method, path string, body any, status int, code Code) object {
	f.Helper()
	a := f.try(method, path, body)
	if a.status != status || a.body["code"] != string(code) {
		f.Errorf("%s %s %v: %d %s, want %d %s", method, path, body, a.status, a.raw, status, code)
	}
	if detail, _ := a.body["detail"].(string); detail == "" {
		f.Errorf("%s %s %v: no detail in %s", method, path, body, a.raw)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		f.Errorf("%s %s: an error has the type %q", method, path, got)
	}
	return a.body
}

// submission returns a valid submission.
func submission(more ...any) object {
	b := object{
		"addon_id": "visuals", "job_type": "load30", "priority": "NORMAL", "cost_units": 30,
		"constraints": object{"cpu_heavy": true}, "payload": object{"model": "sdxl"},
	}
	for i := 0; i < len(more); i += 2 {
		name := fmt.Sprint(more[i])
		if b[name] = more[i+1]; more[i+1] == absent {
			delete(b, name)
		}
	}
	return b
}

// absent removes a field from a body.
const absent = "\x00absent"

func changed(b object, more ...any) object {
	out := maps.Clone(b)
	for i := 0; i < len(more); i += 2 {
		name := fmt.Sprint(more[i])
		if out[name] = more[i+1]; more[i+1] == absent {
			delete(out, name)
		}
	}
	return out
}

// submit submits a job and returns it.
func (f *fixture) submit(more ...any) object {
	f.Helper()
	return member(f.do(http.MethodPost, "/jobs/submit", submission(more...), http.StatusCreated), "job")
}

func member(o object, name string) object {
	v, _ := o[name].(object)
	return v
}

// decoded returns a value in the types that an answer has: a number differs from its text.
func (f *fixture) decoded(v any) (out any) {
	f.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		f.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		f.Fatal(err)
	}
	return out
}

func id(job object) string {
	s, _ := job["job_id"].(string)
	return s
}

const worker = "visuals-worker-01"

func claiming(more ...any) object {
	return changed(object{"addon_id": "visuals", "worker_id": worker, "limit": 1}, more...)
}

// claim claims a job, which must be available.
func (f *fixture) claim(more ...any) object {
	f.Helper()
	return member(f.post("/jobs/claim", claiming(more...)), "job")
}

// none checks that a claim finds nothing.
func (f *fixture) none(more ...any) {
	f.Helper()
	a := f.try(http.MethodPost, "/jobs/claim", claiming(more...))
	if a.status != http.StatusNoContent || len(a.raw) != 0 {
		f.Errorf("a claim with %v: %d %s, want 204 and nothing", more, a.status, a.raw)
	}
}

// lease requests a lease, which must be approved.
func (f *fixture) lease(job string, more ...any) object {
	f.Helper()
	a := f.post("/lease/request", changed(object{"job_id": job}, more...))
	if a["approved"] != true {
		f.Fatalf("a lease for %s: %v, want it to be approved", job, a)
	}
	return member(a, "lease")
}

// denied requests a lease, which must be denied.
func (f *fixture) denied(job string) object {
	f.Helper()
	a := f.post("/lease/request", object{"job_id": job})
	if a["approved"] != false || a["lease"] != nil {
		f.Fatalf("a lease for %s: %v, want it to be denied", job, a)
	}
	return a
}

// running creates a running job and returns its id and lease.
func (f *fixture) running(more ...any) (job, lease string) {
	f.Helper()
	return f.runningFor(30*time.Second, more...)
}

// runningFor creates a running job whose lease has the given TTL.
func (f *fixture) runningFor(ttl time.Duration, more ...any) (job, lease string) {
	f.Helper()
	j := f.submit(more...)
	job = id(j)
	claimed := f.claim("addon_id", j["addon_id"])
	if id(claimed) != job {
		f.Fatalf("claimed %s, want %s", id(claimed), job)
	}
	lease, _ = f.lease(job, "ttl_sec", seconds(ttl))["lease_id"].(string)
	return job, lease
}

func holding(job string, more ...any) object {
	return changed(object{"job_id": job, "worker_id": worker}, more...)
}

func (f *fixture) release(job, lease, status string, more ...any) object {
	f.Helper()
	return f.post("/lease/"+lease+"/release", holding(job, append([]any{"status", status}, more...)...))
}

func (f *fixture) beat(job, lease string, more ...any) object {
	f.Helper()
	return f.post("/lease/"+lease+"/heartbeat", holding(job, more...))
}

func (f *fixture) job(id string) object { f.Helper(); return member(f.get("/jobs/"+id), "job") }

// is checks the state of a job.
func (f *fixture) is(id, state string) {
	f.Helper()
	if got := f.job(id)["state"]; got != state {
		f.Errorf("job %s is %v, want %s", id, got, state)
	}
}

// used checks the capacity in use.
func (f *fixture) used(want int) {
	f.Helper()
	if got := member(f.get("/stats/snapshot"), "capacity")["used"]; fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("%v units are in use, want %d", got, want)
	}
}

func keys(o object) []string {
	var all []string
	for k := range o {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// hasKeys checks that an object has exactly these members.
func (f *fixture) hasKeys(what string, o object, want ...string) {
	f.Helper()
	slices.Sort(want)
	if got := keys(o); !slices.Equal(got, want) {
		f.Errorf("%s has %v, want %v", what, got, want)
	}
}

func number(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return i
}

func instant(t testing.TB, v any) time.Time {
	t.Helper()
	s, _ := v.(string)
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatalf("%v is not an instant", v)
	}
	return at
}

// list reads all pages of a list.
func (f *fixture) list(path, name string) (all []object) {
	f.Helper()
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	cursor := ""
	for range 1000 {
		url := path
		if cursor != "" {
			url += sep + "cursor=" + cursor
		}
		page := f.get(url)
		entries, is := page[name].([]any)
		if !is {
			f.Fatalf("%s has no %s: %v", url, name, page)
		}
		for _, e := range entries {
			all = append(all, e.(object))
		}
		if page["next_cursor"] == nil {
			return all
		}
		cursor, _ = page["next_cursor"].(string)
	}
	f.Fatalf("%s never ends", path)
	return nil
}
