package gq

import (
	"fmt"
	"time"
)

// Category says what kind of failure ended an attempt. Every failure has
// exactly one. The zero value is no failure.
type Category uint8

// The categories.
const (
	CategoryTemporary Category = iota + 1 // another attempt may succeed
	CategoryPermanent                     // another attempt would fail alike
	CategoryTimeout                       // the execution went over its time limit
	CategoryCancelled                     // someone asked for it to stop
	CategorySystem                        // a crash, or the machine ran out of something
	categoryEnd
)

var categoryNames = [...]string{"", "TEMPORARY", "PERMANENT", "TIMEOUT", "CANCELLED", "SYSTEM"}

func (c Category) String() string { return nameOf(categoryNames[:], int(c)) }

// Valid reports whether c is one of the five categories.
func (c Category) Valid() bool { return c >= CategoryTemporary && c < categoryEnd }

// MarshalText is the name.
func (c Category) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a name.
func (c *Category) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(categoryNames[:], name); ok {
		*c = Category(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"category", fmt.Sprintf("%.64q is not one of %v", name, categoryNames[1:])}}}
}

// Failure is what is remembered of a failed attempt. It is comparable, and the
// zero value is no failure.
type Failure struct {
	Category   Category
	Code       string        // stable, for programs; at most MaxNameBytes
	Message    string        // for people; at most MaxMessageBytes
	RetryAfter time.Duration // not before this long; 0 leaves it to the backoff
}

// TemporaryError is a handler's verdict that another attempt may succeed.
type TemporaryError struct {
	Message    string
	Cause      error         // may be nil
	RetryAfter time.Duration // the next attempt starts no earlier; 0 leaves it to the backoff
}

func (e *TemporaryError) Error() string {
	if e == nil {
		return verdictText("", nil, "temporary failure")
	}
	return verdictText(e.Message, e.Cause, "temporary failure")
}

// Unwrap returns the cause.
func (e *TemporaryError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Cause
}

// PermanentError is a handler's verdict that another attempt would fail alike.
type PermanentError struct {
	Message string
	Cause   error  // may be nil
	Code    string // stable name of what went wrong, for programs
}

func (e *PermanentError) Error() string {
	if e == nil {
		return verdictText("", nil, "permanent failure")
	}
	return verdictText(e.Message, e.Cause, "permanent failure")
}

// Unwrap returns the cause.
func (e *PermanentError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Cause
}

func verdictText(message string, cause error, otherwise string) string {
	switch {
	case message != "" && cause != nil:
		return message + ": " + cause.Error()
	case message != "":
		return message
	case cause != nil:
		return cause.Error()
	default:
		return otherwise
	}
}

// Temporary makes err a [TemporaryError]. Nil stays nil, so that a handler can
// end with return gq.Temporary(send(message)).
func Temporary(err error) error { return RetryAfter(err, 0) }

// RetryAfter makes err a [TemporaryError] whose next attempt starts no earlier than d from
// now. A backoff that is longer stands. Nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &TemporaryError{Cause: err, RetryAfter: d}
}

// Permanent makes err a [PermanentError] with a stable code. Nil stays nil.
func Permanent(err error, code string) error {
	if err == nil {
		return nil
	}
	return &PermanentError{Cause: err, Code: code}
}
