package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/wire"
)

// Code is a machine-readable error code. The set is closed.
type Code string

// The codes.
const (
	CodeInvalidRequest  Code = "invalid_request"
	CodeInvalidCursor   Code = "invalid_cursor"
	CodeUnauthenticated Code = "unauthenticated"
	CodeForbidden       Code = "forbidden"
	CodeJobNotFound     Code = "job_not_found"
	CodeLeaseNotFound   Code = "lease_not_found"
	CodeRouteNotFound   Code = "route_not_found"
	CodeMethod          Code = "method_not_allowed"
	CodeBodyIncomplete  Code = "body_incomplete"
	CodeDuplicate       Code = "duplicate_request"
	CodeTransition      Code = "illegal_transition"
	CodeJobFinished     Code = "job_finished"
	CodeJobNotClaimed   Code = "job_not_claimed"
	CodeClaimExpired    Code = "claim_expired"
	CodeLeaseNotActive  Code = "lease_not_active"
	CodeJobMismatch     Code = "job_mismatch"
	CodeWorkerMismatch  Code = "worker_mismatch"
	CodeConflict        Code = "conflict"
	CodeEventsGone      Code = "events_gone"
	CodeBodyTooLarge    Code = "body_too_large"
	CodeMediaType       Code = "unsupported_media_type"
	CodeLimitReached    Code = "limit_reached"
	CodeInternal        Code = "internal"
	CodeUnavailable     Code = "unavailable"
	CodeTimeout         Code = "timeout"
)

// A meaning is one row of the code table.
type meaning struct {
	Code   Code
	Status int
	Text   string
}

// meanings is the closed table of codes, each with its HTTP status and its description.
var meanings = []meaning{
	{CodeInvalidRequest, http.StatusBadRequest, "The request is wrong in itself: not JSON, a field missing, unknown, of the wrong type or out of range, or contradicting the job's record."},
	{CodeInvalidCursor, http.StatusBadRequest, "The cursor is none that a list has returned."},
	{CodeUnauthenticated, http.StatusUnauthorized, "Nobody said who is asking."},
	{CodeForbidden, http.StatusForbidden, "The caller may not do this."},
	{CodeJobNotFound, http.StatusNotFound, "There is no such job, or it is no longer kept."},
	{CodeLeaseNotFound, http.StatusNotFound, "There is no such lease, or its job is no longer kept."},
	{CodeRouteNotFound, http.StatusNotFound, "There is nothing at this path."},
	{CodeMethod, http.StatusMethodNotAllowed, "The path takes another method."},
	{CodeBodyIncomplete, http.StatusRequestTimeout, "The body did not come in time."},
	{CodeDuplicate, http.StatusConflict, "The client_request_id is taken; job_id names the job that has it."},
	{CodeTransition, http.StatusConflict, "The job's state does not allow this."},
	{CodeJobFinished, http.StatusConflict, "The job has ended."},
	{CodeJobNotClaimed, http.StatusConflict, "Nobody holds the job."},
	{CodeClaimExpired, http.StatusConflict, "The claim has run out; the job is queued again or someone else's."},
	{CodeLeaseNotActive, http.StatusConflict, "The lease has expired or was released."},
	{CodeJobMismatch, http.StatusConflict, "The lease belongs to another job than job_id."},
	{CodeWorkerMismatch, http.StatusConflict, "The job is held by another worker than worker_id."},
	{CodeConflict, http.StatusConflict, "Something else changed in the meantime; look again."},
	{CodeEventsGone, http.StatusGone, "The events after the cursor are no longer kept."},
	{CodeBodyTooLarge, http.StatusRequestEntityTooLarge, "The body is larger than the server takes."},
	{CodeMediaType, http.StatusUnsupportedMediaType, "The body is not application/json in UTF-8, or it is compressed."},
	{CodeLimitReached, http.StatusTooManyRequests, "A limit is reached; it may help to try later."},
	{CodeInternal, http.StatusInternalServerError, "A defect or an unclassified failure; the server's log has more."},
	{CodeUnavailable, http.StatusServiceUnavailable, "The store cannot serve now; whether a change happened is not known."},
	{CodeTimeout, http.StatusGatewayTimeout, "It was not done in time; whether it happened is not known."},
}

var statuses = func() map[Code]int {
	all := make(map[Code]int, len(meanings))
	for _, m := range meanings {
		all[m.Code] = m.Status
	}
	return all
}()

// ofKind maps the engine's error kinds to codes, for errors without a more specific code.
// A test checks that it covers [enum.All[gq.ErrorKind]].
var ofKind = map[gq.ErrorKind]Code{
	gq.KindInternal:        CodeInternal,
	gq.KindInvalid:         CodeInvalidRequest,
	gq.KindNotFound:        CodeJobNotFound,
	gq.KindConflict:        CodeTransition,
	gq.KindStaleLease:      CodeLeaseNotActive,
	gq.KindDuplicate:       CodeConflict,
	gq.KindExhausted:       CodeLimitReached,
	gq.KindUnavailable:     CodeUnavailable,
	gq.KindTimeout:         CodeTimeout,
	gq.KindDenied:          CodeForbidden,
	gq.KindUnauthenticated: CodeUnauthenticated,
}

// Problem is an error response.
type Problem struct { //nolint:errname // the answer's name in the API's description
	Detail string `json:"detail" doc:"What happened, for people."`
	Code   Code   `json:"code" doc:"Stable, for programs."`
	JobID  string `json:"job_id,omitempty" doc:"With duplicate_request: the job that has the client_request_id." format:"uuid"`
}

func (p *Problem) Error() string { return p.Detail }

// HTTPStatus returns the status of the response.
func (p *Problem) HTTPStatus() int { return statuses[p.Code] }

func problem(code Code, format string, args ...any) error {
	return &Problem{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// codes maps the error codes of package httpx to ours.
var codes = map[string]Code{
	"no_such_route": CodeRouteNotFound, "method_not_allowed": CodeMethod, "cross_origin": CodeForbidden,
	"body_too_large": CodeBodyTooLarge, "body_incomplete": CodeBodyIncomplete,
	"unsupported_media_type": CodeMediaType, "unsupported_encoding": CodeMediaType,
}

// encode converts an error to a response of this API.
func encode(err error, requestID string) httpx.Refusal {
	p := problemOf(err, requestID)
	return httpx.Refusal{Status: p.HTTPStatus(), ContentType: "application/json", Code: string(p.Code), Body: p}
}

func problemOf(err error, requestID string) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return &Problem{Code: cmp.Or(codes[p.Code], CodeInternal), Detail: p.Detail}
	}
	if faults := errs.FaultsOf(err); len(faults) > 0 {
		return invalid(faults)
	}
	code := cmp.Or(ofKind[errs.KindOf(err)], CodeInternal)
	if code == CodeInternal {
		return &Problem{Code: code, Detail: "internal error; the server's log has more under request " + requestID}
	}
	return &Problem{Code: code, Detail: err.Error()}
}

// names maps the engine's field names to ours.
var names = map[string]string{
	"queue": "addon_id", "queues[0]": "addon_id", "type": "job_type", "worker": "worker_id", "max_cost": "max_cost_units",
	"idempotency_key": "client_request_id", "idempotency_scope": "addon_id", "ttl": "ttl_sec", "result": "result_data",
}

func invalid(faults []gq.Fault) *Problem {
	parts := make([]string, len(faults))
	code := CodeInvalidRequest
	for i, fault := range faults {
		field := fault.Field
		if own, ok := names[field]; ok {
			field = own
		} else if rest, ok := strings.CutPrefix(field, "types["); ok {
			field = "accept_job_types[" + rest
		}
		if field == "cursor" {
			code = CodeInvalidCursor
		}
		parts[i] = field + ": " + fault.Problem
	}
	return &Problem{Code: code, Detail: strings.Join(parts, "; ")}
}

// faults collects the faults of a request.
type faults []gq.Fault

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return invalid(f)
}

// or replaces a not-found error by a problem with the given code, and keeps any other
// error.
func or(err error, code Code) error {
	if err == nil || errs.KindOf(err) != gq.KindNotFound {
		return err
	}
	return &Problem{Code: code, Detail: err.Error()}
}
