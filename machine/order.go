package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// OrderKey sorts the claimable jobs of a queue; the smallest is claimed first. It is opaque to
// stores, so a new order needs no new store. Jobs with equal keys are claimed by ascending id.
type OrderKey struct{ Hi, Lo uint64 }

// Order returns the sort key of a job within its queue: by priority, in a fair queue then by
// turn, then by submission.
//
// Jobs that age are sorted by the time at which they could run first, later by [gq.Policy].Aging for
// each level of priority. So a job that has waited for that long is where a fresh job of the next
// higher priority is, and no key changes while its job waits. They are between jobs of priority
// HIGH and LOW that do not age; a queue has both only after its policy has changed.
func Order(s *gq.State) OrderKey {
	if p := s.Policy; s.Turn == 0 && p != nil && p.Aging > 0 {
		at := s.RunAt.UnixMicro() + (time.Duration(s.Priority().Level()) * p.Aging).Microseconds()
		return OrderKey{uint64(gq.PriorityNormal)<<56 | uint64(min(max(at, 0), MaxTurn)), s.Sequence}
	}
	return OrderKey{uint64(s.Priority())<<56 | s.Turn, s.Sequence}
}

// Band returns the priority whose jobs a key is among. That of a job that ages is not its own.
func (k OrderKey) Band() gq.Priority { return gq.Priority(k.Hi >> 56) }

// Less reports whether k is claimed before o.
func (k OrderKey) Less(o OrderKey) bool { return k.Hi < o.Hi || k.Hi == o.Hi && k.Lo < o.Lo }

// FairTurn returns the turn of a new job at a priority of a fair queue. now is the turn that is
// currently served there, and last is the newest turn of the job's key; both start at 0. Claiming
// a job moves now to its turn.
//
// This is start-time fair queueing: the jobs of a key take successive turns, and a new key joins
// at the current turn. A key cannot save up turns while it has no jobs.
func FairTurn(now, last uint64) uint64 { return min(max(now, last+1), MaxTurn) }

// MaxTurn is the largest turn number; it is never reached in practice.
const MaxTurn = 1<<56 - 1
