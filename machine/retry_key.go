package machine

import (
	"encoding/base32"
	"encoding/binary"
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

// retryText keeps the order of numbers.
var retryText = base32.HexEncoding.WithPadding(base32.NoPadding)

// RetryName returns the name of a key for retries. It begins with the time and ends with random
// bits, to which the place of a submission in its request is added. So names are in the order in
// which they were drawn, and a store writes them next to each other.
func RetryName(at time.Time, random [10]byte, place int) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(at.UnixMilli())<<16)
	copy(b[6:], random[:])
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+uint64(place))
	return retryText.EncodeToString(b[:])
}

// RetryNumber returns the 16 bytes that the name of a key for retries encodes. Other names have none.
func RetryNumber(k gq.IdempotencyKey) (number [16]byte, ok bool) {
	const size = 26
	if k.Scope != RetryScope || len(k.Name) != size {
		return number, false
	}
	var bits, free, at = uint(0), uint(0), 0
	for i := range size {
		digit := uint(k.Name[i]) - '0'
		if digit > 9 {
			if digit = uint(k.Name[i]) - 'A' + 10; digit < 10 || digit > 31 {
				return [16]byte{}, false
			}
		}
		if bits, free = bits<<5|digit, free+5; free >= 8 {
			free -= 8
			number[at] = byte(bits >> free)
			at++
		}
	}
	if bits&(1<<free-1) != 0 { // another spelling of a name
		return [16]byte{}, false
	}
	return number, true
}

// KeyWindow returns how long the idempotency key of a job refers to it.
func KeyWindow(s *gq.Spec) time.Duration {
	switch {
	case ForRetry(s.Key):
		return RetryWindow
	case ForReplay(s.Key):
		return gq.MaxDuration
	}
	return s.Policy.IdempotencyWindow
}
