package scheduler

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gopherqueue/gq/internal/wire"
)

// call is one request.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	id    string
	query url.Values // only what the route knows, each once
}

// reply is the answer to a call. Without a body it is empty.
type reply struct {
	status int
	body   any
}

func ok(body any) (reply, error) { return reply{http.StatusOK, body}, nil }

// ServeHTTP answers a request.
func (f *Face) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.handler.ServeHTTP(w, r) }

// serve makes a handler of what a route does.
func (f *Face) serve(do func(*call) (reply, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := f.begin(w, r)
		defer f.recover(c)
		answer, err := do(c)
		if err != nil {
			wire.AskLater(c.w.Header(), err)
			f.refuse(c, f.problemOf(c, err))
			return
		}
		f.write(c, answer)
	})
}

func (f *Face) begin(w http.ResponseWriter, r *http.Request) *call {
	c := &call{w: w, r: r, id: requestID(r)}
	h := w.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	return c
}

func (f *Face) write(c *call, a reply) {
	if a.body == nil {
		c.w.WriteHeader(a.status)
		return
	}
	var b bytes.Buffer
	if err := wire.EncodeJSON(&b, a.body); err != nil {
		f.options.Log.Error("encode an answer", "request_id", c.id, "path", c.r.URL.Path, "error", err)
		f.refuse(c, &Problem{Code: CodeInternal, Detail: "internal error; the server's log has more under request " + c.id})
		return
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(a.status)
	_, _ = c.w.Write(b.Bytes()) // the client has left
}

func (f *Face) refuse(c *call, p *Problem) { f.write(c, reply{statuses[p.Code], p}) }

// requestID is the client's own name for its request where it is harmless, or
// one drawn here.
func requestID(r *http.Request) string {
	given := r.Header.Get("X-Request-Id")
	harmless := len(given) > 0 && len(given) <= 64
	for i := 0; harmless && i < len(given); i++ {
		b := given[i]
		harmless = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.'
	}
	if harmless {
		return given
	}
	return rand.Text()
}

// recover answers for a handler that panicked.
func (f *Face) recover(c *call) {
	p := recover()
	if p == nil {
		return
	}
	if err, isError := p.(error); isError && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // the server's own way to end a request
	}
	f.options.Log.Error("panic in an HTTP handler", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	f.refuse(c, &Problem{Code: CodeInternal, Detail: "internal error; the server's log has more under request " + c.id})
}

// find hands a request to its route and answers itself where there is none.
func (f *Face) find(w http.ResponseWriter, r *http.Request) {
	handler, pattern := f.mux.Handler(r)
	if pattern != "" {
		f.mux.ServeHTTP(w, r)
		return
	}
	missing := &silent{header: http.Header{}}
	handler.ServeHTTP(missing, r)
	c := f.begin(w, r)
	if missing.status == http.StatusMethodNotAllowed {
		allow := missing.header.Get("Allow")
		w.Header().Set("Allow", allow)
		f.refuse(c, &Problem{Code: CodeMethod, Detail: fmt.Sprintf("%.200q takes %s", r.URL.Path, allow)})
		return
	}
	f.refuse(c, &Problem{Code: CodeRouteNotFound, Detail: fmt.Sprintf("there is no %.200q; %s/openapi.json lists what there is", r.URL.Path, Base)})
}

// silent takes an answer that nobody sees.
type silent struct {
	header http.Header
	status int
}

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) Write(b []byte) (int, error) { return len(b), nil }
func (s *silent) WriteHeader(status int)      { s.status = status }

// decode reads the body of a request. Where there may be none it leaves into as
// it is.
func (f *Face) decode(c *call, into any, optional bool) error {
	data, err := f.readBody(c)
	if err != nil {
		return err
	}
	if len(data) == 0 && optional {
		return nil
	}
	if err := checkContentType(c.r.Header.Get("Content-Type")); err != nil {
		return err
	}
	return wire.DecodeJSON(data, into)
}

func (f *Face) readBody(c *call) ([]byte, error) {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return nil, nil
	}
	controller := http.NewResponseController(c.w)
	_ = controller.SetReadDeadline(time.Now().Add(f.options.BodyTimeout)) // recorders have none
	var body bytes.Buffer
	if n := c.r.ContentLength; n > 0 && n <= f.options.MaxBody {
		body.Grow(int(min(n, 1<<20)) + bytes.MinRead)
	}
	_, err := io.Copy(&body, http.MaxBytesReader(c.w, c.r.Body, f.options.MaxBody))
	if err != nil {
		if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
			return nil, problem(CodeBodyTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
		}
		c.w.Header().Set("Connection", "close")
		return nil, problem(CodeBodyIncomplete, "the body did not come within %v", f.options.BodyTimeout)
	}
	_ = controller.SetReadDeadline(time.Time{}) // or the connection would end with it
	return body.Bytes(), nil
}

// checkContentType refuses what says that it is something else than JSON. What
// curl says by default is taken for JSON.
func checkContentType(text string) error {
	if text == "" || text == "application/json" {
		return nil
	}
	name, parameters, err := mime.ParseMediaType(text)
	charset := strings.ToLower(parameters["charset"])
	switch {
	case err != nil:
	case charset != "" && charset != "utf-8":
	case name == "application/json", strings.HasSuffix(name, "+json"), name == "application/x-www-form-urlencoded":
		return nil
	}
	return problem(CodeMediaType, "%.100q is not taken here; send application/json in UTF-8", text)
}
