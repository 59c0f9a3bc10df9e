// Package classify classifies errors of handlers that state no verdict themselves.
package classify

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"syscall"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Error converts the error of a handler to a failure. It goes by what the error is, never by what its
// text says. It is total: every error gets exactly one category, even if its own methods panic or
// its tree has a cycle. Nil gives no failure.
//
// The first matching rule decides. All rules check the error and everything it wraps, outermost
// first.
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
//  7. An HTTP status, from StatusCode() or HTTPStatusCode(): 408, 409, 423, 425, 429 and
//     5xx are TEMPORARY, other 4xx PERMANENT.
//  8. A JSON document that cannot be decoded: PERMANENT.
//  9. An error of the operating system: a full disk, no memory or a missing program is SYSTEM, a
//     refused or broken connection or an unknown host TEMPORARY, and [fs.ErrNotExist],
//     [fs.ErrPermission] and [sql.ErrNoRows] are PERMANENT.
//  10. Anything else: TEMPORARY.
//
// In doubt the order favors another attempt: attempts are bounded, while a job that
// failed permanently must be replayed by hand. For the same reason [context.Canceled] is
// not special. It only says that some context ended, not that a user cancelled the job;
// code that knows so records CategoryCancelled.
func Error(err error) gq.Failure {
	return failure(err, func(e evidence, _ string) gq.Failure { return e.judge("") })
}

// Words is Error, except that the text decides where no type does: "user 7 not found" and
// "status 404" are PERMANENT, "out of memory" is SYSTEM. Nothing uses it unless a worker has it
// as its Config.Classify, because texts mislead: "row not found in replica, retry later" is
// PERMANENT too.
//
// After rule 6 of [Error] come words for what passes, such as rate limits, deadlocks, unreachable or
// busy services and network timeouts: TEMPORARY. A status also counts behind a word such as
// "status" or "HTTP". After rule 9 come words for an exhausted machine or a crash, which are SYSTEM,
// and for what will not change, such as not found, denied, invalid or violated, which are PERMANENT.
// Only the part of the message that is kept counts.
func Words(err error) gq.Failure {
	return failure(err, func(e evidence, message string) gq.Failure { return e.judge(plain(message)) })
}

// Verdict converts the error of a handler to a failure as [Error] does, but only rules 1, 2, 3
// and 10 apply: the handler's own verdict counts, and every other error is TEMPORARY (or
// TIMEOUT, or SYSTEM after a crash). It is for jobs that must outlive an outage, during which
// errors say anything.
func Verdict(err error) gq.Failure {
	return failure(err, func(e evidence, _ string) gq.Failure {
		if f, ok := e.certain(); ok {
			return f
		}
		return gq.Failure{Category: gq.CategoryTemporary}
	})
}

func failure(err error, judge func(evidence, string) gq.Failure) gq.Failure {
	if err == nil {
		return gq.Failure{}
	}
	message := machine.Truncate(textOf(err), gq.MaxMessageBytes)
	f := judge(evidenceOf(err), message)
	f.Message = message
	f.Code = machine.Truncate(f.Code, gq.MaxNameBytes)
	f.RetryAfter = min(max(f.RetryAfter, 0), gq.MaxDuration)
	return f
}

// textOf returns the error's text, even if its Error method panics.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, which cannot print itself", err)
		}
	}()
	return err.Error()
}

// evidence is what the tree of an error says about itself; for each field the outermost
// error counts.
type evidence struct {
	verdict  *gq.Failure // of a typed error
	deadline bool        // context.DeadlineExceeded
	crash    bool        // a run-time error
	own      *gq.Error   // an error of this module
	sqlState string
	passing  bool       // claims to be a timeout or temporary
	status   int        // HTTP, 400 to 599
	json     bool       // undecodable JSON
	machine  gq.Failure // of an error of the operating system; its category is zero for none
}

// maxErrors limits how much of an error's tree is checked. A real one has about a dozen
// members; one that wraps itself is infinite.
const maxErrors = 1000

// evidenceOf checks err and what it wraps, in the order of [errors.As]. It does not call
// that function: network timeouts claim to be context.DeadlineExceeded there, and a cycle
// would never end.
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

// examine records what one error says and returns what it wraps, in reverse order. If a
// method of the error panics, it counts as saying nothing.
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
	if e.machine.Category == 0 {
		e.machine = ofSystem(err)
	}
	e.claims(err)
	return wrapped
}

// typed records errors known by their type or identity.
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

// claims records what an error says through well-known methods.
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

// certain applies rules 1 to 3.
func (e evidence) certain() (gq.Failure, bool) {
	switch {
	case e.verdict != nil:
		return *e.verdict, true
	case e.deadline:
		return gq.Failure{Category: gq.CategoryTimeout, Code: "deadline_exceeded"}, true
	case e.crash:
		return gq.Failure{Category: gq.CategorySystem, Code: "panic"}, true
	}
	return gq.Failure{}, false
}

// judge applies the rules in the order that [Error] and, if there is a text, [Words] document.
func (e evidence) judge(text string) gq.Failure {
	if f, ok := e.certain(); ok {
		return f
	}
	if e.own != nil {
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
	if e.machine.Category != 0 {
		return e.machine
	}
	if code, ok := systemWords.find(text); ok {
		return gq.Failure{Category: gq.CategorySystem, Code: code}
	}
	if code, ok := lastingWords.find(text); ok {
		return gq.Failure{Category: gq.CategoryPermanent, Code: code}
	}
	return gq.Failure{Category: gq.CategoryTemporary}
}

// ofSystem classifies a single error of the operating system; the category is zero for any other.
func ofSystem(err error) gq.Failure {
	number, _ := err.(syscall.Errno) //nolint:errorlint // the caller unwraps
	_, lookup := err.(*net.DNSError) //nolint:errorlint // the caller unwraps
	switch {
	case number == syscall.ENOSPC, number == syscall.ENOMEM, err == exec.ErrNotFound: //nolint:errorlint // the caller unwraps
		return gq.Failure{Category: gq.CategorySystem, Code: "resources"}
	case number == syscall.ECONNREFUSED, number == syscall.ECONNRESET, number == syscall.EPIPE, lookup:
		return gq.Failure{Category: gq.CategoryTemporary, Code: "connection"}
	case err == fs.ErrNotExist, err == sql.ErrNoRows, number.Is(fs.ErrNotExist): //nolint:errorlint // the caller unwraps
		return gq.Failure{Category: gq.CategoryPermanent, Code: "not_found"}
	case err == fs.ErrPermission, number.Is(fs.ErrPermission): //nolint:errorlint // the caller unwraps
		return gq.Failure{Category: gq.CategoryPermanent, Code: "denied"}
	}
	return gq.Failure{}
}

// categoryOf returns the category of an error of this module that a handler returns.
func categoryOf(k gq.ErrorKind) gq.Category {
	switch k {
	case gq.KindInvalid, gq.KindNotFound, gq.KindDuplicate, gq.KindDenied, gq.KindUnauthenticated:
		return gq.CategoryPermanent
	default:
		return gq.CategoryTemporary
	}
}

// httpCategory classifies a status between 400 and 599.
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

// sqlCategory classifies an SQLSTATE; 0 means undecided.
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
