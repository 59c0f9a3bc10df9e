package httpx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
)

type (
	itemInput struct {
		ID    string   `path:"id" doc:"Which one."`
		Limit *string  `query:"limit" doc:"How many."`
		Tags  []string `query:"tag,explode"`
		Words []string `query:"word"`
		Key   string   `header:"Item-Key"`
	}
	itemBody struct {
		embedded
		Name string `json:"name" doc:"What it is called." example:"x"`
	}
	embedded struct {
		Size *int `json:"size,omitempty" minimum:"1"`
	}
	item struct {
		Given itemGiven `json:"given"`
		Body  itemBody  `json:"body"`
	}
	itemGiven struct {
		ID, Limit, Key string
		Tags, Words    []string
	}
)

// shop is an API with one route of each sort.
func shop(o Options) *API {
	o.Base = "/shop"
	return New(o, []Route{
		Handle(Route{Method: http.MethodPut, Path: "/items/{id}", ID: "put-item", Tag: "items", Summary: "Put", Status: http.StatusCreated},
			func(_ context.Context, in *itemInput, body *itemBody) (*Answer[item], error) {
				given := itemGiven{ID: in.ID, Key: in.Key, Tags: in.Tags, Words: in.Words}
				if in.Limit != nil {
					given.Limit = *in.Limit
				}
				return OK(item{given, *body}), nil
			}),
		Handle(Route{Method: http.MethodGet, Path: "/items/{id}", ID: "get-item", Tag: "items", Summary: "Get"},
			func(_ context.Context, in *itemInput, _ *None) (*Answer[item], error) {
				switch in.ID {
				case "missing":
					return nil, fmt.Errorf("item: %w", gq.ErrNotFound)
				case "late":
					return nil, context.DeadlineExceeded
				case "broken":
					return nil, errors.New("the secret detail")
				case "failed":
					return nil, fmt.Errorf("item: %w", gq.ErrStoreFailed)
				case "panic":
					panic("the secret panic")
				case "abort":
					panic(http.ErrAbortHandler)
				}
				return OK(item{}), nil
			}),
		Handle(Route{Method: http.MethodPost, Path: "/text", ID: "text", Tag: "items", Summary: "Text", Optional: true},
			func(_ context.Context, _ *None, text *Text) (*Answer[string], error) { return OK(string(*text)), nil }),
		Handle(Route{Method: http.MethodDelete, Path: "/items/{id}", ID: "delete-item", Tag: "items", Summary: "Delete", Status: http.StatusNoContent},
			func(context.Context, *None, *None) (*Answer[None], error) { return nil, nil }),
		Handle(Route{
			Method: http.MethodGet, Path: "/secret", ID: "secret", Tag: "items", Summary: "Secret",
			Allow: func(*Call) error { return gq.ErrUnauthenticated },
		}, func(context.Context, *None, *None) (*Answer[None], error) { panic("it is not asked") }),
		Stream(Route{Method: http.MethodGet, Path: "/lines", ID: "lines", Tag: "items", Summary: "Lines"},
			func(c *Call, _ *None) error {
				_, err := c.Write([]byte("a line\n"))
				return err
			}),
	})
}

func TestRequests(t *testing.T) {
	var log bytes.Buffer
	failed := 0
	api := shop(Options{MaxBody: 1000, Log: slog.New(slog.NewTextHandler(&log, nil)), Failed: func(error) { failed++ }})
	for _, test := range []struct {
		request string // method, path and headers
		body    string
		status  int
		want    string // substring of the body
		header  string // a response header with a part of its value
	}{
		{"PUT /shop/items/a%2Fb?limit=5&tag=x,y&tag=z&word=v Item-Key:k", `{"name":"n","size":3}`, 201, `{"given":{"ID":"a/b","Limit":"5","Key":"k","Tags":["x,y","z"],"Words":["v"]},"body":{"size":3,"name":"n"}}`, "Content-Type: application/json"},
		{"PUT /shop/items/a?limit=1&limit=2&x=1&y=2", `{}`, 400, "limit: is given twice; x: is not a parameter of this operation; it takes limit, tag, word; y:", ""},
		{"PUT /shop/items/a?%zz", `{}`, 400, "query: is not well-formed", ""},
		{"DELETE /shop/items/a?x=1", ``, 400, "x: is not a parameter of this operation; it takes none", ""},
		{"PUT /shop/items/a", ``, 400, "body: is empty", ""},
		{"PUT /shop/items/a", `{"colour":1}`, 400, "colour: is not a known field", ""},
		{"PUT /shop/items/a", strings.Repeat("x", 1001), 413, "body_too_large", "Connection: close"},
		{"PUT /shop/items/a Content-Type:text/plain", `{}`, 415, "unsupported_media_type", ""},
		{"PUT /shop/items/a Content-Type:;;", `{}`, 415, "unsupported_media_type", ""},
		{"PUT /shop/items/a Content-Type:application/vnd.x+json", `{"name":"n"}`, 201, "", ""},
		{"PUT /shop/items/a Content-Encoding:br", `{}`, 415, "unsupported_encoding", ""},
		{"PUT /shop/items/a Origin:https://evil.example", `{}`, 403, "cross_origin", ""},
		{"GET /shop/items/a Origin:https://evil.example", ``, 200, "", ""},
		{"POST /shop/text", ``, 200, `"{}"`, ""},
		{"POST /shop/text", " \n", 200, `"{}"`, ""},
		{"POST /shop/text", `{"a":1}`, 200, `{\"a\":1}`, ""},
		{"DELETE /shop/items/a", ``, 204, "", ""},
		{"GET /shop/lines", ``, 200, "a line\n", ""},
		{"HEAD /shop/items/a", ``, 200, "", "Content-Type: application/json"},
		{"HEAD /shop/items/missing", ``, 404, "", "Content-Type: application/problem+json"},
		{"OPTIONS /shop/items/a", ``, 204, "", "Allow: DELETE, GET, HEAD, PUT, OPTIONS"},
		{"OPTIONS /shop/nothing", ``, 404, "no_such_route", ""},
		{"POST /shop/items/a", `{}`, 405, "method_not_allowed", "Allow: DELETE, GET, HEAD, PUT, OPTIONS"},
		{"GET /shop/items/a/", ``, 404, "no_such_route", ""},
		{"GET /shop//items/a", ``, 404, "no_such_route", ""},
		{"GET /shop/x/../items/a", ``, 404, "no_such_route", ""},
		{"GET /items/a", ``, 404, "no_such_route", ""},
		{"GET /shop/items/missing", ``, 404, `"code":"not_found"`, ""},
		{"GET /shop/items/late", ``, 504, `"code":"timeout"`, ""},
		{"GET /shop/items/broken", ``, 500, "internal error", ""},
		{"GET /shop/items/panic", ``, 500, "internal error", ""},
		{"GET /shop/items/failed", ``, 503, "store_failed", ""},
		{"GET /shop/items/failed", ``, 503, "store_failed", ""},
		{"GET /shop/secret", ``, 401, "unauthenticated", "WWW-Authenticate: Bearer"},
		{"GET /shop/items/a X-Request-Id:abc-1.2_X", ``, 200, "", "X-Request-Id: abc-1.2_X"},
		{"GET /shop/openapi.json", ``, 200, `"openapi": "3.1.0"`, "Content-Type: application/json"},
	} {
		fields := strings.Fields(test.request)
		r := httptest.NewRequestWithContext(t.Context(), fields[0], fields[1], strings.NewReader(test.body))
		for _, header := range fields[2:] {
			name, value, _ := strings.Cut(header, ":")
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) || strings.Contains(w.Body.String(), "secret ") {
			t.Errorf("%s: %d %s, want %d and %s", test.request, w.Code, w.Body, test.status, test.want)
		}
		if (fields[0] == http.MethodHead || test.status == http.StatusNoContent) && w.Body.Len() > 0 {
			t.Errorf("%s: a body: %s", test.request, w.Body)
		}
		if name, part, ok := strings.Cut(test.header, ": "); ok && !strings.Contains(w.Header().Get(name), part) {
			t.Errorf("%s: %s is %q, want %s", test.request, name, w.Header().Get(name), part)
		}
		for _, name := range []string{"X-Request-Id", "X-Content-Type-Options", "Cache-Control"} {
			if w.Header().Get(name) == "" {
				t.Errorf("%s: no %s", test.request, name)
			}
		}
		if w.Code >= 400 && fields[0] != http.MethodHead {
			var p wire.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Title == "" || p.RequestID != w.Header().Get("X-Request-Id") {
				t.Errorf("%s: no problem: %s", test.request, w.Body)
			}
		}
	}
	for _, hidden := range []string{"the secret detail", "the secret panic", "httpx_test.go"} {
		if !strings.Contains(log.String(), hidden) {
			t.Errorf("the log lacks %q:\n%s", hidden, log.String())
		}
	}
	if failed != 1 {
		t.Errorf("a failed store was reported %d times", failed)
	}
}

// A handler may abort a request without a response.
func TestAbort(t *testing.T) {
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // it is this very value
			t.Errorf("panic %v", p)
		}
	}()
	shop(Options{}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/shop/items/abort", http.NoBody))
}

// The caller is identified before anything else, and every handler sees the identity.
func TestIdentify(t *testing.T) {
	api := shop(Options{Identify: func(r *http.Request) (context.Context, error) {
		if r.Header.Get("Authorization") == "" {
			return nil, gq.ErrUnauthenticated
		}
		return r.Context(), nil
	}})
	for path, status := range map[string]int{"/shop/items/a": 200, "/shop/nothing": 404} {
		for header, want := range map[string]int{"": 401, "x": status} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			r.Header.Set("Authorization", header)
			w := httptest.NewRecorder()
			if api.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s as %q: %d, want %d", path, header, w.Code, want)
			}
		}
	}
}

// An API's own encoding applies to every error response.
func TestEncode(t *testing.T) {
	type own struct {
		Text string `json:"text"`
	}
	api := shop(Options{Encode: func(err error, _ string) Refusal {
		return Refusal{http.StatusTeapot, "application/own", "own_code", own{err.Error()}}
	}})
	for _, path := range []string{"/shop/items/missing", "/shop/nothing", "/shop/items/panic", "/shop/secret"} {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != http.StatusTeapot || w.Header().Get("Content-Type") != "application/own" || !strings.HasPrefix(w.Body.String(), `{"text":"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if content := api.Document().Paths["/shop/lines"]["get"].Responses["400"].Content; content["application/own"].Schema.Name() != "Own" {
		t.Errorf("described as %v", content)
	}
}

func TestDescription(t *testing.T) {
	op := shop(Options{}).Document().Paths["/shop/items/{id}"]["put"]
	var got []string
	for _, p := range op.Parameters {
		got = append(got, fmt.Sprint(p.In, " ", p.Name, " ", p.Required, " ", p.Schema.Type, " ", p.Explode != nil && !*p.Explode))
	}
	want := []string{"path id true string false", "query limit false string false", "query tag false array false", "query word false array true", "header Item-Key false string false"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parameters %q", got)
	}
	if op.Responses["201"] == nil || op.Responses["401"] == nil || !op.Body.Required {
		t.Errorf("%+v", op)
	}
}

func TestSchemas(t *testing.T) {
	type part struct {
		A string `json:"a"`
	}
	type whole struct {
		embedded
		When  time.Time       `json:"when"`
		Maybe *time.Time      `json:"maybe"`
		Never *time.Time      `json:"never,omitempty"`
		Raw   json.RawMessage `json:"raw"`
		Bytes []byte          `json:"bytes"`
		Parts []part          `json:"parts" doc:"Some."`
		Map   map[string]part `json:"map"`
		Word  string          `json:"word" enum:"a,b" format:"word"`
		Words []string        `json:"words" enum:"a,b"`
		N     uint32          `json:"n" maximum:"9" example:"5"`
		Job   *gq.JobID       `json:"job"`
		Any   any             `json:"any"`
		Group struct {
			F float64 `json:"f"`
		} `json:"group"`
		Hidden string `json:"-"`
	}
	s := NewSchemas(map[reflect.Type]Schema{reflect.TypeFor[gq.JobID](): {Type: "string", Format: "uuid"}})
	if ref := s.Of(reflect.TypeFor[*whole]()); ref.Name() != "Whole" || s.Named(ref) != s.named["Whole"] {
		t.Fatalf("%+v", ref)
	}
	got, err := json.Marshal(s.named)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"Part":{"additionalProperties":false,"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"},` +
		`"Whole":{"additionalProperties":false,"properties":{"any":{},"bytes":{"contentEncoding":"base64","type":"string"},` +
		`"group":{"$ref":"#/components/schemas/WholeGroupStruct"},"job":{"format":"uuid","type":["string","null"]},` +
		`"map":{"additionalProperties":{"$ref":"#/components/schemas/Part"},"type":"object"},"maybe":{"format":"date-time","type":["string","null"]},` +
		`"n":{"examples":[5],"format":"int32","maximum":9,"minimum":0,"type":"integer"},"never":{"format":"date-time","type":"string"},` +
		`"parts":{"description":"Some.","items":{"$ref":"#/components/schemas/Part"},"type":"array"},"raw":{},` +
		`"size":{"format":"int64","minimum":1,"type":"integer"},"when":{"format":"date-time","type":"string"},` +
		`"word":{"enum":["a","b"],"format":"word","type":"string"},"words":{"items":{"enum":["a","b"],"type":"string"},"type":"array"}},` +
		`"required":["when","maybe","raw","bytes","parts","map","word","words","n","job","any","group"],"type":"object"},` +
		`"WholeGroupStruct":{"additionalProperties":false,"properties":{"f":{"format":"double","type":"number"}},"required":["f"],"type":"object"}}`
	if string(got) != want {
		t.Errorf("described as\n%s\nwant\n%s", got, want)
	}
}

// At level debug each call is a line with its request id, a refusal with its code, and none has a
// query, a body or a token. At level info there is none.
func TestCallsAreLogged(t *testing.T) {
	var lines bytes.Buffer
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	a := shop(Options{Log: slog.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: level}))})
	call := func(method, path, body string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("X-Request-Id", "mine")
		r.Header.Set("Authorization", "Bearer SECRET")
		a.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, test := range []struct {
		method, path, body string
		status             float64
		code               any
	}{
		{"PUT", "/shop/items/1?limit=SECRET", `{"name":"SECRET"}`, 201, nil},
		{"PUT", "/shop/items/1", `{"SECRET":1}`, 400, "invalid"},
		{"GET", "/shop/nothing?x=SECRET", "", 404, "no_such_route"},
		{"PATCH", "/shop/items/1", "", 405, "method_not_allowed"},
		{"GET", "/shop/openapi.json", "", 200, nil},
	} {
		lines.Reset()
		call(test.method, test.path, test.body)
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s %s: %v: %s", test.method, test.path, err, lines.String())
		}
		path, _, _ := strings.Cut(test.path, "?")
		if line["msg"] != "call" || line["level"] != "DEBUG" || line["request_id"] != "mine" || line["method"] != test.method || line["path"] != path ||
			line["status"] != test.status || line["code"] != test.code || line["took_ms"] == nil {
			t.Errorf("%s %s: %s", test.method, test.path, lines.String())
		}
		if strings.Contains(lines.String(), "SECRET") {
			t.Errorf("a secret in %s", lines.String())
		}
	}
	a = shop(Options{Log: slog.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: level})), Encode: func(err error, _ string) Refusal {
		return Refusal{http.StatusTeapot, "application/own", "own_code", err.Error()}
	}})
	lines.Reset()
	if call("GET", "/shop/nothing", ""); !strings.Contains(lines.String(), `"status":418,`) || !strings.Contains(lines.String(), `"code":"own_code"`) {
		t.Errorf("a refusal in the words of an API: %s", lines.String())
	}
	level.Set(slog.LevelInfo)
	lines.Reset()
	if call("GET", "/shop/nothing", ""); lines.Len() > 0 {
		t.Errorf("at level info: %s", lines.String())
	}
}

// What is not an API is logged as one, with the status that follows early ones.
func TestOtherCallsAreLogged(t *testing.T) {
	var lines bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for status, want := range map[int]string{0: `"status":200`, http.StatusTeapot: `"status":418`} {
		lines.Reset()
		Logged(log, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			NameRequest(w, r)
			w.WriteHeader(http.StatusEarlyHints)
			if status > 0 {
				w.WriteHeader(status)
				w.WriteHeader(http.StatusOK) // too late
			}
			_, _ = w.Write([]byte("x"))
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x?y=SECRET", http.NoBody))
		if got := lines.String(); !strings.Contains(got, want) || !strings.Contains(got, `"method":"GET","path":"/x"`) || strings.Contains(got, "SECRET") || strings.Count(got, "\n") != 1 {
			t.Errorf("%d: %s", status, got)
		}
	}
	lines.Reset()
	Refuse(log, httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", http.NoBody), wire.NewProblem(http.StatusForbidden, "foreign_host", "no"))
	if got := lines.String(); !strings.Contains(got, `"status":403`) || !strings.Contains(got, `"code":"foreign_host"`) {
		t.Errorf("a refusal: %s", got)
	}
}
