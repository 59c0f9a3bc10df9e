package native

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path"
	"runtime/debug"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/wire"
)

// MaxHTTPWait is the longest that a claim or a wait for a job may take over
// HTTP.
const MaxHTTPWait = 10 * time.Minute

// HTTPOptions are what the HTTP face can be told. The zero value is the default.
type HTTPOptions struct {
	Log         *slog.Logger  // nil is silence
	Version     string        // of the program, for the API's description
	MaxBody     int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout time.Duration // in which a body must have come; 0 is 30 s
	WriteWithin time.Duration // in which an answer must be taken; 0 is 1 min

	// Ready tells why the server is not ready, nil where it is. Without it the
	// engine is asked.
	Ready func(ctx context.Context) error

	// Failed is told of errors that mean that the store has failed for good.
	Failed func(error)

	// Identify finds out who calls and puts that into the context of the request.
	// nil asks nobody.
	Identify func(r *http.Request) (context.Context, error)

	Feed    *feed.Feed  // of events; nil serves none
	Events  EventLimits // of its subscribers
	Admin   Admin       // nil serves none of it
	Metrics Metrics     // at /metrics; nil is none
}

// Metrics is a page of numbers in the text format of Prometheus. Where Write has an
// error it has written nothing.
type Metrics interface {
	Write(ctx context.Context, w io.Writer) error
}

// HTTP is the native face over HTTP. It is an [http.Handler].
type HTTP struct {
	engine  engine.API
	options HTTPOptions
	mux     *http.ServeMux
	api     huma.API
	handler http.Handler
	openapi []byte
	page    docsPage

	draining context.Context // ends when long waits should
	drain    context.CancelFunc
	sockets  sync.WaitGroup // WebSockets, which an HTTP server does not wait for
	reported sync.Once
}

// NewHTTP makes the face over a queue.
func NewHTTP(e engine.API, o HTTPOptions) *HTTP {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxBody == 0 {
		o.MaxBody = 16 << 20
	}
	if o.BodyTimeout == 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.WriteWithin == 0 {
		o.WriteWithin = time.Minute
	}
	if o.Version == "" {
		o.Version = "development"
	}
	h := &HTTP{engine: e, options: o, mux: http.NewServeMux()}
	h.draining, h.drain = context.WithCancel(context.Background())
	h.api = humago.New(h.mux, h.describe())
	h.registerJobs()
	h.registerJob()
	h.registerLeases()
	h.registerQueues()
	h.registerSchedules()
	h.registerSystem()
	h.registerEvents()
	h.registerAdmin()
	if o.Metrics != nil {
		h.mux.HandleFunc("GET /metrics", h.metrics)
	}
	h.describeEnd()

	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.refuse(w, callOf(r.Context()), wire.NewProblem(http.StatusForbidden, "cross_origin", "pages of other sites may not do this"))
	}))
	h.handler = crossOrigin.Handler(http.HandlerFunc(h.route))
	return h
}

// Drain ends waits: claims answer with no job, and waits for a job with the job
// as it stands. It is called when a server is about to stop.
func (h *HTTP) Drain() { h.drain() }

// Wait waits for the WebSockets that Drain has ended.
func (h *HTTP) Wait() { h.sockets.Wait() }

// OpenAPI is the description of the API, as JSON.
func (h *HTTP) OpenAPI() []byte { return h.openapi }

// call is one request.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	id     string
	wrote  bool
	status int
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Header, Write and WriteHeader make a call the writer that handlers get, so
// that it is known whether an answer has begun.
func (c *call) Header() http.Header { return c.w.Header() }

func (c *call) Write(b []byte) (int, error) {
	c.wrote = true
	return c.w.Write(b)
}

func (c *call) WriteHeader(status int) {
	c.wrote, c.status = true, status
	c.w.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (c *call) Unwrap() http.ResponseWriter { return c.w }

// ServeHTTP answers a request.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, id: requestID(r)}
	c.r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	header := w.Header()
	header.Set("X-Request-Id", c.id)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	// A client that does not take its answer is not waited for.
	h.writeWithin(c, 0)
	defer h.recover(c)
	h.handler.ServeHTTP(c, c.r)
}

// writeWithin gives the client time to take its answer, from when it may come.
func (h *HTTP) writeWithin(c *call, wait time.Duration) {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(wait + h.options.WriteWithin)) // recorders have none
}

// requestID is the client's own name for its request where it is harmless, or
// one drawn here.
func requestID(r *http.Request) string {
	given := r.Header.Get("X-Request-Id")
	ok := len(given) > 0 && len(given) <= 64
	for i := 0; ok && i < len(given); i++ {
		b := given[i]
		ok = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.'
	}
	if ok {
		return given
	}
	return rand.Text()
}

// recover answers for a handler that panicked.
func (h *HTTP) recover(c *call) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && (errors.Is(err, http.ErrAbortHandler) || c.r.Context().Err() != nil) {
		return // the client has left
	}
	h.options.Log.Error("panic in an HTTP handler", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if !c.wrote {
		h.refuse(c, c, wire.ProblemOf(errors.New("panic"), c.id))
	}
}

// route finds the handler and answers itself where there is none.
func (h *HTTP) route(w http.ResponseWriter, r *http.Request) {
	if h.options.Identify != nil {
		ctx, err := h.options.Identify(r)
		if err != nil {
			h.refuse(w, callOf(r.Context()), h.problem(r.Context(), err))
			return
		}
		r = r.WithContext(ctx)
	}
	handler, pattern := h.mux.Handler(r)
	if at := r.URL.EscapedPath(); pattern != "" && at == path.Clean(at) { // or it would lead elsewhere
		h.mux.ServeHTTP(w, r)
		return
	}
	missing := &silent{header: http.Header{}}
	handler.ServeHTTP(missing, r)
	problem := wire.NewProblem(http.StatusNotFound, "no_such_route", fmt.Sprintf("there is no %.200q; /docs lists what there is", r.URL.Path))
	if missing.status == http.StatusMethodNotAllowed {
		allow := missing.header.Get("Allow")
		w.Header().Set("Allow", allow)
		problem = wire.NewProblem(http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("%.200q takes %s", r.URL.Path, allow))
	}
	h.refuse(w, callOf(r.Context()), problem)
}

// silent takes an answer that nobody sees.
type silent struct {
	header http.Header
	status int
}

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) Write(b []byte) (int, error) { return len(b), nil }
func (s *silent) WriteHeader(status int)      { s.status = status }

func (h *HTTP) refuse(w http.ResponseWriter, c *call, p *wire.Problem) {
	if c != nil {
		p.RequestID = c.id
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="gopherqueue"`)
	}
	w.WriteHeader(p.Status)
	_ = wire.EncodeJSON(w, p) // the client has left
}

// problem is an error as the client is told of it. What it is not told goes to
// the log.
func (h *HTTP) problem(ctx context.Context, err error) *wire.Problem {
	c := callOf(ctx)
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		p.RequestID = c.id
		return p
	}
	if errs.KindOf(err) == gq.KindInternal {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("%w: %w", gq.ErrTimeout, err)
		case errors.Is(err, context.Canceled):
			err = fmt.Errorf("%w: %w", gq.ErrClosed, err) // the client has left, or the server stops
		default:
			h.options.Log.Error("internal error", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path, "error", err)
		}
	}
	wire.AskLater(c.Header(), err)
	if errors.Is(err, gq.ErrStoreFailed) && h.options.Failed != nil {
		h.reported.Do(func() { h.options.Failed(err) })
	}
	return wire.ProblemOf(err, c.id)
}

// maxDiscard is how much of a body that is too large is read and thrown away.
const maxDiscard = 64 << 20

// readBody reads the body of a request, in time and within its limit.
func (h *HTTP) readBody(c *call, most int64) ([]byte, error) {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return nil, nil
	}
	controller := http.NewResponseController(c.w)
	_ = controller.SetReadDeadline(time.Now().Add(h.options.BodyTimeout)) // recorders have none
	var body bytes.Buffer
	if n := c.r.ContentLength; n > 0 && n <= most {
		body.Grow(int(min(n, 1<<20)))
	}
	_, err := io.Copy(&body, io.LimitReader(c.r.Body, most+1))
	if err == nil && int64(body.Len()) <= most {
		_ = controller.SetReadDeadline(time.Time{}) // or a long wait would end with it
		return body.Bytes(), nil
	}
	c.w.Header().Set("Connection", "close")
	switch {
	case err == nil:
		_, _ = io.CopyN(io.Discard, c.r.Body, maxDiscard) // many read no answer before they have sent all
		return nil, wire.NewProblem(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body is larger than %d bytes", most))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, wire.NewProblem(http.StatusRequestTimeout, "body_incomplete", fmt.Sprintf("the body did not come within %v", h.options.BodyTimeout))
	default:
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "body", Problem: "cannot be read: " + err.Error()}}}
	}
}
