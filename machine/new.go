package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// NewQueue is a queue with the default policy and no limits.
func NewQueue(name string) gq.Queue { return gq.Queue{Name: name, Policy: DefaultPolicy()} }

// DefaultLimits are the limits of an installation that sets none.
func DefaultLimits() gq.Limits {
	return gq.Limits{PayloadBytes: 1 << 20, ResultBytes: 1 << 20, CheckpointBytes: 1 << 20}
}

// NewJobID makes a job id out of 16 random bytes by setting the version and
// variant bits.
func NewJobID(random [16]byte) gq.JobID { return gq.JobID(uuidBits(random)) }

// NewLeaseID makes a lease id in UUID form out of 16 bytes that no other lease
// of the store was made of.
func NewLeaseID(unique [16]byte) gq.LeaseID { return gq.LeaseID(gq.JobID(uuidBits(unique)).String()) }

func uuidBits(b [16]byte) [16]byte {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return b
}

// DefaultPolicy is the policy of a job that asks for nothing else.
func DefaultPolicy() gq.Policy { return gq.PresetJobModel.Policy() }

// BackoffFunc is an application's own strategy: the delay before retry n, which
// counts from 1. It must be pure and quick: it runs while a store settles the job,
// and nothing else is settled meanwhile. What it returns is brought into the range
// from zero to most; where it panics the delay is that of the exponential strategy.
type BackoffFunc = func(n int, initial, most time.Duration) time.Duration

// ParseJobID reads the canonical text form of an id: 8-4-4-4-12 hexadecimal digits.
func ParseJobID(text string) (id gq.JobID, err error) {
	if err = id.UnmarshalText([]byte(text)); err == nil && id.IsZero() {
		err = invalid("id", `"" is not a UUID`)
	}
	return id, err
}
