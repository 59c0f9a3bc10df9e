// Package matching is the HTTP face of matching, below /api/matching: the
// registry of providers, jobs, leases, rounds, policy and a WebSocket of events.
//
// Bodies use the member names of a round's input (docs/matching.md); times are Unix
// seconds. Errors are RFC 9457 problems with a stable code.
package matching

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// Base is the path prefix of the face.
const Base = "/api/matching"

// What a client recognizes jobs of matching by, and why one may wait.
const (
	Queue         = matchmaker.DefaultQueue
	Requirement   = matchmaker.Requirement
	StalledBeacon = matchmaker.StalledBeacon
)

// Options configure the face. The zero value selects the defaults.
type Options struct {
	Log         *slog.Logger  // nil discards
	Version     string        // of the program, for the OpenAPI document; may be empty
	MaxBody     int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout time.Duration // deadline for receiving a body; 0 is 30 s
	Failed      func(error)   // called once, when the store has failed permanently

	// Identify stores the caller's identity in the request context, see package access.
	// nil lets everyone do everything.
	Identify func(*http.Request) (context.Context, error)

	Guard Guard // authorizes callers; nil checks only the grants of their tokens
}

// Guard is the part of [access.Guard] that the face needs.
type Guard interface {
	Allow(ctx context.Context, s access.Scope, queue string, owner func() (string, error)) error
	Subscribe(ctx context.Context) (free func(), err error)
	StillValid(ctx context.Context) error
	WhileValid(ctx context.Context) (context.Context, context.CancelFunc)
}

// Face is an [http.Handler] for all paths below [Base].
type Face struct {
	*httpx.API

	dispatch *matchmaker.Dispatcher
	events   Events
	options  Options

	draining context.Context // ends when the WebSockets should close
	drain    context.CancelFunc
}

// Events is the part of an engine that the face needs: the end of the event log.
type Events interface {
	LastEvent(ctx context.Context) (uint64, error)
}

// Handler creates the face for a dispatcher and its engine.
func Handler(d *matchmaker.Dispatcher, e Events, o Options) *Face {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
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
	schemas := newSchemas()
	f.API = httpx.New(httpx.Options{
		Info: httpx.Info{
			Title: "GopherQueue matching API", Version: o.Version,
			Description: "Jobs that rounds assign to providers. Times are seconds since 1970. Errors are problems (RFC 9457) with a stable code. " +
				"Events are told over a WebSocket at " + Base + socketPath + ".",
		},
		Schemas: schemas, Base: Base, Log: o.Log, MaxBody: o.MaxBody, BodyTimeout: o.BodyTimeout, Identify: o.Identify, Failed: o.Failed,
	}, f.routes(schemas))
	return f
}

// Drain closes the WebSockets. Call it before stopping the server.
func (f *Face) Drain() { f.drain() }

// socketPath is the path of the event WebSocket.
const socketPath = "/events/ws"

// Route parameters.
type (
	idInput struct {
		ID string `path:"id"`
	}
	roundInput struct {
		Number string `path:"n"`
	}
	pageInput struct {
		Limit  string `query:"limit"`
		Cursor string `query:"cursor"`
	}
	heldInput struct {
		ID string `path:"id"`
		pageInput
	}
	leasesInput struct {
		ProviderID string `query:"provider_id"`
		pageInput
	}
	jobsInput struct {
		State     string  `query:"state"`
		Kind      string  `query:"kind"`
		Requester *string `query:"requester"`
		pageInput
	}
	socketInput struct {
		After string `query:"after"`
		All   string `query:"all"`
	}
	emptyBody struct{}
)

func (f *Face) routes(schemas *httpx.Schemas) []httpx.Route {
	return []httpx.Route{
		httpx.Stream(f.allowed(access.Read, httpx.Route{Method: http.MethodGet, Path: socketPath}), f.socket),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPost, Path: "/providers", ID: "register-provider", Tag: "providers", Summary: "Register a provider, or say anew what it can",
			Also: map[int]string{http.StatusCreated: "It was not known before."},
			Body: given[match.Provider](schemas, []string{"id"}, matchmaker.Owned()),
		}), f.register),
		httpx.Handle(f.allowed(access.Read, httpx.Route{
			Method: http.MethodGet, Path: "/providers", ID: "list-providers", Tag: "providers", Summary: "List providers by id",
		}), f.providers),
		httpx.Handle(f.allowed(access.Read|access.Work, httpx.Route{
			Method: http.MethodGet, Path: "/providers/{id}", ID: "get-provider", Tag: "providers", Summary: "How a provider stands",
		}), f.provider),
		httpx.Handle(f.allowed(access.Work, httpx.Route{
			Method: http.MethodPost, Path: "/providers/{id}/heartbeat", ID: "heartbeat", Tag: "providers", Summary: "Show a sign of life", Optional: true,
		}), f.heartbeat),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPost, Path: "/providers/{id}/status", ID: "set-status", Tag: "providers", Summary: "Change the standing of a provider; one that is not ACTIVE loses its leases",
			Body: given[statusRequest](schemas, []string{"status"}, nil),
		}), f.status),
		httpx.Handle(f.allowed(access.Read|access.Work, httpx.Route{
			Method: http.MethodGet, Path: "/providers/{id}/leases", ID: "list-leases", Tag: "providers", Summary: "What a provider holds, each with its job",
		}), f.leases),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodDelete, Path: "/providers/{id}", ID: "remove-provider", Tag: "providers", Summary: "Remove a retired provider", Status: http.StatusNoContent,
		}), f.remove),
		httpx.Handle(f.allowed(access.Submit, httpx.Route{
			Method: http.MethodPost, Path: "/jobs", ID: "submit-job", Tag: "jobs", Summary: "Submit a job", Status: http.StatusCreated,
			Also: map[int]string{http.StatusOK: "A job with the same content was submitted under this key before."},
			Body: given[match.Enqueue](schemas, []string{"kind"}, match.QueueSays()),
		}), f.submit),
		httpx.Handle(f.allowed(access.Read|access.Submit, httpx.Route{
			Method: http.MethodGet, Path: "/jobs/{id}", ID: "get-job", Tag: "jobs", Summary: "How a job stands",
		}), f.job),
		httpx.Handle(f.allowed(access.Read, httpx.Route{
			Method: http.MethodGet, Path: "/jobs", ID: "list-jobs", Tag: "jobs", Summary: "List jobs, newest first, without payloads and digests",
		}), f.jobs),
		httpx.Handle(f.allowed(access.Submit, httpx.Route{
			Method: http.MethodPost, Path: "/jobs/{id}/cancel", ID: "cancel-job", Tag: "jobs", Summary: "Cancel a job and the lease that holds it",
			Body: given[cancelRequest](schemas, []string{}, nil), Optional: true,
		}), f.cancelJob),
		httpx.Handle(f.allowed(access.Read, httpx.Route{
			Method: http.MethodGet, Path: "/leases", ID: "list-all-leases", Tag: "leases", Summary: "List the active leases in the order in which they were granted, each with its job",
		}), f.allLeases),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPost, Path: "/leases/{id}/cancel", ID: "cancel-lease", Tag: "leases", Summary: "Take a job away from its provider; it is queued again as the same attempt",
			Body: given[endRequest](schemas, []string{}, nil), Optional: true,
		}), f.cancelLease),
		httpx.Handle(f.allowed(access.Read|access.Work, httpx.Route{
			Method: http.MethodGet, Path: "/leases/{id}", ID: "get-lease", Tag: "leases", Summary: "How a lease stands, or how it ended",
		}), f.lease),
		httpx.Handle(f.allowed(access.Work, httpx.Route{
			Method: http.MethodPost, Path: "/leases/{id}/ack", ID: "ack-lease", Tag: "leases", Summary: "Begin",
			Body: given[Holder](schemas, []string{}, nil), Optional: true,
		}), f.ack),
		httpx.Handle(f.allowed(access.Work, httpx.Route{
			Method: http.MethodPost, Path: "/leases/{id}/renew", ID: "renew-lease", Tag: "leases", Summary: "Move the deadline on",
			Body: given[Holder](schemas, []string{}, nil), Optional: true,
		}), f.renew),
		httpx.Handle(f.allowed(access.Work, httpx.Route{
			Method: http.MethodPost, Path: "/leases/{id}/decline", ID: "decline-lease", Tag: "leases", Summary: "Give a job back before beginning, without fault",
			Body: given[endRequest](schemas, []string{}, nil), Optional: true,
		}), f.decline),
		httpx.Handle(f.allowed(access.Work, httpx.Route{
			Method: http.MethodPost, Path: "/leases/{id}/fail", ID: "fail-lease", Tag: "leases", Summary: "End an attempt without success",
			Body: given[endRequest](schemas, []string{}, nil), Optional: true,
		}), f.fail),
		httpx.Handle(f.allowed(access.Work, httpx.Route{
			Method: http.MethodPost, Path: "/leases/{id}/complete", ID: "complete-lease", Tag: "leases", Summary: "End a job with success",
			Body: given[completeRequest](schemas, []string{"output_digest"}, nil),
		}), f.complete),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPost, Path: "/leases/{id}/proof", ID: "report-proof", Tag: "leases", Summary: "Tell that a proof does not hold",
			Body: given[proofRequest](schemas, []string{"flaw"}, nil),
		}), f.proof),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPost, Path: "/beacon", ID: "put-beacon", Tag: "beacon", Summary: "Say where the chain stands; it never goes back",
			Body: given[match.Beacon](schemas, []string{"chain_id"}, nil),
		}), f.putBeacon),
		httpx.Handle(f.allowed(access.Read, httpx.Route{
			Method: http.MethodGet, Path: "/beacon", ID: "get-beacon", Tag: "beacon", Summary: "Where the chain stands",
		}), f.beacon),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPost, Path: "/rounds", ID: "hold-round", Tag: "rounds", Summary: "Hold a round now", Optional: true,
		}), f.round),
		httpx.Handle(f.allowed(access.Read, httpx.Route{
			Method: http.MethodGet, Path: "/rounds", ID: "list-rounds", Tag: "rounds", Summary: "List the recorded rounds, newest first",
		}), f.rounds),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPost, Path: "/rounds/{n}/cancel", ID: "cancel-round", Tag: "rounds", Summary: "Cancel the leases of a round that have not ended",
			Body: given[cancelRequest](schemas, []string{}, nil), Optional: true,
		}), f.cancelRound),
		httpx.Handle(f.allowed(access.Read, httpx.Route{
			Method: http.MethodGet, Path: "/rounds/{n}", ID: "get-round", Tag: "rounds", Summary: "The record of a round",
		}), f.recorded),
		httpx.Handle(f.allowed(access.Read, httpx.Route{
			Method: http.MethodGet, Path: "/policy", ID: "get-policy", Tag: "policy", Summary: "The parameters in force",
		}), f.policy),
		httpx.Handle(f.allowed(access.Admin, httpx.Route{
			Method: http.MethodPut, Path: "/policy", ID: "put-policy", Tag: "policy", Summary: "Change parameters; what is not named stays",
			Body: given[match.Settings](schemas, []string{}, nil), Optional: true,
		}), f.putPolicy),
	}
}

// Routes lists the method and path, below [Base], of every route.
func (f *Face) Routes() []string {
	all := []string{"GET /openapi.json"}
	for _, r := range f.routes(newSchemas()) {
		all = append(all, r.Method+" "+r.Path)
	}
	return all
}

// allowed makes a route require a scope on the matching queue. If the scope includes
// work, work on the queue "matching/ID" is enough for the objects of provider ID, so a
// provider can have its own token.
func (f *Face) allowed(scope access.Scope, r httpx.Route) httpx.Route {
	r.Large = true
	r.Allow = func(c *httpx.Call) error {
		return f.options.Guard.Allow(c.Request.Context(), scope, matchmaker.DefaultQueue, func() (string, error) { return f.owner(c.Request) })
	}
	return r
}

// owner returns the provider that a request concerns.
func (f *Face) owner(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !strings.HasPrefix(r.URL.Path, Base+"/leases/") {
		return id, nil
	}
	l, err := f.dispatch.Lease(r.Context(), gq.LeaseID(id))
	return l.Provider, err
}
