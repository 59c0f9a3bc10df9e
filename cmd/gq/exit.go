package main

import (
	"context"
	"errors"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1 // something failed; of wait: another end than COMPLETED
	exitUsage       = 2 // wrong usage, or input that cannot be
	exitNotFound    = 3
	exitUnreachable = 4
	exitConflict    = 5 // the state does not allow it, or the lease is not the newest
	exitTimeout     = 6
)

const exitHelp = `Exit status:
  0  all went well; of wait: the job is COMPLETED
  1  something failed; of wait: the job has ended otherwise
  2  wrong usage: an unknown command or flag, or input that cannot be
  3  not found
  4  the server cannot be reached, or cannot serve
  5  conflict: the present state does not allow it, or the lease is stale
  6  not done in time
With --json an error is one line on standard error, with the codes of the HTTP API:
  {"error":{"code":"not_found","message":"…","exit_status":3}}
and with "faults", each a "field" and a "problem", where input is wrong.`

// statusError is an error with an exit status of its own. One without a text is
// not told: the command has said what there is to say.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// exits is the status of each kind. A test holds it against [gq.Kinds].
var exits = map[gq.Kind]int{
	gq.KindInternal:        exitFailure,
	gq.KindInvalid:         exitUsage,
	gq.KindNotFound:        exitNotFound,
	gq.KindConflict:        exitConflict,
	gq.KindStaleLease:      exitConflict,
	gq.KindDuplicate:       exitConflict,
	gq.KindExhausted:       exitFailure,
	gq.KindUnavailable:     exitUnreachable,
	gq.KindTimeout:         exitTimeout,
	gq.KindDenied:          exitFailure,
	gq.KindUnauthenticated: exitFailure,
}

// exitOf is the status that an error ends the program with.
func exitOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	kind := gq.KindOf(err)
	if kind == gq.KindInternal && errors.Is(err, context.DeadlineExceeded) {
		return exitTimeout
	}
	if status, ok := exits[kind]; ok {
		return status
	}
	return exitFailure
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

// Codes of what no server answers; all others are those of [gq.CodeOf].
const (
	codeUsage       = "usage"
	codeInterrupted = "interrupted"
)

// failureOf is what an error comes to. One without a message is not told.
func failureOf(ctx context.Context, err error, started bool) failure {
	switch {
	case err == nil:
		return failure{ExitStatus: exitOK}
	case ctx.Err() != nil: // whatever the command made of it
		return failure{Code: codeInterrupted, Message: "interrupted", ExitStatus: exitFailure}
	case !started:
		return failure{Code: codeUsage, Message: strings.TrimSpace(err.Error()), ExitStatus: exitUsage}
	}
	f := failure{Code: gq.CodeOf(err), Message: strings.TrimSpace(err.Error()), ExitStatus: exitOf(err)}
	if f.ExitStatus == exitTimeout {
		f.Code = gq.CodeOf(gq.ErrTimeout)
	}
	for _, fault := range gq.FaultsOf(err) {
		f.Faults = append(f.Faults, wire.Fault(fault))
	}
	return f
}

// usage is an error of how a command was called.
func usage(field, problem string) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: problem}}}
}
