package gq

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Classify turns what a handler returned into the failure to remember. It is
// total: every error gets exactly one category, and an error whose own methods
// panic or whose tree is a ring does no harm. Nil is no failure.
//
// The first line that applies decides. Lines 1 to 5 and 9 look at the error and
// everything it wraps, outermost first.
//
//  1. A [TemporaryError] or [PermanentError]: the handler's own verdict.
//  2. [context.DeadlineExceeded] itself: TIMEOUT. A network timeout only
//     resembles it and is not meant here.
//  3. A Go run-time error, such as a nil dereference: SYSTEM.
//  4. An [Error] of this module: by its kind. Invalid, not found, duplicate and
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
func Classify(err error) Failure {
	if err == nil {
		return Failure{}
	}
	message := cut(textOf(err), MaxMessageBytes)
	f := evidenceOf(err).judge(message)
	f.Message = message
	f.Code = cut(f.Code, MaxNameBytes)
	f.RetryAfter = min(max(f.RetryAfter, 0), MaxDuration)
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
	verdict  *Failure // of a typed error
	deadline bool     // context.DeadlineExceeded
	crash    bool     // a run-time error
	own      *Error   // of this module
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
	switch v := err.(type) {
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
	switch v := err.(type) {
	case *TemporaryError:
		if e.verdict == nil {
			e.verdict = &Failure{Category: CategoryTemporary}
			if v != nil {
				e.verdict.RetryAfter = v.RetryAfter
			}
		}
	case *PermanentError:
		if e.verdict == nil {
			e.verdict = &Failure{Category: CategoryPermanent, Code: "permanent"}
			if v != nil && v.Code != "" {
				e.verdict.Code = v.Code
			}
		}
	case *Error:
		if e.own == nil {
			e.own = v
		}
	case *json.SyntaxError, *json.UnmarshalTypeError, *json.InvalidUnmarshalError:
		e.json = true
	}
	if sameError(err, context.DeadlineExceeded) {
		e.deadline = true
	}
}

// sameError is a == b for errors of any type: comparing two values of one
// incomparable type panics.
func sameError(a, b error) (same bool) {
	defer func() { _ = recover() }()
	return a == b
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
	switch v := err.(type) {
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
func (e evidence) judge(message string) Failure {
	text := plain(message)
	switch {
	case e.verdict != nil:
		return *e.verdict
	case e.deadline:
		return Failure{Category: CategoryTimeout, Code: "deadline_exceeded"}
	case e.crash:
		return Failure{Category: CategorySystem, Code: "panic"}
	case e.own != nil:
		return Failure{Category: e.own.Kind.category(), Code: e.own.Code}
	}
	if c := sqlCategory(e.sqlState); c != 0 {
		return Failure{Category: c, Code: "sqlstate_" + e.sqlState}
	}
	if e.passing {
		return Failure{Category: CategoryTemporary, Code: "timeout"}
	}
	if code, ok := passingWords.find(text); ok {
		return Failure{Category: CategoryTemporary, Code: code}
	}
	if e.status == 0 {
		e.status = statusIn(text)
	}
	if e.status != 0 {
		return Failure{Category: httpCategory(e.status), Code: "http_" + strconv.Itoa(e.status)}
	}
	if e.json {
		return Failure{Category: CategoryPermanent, Code: "invalid_json"}
	}
	if code, ok := systemWords.find(text); ok {
		return Failure{Category: CategorySystem, Code: code}
	}
	if code, ok := lastingWords.find(text); ok {
		return Failure{Category: CategoryPermanent, Code: code}
	}
	return Failure{Category: CategoryTemporary}
}

// category is how an error of this module counts when a handler returns it.
func (k Kind) category() Category {
	switch k {
	case KindInvalid, KindNotFound, KindDuplicate, KindDenied:
		return CategoryPermanent
	default:
		return CategoryTemporary
	}
}

// httpCategory judges a status between 400 and 599.
func httpCategory(status int) Category {
	switch status {
	case 408, 409, 423, 425, 429:
		return CategoryTemporary
	}
	if status < 500 {
		return CategoryPermanent
	}
	return CategoryTemporary
}

// sqlCategory judges an SQLSTATE, 0 where it says nothing either way.
func sqlCategory(state string) Category {
	if len(state) != 5 {
		return 0
	}
	switch state {
	case "40001", "40P01", "55P03": // serialization, deadlock, lock not available
		return CategoryTemporary
	case "57P01", "57P02", "57P03": // shutting down, crashed, starting up
		return CategoryTemporary
	case "42501": // insufficient privilege
		return CategoryPermanent
	}
	switch state[:2] {
	case "08", "53": // connection, resources
		return CategoryTemporary
	case "22", "23": // data, integrity constraint
		return CategoryPermanent
	}
	return 0
}

// wordList maps phrases to the code of the failure they stand for. A phrase
// matches whole words of a plain text; a star at its end leaves the last word
// open.
type wordList []struct{ phrase, code string }

var passingWords = wordList{
	{"rate limit*", "rate_limited"},
	{"rate exceeded", "rate_limited"},
	{"too many requests", "rate_limited"},
	{"throttl*", "rate_limited"},
	{"deadlock*", "deadlock"},
	{"could not serialize access", "deadlock"},
	{"serialization failure", "deadlock"},
	{"lock wait timeout", "deadlock"},
	{"database is locked", "deadlock"},
	{"service unavailable", "unavailable"},
	{"temporarily unavailable", "unavailable"},
	{"temporary failure*", "unavailable"},
	{"try again later", "unavailable"},
	{"overloaded", "unavailable"},
	{"bad gateway", "unavailable"},
	{"code = unavailable", "unavailable"},
	{"code = aborted", "unavailable"},
	{"code = resourceexhausted", "unavailable"},
	{"connection refused", "connection"},
	{"connection reset*", "connection"},
	{"broken pipe", "connection"},
	{"no route to host", "connection"},
	{"network is unreachable", "connection"},
	{"no such host", "connection"},
	{"host not found", "connection"},
	{"server misbehaving", "connection"},
	{"timed out", "timeout"},
	{"i/o timeout", "timeout"},
	{"gateway timeout", "timeout"},
	{"request timeout", "timeout"},
	{"connection timeout", "timeout"},
	{"handshake timeout", "timeout"},
	{"timeout exceeded", "timeout"},
	{"timeout awaiting", "timeout"},
	{"deadline exceeded", "timeout"},
	{"code = deadlineexceeded", "timeout"},
}

var systemWords = wordList{
	{"out of memory", "resources"},
	{"cannot allocate memory", "resources"},
	{"no space left on device", "resources"},
	{"too many open files", "resources"},
	{"executable file not found", "resources"}, // of the worker's machine, not of the job
	{"segmentation fault", "crash"},
	{"segmentation violation", "crash"},
	{"access violation", "crash"},
	{"signal: killed", "crash"},
}

var lastingWords = wordList{
	{"not found", "not_found"},
	{"does not exist", "not_found"},
	{"no such", "not_found"},
	{"no rows in result set", "not_found"},
	{"code = notfound", "not_found"},
	{"permission denied", "denied"},
	{"access denied", "denied"},
	{"access is denied", "denied"},
	{"not permitted", "denied"},
	{"not authorized", "denied"},
	{"unauthorized", "denied"},
	{"forbidden", "denied"},
	{"code = permissiondenied", "denied"},
	{"code = unauthenticated", "denied"},
	{"bad request", "invalid"},
	{"invalid payload", "invalid"},
	{"invalid argument*", "invalid"},
	{"invalid input*", "invalid"},
	{"invalid request", "invalid"},
	{"malformed", "invalid"},
	{"unprocessable*", "invalid"},
	{"validation failed", "invalid"},
	{"validation failure*", "invalid"},
	{"validation error*", "invalid"},
	{"failed validation", "invalid"},
	{"code = invalidargument", "invalid"},
	{"code = unimplemented", "invalid"},
	{"business rule*", "rule_violated"},
	{"violat*", "rule_violated"},
}

func (l wordList) find(text string) (code string, ok bool) {
	for _, w := range l {
		if says(text, w.phrase) {
			return w.code, true
		}
	}
	return "", false
}

// says reports whether a plain text contains the phrase as whole words.
func says(text, phrase string) bool {
	stem, open := strings.CutSuffix(phrase, "*")
	for from := 0; ; {
		i := strings.Index(text[from:], stem)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(stem)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !inWord(before) && (open || !inWord(after)) {
			return true
		}
		from = start + 1
	}
}

func inWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// plain is a message in lower case with one space for every run of spaces,
// hyphens and underscores, so that one spelling of a phrase is enough.
func plain(message string) string {
	spaced := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return ' '
		}
		return unicode.ToLower(r)
	}, message)
	return strings.Join(strings.Fields(spaced), " ")
}

// statusIn finds an HTTP status between 400 and 599 in a plain text: a number
// of three digits that follows a word for it, as in "status 404",
// "status code: 503" or "http/1.1 429". Numbers that stand anywhere else mean
// something else.
func statusIn(text string) int {
	for i := 0; i+3 <= len(text); i++ {
		if text[i] != '4' && text[i] != '5' || !digit(text[i+1]) || !digit(text[i+2]) {
			continue
		}
		after, _ := utf8.DecodeRuneInString(text[i+3:])
		if inWord(after) || !announcesStatus(text[:i]) {
			continue
		}
		return int(text[i]-'0')*100 + int(text[i+1]-'0')*10 + int(text[i+2]-'0')
	}
	return 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// announcesStatus reports whether the text before a number says that the number
// is an HTTP status.
func announcesStatus(before string) bool {
	lead := strings.TrimRight(before, " :=\"'(")
	if lead == before {
		return false
	}
	lead = lead[max(0, len(lead)-64):] // two words are enough
	words := strings.FieldsFunc(lead, func(r rune) bool { return !inWord(r) && r != '/' && r != '.' })
	if len(words) == 0 {
		return false
	}
	switch last := words[len(words)-1]; last {
	case "status", "statuscode", "http":
		return true
	case "code":
		if len(words) == 1 {
			return false
		}
		word := words[len(words)-2]
		return word == "status" || word == "response" || word == "http"
	default:
		return strings.HasPrefix(last, "http/")
	}
}
