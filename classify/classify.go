// Package classify judges the errors of handlers that bring no verdict of their own.
package classify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Error turns what a handler returned into the failure to remember. It is
// total: every error gets exactly one category, and an error whose own methods
// panic or whose tree is a ring does no harm. Nil is no failure.
//
// The first line that applies decides. Lines 1 to 5 and 9 look at the error and
// everything it wraps, outermost first.
//
//  1. A [gq.TemporaryError] or [gq.PermanentError]: the handler's own verdict.
//  2. [context.DeadlineExceeded] itself: TIMEOUT. A network timeout only
//     resembles it and is not meant here.
//  3. A Go run-time error, such as a nil dereference: SYSTEM.
//  4. A [gq.Error]: by its kind. Invalid, not found, duplicate and
//     denied are PERMANENT, the rest TEMPORARY.
//  5. SQLState() string: deadlock, serialization, locks, resources, connection
//     and shutdown are TEMPORARY; data, constraints and privileges PERMANENT.
//  6. Timeout() or Temporary() answering true: TEMPORARY.
//  7. Words for what passes: rate limits, deadlocks, unreachable or busy
//     services, network timeouts: TEMPORARY.
//  8. An HTTP status, from StatusCode() or HTTPStatusCode(), or in the text
//     behind a word such as "status" or "HTTP": 408, 409, 423, 425, 429 and
//     5xx are TEMPORARY, other 4xx PERMANENT.
//  9. A JSON document that cannot be decoded: PERMANENT.
//  10. Words for an exhausted machine or a crash: SYSTEM.
//  11. Words for what will not change: not found, denied, invalid, violated:
//     PERMANENT.
//  12. Anything else: TEMPORARY.
//
// In doubt the order favours another attempt: attempts are bounded, while a job
// that failed for good comes back only by hand. For the same reason
// [context.Canceled] is nothing special. It says that some context ended, not
// that anyone cancelled the job; who knows that records CategoryCancelled.
//
// Words are looked for in the part of the message that is kept.
func Error(err error) gq.Failure {
	if err == nil {
		return gq.Failure{}
	}
	message := machine.Truncate(textOf(err), gq.MaxMessageBytes)
	f := evidenceOf(err).judge(message)
	f.Message = message
	f.Code = machine.Truncate(f.Code, gq.MaxNameBytes)
	f.RetryAfter = min(max(f.RetryAfter, 0), gq.MaxDuration)
	return f
}

// textOf is err's text, also where asking for it panics.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, which cannot print itself", err)
		}
	}()
	return err.Error()
}

// evidence is what the tree of an error says about itself: of each sort the
// outermost.
type evidence struct {
	verdict  *gq.Failure // of a typed error
	deadline bool        // context.DeadlineExceeded
	crash    bool        // a run-time error
	own      *gq.Error   // of this module
	sqlState string
	passing  bool // claims to be a timeout or temporary
	status   int  // HTTP, 400 to 599
	json     bool // undecodable JSON
}

// maxErrors bounds how much of an error's tree is looked at. A real one has a
// dozen members; one that wraps itself has no end.
const maxErrors = 1000

// evidenceOf looks at err and what it wraps, in the order of [errors.As]. It
// does not use that function: network timeouts claim there to be
// context.DeadlineExceeded, and a ring would never end.
func evidenceOf(err error) (e evidence) {
	open := []error{err}
	for seen := 0; len(open) > 0 && seen < maxErrors; seen++ {
		next := open[len(open)-1]
		open = open[:len(open)-1]
		for _, inner := range e.examine(next) {
			if inner != nil {
				open = append(open, inner)
			}
		}
	}
	return e
}

// examine takes down what one error says and returns what it wraps, the first
// last. A panic of the error's methods counts as silence.
func (e *evidence) examine(err error) (wrapped []error) {
	defer func() { _ = recover() }()
	switch v := err.(type) { //nolint:errorlint // this is the unwrapping
	case interface{ Unwrap() error }:
		wrapped = []error{v.Unwrap()}
	case interface{ Unwrap() []error }:
		wrapped = slices.Clone(v.Unwrap())
		slices.Reverse(wrapped)
	}
	e.typed(err)
	e.claims(err)
	return wrapped
}

// typed takes down errors that are known by their type or identity.
func (e *evidence) typed(err error) {
	switch v := err.(type) { //nolint:errorlint // the caller unwraps
	case *gq.TemporaryError:
		if e.verdict == nil {
			e.verdict = &gq.Failure{Category: gq.CategoryTemporary}
			if v != nil {
				e.verdict.RetryAfter = v.RetryAfter
			}
		}
	case *gq.PermanentError:
		if e.verdict == nil {
			e.verdict = &gq.Failure{Category: gq.CategoryPermanent, Code: "permanent"}
			if v != nil && v.Code != "" {
				e.verdict.Code = v.Code
			}
		}
	case *gq.Error:
		if e.own == nil {
			e.own = v
		}
	case *json.SyntaxError, *json.UnmarshalTypeError, *json.InvalidUnmarshalError:
		e.json = true
	}
	if err == context.DeadlineExceeded { //nolint:errorlint // itself, not what claims to be it
		e.deadline = true
	}
}

// claims takes down what an error says through methods that are customary.
func (e *evidence) claims(err error) {
	if _, ok := err.(interface{ RuntimeError() }); ok {
		e.crash = true
	}
	if v, ok := err.(interface{ SQLState() string }); ok && e.sqlState == "" {
		e.sqlState = v.SQLState()
	}
	if v, ok := err.(interface{ Timeout() bool }); ok && v.Timeout() {
		e.passing = true
	}
	if v, ok := err.(interface{ Temporary() bool }); ok && v.Temporary() {
		e.passing = true
	}
	status := 0
	switch v := err.(type) { //nolint:errorlint // the caller unwraps
	case interface{ StatusCode() int }:
		status = v.StatusCode()
	case interface{ HTTPStatusCode() int }:
		status = v.HTTPStatusCode()
	}
	if e.status == 0 && status >= 400 && status <= 599 {
		e.status = status
	}
}

// judge weighs the evidence in the order that Classify documents.
func (e evidence) judge(message string) gq.Failure {
	text := plain(message)
	switch {
	case e.verdict != nil:
		return *e.verdict
	case e.deadline:
		return gq.Failure{Category: gq.CategoryTimeout, Code: "deadline_exceeded"}
	case e.crash:
		return gq.Failure{Category: gq.CategorySystem, Code: "panic"}
	case e.own != nil:
		return gq.Failure{Category: categoryOf(e.own.Kind), Code: e.own.Code}
	}
	if c := sqlCategory(e.sqlState); c != 0 {
		return gq.Failure{Category: c, Code: "sqlstate_" + e.sqlState}
	}
	if e.passing {
		return gq.Failure{Category: gq.CategoryTemporary, Code: "timeout"}
	}
	if code, ok := passingWords.find(text); ok {
		return gq.Failure{Category: gq.CategoryTemporary, Code: code}
	}
	if e.status == 0 {
		e.status = statusIn(text)
	}
	if e.status != 0 {
		return gq.Failure{Category: httpCategory(e.status), Code: "http_" + strconv.Itoa(e.status)}
	}
	if e.json {
		return gq.Failure{Category: gq.CategoryPermanent, Code: "invalid_json"}
	}
	if code, ok := systemWords.find(text); ok {
		return gq.Failure{Category: gq.CategorySystem, Code: code}
	}
	if code, ok := lastingWords.find(text); ok {
		return gq.Failure{Category: gq.CategoryPermanent, Code: code}
	}
	return gq.Failure{Category: gq.CategoryTemporary}
}

// categoryOf is how an error of this module counts when a handler returns it.
func categoryOf(k gq.ErrorKind) gq.Category {
	switch k {
	case gq.KindInvalid, gq.KindNotFound, gq.KindDuplicate, gq.KindDenied, gq.KindUnauthenticated:
		return gq.CategoryPermanent
	default:
		return gq.CategoryTemporary
	}
}

// httpCategory judges a status between 400 and 599.
func httpCategory(status int) gq.Category {
	switch status {
	case 408, 409, 423, 425, 429:
		return gq.CategoryTemporary
	}
	if status < 500 {
		return gq.CategoryPermanent
	}
	return gq.CategoryTemporary
}

// sqlCategory judges an SQLSTATE, 0 where it says nothing either way.
func sqlCategory(state string) gq.Category {
	if len(state) != 5 {
		return 0
	}
	switch state {
	case "40001", "40P01", "55P03": // serialization, deadlock, lock not available
		return gq.CategoryTemporary
	case "57P01", "57P02", "57P03": // shutting down, crashed, starting up
		return gq.CategoryTemporary
	case "42501": // insufficient privilege
		return gq.CategoryPermanent
	}
	switch state[:2] {
	case "08", "53": // connection, resources
		return gq.CategoryTemporary
	case "22", "23": // data, integrity constraint
		return gq.CategoryPermanent
	}
	return 0
}
