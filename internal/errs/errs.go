// Package errs returns the kind, the code and the faults of an error.
package errs

import (
	"errors"

	"github.com/gopherqueue/gq"
)

// KindOf returns the kind of the first classified error in err's tree, or [gq.KindInternal].
func KindOf(err error) gq.ErrorKind {
	if e, ok := errors.AsType[*gq.Error](err); ok {
		return e.Kind
	}
	return gq.KindInternal
}

// CodeOf returns the stable code of err, or "internal".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*gq.Error](err); ok {
		return e.Code
	}
	return "internal"
}

// FaultsOf returns the faults of an invalid request, and none for other errors.
func FaultsOf(err error) []gq.Fault {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*gq.InvalidError](err); ok {
		return e.Faults
	}
	return nil
}
