package scheduler

import (
	"net/http"
	"reflect"
)

// route is an operation of the API.
type route struct {
	method, path string // below Base
	id           string
	tag          string
	summary      string
	query        []parameter
	body         reflect.Type // nil is none
	optional     bool         // the body may be missing
	status       int          // 200 unless given
	answer       reflect.Type
	also         map[int]string // other successes
	codes        []Code         // beside those that anything can end with
	added        bool           // beyond the contract's own endpoints
	do           func(*Face, *call) (reply, error)
}

// parameter is one of a query.
type parameter struct {
	name, doc string
	values    []string // where only these are allowed
	number    bool
	instant   bool
	needed    bool
}

func shape[T any]() reflect.Type { return reflect.TypeFor[T]() }

var (
	limitParameter  = parameter{name: "limit", doc: "Entries on the page; 50 unless told, at most 200.", number: true}
	cursorParameter = parameter{name: "cursor", doc: "next_cursor of the page before."}
	addonParameter  = parameter{name: "addon_id", doc: "Only of this addon."}
)

// routes is the whole API.
func routes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/jobs/submit", id: "submit-job", tag: "jobs", summary: "Submit a job",
			body: shape[submitRequest](), status: http.StatusCreated, answer: shape[jobAnswer](), codes: []Code{CodeDuplicate}, do: (*Face).submit,
		},
		{
			method: http.MethodPost, path: "/jobs/claim", id: "claim-job", tag: "jobs", summary: "Claim a job",
			body: shape[claimRequest](), answer: shape[jobAnswer](), also: map[int]string{http.StatusNoContent: "Nothing that matches is available."},
			do: (*Face).claim,
		},
		{
			method: http.MethodGet, path: "/jobs", id: "list-jobs", tag: "jobs", summary: "List jobs",
			query: []parameter{
				{name: "state", doc: "Only in this state.", values: jobStateNames()},
				addonParameter,
				{name: "created_after", doc: "Not submitted before this instant.", instant: true},
				{name: "created_before", doc: "Submitted before this instant.", instant: true},
				limitParameter, cursorParameter,
			},
			answer: shape[listAnswer](), codes: []Code{CodeInvalidCursor}, do: (*Face).list,
		},
		{
			method: http.MethodGet, path: "/jobs/{job_id}", id: "get-job", tag: "jobs", summary: "How a job stands, and how it ended",
			answer: shape[getAnswer](), codes: []Code{CodeJobNotFound}, do: (*Face).get,
		},
		{
			method: http.MethodPost, path: "/jobs/{job_id}/status", id: "report-status", tag: "jobs", summary: "Report what a claimed or running job is at",
			body: shape[statusRequest](), answer: shape[jobAnswer](),
			codes: []Code{CodeJobNotFound, CodeTransition, CodeClaimExpired, CodeWorkerMismatch}, do: (*Face).status,
		},
		{
			method: http.MethodPost, path: "/jobs/{job_id}/cancel", id: "cancel-job", tag: "jobs", summary: "Cancel a job, or ask its worker to stop",
			body: shape[cancelRequest](), optional: true, answer: shape[jobAnswer](), codes: []Code{CodeJobNotFound, CodeJobFinished}, do: (*Face).cancel,
		},
		{
			method: http.MethodGet, path: "/jobs/{job_id}/events", id: "job-events", tag: "jobs", summary: "What has happened to a job",
			answer: shape[eventsAnswer](), codes: []Code{CodeJobNotFound}, do: (*Face).events,
		},
		{
			method: http.MethodPost, path: "/lease/request", id: "request-lease", tag: "leases", summary: "Ask for capacity to run a claimed job",
			body: shape[leaseRequest](), answer: shape[leaseVerdict](),
			codes: []Code{CodeJobNotFound, CodeJobFinished, CodeJobNotClaimed, CodeTransition, CodeClaimExpired, CodeWorkerMismatch}, do: (*Face).requestLease,
		},
		{
			method: http.MethodPost, path: "/lease/{lease_id}/heartbeat", id: "heartbeat", tag: "leases", summary: "Keep a lease alive",
			body: shape[heartbeatRequest](), answer: shape[heartbeatAnswer](),
			codes: []Code{CodeLeaseNotFound, CodeLeaseNotActive, CodeJobMismatch, CodeWorkerMismatch}, do: (*Face).heartbeat,
		},
		{
			method: http.MethodPost, path: "/lease/{lease_id}/release", id: "release-lease", tag: "leases", summary: "End a lease and its job",
			body: shape[releaseRequest](), answer: shape[releaseAnswer](),
			codes: []Code{CodeLeaseNotFound, CodeLeaseNotActive, CodeJobMismatch, CodeWorkerMismatch}, do: (*Face).release,
		},
		{
			method: http.MethodGet, path: "/lease/{lease_id}", id: "get-lease", tag: "leases", summary: "How a lease stands",
			answer: shape[leaseAnswer](), codes: []Code{CodeLeaseNotFound}, do: (*Face).getLease,
		},
		{
			method: http.MethodGet, path: "/stats/snapshot", id: "snapshot", tag: "stats", summary: "How everything stands",
			answer: shape[snapshotAnswer](), do: (*Face).snapshot,
		},
		{
			method: http.MethodGet, path: "/stats/timeseries", id: "timeseries", tag: "stats", summary: "How something stood over time",
			query: []parameter{
				{name: "metric", doc: "What of.", values: metricNames(), needed: true},
				{name: "bucket", doc: "Distance of the points, such as 5m, which it is unless told; s, m, h or d."},
				{name: "range", doc: "How far back, such as 24h, which it is unless told; at most 31d."},
			},
			answer: shape[seriesAnswer](), do: (*Face).series,
		},
		{
			method: http.MethodGet, path: "/facts/job_runs", id: "facts-job-runs", tag: "facts", summary: "scheduler_job_runs: a row for each job, oldest first",
			query: []parameter{addonParameter, limitParameter, cursorParameter}, answer: shape[jobRunsAnswer](), codes: []Code{CodeInvalidCursor},
			added: true, do: (*Face).jobRuns,
		},
		{
			method: http.MethodGet, path: "/facts/lease_runs", id: "facts-lease-runs", tag: "facts", summary: "scheduler_lease_runs: a row for each lease, by job",
			query: []parameter{addonParameter, limitParameter, cursorParameter}, answer: shape[leaseRunsAnswer](), codes: []Code{CodeInvalidCursor},
			added: true, do: (*Face).leaseRuns,
		},
		{
			method: http.MethodGet, path: "/facts/events", id: "facts-events", tag: "facts", summary: "scheduler_events: a row for each thing that happened, oldest first",
			query: []parameter{limitParameter, cursorParameter}, answer: shape[auditAnswer](), codes: []Code{CodeInvalidCursor, CodeEventsGone},
			added: true, do: (*Face).audit,
		},
		{
			method: http.MethodGet, path: "/admin/capacity", id: "get-capacity", tag: "admin", summary: "How much capacity there is",
			answer: shape[capacityAnswer](), added: true, do: (*Face).getCapacity,
		},
		{
			method: http.MethodPut, path: "/admin/capacity", id: "put-capacity", tag: "admin", summary: "Change how much capacity there is",
			body: shape[capacityRequest](), answer: shape[capacityAnswer](), added: true, do: (*Face).putCapacity,
		},
	}
}

// route builds the handler.
func (f *Face) route() {
	all := routes()
	for _, r := range all {
		f.mux.Handle(r.method+" "+Base+r.path, f.serve(func(c *call) (reply, error) {
			if err := c.readQuery(r.query); err != nil {
				return reply{}, err
			}
			return r.do(f, c)
		}))
	}
	f.openapi = describe(all, f.options.Version)
	f.mux.HandleFunc("GET "+Base+"/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		c := f.begin(w, r)
		c.w.Header().Set("Content-Type", "application/json")
		_, _ = c.w.Write(f.openapi) // the client has left
	})
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.refuse(f.begin(w, r), &Problem{Code: CodeForbidden, Detail: "pages of other sites may not do this"})
	}))
	f.handler = crossOrigin.Handler(http.HandlerFunc(f.find))
}

// OpenAPI is the description of the API, as JSON.
func (f *Face) OpenAPI() []byte { return f.openapi }
