// Package dashboard is a web interface for a queue: what waits, what runs, what failed and
// why, with the actions of an operator. It is plain HTML that the server renders; a small
// script keeps open pages up to date.
//
// gq serve shows it at /. A program with a queue of its own mounts it under any path:
//
//	d, err := dashboard.New(client, dashboard.Options{Prefix: "/queue"})
//	…
//	http.Handle("/queue/", d)
//
// All links are relative, so it also works behind a reverse proxy that adds or removes a
// path prefix. Without [Options.Access] everybody who reaches the handler may do everything:
// the program has to put its own authentication in front.
package dashboard

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
)

// Options configure a dashboard. The zero value selects the defaults.
type Options struct {
	// Prefix is the path under which the program mounts the handler, such as /queue. It is
	// empty for / and for handlers behind [http.StripPrefix].
	Prefix string

	Title   string       // in the top bar; "" is GopherQueue
	Version string       // of the server, for the page about it
	Log     *slog.Logger // of internal errors, at level debug of requests and, unless Audit is set, of actions; nil discards
	Access  Access       // nil lets everybody do everything

	// Hosts are host names under which the dashboard may be called without access control,
	// besides IP addresses, localhost and names without a dot. They matter only on loopback,
	// where other names are refused: a web site can make its name resolve to this machine.
	Hosts []string

	// Sources are further pages of a server.
	Sources Sources

	// Audit is called after every action, successful or not. nil logs it.
	Audit func(ctx context.Context, a Action)
}

// Access authenticates visitors.
type Access interface {
	// Required reports whether visitors must sign in.
	Required(ctx context.Context) bool
	// Anonymous returns the visitor of a dashboard that requires no sign-in.
	Anonymous() *Visitor
	// SignIn returns the visitor to whom a token belongs. from is the address of the browser.
	SignIn(ctx context.Context, token, from string) (*Visitor, error)
}

// Permission is what a visitor may do with a queue.
type Permission uint8

// The permissions.
const (
	Read     Permission = iota + 1 // see jobs, events, counts and settings
	Payloads                       // see payloads, results and checkpoints
	Submit                         // cancel, replay and change jobs
	Admin                          // change settings and remove jobs
)

// Visitor is somebody who looks at the dashboard.
type Visitor struct {
	Name string // for the audit trail and the top bar

	// Key is the same for visitors who see and may do the same things, so that the same page, open in several
	// browsers, is rendered once for all of them. Visitors without one share nothing.
	Key string

	// Context returns the context of calls on behalf of the visitor. nil leaves it as it is.
	Context func(ctx context.Context) context.Context
	// May reports whether the visitor has a permission on a queue, or on all queues if the
	// name is empty. The queue itself checks every call; May only decides what is offered.
	// nil allows everything.
	May func(p Permission, queue string) bool
	// Valid returns an error once the visitor must sign in again. nil is always valid.
	Valid func(ctx context.Context) error
}

func (v *Visitor) may(p Permission, queue string) bool { return v.May == nil || v.May(p, queue) }

// Action is something that a visitor did.
type Action struct {
	Visitor string // Visitor.Name
	Name    string // such as cancel or pause
	Target  string // such as job 0198… or queue mail
	From    string // address of the browser
	Err     error  // nil if it succeeded
}

// Dashboard is an [http.Handler]. Close it when the server stops.
type Dashboard struct {
	queue                gq.Driver
	options              Options
	mux                  *http.ServeMux
	logged               http.Handler // find, with a line for each request
	pages                pages
	assets               map[string]asset // by name with content hash
	sessions             sessions
	guesses              guesses
	shared               sharedPages
	bulkStep, searchStep time.Duration
	streams              atomic.Int64 // open ones
	key                  []byte       // of form tokens
	now                  func() time.Time

	serving context.Context //nolint:containedctx // ends with Close
	stop    context.CancelFunc
}

// New creates a dashboard for a queue: a [gq.Client] or any other driver.
func New(queue gq.Driver, o Options) (*Dashboard, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Title == "" {
		o.Title = "GopherQueue"
	}
	o.Prefix = strings.TrimSuffix(o.Prefix, "/")
	if o.Prefix != "" && !strings.HasPrefix(o.Prefix, "/") {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "prefix", Problem: "must begin with a slash, such as /queue"}}}
	}
	d := &Dashboard{queue: queue, options: o, mux: http.NewServeMux(), key: randomKey(), now: time.Now, bulkStep: bulkStep, searchStep: searchStep}
	d.logged = httpx.Logged(o.Log, http.HandlerFunc(d.find))
	d.serving, d.stop = context.WithCancel(context.Background())
	var err error
	if d.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if d.pages, err = loadPages(d.assets); err != nil {
		return nil, err
	}
	d.route()
	return d, nil
}

// Close ends the streams of open pages. Pages reconnect when there is a server again.
func (d *Dashboard) Close() { d.stop() }

// get and post register handlers; an error of one becomes a page.
func (d *Dashboard) get(path string, f func(*visit) error) {
	d.mux.HandleFunc("GET "+d.options.Prefix+path, func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, f) })
}

func (d *Dashboard) post(path string, f func(*visit) error) {
	d.mux.HandleFunc("POST "+d.options.Prefix+path, func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, f) })
}

func (d *Dashboard) route() {
	d.get("/{$}", d.overview)
	d.get("/queues", d.queues)
	d.get("/queue", d.queuePage)
	d.post("/queue/pause", d.pauseQueue)
	d.post("/queue/resume", d.resumeQueue)
	d.get("/queue/limits", d.editLimits)
	d.post("/queue/limits", d.saveLimits)
	d.get("/jobs", d.jobs)
	d.get("/jobs/bulk", d.backFromBulk)
	d.post("/jobs/bulk", d.bulk)
	d.get("/jobs/{id}", d.job)
	d.post("/jobs/{id}/{action}", d.actOnJob)
	d.get("/workers", d.workers)
	d.get("/dead", d.dead)
	d.post("/dead/replay", d.replayDead)
	d.get("/schedules", d.schedules)
	d.post("/schedules/{action}", d.actOnSchedule)
	d.get("/workflows", d.workflows)
	d.get("/workflows/{id}", d.workflow)
	d.post("/workflows/{id}/{action}", d.actOnWorkflow)
	d.get("/events", d.events)
	d.get("/webhooks", d.webhooks)
	d.post("/webhooks/retry", d.redeliver)
	d.get("/pools", d.pools)
	d.get("/providers", d.providers)
	d.get("/rounds", d.rounds)
	d.get("/rounds/{number}", d.round)
	d.get("/tokens", d.tokens)
	d.get("/audit", d.auditTrail)
	d.get("/about", d.about)
	d.get("/live", d.live)
	d.get("/assets/{name}", d.asset)
	d.get("/signin", d.signInPage)
	d.post("/signin", d.signIn)
	d.post("/signout", d.signOut)
}

// Handles reports whether the dashboard has a page at the path of a request, for servers that
// serve other things beside it.
func (d *Dashboard) Handles(r *http.Request) bool {
	_, pattern := d.mux.Handler(r)
	return pattern != ""
}

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.logged.ServeHTTP(w, r) }

func (d *Dashboard) find(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if _, pattern := d.mux.Handler(r); pattern == "" {
		d.serve(w, r, func(v *visit) error { return v.notHere() })
		return
	}
	d.mux.ServeHTTP(w, r)
}
