package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/wire"
)

func TestBadBodies(t *testing.T) {
	s := newSite(t, HTTPOptions{MaxBody: 1 << 20})
	for name, test := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"empty":           {"", 400, "is empty"},
		"space":           {" \n", 400, "is empty"},
		"cut off":         {`{"type":`, 400, "is not JSON"},
		"two values":      {`{"type":"a"}{}`, 400, "is not JSON"},
		"an array":        {`[1]`, 400, "an array is not an object"},
		"a string":        {`"x"`, 400, "is not an object"},
		"null":            {`null`, 400, "is null"},
		"not UTF-8":       {"{\"type\":\"\xff\"}", 400, "is not valid UTF-8 from byte 9"},
		"wrong type":      {`{"type":5}`, 400, "5 is not a string"},
		"wrong case":      {`{"Type":"a"}`, 400, "is not a known field"},
		"twice":           {`{"type":"a","type":"b"}`, 400, "is given twice"},
		"tag twice":       {`{"type":"a","tags":{"x":"1","x":"2"}}`, 400, "is given twice"},
		"deep":            {`{"type":"a","payload":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, 400, "more than 128 deep"},
		"very deep":       {strings.Repeat("[", 100_000), 400, "more than 128 deep"},
		"huge":            {`{"type":"a","payload":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "body_too_large"},
		"large payload":   {`{"type":"a","payload":"` + strings.Repeat("x", 1<<20-40) + `"}`, 201, ""},
		"huge number":     {`{"type":"a","cost_units":1e99}`, 400, "is not an integer"},
		"bad base64":      {`{"type":"a","payload_base64":"%"}`, 400, "is not base64"},
		"null field":      {`{"type":null}`, 400, "is null"},
		"unknown field":   {`{"type":"a","` + strings.Repeat("n", 5000) + `":1}`, 400, "is not a known field"},
		"html is no harm": {`{"type":"a","<script>":1}`, 400, "<script>"},
	} {
		got := s.do("POST", "/v1/jobs", test.body)
		if got.status != test.status || !strings.Contains(got.text, test.want) {
			t.Errorf("%s: %d %.300s, want %d and %q", name, got.status, got.text, test.status, test.want)
		}
		if test.status >= 400 {
			if got.header.Get("Content-Type") != "application/problem+json" || got.str("code") == "" || got.str("title") == "" || got.str("type") == "" ||
				got.at("status") != jsonNumber(fmt.Sprint(test.status)) || got.str("request_id") != got.header.Get("X-Request-Id") {
				t.Errorf("%s: not a problem: %s %s", name, got.header, got.text)
			}
			if len(got.text) > 4000 {
				t.Errorf("%s: an answer of %d bytes", name, len(got.text))
			}
		}
	}
	if got := s.want(200, "GET", "/v1/stats"); got.at("live") != jsonNumber("1") {
		t.Errorf("something changed: %s", got.text)
	}
	if strings.Contains(s.log.String(), "panic") || strings.Contains(s.log.String(), "level=ERROR") {
		t.Errorf("the log has\n%s", s.log.String())
	}
}

func TestContentTypes(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for kind, status := range map[string]int{
		"": 201, "application/json": 201, "application/json; charset=utf-8": 201, "application/vnd.x+json": 201,
		"application/x-www-form-urlencoded": 201, // the default of curl -d
		"text/plain":                        415, "application/xml": 415, "application/json; charset=latin1": 415, "///": 415,
	} {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, s.server.URL+"/v1/jobs", strings.NewReader(`{"type":"a"}`))
		r.Header.Set("Content-Type", kind)
		if got := s.send(r); got.status != status {
			t.Errorf("%q: %d %s", kind, got.status, got.text)
		}
	}
}

// Compressed bodies are rejected, so that a small body cannot expand into a large one.
func TestPackedBodiesAreRefused(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for encoding, status := range map[string]int{"": 201, "identity": 201, "gzip": 415, "deflate": 415, "gzip, gzip": 415, "br": 415} {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, s.server.URL+"/v1/jobs", strings.NewReader(`{"type":"a"}`))
		r.Header.Set("Content-Encoding", encoding)
		if got := s.send(r); got.status != status || status == 415 && got.str("code") != "unsupported_encoding" {
			t.Errorf("%q: %d %s", encoding, got.status, got.text)
		}
	}
}

func TestOtherSitesMayNotWrite(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, s.server.URL+"/v1/jobs", strings.NewReader(`{"type":"a"}`))
		r.Header.Set(header, value)
		if got := s.send(r); got.status != 403 || got.str("code") != "cross_origin" {
			t.Errorf("%s: %d %s", header, got.status, got.text)
		}
	}
}

func TestUnknownRoutes(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for _, path := range []string{"//v1/jobs", "/v1//jobs", "/v1/./jobs", "/v1/x/../jobs", "/v1/jobs/"} {
		if got := s.want(404, "GET", path); got.str("code") != "no_such_route" {
			t.Errorf("%s: %s", path, got.text)
		}
	}
	s.want(200, "PUT", "/v1/queues/a%2F%2Fb", `{}`) // slashes in a name are allowed
	if got := s.want(404, "GET", "/v2/jobs"); got.str("code") != "no_such_route" {
		t.Errorf("%s", got.text)
	}
	got := s.want(405, "DELETE", "/v1/jobs")
	if got.str("code") != "method_not_allowed" || !strings.Contains(got.header.Get("Allow"), "POST") {
		t.Errorf("%s %s", got.header, got.text)
	}
	s.want(404, "POST", "/v1/leases//complete", `{}`)
}

// broken is an engine in which every call fails.
type broken struct {
	engine.API
	err   error
	panic any
}

func (b *broken) Stats(context.Context) (gq.Stats, error) {
	if b.panic != nil {
		panic(b.panic)
	}
	return gq.Stats{}, b.err
}

func (b *broken) Counts(context.Context, ...string) ([]gq.Count, error) { return nil, b.err }

func TestInternalErrorsStayInTheLog(t *testing.T) {
	e := &broken{err: errors.New("the secret detail")}
	s := newSiteOver(t, e, HTTPOptions{})
	got := s.want(500, "GET", "/v1/stats")
	if got.str("code") != "internal" || strings.Contains(got.text, "secret") || got.str("request_id") == "" {
		t.Errorf("%s", got.text)
	}
	if log := s.log.String(); !strings.Contains(log, "the secret detail") || !strings.Contains(log, got.str("request_id")) {
		t.Errorf("the log has\n%s", log)
	}
	e.panic = "at the disco"
	got = s.want(500, "GET", "/v1/stats")
	if got.str("code") != "internal" || strings.Contains(got.text, "disco") {
		t.Errorf("%s", got.text)
	}
	if log := s.log.String(); !strings.Contains(log, "at the disco") || !strings.Contains(log, "http_bad_test.go") {
		t.Errorf("the log has\n%s", log)
	}
}

func TestEveryKindHasItsStatus(t *testing.T) {
	e := &broken{}
	s := newSiteOver(t, e, HTTPOptions{})
	for _, kind := range enum.All[gq.ErrorKind]() {
		e.err = fmt.Errorf("stats: %w", &gq.Error{Kind: kind, Code: "some_code"})
		got := s.do("GET", "/v1/stats")
		if got.status != wire.HTTPStatus(kind) || got.str("code") != "some_code" {
			t.Errorf("%v: %d %s", kind, got.status, got.text)
		}
	}
	e.err = context.DeadlineExceeded
	if got := s.want(504, "GET", "/v1/stats"); got.str("code") != "timeout" {
		t.Errorf("%s", got.text)
	}
}

func TestAFailedStoreIsTold(t *testing.T) {
	var told atomic.Int32
	e := &broken{err: fmt.Errorf("stats: %w", gq.ErrStoreFailed)}
	s := newSiteOver(t, e, HTTPOptions{Failed: func(error) { told.Add(1) }})
	for range 3 {
		if got := s.want(503, "GET", "/v1/stats"); got.str("code") != "store_failed" {
			t.Errorf("%s", got.text)
		}
	}
	if told.Load() != 1 {
		t.Errorf("told %d times", told.Load())
	}
	if got := s.want(503, "GET", "/readyz"); !strings.Contains(got.str("reason"), "store has failed") {
		t.Errorf("%s", got.text)
	}
}

func TestRequestIDs(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for given, kept := range map[string]bool{"abc-1.2_X": true, "bad id": false, "a\"b": false, strings.Repeat("x", 65): false} {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, s.server.URL+"/healthz", http.NoBody)
		r.Header.Set("X-Request-Id", given)
		if got := s.send(r).header.Get("X-Request-Id"); (got == given) != kept || got == "" {
			t.Errorf("%q became %q", given, got)
		}
	}
}

// A body that does not arrive in time is distinguished from one that cannot be read.
func TestBodiesThatDoNotCome(t *testing.T) {
	s := newSite(t, HTTPOptions{BodyTimeout: 50 * time.Millisecond})
	for _, test := range []struct {
		request string
		status  int
		want    string
	}{
		{"Content-Length: 100\r\n\r\n{\"type\":", http.StatusRequestTimeout, "body_incomplete"},
		{"Transfer-Encoding: chunked\r\n\r\nzz\r\n", http.StatusBadRequest, "body: cannot be read"},
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s", test.request)
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode != test.status || !strings.Contains(string(text), test.want) {
			t.Errorf("%q: %d %s", test.request, response.StatusCode, text)
		}
	}
}

// A client that sends an oversized body completely before it reads still gets the
// response.
func TestWhoSendsTooMuchIsTold(t *testing.T) {
	s := newSite(t, HTTPOptions{MaxBody: 1 << 20})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const n = 32 << 20
	fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", n)
	if _, err := conn.Write(make([]byte, n)); err != nil {
		t.Fatalf("the body cannot be sent: %v", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge || !response.Close {
		t.Errorf("%d, the connection stays: %t", response.StatusCode, !response.Close)
	}
}

// A wait may last longer than the limits for bodies and responses. On a stalled machine
// fast clients look slow, so the test tries several durations.
func TestALongWaitOutlastsTheBodyTimeout(t *testing.T) {
	for unit := 200 * time.Millisecond; ; unit *= 4 {
		err := longWait(t, unit)
		if err == nil {
			return
		}
		if unit > 10*time.Second {
			t.Fatal(err)
		}
	}
}

func longWait(t *testing.T, unit time.Duration) error {
	t.Helper()
	s := newSite(t, HTTPOptions{BodyTimeout: unit, WriteWithin: 2 * unit})
	began := time.Now()
	answer, err := s.server.Client().Post(s.server.URL+"/v1/claim", "application/json", strings.NewReader(fmt.Sprintf(`{"worker":"w","wait":"%v"}`, 3*unit)))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if took := time.Since(began); err != nil || string(text) != "{\"jobs\":[]}\n" || took < 3*unit {
		return fmt.Errorf("after %v: %s %s, %w", took, answer.Status, text, err)
	}
	return nil
}
