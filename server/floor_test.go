package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
)

// face is one of the APIs, with one route that takes a body and one that is read.
type face struct {
	name, write, body, read string
	codes                   map[string]string // of errors that it names differently
}

var faces = []face{
	{"native", "/v1/jobs", `{"type":"t"}`, "/v1/queues", nil},
	{
		"scheduler", "/api/scheduler/jobs/submit", `{"addon_id":"a","job_type":"t","priority":"LOW","cost_units":1,"payload":null}`, "/api/scheduler/jobs",
		map[string]string{
			"no_such_route": "route_not_found", "unsupported_encoding": "unsupported_media_type", "cross_origin": "forbidden", "invalid": "invalid_request",
		},
	},
	{"matching", "/api/matching/jobs", `{"kind":"AI"}`, "/api/matching/policy", nil},
}

func floor(t *testing.T, bodyTimeout time.Duration) *httptest.Server {
	t.Helper()
	cfg := config.Default()
	cfg.Store, cfg.HTTP, cfg.GRPC = "memory:", "", ""
	cfg.Limits.BodyBytes, cfg.Limits.BodyTimeout = 1<<20, bodyTimeout
	s, err := server.Open(t.Context(), cfg, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		web.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return web
}

// The same unusual request gets the same response from every API.
func TestOneFloor(t *testing.T) {
	web := floor(t, 2*time.Minute)
	const post = http.MethodPost
	for _, test := range []struct {
		name   string
		method string
		path   func(face) string
		header string // name: value
		body   string // "" is a valid one
		status int
		code   string
		says   string // a response header with a part of its value
	}{
		{name: "a good request", method: post, path: write, status: 201, says: "Content-Type: application/json"},
		{name: "another content type", method: post, path: write, header: "Content-Type: text/plain", status: 415, code: "unsupported_media_type"},
		{name: "another charset", method: post, path: write, header: "Content-Type: application/json; charset=latin1", status: 415, code: "unsupported_media_type"},
		{name: "what curl says", method: post, path: write, header: "Content-Type: application/x-www-form-urlencoded", status: 201},
		{name: "a packed body", method: post, path: write, header: "Content-Encoding: gzip", status: 415, code: "unsupported_encoding"},
		{name: "a body as it is", method: post, path: write, header: "Content-Encoding: identity", status: 201},
		{name: "HEAD", method: http.MethodHead, path: read, status: 200, says: "Content-Type: application/json"},
		{name: "HEAD of nothing", method: http.MethodHead, path: nothing, status: 404},
		{name: "OPTIONS", method: http.MethodOptions, path: read, status: 204, says: "Allow: GET, HEAD"},
		{name: "a trailing slash", method: http.MethodGet, path: func(f face) string { return f.read + "/" }, status: 404, code: "no_such_route"},
		{name: "a double slash", method: http.MethodGet, path: func(f face) string {
			at := strings.LastIndex(f.read, "/")
			return f.read[:at] + "/" + f.read[at:]
		}, status: 404, code: "no_such_route"},
		{name: "a dot", method: http.MethodGet, path: func(f face) string {
			at := strings.LastIndex(f.read, "/")
			return f.read[:at] + "/." + f.read[at:]
		}, status: 404, code: "no_such_route"},
		{name: "an unknown route", method: http.MethodGet, path: nothing, status: 404, code: "no_such_route"},
		{name: "a wrong method", method: http.MethodDelete, path: read, status: 405, code: "method_not_allowed", says: "Allow: GET, HEAD"},
		{name: "a large body", method: post, path: write, body: strings.Repeat(" ", 2<<20), status: 413, code: "body_too_large"},
		{name: "no JSON", method: post, path: write, body: `{"`, status: 400, code: "invalid"},
		{name: "an unknown parameter", method: http.MethodGet, path: func(f face) string { return f.read + "?nonsense=1" }, status: 400, code: "invalid"},
		{name: "a page of another site", method: post, path: write, header: "Origin: https://evil.example", status: 403, code: "cross_origin"},
		{name: "its own request id", method: http.MethodGet, path: read, header: "X-Request-Id: mine-1", status: 200, says: "X-Request-Id: mine-1"},
	} {
		for _, f := range faces {
			body := test.body
			if body == "" && test.method == post {
				body = f.body
			}
			r, err := http.NewRequestWithContext(t.Context(), test.method, web.URL+test.path(f), strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if name, value, ok := strings.Cut(test.header, ": "); ok {
				r.Header.Set(name, value)
			}
			answer, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatalf("%s, %s: %v", f.name, test.name, err)
			}
			f.check(t, test.name, answer, test.status, test.code)
			if name, part, ok := strings.Cut(test.says, ": "); ok && !strings.Contains(answer.Header.Get(name), part) {
				t.Errorf("%s, %s: %s is %q, want %s", f.name, test.name, name, answer.Header.Get(name), part)
			}
		}
	}
}

func write(f face) string   { return f.write }
func read(f face) string    { return f.read }
func nothing(f face) string { return f.read + "/nothing/here" }

// check compares a response with the expected status and, for an error, the code.
func (f *face) check(t *testing.T, name string, answer *http.Response, status int, code string) {
	t.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		t.Errorf("%s, %s: %d %s %v, want %d", f.name, name, answer.StatusCode, text, err, status)
		return
	}
	for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if got := answer.Header.Get(header); got != want {
			t.Errorf("%s, %s: %s is %q", f.name, name, header, got)
		}
	}
	if answer.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s, %s: no request id", f.name, name)
	}
	if own, ok := f.codes[code]; ok {
		code = own
	}
	if code == "" {
		return
	}
	var problem struct{ Code, Detail string }
	if err := json.Unmarshal(text, &problem); err != nil || problem.Code != code || problem.Detail == "" {
		t.Errorf("%s, %s: %s, want the code %s", f.name, name, text, code)
	}
}

// A request id that could corrupt a log is replaced.
func TestHarmfulRequestID(t *testing.T) {
	web := floor(t, 2*time.Minute)
	for _, f := range faces {
		for _, given := range []string{"bad id", `a"b`, strings.Repeat("x", 65)} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+f.read, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Request-Id", given)
			answer, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.Header.Get("X-Request-Id"); got == given || got == "" {
				t.Errorf("%s: %q became %q", f.name, given, got)
			}
			f.check(t, "a harmful id", answer, 200, "")
		}
	}
}

// A body that does not arrive times out.
func TestSlowBody(t *testing.T) {
	web := floor(t, 100*time.Millisecond)
	for _, f := range faces {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", f.write)
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		f.check(t, "a slow body", answer, http.StatusRequestTimeout, "body_incomplete")
		if !answer.Close {
			t.Errorf("%s: the connection stays", f.name)
		}
	}
}
