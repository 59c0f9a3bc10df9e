package wire

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Problem is an error as it is told over HTTP: RFC 9457 with a stable code.
type Problem struct { //nolint:errname // that is what RFC 9457 calls it
	Type      string  `json:"type" doc:"A name for this kind of problem." example:"urn:gopherqueue:problem:not_found"`
	Title     string  `json:"title" example:"Not Found"`
	Status    int     `json:"status" example:"404"`
	Detail    string  `json:"detail,omitzero" doc:"What happened, for people."`
	Code      string  `json:"code" doc:"Stable, for programs." example:"not_found"`
	Faults    []Fault `json:"faults,omitempty" doc:"Everything that is wrong with an invalid request."`
	RequestID string  `json:"request_id,omitzero" doc:"Under which the server's log has more."`
}

// Fault is one thing that is wrong with a request.
type Fault struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

// statuses is how kinds are told over HTTP. A test holds it against [enum.All[gq.ErrorKind]].
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

// HTTPStatus is the status of a kind; of one that is not known, 500.
func HTTPStatus(k gq.ErrorKind) int {
	if status, ok := statuses[k]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// AskLater says in the header of an answer when to come again, where the error knows.
func AskLater(h http.Header, err error) {
	if later, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		h.Set("Retry-After", strconv.Itoa(int(later.RetryAfter()/time.Second)+1))
	}
}

// ProblemOf is an error. What is internal stays so: its text is not told.
func ProblemOf(err error, requestID string) *Problem {
	kind := errs.KindOf(err)
	p := NewProblem(HTTPStatus(kind), errs.CodeOf(err), "")
	p.RequestID = requestID
	if kind == gq.KindInternal {
		p.Detail = "internal error; the server's log has more under the request id"
		return p
	}
	p.Detail = err.Error()
	for _, f := range errs.FaultsOf(err) {
		p.Faults = append(p.Faults, Fault(f))
	}
	return p
}

// NewProblem is a problem by its status and code.
func NewProblem(status int, code, detail string) *Problem {
	return &Problem{
		Type: "urn:gopherqueue:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	}
}

// Error is what happened.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Code
}

// HTTPStatus is the status of the answer.
func (p *Problem) HTTPStatus() int { return p.Status }

// ProblemType is the content type of problems.
const ProblemType = "application/problem+json"
