// Package matching is the HTTP face of matching, below /api/matching: the
// registry of providers, jobs, leases, rounds, policy and a WebSocket of events.
//
// Bodies have the member names of the input of a round (docs/matching.md), times
// are seconds since 1970. Errors are RFC 9457 problems with a stable code.
package matching

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/match"
)

// Base is where the face is served.
const Base = "/api/matching"

// Options are what the face can be told. The zero value is the default.
type Options struct {
	Log         *slog.Logger  // nil is silence
	Version     string        // of the program, for the description; may be empty
	MaxBody     int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout time.Duration // in which a body must have come; 0 is 30 s
	Failed      func(error)   // is told that the store has failed for good

	// Identify puts who calls into the context of a request, see package access.
	// Without it everyone may do everything.
	Identify func(*http.Request) (context.Context, error)

	Guard Guard // decides what callers may do; nil is one that knows nothing but their tokens
}

// Guard is what the face needs of [access.Guard].
type Guard interface {
	Allow(ctx context.Context, s access.Scope, queue string, owner func() (string, error)) error
	StillValid(ctx context.Context) error
	WhileValid(ctx context.Context) (context.Context, context.CancelFunc)
}

// Face is an [http.Handler] for everything below [Base].
type Face struct {
	dispatch *matchmaker.Dispatcher
	events   Events
	options  Options
	handler  http.Handler
	openapi  []byte

	draining context.Context // ends when sockets should
	drain    context.CancelFunc
}

// Events is what the face needs of an engine: where the log of events ends.
type Events interface {
	LastEvent(ctx context.Context) (uint64, error)
}

// Handler makes the face over a dispatcher and its engine.
func Handler(d *matchmaker.Dispatcher, e Events, o Options) *Face {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxBody == 0 {
		o.MaxBody = 16 << 20
	}
	if o.BodyTimeout == 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.Identify == nil {
		o.Identify = func(r *http.Request) (context.Context, error) {
			return access.With(r.Context(), access.Everyone()), nil
		}
	}
	if o.Guard == nil {
		o.Guard = &access.Guard{}
	}
	f := &Face{dispatch: d, events: e, options: o}
	f.draining, f.drain = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	all := f.routes()
	for _, r := range all {
		mux.Handle(r.method+" "+Base+r.path, f.serve(r))
	}
	f.openapi = describe(all, o.Version)
	mux.HandleFunc(strings.Replace(openapiRoute, " ", " "+Base, 1), f.describe)
	mux.HandleFunc(strings.Replace(socketRoute, " ", " "+Base, 1), f.socket)
	mux.Handle("/", f.serve(route{do: f.nowhere(mux)}))
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.refuse(f.begin(w, r), wire.NewProblem(http.StatusForbidden, "cross_origin", "pages of other sites may not do this"))
	}))
	f.handler = crossOrigin.Handler(mux)
	return f
}

// Drain ends the sockets. It is called when a server is about to stop.
func (f *Face) Drain() { f.drain() }

// ServeHTTP answers a request.
func (f *Face) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.handler.ServeHTTP(w, r) }

// What is served beside the routes: the events, and what all of it looks like.
const (
	socketRoute  = "GET /events/ws"
	openapiRoute = "GET /openapi.json"
)

// route is one thing that can be asked for.
type route struct {
	method, path string
	scope        access.Scope // that the caller needs for the queue
	do           func(*call) (reply, error)
	shapes
}

func (f *Face) routes() []route {
	return []route{
		{"POST", "/providers", access.Admin, f.register, shapes{
			id: "register-provider", summary: "Register a provider, or say anew what it can", body: shape[match.Provider](),
			needed: []string{"id"}, without: matchmaker.Owned(), answer: shape[providerBody](), created: true,
		}},
		{"GET", "/providers", access.Read, f.providers, shapes{
			id: "list-providers", summary: "List providers by id", query: []string{"limit", "cursor"}, answer: shape[providersBody](),
		}},
		{"GET", "/providers/{id}", access.Read | access.Work, f.provider, shapes{
			id: "get-provider", summary: "How a provider stands", answer: shape[providerBody](),
		}},
		{"POST", "/providers/{id}/heartbeat", access.Work, f.heartbeat, shapes{
			id: "heartbeat", summary: "Show a sign of life", answer: shape[providerBody](),
		}},
		{"POST", "/providers/{id}/status", access.Admin, f.status, shapes{
			id: "set-status", summary: "Change the standing of a provider; one that is not ACTIVE loses its leases",
			body: shape[statusRequest](), needed: []string{"status"}, answer: shape[providerBody](),
		}},
		{"GET", "/providers/{id}/leases", access.Read | access.Work, f.leases, shapes{
			id: "list-leases", summary: "What a provider holds, each with its job", answer: shape[leasesBody](),
		}},
		{"POST", "/jobs", access.Submit, f.submit, shapes{
			id: "submit-job", summary: "Submit a job", body: shape[match.Enqueue](),
			needed: []string{"kind"}, without: match.QueueSays(), answer: shape[jobBody](), created: true,
		}},
		{"GET", "/jobs/{id}", access.Read | access.Submit, f.job, shapes{
			id: "get-job", summary: "How a job stands", answer: shape[jobBody](),
		}},
		{"GET", "/leases/{id}", access.Read | access.Work, f.lease, shapes{
			id: "get-lease", summary: "How a lease stands, or how it ended", answer: shape[LeaseBody](),
		}},
		{"POST", "/leases/{id}/ack", access.Work, f.ack, shapes{
			id: "ack-lease", summary: "Begin", body: shape[Holder](), answer: shape[LeaseBody](),
		}},
		{"POST", "/leases/{id}/renew", access.Work, f.renew, shapes{
			id: "renew-lease", summary: "Move the deadline on", body: shape[Holder](), answer: shape[LeaseBody](),
		}},
		{"POST", "/leases/{id}/decline", access.Work, f.decline, shapes{
			id: "decline-lease", summary: "Give a job back before beginning, without fault", body: shape[endRequest](), answer: shape[LeaseBody](),
		}},
		{"POST", "/leases/{id}/fail", access.Work, f.fail, shapes{
			id: "fail-lease", summary: "End an attempt without success", body: shape[endRequest](), answer: shape[LeaseBody](),
		}},
		{"POST", "/leases/{id}/complete", access.Work, f.complete, shapes{
			id: "complete-lease", summary: "End a job with success", body: shape[completeRequest](), needed: []string{"output_digest"}, answer: shape[LeaseBody](),
		}},
		{"POST", "/leases/{id}/proof", access.Admin, f.proof, shapes{
			id: "report-proof", summary: "Tell that a proof does not hold", body: shape[proofRequest](), needed: []string{"flaw"}, answer: shape[LeaseBody](),
		}},
		{"POST", "/beacon", access.Admin, f.putBeacon, shapes{
			id: "put-beacon", summary: "Say where the chain stands; it never goes back", body: shape[match.Beacon](),
			needed: []string{"chain_id"}, answer: shape[beaconBody](),
		}},
		{"GET", "/beacon", access.Read, f.beacon, shapes{
			id: "get-beacon", summary: "Where the chain stands", answer: shape[match.Beacon](),
		}},
		{"POST", "/rounds", access.Admin, f.round, shapes{
			id: "hold-round", summary: "Hold a round now", answer: shape[roundBody](),
		}},
		{"GET", "/rounds/{n}", access.Read, f.recorded, shapes{
			id: "get-round", summary: "The record of a round", answer: shape[Recorded](),
		}},
		{"GET", "/policy", access.Read, f.policy, shapes{
			id: "get-policy", summary: "The parameters in force", answer: shape[match.Settings](),
		}},
		{"PUT", "/policy", access.Admin, f.putPolicy, shapes{
			id: "put-policy", summary: "Change parameters; what is not named stays", body: shape[match.Settings](), answer: shape[match.Settings](),
		}},
	}
}

// Routes are the methods and paths, below [Base], of everything that the face
// serves.
func (f *Face) Routes() []string {
	all := []string{socketRoute, openapiRoute}
	for _, r := range f.routes() {
		all = append(all, r.method+" "+r.path)
	}
	return all
}

// call is one request.
type call struct {
	w  http.ResponseWriter
	r  *http.Request
	id string
}

func (c *call) context() context.Context { return c.r.Context() }

// reply is the answer to a call.
type reply struct {
	status int
	body   any
}

func ok(body any) (reply, error) { return reply{http.StatusOK, body}, nil }

// serve makes a handler of a route.
func (f *Face) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := f.begin(w, r)
		defer f.recover(c)
		answer, err := f.admitted(c, route)
		if err != nil {
			f.refuse(c, err)
			return
		}
		f.write(c, answer.status, "application/json", answer.body)
	})
}

func (f *Face) begin(w http.ResponseWriter, r *http.Request) *call {
	c := &call{w: w, r: r, id: rand.Text()}
	h := w.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	return c
}

// admitted does what a route does, for who may.
func (f *Face) admitted(c *call, route route) (reply, error) {
	if err := f.identify(c, route.scope); err != nil {
		return reply{}, err
	}
	return route.do(c)
}

// identify finds out who calls and whether they may. A provider may have a token
// of its own: the scope for the queue "matching/ID" is enough for what is its.
func (f *Face) identify(c *call, scope access.Scope) error {
	if scope == 0 {
		return nil
	}
	ctx, err := f.options.Identify(c.r)
	if err != nil {
		return err
	}
	c.r = c.r.WithContext(ctx)
	return f.options.Guard.Allow(ctx, scope, matchmaker.DefaultQueue, func() (string, error) { return f.owner(c) })
}

// owner is the provider that a request is about.
func (f *Face) owner(c *call) (string, error) {
	id := c.r.PathValue("id")
	if len(c.r.URL.Path) > len(Base+"/leases/") && c.r.URL.Path[:len(Base+"/leases/")] == Base+"/leases/" {
		l, err := f.dispatch.Lease(c.context(), gq.LeaseID(id))
		return l.Provider, err
	}
	return id, nil
}

// nowhere answers what no route does.
func (f *Face) nowhere(mux *http.ServeMux) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			other := c.r.Clone(c.context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "/" && method != c.r.Method {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) > 0 {
			c.w.Header().Set("Allow", strings.Join(allowed, ", "))
			return reply{}, wire.NewProblem(http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("%.200q takes %s", c.r.URL.Path, strings.Join(allowed, " and ")))
		}
		return reply{}, wire.NewProblem(http.StatusNotFound, "no_such_route", fmt.Sprintf("there is no %.200q", c.r.URL.Path))
	}
}

func (f *Face) write(c *call, status int, contentType string, body any) {
	var b bytes.Buffer
	if err := wire.EncodeJSON(&b, body); err != nil {
		f.options.Log.Error("encode an answer", "request_id", c.id, "path", c.r.URL.Path, "error", err)
		status = http.StatusInternalServerError
		b.Reset()
	}
	c.w.Header().Set("Content-Type", contentType)
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b.Bytes()) // the client has left
}

// refuse tells of an error. What the client is not told goes to the log.
func (f *Face) refuse(c *call, err error) {
	p, known := errors.AsType[*wire.Problem](err)
	if !known {
		switch {
		case errs.KindOf(err) != gq.KindInternal:
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("%w: %w", gq.ErrTimeout, err)
		case errors.Is(err, context.Canceled):
			err = fmt.Errorf("%w: %w", gq.ErrClosed, err) // the client has left, or the server stops
		default:
			f.options.Log.Error("internal error", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path, "error", err)
		}
		if errors.Is(err, gq.ErrStoreFailed) && f.options.Failed != nil {
			f.options.Failed(err)
		}
		wire.AskLater(c.w.Header(), err)
		p = wire.ProblemOf(err, c.id)
	}
	p.RequestID = c.id
	if p.Status == http.StatusUnauthorized {
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="gopherqueue"`)
	}
	f.write(c, p.Status, p.ContentType(""), p)
}

// recover answers for a handler that panicked.
func (f *Face) recover(c *call) {
	p := recover()
	if p == nil {
		return
	}
	if err, isError := p.(error); isError && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	f.options.Log.Error("panic in an HTTP handler", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	f.refuse(c, errors.New("panic"))
}

// body reads the body of a request, in time and within its limit. Without one
// it is an empty object.
func (f *Face) body(c *call) ([]byte, error) {
	controller := http.NewResponseController(c.w)
	_ = controller.SetReadDeadline(time.Now().Add(f.options.BodyTimeout)) // recorders have none
	text, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, f.options.MaxBody))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, wire.NewProblem(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
		}
		c.w.Header().Set("Connection", "close")
		return nil, wire.NewProblem(http.StatusRequestTimeout, "body_incomplete", fmt.Sprintf("the body did not come within %v", f.options.BodyTimeout))
	}
	_ = controller.SetReadDeadline(time.Time{})
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	return text, nil
}

// read reads the body of a request into one of this package's types.
func (f *Face) read(c *call, into any) error {
	text, err := f.body(c)
	if err != nil {
		return err
	}
	return wire.DecodeJSON(text, into)
}
