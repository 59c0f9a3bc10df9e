package scheduler

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq/internal/httpx"
)

// route is an operation of the API with its own error codes, in addition to those of
// every operation.
type route struct {
	httpx.Route
	codes []Code
}

// routes is the whole API.
func routes(f *Face) []route {
	return []route{
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/jobs/submit", ID: "submit-job", Tag: "jobs", Summary: "Submit a job", Status: http.StatusCreated,
		}, f.submit), []Code{CodeDuplicate}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/jobs/claim", ID: "claim-job", Tag: "jobs", Summary: "Claim a job", Also: map[int]string{http.StatusNoContent: "Nothing that matches is available."},
		}, f.claim), nil},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/jobs", ID: "list-jobs", Tag: "jobs", Summary: "List jobs",
		}, f.list), []Code{CodeInvalidCursor}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/jobs/{job_id}", ID: "get-job", Tag: "jobs", Summary: "How a job stands, and how it ended",
		}, f.get), []Code{CodeJobNotFound}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/jobs/{job_id}/status", ID: "report-status", Tag: "jobs", Summary: "Report what a claimed or running job is at",
		}, f.status), []Code{CodeJobNotFound, CodeTransition, CodeClaimExpired, CodeWorkerMismatch}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/jobs/{job_id}/cancel", ID: "cancel-job", Tag: "jobs", Summary: "Cancel a job, or ask its worker to stop", Optional: true,
		}, f.cancel), []Code{CodeJobNotFound, CodeJobFinished}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/jobs/{job_id}/events", ID: "job-events", Tag: "jobs", Summary: "What has happened to a job",
		}, f.events), []Code{CodeJobNotFound}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/lease/request", ID: "request-lease", Tag: "leases", Summary: "Ask for capacity to run a claimed job",
		}, f.requestLease), []Code{CodeJobNotFound, CodeJobFinished, CodeJobNotClaimed, CodeTransition, CodeClaimExpired, CodeWorkerMismatch}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/lease/{lease_id}/heartbeat", ID: "heartbeat", Tag: "leases", Summary: "Keep a lease alive",
		}, f.heartbeat), []Code{CodeLeaseNotFound, CodeLeaseNotActive, CodeJobMismatch, CodeWorkerMismatch}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/lease/{lease_id}/release", ID: "release-lease", Tag: "leases", Summary: "End a lease and its job",
		}, f.release), []Code{CodeLeaseNotFound, CodeLeaseNotActive, CodeJobMismatch, CodeWorkerMismatch}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/lease/{lease_id}/cancel", ID: "cancel-lease", Tag: "leases", Summary: "Take a running job away from its worker and queue it again", Optional: true,
		}, f.cancelLease), []Code{CodeLeaseNotFound, CodeLeaseNotActive}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/lease", ID: "list-leases", Tag: "leases", Summary: "List the active leases",
		}, f.leases), []Code{CodeInvalidCursor}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/lease/{lease_id}", ID: "get-lease", Tag: "leases", Summary: "How a lease stands",
		}, f.getLease), []Code{CodeLeaseNotFound}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/stats/snapshot", ID: "snapshot", Tag: "stats", Summary: "How everything stands",
		}, f.snapshot), nil},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/stats/timeseries", ID: "timeseries", Tag: "stats", Summary: "How something stood over time",
		}, f.series), nil},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/facts/job_runs", ID: "facts-job-runs", Tag: "facts", Summary: "scheduler_job_runs: a row for each job, oldest first",
		}, f.jobRuns), []Code{CodeInvalidCursor}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/facts/lease_runs", ID: "facts-lease-runs", Tag: "facts", Summary: "scheduler_lease_runs: a row for each lease, by job",
		}, f.leaseRuns), []Code{CodeInvalidCursor}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/facts/events", ID: "facts-events", Tag: "facts", Summary: "scheduler_events: a row for each thing that happened, oldest first",
		}, f.audit), []Code{CodeInvalidCursor, CodeEventsGone}},
		{httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/admin/capacity", ID: "get-capacity", Tag: "admin", Summary: "How much capacity there is",
		}, f.getCapacity), nil},
		{httpx.Handle(httpx.Route{
			Method: http.MethodPut, Path: "/admin/capacity", ID: "put-capacity", Tag: "admin", Summary: "Change how much capacity there is",
		}, f.putCapacity), nil},
	}
}

// anywhere are the codes that any operation can return.
var anywhere = []Code{
	CodeInvalidRequest, CodeUnauthenticated, CodeForbidden, CodeBodyIncomplete, CodeBodyTooLarge, CodeMediaType,
	CodeLimitReached, CodeConflict, CodeInternal, CodeUnavailable, CodeTimeout,
}

// refusals returns the error statuses of an operation, with the codes of each.
func (r *route) refusals() map[string]string {
	all := map[string]string{}
	for _, m := range meanings {
		if !slices.Contains(r.codes, m.Code) && !slices.Contains(anywhere, m.Code) {
			continue
		}
		if status := strconv.Itoa(m.Status); all[status] == "" {
			all[status] = "code: " + string(m.Code)
		} else {
			all[status] += ", " + string(m.Code)
		}
	}
	return all
}

// api builds the API from the routes.
func (f *Face) api() *httpx.API {
	schemas := httpx.NewSchemas(map[reflect.Type]httpx.Schema{
		reflect.TypeFor[stamp]():      {Type: "string", Format: "date-time", Examples: []any{"2030-01-31T12:00:00Z"}},
		reflect.TypeFor[jobState]():   {Type: "string", Enum: jobStateNames()},
		reflect.TypeFor[eventType]():  {Type: "string", Enum: eventTypes(), Description: "The data of LEASE_DENIED has used, requested, capacity and count."},
		reflect.TypeFor[metricName](): {Type: "string", Enum: metricNames()},
		reflect.TypeFor[limitText]():  {Type: "integer"},

		reflect.TypeFor[capabilities](): capabilitiesForm,
	})
	schemas.NullLists = true
	var all []httpx.Route
	for _, r := range routes(f) {
		r.Large, r.Refusals = true, r.refusals()
		all = append(all, r.Route)
	}
	return httpx.New(httpx.Options{
		Info: httpx.Info{
			Title: "GopherQueue scheduler API", Version: f.options.Version,
			Description: "Jobs that workers claim, ask capacity for and run under leases.\n\n" + codesForPeople(),
		},
		Tags: []httpx.Tag{
			{Name: "jobs", Description: "Submit jobs, claim them, follow them."},
			{Name: "leases", Description: "Run jobs within the capacity there is."},
			{Name: "stats", Description: "How everything stands, now and over time."},
			{Name: "facts", Description: "What is kept about jobs and leases, as tables."},
			{Name: "admin", Description: "Change how much capacity there is."},
		},
		Schemas: schemas, Base: Base, Log: f.options.Log, MaxBody: f.options.MaxBody, BodyTimeout: f.options.BodyTimeout,
		Identify: f.options.Identify, Failed: f.options.Failed, Encode: encode,
	}, all)
}

func codesForPeople() string {
	var b strings.Builder
	b.WriteString("Errors are `{\"detail\": …, \"code\": …}` with one of these codes:\n\n")
	for _, m := range meanings {
		fmt.Fprintf(&b, "- `%s` (%d): %s\n", m.Code, m.Status, m.Text)
	}
	return b.String()
}
