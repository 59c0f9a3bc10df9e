package wire

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Problem is an error response over HTTP: RFC 9457 with a stable code.
type Problem struct { //nolint:errname // that is what RFC 9457 calls it
	Type      string   `json:"type" doc:"A name for this kind of problem." example:"urn:gopherqueue:problem:not_found"`
	Title     string   `json:"title" example:"Not Found"`
	Status    int      `json:"status" example:"404"`
	Detail    string   `json:"detail,omitzero" doc:"What happened, for people."`
	Code      string   `json:"code" doc:"Stable, for programs." example:"not_found"`
	Faults    []Fault  `json:"faults,omitempty" doc:"Everything that is wrong with an invalid request."`
	Job       gq.JobID `json:"job,omitzero" doc:"The job that holds the key, with the code not_unique."`
	RequestID string   `json:"request_id,omitzero" doc:"Under which the server's log has more."`
}

// Fault is one fault in a request.
type Fault struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

// statuses maps error kinds to HTTP statuses. A test checks it against
// [enum.All[gq.ErrorKind]].
var statuses = map[gq.ErrorKind]int{
	gq.KindInternal:    http.StatusInternalServerError,
	gq.KindInvalid:     http.StatusBadRequest,
	gq.KindNotFound:    http.StatusNotFound,
	gq.KindConflict:    http.StatusConflict,
	gq.KindStaleLease:  http.StatusConflict,
	gq.KindDuplicate:   http.StatusConflict,
	gq.KindExhausted:   http.StatusTooManyRequests,
	gq.KindUnavailable: http.StatusServiceUnavailable,
	gq.KindTimeout:     http.StatusGatewayTimeout,
	gq.KindDenied:      http.StatusForbidden,

	gq.KindUnauthenticated: http.StatusUnauthorized,
}

// HTTPStatus returns the status of a kind, 500 if it is unknown.
func HTTPStatus(k gq.ErrorKind) int {
	if status, ok := statuses[k]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// askUnavailable is the Retry-After of errors that pass by themselves or by an operator's hand.
const askUnavailable = 5 * time.Second

// AskLater sets Retry-After if the error says when to retry, or is of a kind that passes.
func AskLater(h http.Header, err error) {
	if later, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		h.Set("Retry-After", strconv.Itoa(int(later.RetryAfter()/time.Second)+1))
	} else if errs.KindOf(err) == gq.KindUnavailable {
		h.Set("Retry-After", strconv.Itoa(int(askUnavailable/time.Second)))
	}
}

// ProblemOf converts an error. The text of an internal error is not exposed.
func ProblemOf(err error, requestID string) *Problem {
	kind := errs.KindOf(err)
	p := NewProblem(HTTPStatus(kind), errs.CodeOf(err), "")
	if errors.Is(err, gq.ErrGone) { // it was there, unlike what is not found
		p = NewProblem(http.StatusGone, gq.ErrGone.Code, "")
	}
	p.RequestID = requestID
	if kind == gq.KindInternal {
		p.Detail = "internal error; the server's log has more under the request id"
		return p
	}
	p.Detail = err.Error()
	if u, ok := errors.AsType[*gq.UniqueError](err); ok {
		p.Job = u.Job
	}
	for _, f := range errs.FaultsOf(err) {
		p.Faults = append(p.Faults, Fault(f))
	}
	return p
}

// Codes lists the codes of problems in alphabetical order.
func Codes() []string {
	return slices.Sorted(slices.Values(slices.AppendSeq([]string{ // those of HTTP alone
		"internal", "bad_handshake", "body_incomplete", "body_too_large", "cross_origin", "foreign_host", "method_not_allowed", "no_such_route",
		"unsupported_encoding", "unsupported_media_type", "upgrade_required",
	}, maps.Keys(sentinels))))
}

// NewProblem creates a problem with a status and a code.
func NewProblem(status int, code, detail string) *Problem {
	return &Problem{
		Type: "urn:gopherqueue:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	}
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Code
}

// HTTPStatus returns the status of the response.
func (p *Problem) HTTPStatus() int { return p.Status }

// ProblemType is the content type of problems.
const ProblemType = "application/problem+json"
