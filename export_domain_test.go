package gq

// For the tests of this package only.
var (
	HashJitter = hashJitter
	Jittered   = jittered
	Cut        = cut
)

// Validate reports every fault of a backoff, as a policy would.
func (b Backoff) Validate() error {
	var f faults
	b.validate("backoff", &f)
	return f.err()
}
