// Package httpx has what all HTTP APIs share: a route table that it serves and describes
// in OpenAPI, request ids, limits, content types, errors, and cross-origin protection.
// APIs differ only in how they encode errors.
//
// Each path has exactly one spelling: a trailing or double slash gives 404, never a
// redirect. HEAD works like GET without a body, and OPTIONS lists the path's methods.
// Compressed bodies are rejected, so a small request cannot expand into a large one.
package httpx

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
)

// Options configure an API. The zero value of each field selects its default.
type Options struct {
	Info         Info // for the OpenAPI document
	Tags         []Tag
	Schemas      *Schemas      // for the OpenAPI document; nil creates a new set
	Base         string        // prefix of every path
	Log          *slog.Logger  // nil discards
	MaxBody      int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout  time.Duration // deadline for receiving a body; 0 is 30 s
	WriteTimeout time.Duration // deadline for the client to read the response; 0 is 1 min

	// Identify authenticates the caller and stores the identity in the request context.
	// nil turns authentication off.
	Identify func(*http.Request) (context.Context, error)

	// Failed is called once, when the store has failed permanently.
	Failed func(error)

	// Encode converts an error to its response; nil uses [Problem].
	Encode func(err error, requestID string) Refusal
}

// Refusal is an error response.
type Refusal struct {
	Status      int
	ContentType string
	Code        string // for the log, as the body has it
	Body        any
}

// Problem encodes an error as an RFC 9457 problem.
func Problem(err error, requestID string) Refusal {
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		p = wire.ProblemOf(err, requestID)
	}
	told := *p
	told.RequestID = requestID
	return Refusal{told.Status, wire.ProblemType, told.Code, &told}
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxBody == 0 {
		o.MaxBody = 16 << 20
	}
	if o.BodyTimeout == 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = time.Minute
	}
	if o.Encode == nil {
		o.Encode = Problem
	}
	if o.Schemas == nil {
		o.Schemas = NewSchemas(nil)
	}
	return o
}

// API serves routes as an [http.Handler].
type API struct {
	options  Options
	mux      *http.ServeMux
	handler  http.Handler
	document *Document
	openapi  []byte
	reported sync.Once
}

// New creates an API from routes. It also serves the OpenAPI document at /openapi.json.
func New(o Options, routes []Route) *API {
	a := &API{options: o.withDefaults(), mux: http.NewServeMux()}
	a.document, a.openapi = describe(&a.options, routes)
	routes = append(routes[:len(routes):len(routes)], Plain(http.MethodGet, "/openapi.json", func(c *Call) error {
		c.Header().Set("Content-Type", "application/json")
		_, _ = c.Write(a.openapi) // an error means that the client has gone
		return nil
	}))
	for _, r := range routes {
		a.mux.HandleFunc(r.Method+" "+a.options.Base+r.Path, func(_ http.ResponseWriter, request *http.Request) {
			c := CallOf(request.Context())
			c.Request, c.route = request, &r
			if err := a.call(c); err != nil {
				a.refuse(c, err)
			}
		})
	}
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a.refuse(CallOf(r.Context()), wire.NewProblem(http.StatusForbidden, "cross_origin", "pages of other sites may not do this"))
	}))
	a.handler = crossOrigin.Handler(http.HandlerFunc(a.find))
	return a
}

func (a *API) call(c *Call) error {
	if c.route.Allow != nil {
		if err := c.route.Allow(c); err != nil {
			return err
		}
	}
	return c.route.do(c)
}

// OpenAPI returns the OpenAPI document as JSON.
func (a *API) OpenAPI() []byte { return a.openapi }

// Document returns the OpenAPI document.
func (a *API) Document() *Document { return a.document }

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &Call{w: w, api: a, ID: NameRequest(w, r)}
	c.Request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	c.AnswerAfter(0)
	began := time.Now()
	defer func() { note(a.options.Log, c.Request, c.ID, c.status, c.code, began) }()
	defer a.recover(c)
	a.handler.ServeHTTP(c, c.Request)
}

// recover responds in place of a handler that panicked.
func (a *API) recover(c *Call) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // net/http's own way to abort a request
	}
	a.options.Log.Error("panic in an HTTP handler", "request_id", c.ID, "method", c.Request.Method, "path", c.Request.URL.Path,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if !c.wrote {
		a.write(c, a.options.Encode(errors.New("panic"), c.ID))
	}
}

// find authenticates the caller and serves the matching route, or responds with 404 or
// 405.
func (a *API) find(_ http.ResponseWriter, r *http.Request) {
	c := CallOf(r.Context())
	if a.options.Identify != nil {
		ctx, err := a.options.Identify(r)
		if err != nil {
			a.refuse(c, err)
			return
		}
		r = r.WithContext(ctx)
		c.Request = r
	}
	handler, pattern := a.mux.Handler(r)
	if at := r.URL.EscapedPath(); pattern != "" && at == path.Clean(at) { // else the mux would redirect
		a.mux.ServeHTTP(c, r)
		return
	}
	missing := &discard{header: http.Header{}}
	handler.ServeHTTP(missing, r)
	if missing.status != http.StatusMethodNotAllowed {
		a.refuse(c, wire.NewProblem(http.StatusNotFound, "no_such_route",
			fmt.Sprintf("there is no %.200q; %s/openapi.json lists what there is", r.URL.Path, a.options.Base)))
		return
	}
	allow := missing.header.Get("Allow") + ", " + http.MethodOptions
	c.Header().Set("Allow", allow)
	if r.Method == http.MethodOptions {
		c.WriteHeader(http.StatusNoContent)
		return
	}
	a.refuse(c, wire.NewProblem(http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("%.200q takes %s", r.URL.Path, allow)))
}

// discard is a response writer that keeps only status and headers.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// Told returns the error that the client may see. It logs internal errors and reports a
// failed store to [Options.Failed].
func (a *API) Told(c *Call, err error) error {
	if errs.KindOf(err) == gq.KindInternal && !told(err) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("%w: %w", gq.ErrTimeout, err)
		case errors.Is(err, context.Canceled):
			err = fmt.Errorf("%w: %w", gq.ErrClosed, err) // the client has gone, or the server is stopping
		default:
			a.options.Log.Error("internal error", "request_id", c.ID, "method", c.Request.Method, "path", c.Request.URL.Path, "error", err)
		}
	}
	if errors.Is(err, gq.ErrStoreFailed) && a.options.Failed != nil {
		a.reported.Do(func() { a.options.Failed(err) })
	}
	return err
}

// told reports whether an error has its own HTTP status and so is safe to show to
// clients.
func told(err error) bool {
	_, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err)
	return ok
}

// refuse responds with an error.
func (a *API) refuse(c *Call, err error) {
	err = a.Told(c, err)
	wire.AskLater(c.Header(), err)
	a.write(c, a.options.Encode(err, c.ID))
}

func (a *API) write(c *Call, r Refusal) {
	if r.Status == http.StatusUnauthorized {
		c.Header().Set("WWW-Authenticate", `Bearer realm="gopherqueue"`)
	}
	c.code = r.Code
	c.Header().Set("Content-Type", r.ContentType)
	c.WriteHeader(r.Status)
	if c.Request.Method != http.MethodHead {
		_ = wire.EncodeJSON(c, r.Body) // an error means that the client has gone
	}
}

// NameRequest sets the request's id: the client's own if it has only safe characters, or
// else a random one.
func NameRequest(w http.ResponseWriter, r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > 64 || strings.Trim(id, harmless) != "" {
		id = rand.Text()
	}
	w.Header().Set("X-Request-Id", id)
	return id
}

const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
