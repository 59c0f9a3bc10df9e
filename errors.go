package gq

import (
	"fmt"
	"strings"
)

// ErrorKind classifies errors by how a caller can react. Every API maps kinds to its own
// status codes. An error without a kind is [KindInternal].
type ErrorKind uint8

const (
	KindInternal    ErrorKind = iota // a bug or an unclassified failure; servers log the text and do not send it
	KindInvalid                      // the request itself is invalid; retrying it cannot help
	KindNotFound                     // the job, lease, queue or document does not exist
	KindConflict                     // the current state does not allow the request
	KindStaleLease                   // the caller no longer holds the job
	KindDuplicate                    // the id is already in use
	KindExhausted                    // a limit is reached; a later retry may succeed
	KindUnavailable                  // the store is unavailable; the outcome of a write may be unknown
	KindTimeout                      // a deadline passed before the answer
	KindDenied                       // the caller lacks permission

	KindUnauthenticated // the caller's identity is unknown
	kindEnd
)

var kindNames = [...]string{
	"internal", "invalid", "not_found", "conflict", "stale_lease", "duplicate",
	"exhausted", "unavailable", "timeout", "denied", "unauthenticated",
}

// Valid reports whether k is a kind.
func (k ErrorKind) Valid() bool { return k < kindEnd }

func (k ErrorKind) String() string { return nameOf(kindNames[:], int(k)) }

// Error is a sentinel error with a kind and a stable code. Wrap it with the action and its
// subject, and compare with [errors.Is]:
//
//	fmt.Errorf("complete %s: %w", id, gq.ErrStaleLease)
type Error struct {
	Kind ErrorKind
	Code string // stable, snake_case; part of every API
	text string
}

func (e *Error) Error() string { return e.text }

// Errorf returns an error that wraps e but replaces its text:
//
//	gq.ErrNotFound.Errorf("job %s not found", id)
func (e *Error) Errorf(format string, args ...any) error {
	return &detailed{fmt.Sprintf(format, args...), e}
}

// detailed is a sentinel with a text of its own.
type detailed struct {
	text     string
	sentinel *Error
}

func (d *detailed) Error() string { return d.text }
func (d *detailed) Unwrap() error { return d.sentinel }

func sentinel(k ErrorKind, code, text string) *Error { return &Error{k, code, text} }

// Sentinel errors. Their codes are part of every API and never change.
var (
	ErrInvalid     = sentinel(KindInvalid, "invalid", "invalid request")
	ErrNotFound    = sentinel(KindNotFound, "not_found", "not found")
	ErrIllegalMove = sentinel(KindConflict, "illegal_move", "the job's state does not allow this")
	ErrConflict    = sentinel(KindConflict, "conflict", "modified concurrently")
	ErrStaleLease  = sentinel(KindStaleLease, "stale_lease", "stale lease: it expired or another worker holds the job")
	ErrDuplicateID = sentinel(KindDuplicate, "duplicate_id", "a job with this id already exists")
	ErrKeyReused   = sentinel(KindConflict, "key_reused", "idempotency key already used for a job with different content")
	ErrNotUnique   = sentinel(KindConflict, "not_unique", "another job holds the key")
	ErrOverlap     = sentinel(KindConflict, "overlap", "the schedule's last job is still live")
	ErrQueueFull   = sentinel(KindExhausted, "queue_full", "the queue has reached its depth limit")
	ErrTooMany     = sentinel(KindExhausted, "too_many", "limit reached")
	ErrNoCapacity  = sentinel(KindExhausted, "no_capacity", "the pool has no capacity left for the job")
	ErrDiskFull    = sentinel(KindUnavailable, "disk_full", "the disk is nearly full; new data is rejected")
	ErrStoreFailed = sentinel(KindUnavailable, "store_failed", "the store has failed and must be reopened")
	ErrUnavailable = sentinel(KindUnavailable, "store_unavailable", "the store's database is unreachable")
	ErrClosed      = sentinel(KindUnavailable, "closed", "the store is closed")
	ErrInUse       = sentinel(KindConflict, "in_use", "the store is in use by another process")
	ErrNotEmpty    = sentinel(KindConflict, "not_empty", "the store is not empty")
	ErrQueueInUse  = sentinel(KindConflict, "queue_in_use", "the queue has live jobs")
	ErrUnfinished  = sentinel(KindConflict, "unfinished", "the store holds an unfinished copy")
	ErrFormat      = sentinel(KindInvalid, "format", "this version cannot open the store")
	ErrCorrupt     = sentinel(KindInternal, "corrupt", "stored data is damaged")
	ErrTimeout     = sentinel(KindTimeout, "timeout", "timed out")
	ErrGone        = sentinel(KindNotFound, "gone", "already removed by retention")
	ErrDenied      = sentinel(KindDenied, "denied", "not allowed")
	ErrRateLimited = sentinel(KindExhausted, "rate_limited", "the token's rate limit is exceeded")

	ErrUnauthenticated = sentinel(KindUnauthenticated, "unauthenticated", "a valid token is required")
)

// Fault is one invalid field of a request.
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

// nameOf returns names[i], or a placeholder with the number if there is no such name.
func nameOf(names []string, i int) string {
	if i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

// indexOf returns the position of a name. It never finds the empty name, which means "not
// set".
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
