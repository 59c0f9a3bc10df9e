package gq

import (
	"fmt"
	"time"
)

// Category classifies failures. The zero value means no failure.
type Category uint8

const (
	CategoryTemporary Category = iota + 1 // another attempt may succeed
	CategoryPermanent                     // another attempt would fail too
	CategoryTimeout                       // the execution exceeded its timeout
	CategoryCancelled                     // a user cancelled the job
	CategorySystem                        // a crash, or the machine ran out of a resource
	categoryEnd
)

var categoryNames = [...]string{"", "TEMPORARY", "PERMANENT", "TIMEOUT", "CANCELLED", "SYSTEM"}

func (c Category) String() string { return nameOf(categoryNames[:], int(c)) }

// Valid reports whether c is one of the five categories.
func (c Category) Valid() bool { return c >= CategoryTemporary && c < categoryEnd }

// MarshalText returns the name.
func (c Category) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses a name.
func (c *Category) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(categoryNames[:], name); ok {
		*c = Category(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"category", fmt.Sprintf("%.64q is not one of %v", name, categoryNames[1:])}}}
}

// Failure describes a failed attempt. It is comparable. The zero value means no failure.
type Failure struct {
	Category   Category
	Code       string        // stable, for programs; at most MaxNameBytes
	Message    string        // for people; at most MaxMessageBytes
	RetryAfter time.Duration // minimum delay before the next attempt; the backoff can be longer
}

// TemporaryError is the error of a handler that wants another attempt.
type TemporaryError struct {
	Message    string
	Cause      error         // may be nil
	RetryAfter time.Duration // minimum delay before the next attempt; the backoff can be longer
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

// PermanentError is the error of a handler that wants no further attempt.
type PermanentError struct {
	Message string
	Cause   error  // may be nil
	Code    string // stable, for programs
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

// Temporary wraps err in a [TemporaryError]. It returns nil if err is nil, so a handler can
// end with return gq.Temporary(send(message)).
func Temporary(err error) error { return RetryAfter(err, 0) }

// RetryAfter wraps err in a [TemporaryError] with a minimum delay before the next attempt. It
// returns nil if err is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &TemporaryError{Cause: err, RetryAfter: d}
}

// Permanent wraps err in a [PermanentError] with a stable code. It returns nil if err is nil.
func Permanent(err error, code string) error {
	if err == nil {
		return nil
	}
	return &PermanentError{Cause: err, Code: code}
}
