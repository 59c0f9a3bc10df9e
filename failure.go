package gq

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
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

// Categories lists every category.
func Categories() []Category {
	return []Category{CategoryTemporary, CategoryPermanent, CategoryTimeout, CategoryCancelled, CategorySystem}
}

// ParseCategory reads a category's name.
func ParseCategory(name string) (Category, error) {
	if i, ok := indexOf(categoryNames[:], name); ok {
		return Category(i), nil
	}
	return 0, &InvalidError{Faults: []Fault{{"category", fmt.Sprintf("%.64q is not one of %v", name, categoryNames[1:])}}}
}

func (c Category) String() string { return nameOf(categoryNames[:], int(c)) }

// Valid reports whether c is one of the five categories.
func (c Category) Valid() bool { return c >= CategoryTemporary && c < categoryEnd }

// MarshalText is the name.
func (c Category) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a name.
func (c *Category) UnmarshalText(text []byte) error {
	parsed, err := ParseCategory(string(text))
	if err == nil {
		*c = parsed
	}
	return err
}

// Failure is what is remembered of a failed attempt. It is comparable, and the
// zero value is no failure.
type Failure struct {
	Category   Category
	Code       string        // stable, for programs; at most MaxNameBytes
	Message    string        // for people; at most MaxMessageBytes
	RetryAfter time.Duration // not before this long; 0 leaves it to the backoff
}

// Retryable reports whether a failure of this category may be tried again under
// p. Whether attempts are left is another question.
func (f Failure) Retryable(p *Policy) bool {
	if p.RetryNever {
		return false
	}
	switch f.Category {
	case CategoryTemporary:
		return true
	case CategoryTimeout:
		return p.RetryTimeout
	case CategorySystem:
		return p.RetrySystem
	default:
		return false
	}
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

// TemporaryOption refines [Temporary].
type TemporaryOption func(*TemporaryError)

// RetryAfter keeps the next attempt from starting earlier than d from now. A
// backoff that is longer stands.
func RetryAfter(d time.Duration) TemporaryOption {
	return func(e *TemporaryError) { e.RetryAfter = d }
}

// Temporary makes err a [TemporaryError]. Nil stays nil, so that a handler can
// end with return gq.Temporary(send(message)).
func Temporary(err error, opts ...TemporaryOption) error {
	if err == nil {
		return nil
	}
	e := &TemporaryError{Cause: err}
	for _, opt := range opts {
		opt(e)
	}
	return e
}

// Permanent makes err a [PermanentError] with a stable code. Nil stays nil.
func Permanent(err error, code string) error {
	if err == nil {
		return nil
	}
	return &PermanentError{Cause: err, Code: code}
}

// cut returns s in a form that every store and every API can hold: valid UTF-8
// without NUL (PostgreSQL has no text with NUL), of at most limit bytes. What
// cannot stay becomes U+FFFD; the end is cut off between characters.
func cut(s string, limit int) string {
	s = head(s, limit+utf8.UTFMax) // do not clean megabytes to keep a page
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = strings.ReplaceAll(s, "\x00", string(utf8.RuneError))
	return head(s, limit)
}

// head is the longest start of s of at most limit bytes that splits no character.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && limit-end < utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
