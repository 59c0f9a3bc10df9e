package machine

import "github.com/gopherqueue/gq"

// For the tests of this package only.
var (
	HashJitter = hashJitter
	Jittered   = jittered
	Cut        = Truncate
)

// CheckBackoff reports every fault of a backoff, as a policy would.
func CheckBackoff(b gq.Backoff) error {
	var f faults
	checkBackoff(b, "backoff", &f)
	return f.err()
}
