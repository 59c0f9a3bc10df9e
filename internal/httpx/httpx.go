// Package httpx is what all HTTP APIs have in common: a table of routes that it both
// serves and describes in OpenAPI, request ids, limits, content types, errors, and
// protection against pages of other sites. APIs differ in how they encode a refusal
// and in nothing else.
//
// Every path has one spelling: a trailing or a double slash is a path that does not
// exist, never a redirect. HEAD is answered like GET without a body, and OPTIONS with
// the methods of the path. Nothing is unpacked, so that nothing small becomes large.
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

// Options are the settings of an API. The zero value of each is its default.
type Options struct {
	Info         Info // of the description
	Tags         []Tag
	Schemas      *Schemas      // of the description; nil is a new set
	Base         string        // prefix of every path
	Log          *slog.Logger  // nil discards
	MaxBody      int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout  time.Duration // in which a body must arrive; 0 is 30 s
	WriteTimeout time.Duration // in which the client must take its answer; 0 is 1 min

	// Identify finds out who calls and puts that into the context of the request.
	// nil asks nobody.
	Identify func(*http.Request) (context.Context, error)

	// Failed is told once that the store has failed for good.
	Failed func(error)

	// Encode is how the API tells of an error; nil is [Problem].
	Encode func(err error, requestID string) Refusal
}

// Refusal is an error as a client gets it.
type Refusal struct {
	Status      int
	ContentType string
	Body        any
}

// Problem encodes an error as RFC 9457 says.
func Problem(err error, requestID string) Refusal {
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		p = wire.ProblemOf(err, requestID)
	}
	told := *p
	told.RequestID = requestID
	return Refusal{told.Status, wire.ProblemType, &told}
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

// API serves routes. It is an [http.Handler].
type API struct {
	options  Options
	mux      *http.ServeMux
	handler  http.Handler
	document *Document
	openapi  []byte
	reported sync.Once
}

// New makes an API of routes. It serves its description too, at /openapi.json.
func New(o Options, routes []Route) *API {
	a := &API{options: o.withDefaults(), mux: http.NewServeMux()}
	a.document, a.openapi = describe(&a.options, routes)
	routes = append(routes[:len(routes):len(routes)], Plain(http.MethodGet, "/openapi.json", func(c *Call) error {
		c.Header().Set("Content-Type", "application/json")
		_, _ = c.Write(a.openapi) // the client has left
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

// OpenAPI is the description of the API, as JSON.
func (a *API) OpenAPI() []byte { return a.openapi }

// Document is the description of the API.
func (a *API) Document() *Document { return a.document }

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &Call{w: w, api: a, ID: NameRequest(w, r)}
	c.Request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	c.AnswerAfter(0)
	defer a.recover(c)
	a.handler.ServeHTTP(c, c.Request)
}

// recover answers for a handler that panicked.
func (a *API) recover(c *Call) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // the server's own way to end a request
	}
	a.options.Log.Error("panic in an HTTP handler", "request_id", c.ID, "method", c.Request.Method, "path", c.Request.URL.Path,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if !c.wrote {
		a.write(c, a.options.Encode(errors.New("panic"), c.ID))
	}
}

// find calls the route of a request, or answers why there is none.
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
	if at := r.URL.EscapedPath(); pattern != "" && at == path.Clean(at) { // otherwise it would redirect
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

// discard takes an answer that nobody sees.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// Told is an error as a client may be told of it. It logs what stays inside, and
// reports a store that has failed.
func (a *API) Told(c *Call, err error) error {
	if errs.KindOf(err) == gq.KindInternal && !told(err) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("%w: %w", gq.ErrTimeout, err)
		case errors.Is(err, context.Canceled):
			err = fmt.Errorf("%w: %w", gq.ErrClosed, err) // the client has left, or the server stops
		default:
			a.options.Log.Error("internal error", "request_id", c.ID, "method", c.Request.Method, "path", c.Request.URL.Path, "error", err)
		}
	}
	if errors.Is(err, gq.ErrStoreFailed) && a.options.Failed != nil {
		a.reported.Do(func() { a.options.Failed(err) })
	}
	return err
}

// told reports whether an error is written for clients: it knows its status.
func told(err error) bool {
	_, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err)
	return ok
}

// refuse answers with an error.
func (a *API) refuse(c *Call, err error) {
	err = a.Told(c, err)
	wire.AskLater(c.Header(), err)
	a.write(c, a.options.Encode(err, c.ID))
}

func (a *API) write(c *Call, r Refusal) {
	if r.Status == http.StatusUnauthorized {
		c.Header().Set("WWW-Authenticate", `Bearer realm="gopherqueue"`)
	}
	c.Header().Set("Content-Type", r.ContentType)
	c.WriteHeader(r.Status)
	if c.Request.Method != http.MethodHead {
		_ = wire.EncodeJSON(c, r.Body) // the client has left
	}
}

// NameRequest gives a request its id: the client's own where it is harmless, or a
// random one.
func NameRequest(w http.ResponseWriter, r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > 64 || strings.Trim(id, harmless) != "" {
		id = rand.Text()
	}
	w.Header().Set("X-Request-Id", id)
	return id
}

const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
