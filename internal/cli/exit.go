// Package cli is what the commands gq and gqlab share: exit statuses, how errors are
// shown, signals, help and the build's version.
package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
)

// Exit statuses.
const (
	ExitOK          = 0
	ExitFailure     = 1 // something failed; of wait: another end than COMPLETED
	ExitUsage       = 2 // usage error or invalid input
	ExitNotFound    = 3
	ExitUnreachable = 4
	ExitConflict    = 5 // the state does not allow it, or the lease is not the newest
	ExitTimeout     = 6
)

const ExitHelp = `Exit status:
  0  success; with wait: the job is COMPLETED
  1  failure; with wait: the job ended in another state
  2  usage error: an unknown command or flag, or invalid input
  3  not found
  4  the server is unreachable or unavailable
  5  conflict: the job's state does not allow it, or the lease is stale
  6  timeout
With --json an error is one line on standard error, with the codes of the HTTP API:
  {"error":{"code":"not_found","message":"…","exit_status":3}}
For invalid input it also has "faults", each with a "field" and a "problem".`

// StatusError is an error with an exit status of its own. One without a text is
// not told: the command has said what there is to say.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *StatusError) Unwrap() error { return e.Err }

// Exits is the status of each kind. A test holds it against [enum.All[gq.ErrorKind]].
var Exits = map[gq.ErrorKind]int{
	gq.KindInternal:        ExitFailure,
	gq.KindInvalid:         ExitUsage,
	gq.KindNotFound:        ExitNotFound,
	gq.KindConflict:        ExitConflict,
	gq.KindStaleLease:      ExitConflict,
	gq.KindDuplicate:       ExitConflict,
	gq.KindExhausted:       ExitFailure,
	gq.KindUnavailable:     ExitUnreachable,
	gq.KindTimeout:         ExitTimeout,
	gq.KindDenied:          ExitFailure,
	gq.KindUnauthenticated: ExitFailure,
}

// ExitOf is the status that an error ends the program with.
func ExitOf(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status
	}
	kind := errs.KindOf(err)
	if kind == gq.KindInternal && errors.Is(err, context.DeadlineExceeded) {
		return ExitTimeout
	}
	if status, ok := Exits[kind]; ok {
		return status
	}
	return ExitFailure
}

// failed is an error as programs are told of it.
type failed struct {
	Error failure `json:"error"`
}

type failure struct {
	Code       string       `json:"code"`
	Message    string       `json:"message"`
	Faults     []wire.Fault `json:"faults,omitempty"`
	ExitStatus int          `json:"exit_status"`
}

// text is the message for people: several faults stand on a line each.
func (f failure) text() string {
	if len(f.Faults) < 2 {
		return f.Message
	}
	joined := &gq.InvalidError{}
	lines := "invalid:"
	for _, fault := range f.Faults {
		joined.Faults = append(joined.Faults, gq.Fault(fault))
		lines += "\n  " + gq.Fault(fault).String()
	}
	return strings.Replace(f.Message, joined.Error(), lines, 1)
}

// Codes of what no server answers; all others are those of [gq.Error].
const (
	codeUsage       = "usage"
	codeInterrupted = "interrupted"
)

// failureOf is what an error comes to. One without a message is not told.
func failureOf(ctx context.Context, err error, started bool) failure {
	switch {
	case err == nil:
		return failure{ExitStatus: ExitOK}
	case ctx.Err() != nil: // whatever the command made of it
		return failure{Code: codeInterrupted, Message: "interrupted", ExitStatus: ExitFailure}
	case !started:
		return failure{Code: codeUsage, Message: strings.TrimSpace(err.Error()), ExitStatus: ExitUsage}
	}
	f := failure{Code: errs.CodeOf(err), Message: strings.TrimSpace(err.Error()), ExitStatus: ExitOf(err)}
	if f.ExitStatus == ExitTimeout {
		f.Code = errs.CodeOf(gq.ErrTimeout)
	}
	for _, fault := range errs.FaultsOf(err) {
		f.Faults = append(f.Faults, wire.Fault(fault))
	}
	return f
}

// Invalid is an error about one flag or argument.
func Invalid(field, problem string) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: problem}}}
}
