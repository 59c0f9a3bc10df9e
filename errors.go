package gq

import (
	"fmt"
	"strings"
)

// ErrorKind classifies an error for a caller that must react to it. Every face maps
// kinds onto its own status codes in one table; an error without a kind is
// [KindInternal].
type ErrorKind uint8

const (
	KindInternal    ErrorKind = iota // a defect or an unclassified failure; its text stays in the log
	KindInvalid                      // the request is wrong in itself; repeating it cannot help
	KindNotFound                     // no such job, lease, queue or document
	KindConflict                     // the present state does not allow the request
	KindStaleLease                   // the caller no longer holds the job
	KindDuplicate                    // the identity is taken
	KindExhausted                    // a limit is reached; it may help to try later
	KindUnavailable                  // the store cannot serve now; the outcome of a write may be unknown
	KindTimeout                      // a deadline passed before the answer
	KindDenied                       // the caller may not do this

	KindUnauthenticated // it is not known who calls
	kindEnd
)

var kindNames = [...]string{
	"internal", "invalid", "not_found", "conflict", "stale_lease", "duplicate",
	"exhausted", "unavailable", "timeout", "denied", "unauthenticated",
}

// Valid reports whether k is a kind.
func (k ErrorKind) Valid() bool { return k < kindEnd }

func (k ErrorKind) String() string { return nameOf(kindNames[:], int(k)) }

// Error is a sentinel: a stable code with a kind. Wrap it with the verb and the
// subject, and compare with [errors.Is]:
//
//	fmt.Errorf("complete %s: %w", id, gq.ErrStaleLease)
type Error struct {
	Kind ErrorKind
	Code string // stable, snake_case; part of every API
	text string
}

func (e *Error) Error() string { return e.text }

// Errorf makes an error that is e and whose text says everything, where the text
// of e would only repeat it:
//
//	gq.ErrNotFound.Errorf("job %s not found", id)
func (e *Error) Errorf(format string, args ...any) error {
	return &worded{fmt.Sprintf(format, args...), e}
}

// worded is a sentinel in other words.
type worded struct {
	text string
	is   *Error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.is }

func sentinel(k ErrorKind, code, text string) *Error { return &Error{k, code, text} }

// The sentinels. Their codes are part of every API and never change.
var (
	ErrInvalid     = sentinel(KindInvalid, "invalid", "invalid request")
	ErrNotFound    = sentinel(KindNotFound, "not_found", "not found")
	ErrIllegalMove = sentinel(KindConflict, "illegal_move", "the job's state does not allow this")
	ErrConflict    = sentinel(KindConflict, "conflict", "changed by someone else in the meantime")
	ErrStaleLease  = sentinel(KindStaleLease, "stale_lease", "the lease is not, or no longer, the one that holds the job")
	ErrDuplicateID = sentinel(KindDuplicate, "duplicate_id", "a job with this id exists already")
	ErrKeyReused   = sentinel(KindConflict, "key_reused", "the idempotency key was used for a job with other content")
	ErrQueueFull   = sentinel(KindExhausted, "queue_full", "the queue's depth limit is reached")
	ErrTooMany     = sentinel(KindExhausted, "too_many", "there are as many as there may be")
	ErrNoCapacity  = sentinel(KindExhausted, "no_capacity", "the pool has no room for the job")
	ErrDiskFull    = sentinel(KindExhausted, "disk_full", "the disk is nearly full, so nothing new is accepted")
	ErrStoreFailed = sentinel(KindUnavailable, "store_failed", "the store has failed and must be reopened")
	ErrUnavailable = sentinel(KindUnavailable, "store_unavailable", "the store's database cannot be reached")
	ErrClosed      = sentinel(KindUnavailable, "closed", "the store is closed")
	ErrInUse       = sentinel(KindConflict, "in_use", "the store is in use by another process")
	ErrNotEmpty    = sentinel(KindConflict, "not_empty", "the store is not empty")
	ErrUnfinished  = sentinel(KindConflict, "unfinished", "the store holds an unfinished copy")
	ErrFormat      = sentinel(KindInvalid, "format", "not a store this version can open")
	ErrCorrupt     = sentinel(KindInternal, "corrupt", "stored data is damaged")
	ErrTimeout     = sentinel(KindTimeout, "timeout", "not done in time")
	ErrGone        = sentinel(KindNotFound, "gone", "no longer kept")
	ErrDenied      = sentinel(KindDenied, "denied", "not allowed")
	ErrRateLimited = sentinel(KindExhausted, "rate_limited", "more calls than the token allows")

	ErrUnauthenticated = sentinel(KindUnauthenticated, "unauthenticated", "a valid token is required")
)

// Fault is one thing that is wrong with a request.
type Fault struct {
	Field   string // as the user spells it: "payload", "dependencies[3].job"
	Problem string // what is wrong and what would be right
}

func (f Fault) String() string { return f.Field + ": " + f.Problem }

// InvalidError reports every fault of a request at once. It is [ErrInvalid].
type InvalidError struct{ Faults []Fault }

func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		parts[i] = f.String()
	}
	return "invalid: " + strings.Join(parts, "; ")
}

func (e *InvalidError) Unwrap() error { return ErrInvalid }

// nameOf is names[i], or a number for a value outside the vocabulary.
func nameOf(names []string, i int) string {
	if i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

// indexOf finds a name in a vocabulary. Position 0 of a vocabulary with an
// empty first name is "not set" and is never found.
func indexOf(names []string, name string) (int, bool) {
	if name == "" {
		return 0, false
	}
	for i, n := range names {
		if n == name {
			return i, true
		}
	}
	return 0, false
}
