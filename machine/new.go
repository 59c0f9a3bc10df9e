package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// NewQueue returns a queue with the default policy and no limits.
func NewQueue(name string) gq.Queue { return gq.Queue{Name: name, Policy: DefaultPolicy()} }

// DefaultLimits returns the default limits.
func DefaultLimits() gq.Limits {
	return gq.Limits{PayloadBytes: 1 << 20, ResultBytes: 1 << 20, CheckpointBytes: 1 << 20}
}

// NewJobID returns a job id made of 16 random bytes, with the version and variant bits set.
func NewJobID(random [16]byte) gq.JobID { return gq.JobID(uuidBits(random)) }

// NewLeaseID returns a lease id in UUID form made of 16 bytes, which must be unique within the
// store.
func NewLeaseID(unique [16]byte) gq.LeaseID { return gq.LeaseID(gq.JobID(uuidBits(unique)).String()) }

func uuidBits(b [16]byte) [16]byte {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return b
}

// DefaultPolicy returns the policy of jobs and queues that set none.
func DefaultPolicy() gq.Policy { return gq.PresetJobModel.Policy() }

// BackoffFunc is a custom strategy: it returns the delay before retry n, which counts from 1.
// It must be pure and fast, because the store settles no other job while it runs. The result is
// limited to the range from zero to most. If it panics, the exponential strategy applies.
type BackoffFunc = func(n int, initial, most time.Duration) time.Duration
