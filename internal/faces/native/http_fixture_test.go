package native

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
)

// site is the HTTP face over an engine on an in-memory store.
type site struct {
	t      testing.TB
	engine *engine.Engine
	face   *HTTP
	server *httptest.Server
	log    *logBuffer
}

// logBuffer keeps log output.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newEngine(t testing.TB) *engine.Engine {
	t.Helper()
	store, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	e, err := engine.New(store, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the engine ended with %v", err)
		}
	})
	return e
}

func newSite(t testing.TB, o HTTPOptions) *site {
	t.Helper()
	return newSiteOver(t, newEngine(t), o)
}

func newSiteOver(t testing.TB, e engine.API, o HTTPOptions) *site {
	t.Helper()
	log := &logBuffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	s := &site{t: t, face: NewHTTP(e, o), log: log}
	s.engine, _ = e.(*engine.Engine)
	s.server = httptest.NewServer(s.face)
	t.Cleanup(s.server.Close)
	return s
}

// reply is a response.
type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// at returns a member of the response, by path.
func (r reply) at(path ...any) any {
	var v any = r.body
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

func (r reply) str(path ...any) string { s, _ := r.at(path...).(string); return s }

func (r reply) fields() (all []string) {
	faults, _ := r.body["faults"].([]any)
	for i := range faults {
		all = append(all, r.str("faults", i, "field"))
	}
	return all
}

// do sends a request. The path may be followed by a JSON body.
func (s *site) do(method, path string, body ...string) reply {
	s.t.Helper()
	var in io.Reader
	if len(body) > 0 {
		in = strings.NewReader(body[0])
	}
	r, err := http.NewRequestWithContext(context.Background(), method, s.server.URL+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return s.send(r)
}

func (s *site) send(r *http.Request) reply {
	s.t.Helper()
	response, err := s.server.Client().Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	out := reply{status: response.StatusCode, header: response.Header, text: string(text)}
	if strings.Contains(response.Header.Get("Content-Type"), "json") && !strings.Contains(response.Header.Get("Content-Type"), "ndjson") {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&out.body); err != nil {
			s.t.Fatalf("%s %s answered what is not JSON: %v\n%s", r.Method, r.URL.Path, err, text)
		}
	}
	return out
}

// want sends a request and checks the status.
func (s *site) want(status int, method, path string, body ...string) reply {
	s.t.Helper()
	got := s.do(method, path, body...)
	if got.status != status {
		s.t.Fatalf("%s %s: status %d, want %d\n%s", method, path, got.status, status, got.text)
	}
	return got
}

// submit submits a job and returns its id.
func (s *site) submit(spec string) string {
	s.t.Helper()
	return s.want(201, "POST", "/v1/jobs", spec).str("id")
}

// claim claims one job and returns it with the id of its lease.
func (s *site) claim(more string) (job map[string]any, lease string) {
	s.t.Helper()
	got := s.want(200, "POST", "/v1/claim", `{"worker":"w1"`+more+`}`)
	job, ok := got.at("jobs", 0).(map[string]any)
	if !ok {
		s.t.Fatalf("no job was claimed: %s", got.text)
	}
	return job, got.str("jobs", 0, "lease", "id")
}

func lease(id, verb string) string { return fmt.Sprintf("/v1/leases/%s/%s", id, verb) }

type rawJSON = json.RawMessage

func decodeLoose(text string, into any) error { return json.Unmarshal([]byte(text), into) }

func jsonNumber(text string) json.Number { return json.Number(text) }
