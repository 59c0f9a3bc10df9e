package main

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq"
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
  6  not done in time`

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

// usage is an error of how a command was called.
func usage(field, problem string) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: problem}}}
}
