package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// RetryScope is the scope of keys that a client gives to submissions without a key, so that it can
// repeat them after a broken connection. It is reserved: APIs do not show these keys.
const RetryScope = "client-retry"

// RetryWindow is how long such a key refers to its job, whatever the policy says. It is far longer
// than a client repeats a call.
const RetryWindow = time.Hour

// ForRetry reports whether a key only makes a submission repeatable.
func ForRetry(k gq.IdempotencyKey) bool { return k.Scope == RetryScope && k.Name != "" }

// KeyWindow returns how long the idempotency key of a job refers to it.
func KeyWindow(s *gq.Spec) time.Duration {
	if ForRetry(s.Key) {
		return RetryWindow
	}
	return s.Policy.IdempotencyWindow
}

// ShownKey returns the key of a job as users know it.
func ShownKey(s *gq.Spec) gq.IdempotencyKey {
	if ForRetry(s.Key) {
		return gq.IdempotencyKey{}
	}
	return s.Key
}
