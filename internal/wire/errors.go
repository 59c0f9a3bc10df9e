package wire

import (
	"context"
	"errors"
	"iter"
	"maps"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
)

// sentinels maps error codes to the errors of package gq.
var sentinels = func() map[string]*gq.Error {
	all := make(map[string]*gq.Error)
	for _, e := range []*gq.Error{
		gq.ErrInvalid, gq.ErrNotFound, gq.ErrIllegalMove, gq.ErrConflict, gq.ErrStaleLease, gq.ErrDuplicateID, gq.ErrKeyReused, gq.ErrNotUnique,
		gq.ErrQueueFull, gq.ErrTooMany, gq.ErrNoCapacity, gq.ErrDiskFull, gq.ErrStoreFailed, gq.ErrUnavailable, gq.ErrClosed, gq.ErrInUse,
		gq.ErrNotEmpty, gq.ErrQueueInUse, gq.ErrUnfinished, gq.ErrFormat, gq.ErrCorrupt, gq.ErrTimeout, gq.ErrGone,
		gq.ErrDenied, gq.ErrUnauthenticated, gq.ErrRateLimited, gq.ErrOverlap,
	} {
		all[e.Code] = e
	}
	return all
}()

var kindsByName = func() map[string]gq.ErrorKind {
	all := make(map[string]gq.ErrorKind)
	for _, k := range enum.All[gq.ErrorKind]() {
		all[k.String()] = k
	}
	return all
}()

// RemoteError is an error reported by another process. It has the same text, and wraps
// the same sentinel or [gq.InvalidError].
type RemoteError struct {
	Request string // id of the call in the other process's log; may be empty

	text  string
	cause error
}

// NewRemoteError creates an error that another process reported with a text. See [CauseOf]
// for the cause.
func NewRemoteError(request, text string, cause error) *RemoteError {
	return &RemoteError{Request: request, text: text, cause: cause}
}

func (e *RemoteError) Error() string { return e.text }

// Unwrap returns the sentinel or [gq.InvalidError].
func (e *RemoteError) Unwrap() error { return e.cause }

// ErrUnreachable means that no server answered, or that the connection broke before an
// answer arrived. The request may have been executed. Package gq has no such error.
var ErrUnreachable error = unreachableError{}

type unreachableError struct{}

func (unreachableError) Error() string { return "no server can be reached" }
func (unreachableError) Unwrap() error { return unreachable }

var unreachable = &gq.Error{Kind: gq.KindUnavailable, Code: "unreachable"}

// Sentinels returns the errors of package gq by their codes.
func Sentinels() iter.Seq2[string, *gq.Error] { return maps.All(sentinels) }

// CauseOf returns the error with a code: a sentinel of package gq or [ErrUnreachable]. A code
// from a newer server is unknown here; its error has the kind. Internal errors are nil.
func CauseOf(code, kind string) error {
	if e, known := sentinels[code]; known {
		return e
	}
	if code == unreachable.Code {
		return ErrUnreachable
	}
	if k := kindsByName[kind]; k != gq.KindInternal {
		return &gq.Error{Kind: k, Code: code}
	}
	return nil
}

// IsInternal reports whether the text of an error may only go to the log.
func IsInternal(err error) bool {
	return err != nil && errs.KindOf(err) == gq.KindInternal && !isContext(err)
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// RequestOf returns the id of a failed call in the other process's log, or "".
func RequestOf(err error) string {
	if e, ok := errors.AsType[*RemoteError](err); ok {
		return e.Request
	}
	return ""
}
