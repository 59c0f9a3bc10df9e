package gq

import (
	"strings"
	"time"
)

// Queue is the configuration of a queue. Queues need no setup: a queue without a
// configuration has the default policy and no limits.
type Queue struct {
	Name       string
	Policy     Policy    // of jobs that bring none
	Paused     bool      // claims get nothing; submissions continue
	MaxRunning int       // maximum number of leased jobs over all workers; 0 is no limit
	MaxDepth   int       // maximum number of live jobs; further submissions fail; 0 is no limit
	Rate       Rate      // of claims over all workers; zero is no limit
	KeyLimit   int       // maximum number of leased jobs with the same Spec.LimitKey; 0 is no limit
	KeyRate    Rate      // of claims of jobs with the same Spec.LimitKey; zero is no limit
	Fair       bool      // within a priority, claims take turns between the values of Spec.FairKey
	Pool       string    // pool whose capacity leased jobs occupy; empty is none
	OwnKeys    int       // number of keys with limits of their own, see [QueueKey]; set by the store
	UpdatedAt  time.Time // set by the store
}

// QueueKey gives one limit key of a queue, such as a customer, other limits than the rest. It
// has at least one of them.
type QueueKey struct {
	Queue     string
	Key       string    // Spec.LimitKey
	Limit     int       // in place of Queue.KeyLimit; 0 is the queue's
	Rate      Rate      // in place of Queue.KeyRate; zero is the queue's
	FreeAt    time.Time // when the rate allows the next claim, if that is later than now; set by the store
	UpdatedAt time.Time // when the limits were set; set by the store
}

// Pool is capacity that queues share. The total cost of the leased jobs of its queues never
// exceeds the capacity. A job that does not fit waits, and cheaper jobs can overtake it.
//
// With AtStart only running jobs occupy capacity: a claim with Hold needs none, and starting a
// job that does not fit fails with [ErrNoCapacity].
type Pool struct {
	Name      string
	Capacity  int64     // in CostUnits; with 0 only jobs without cost run
	AtStart   bool      // jobs occupy capacity from their start, not from their claim
	Used      int64     // by unexpired leases; set by the store
	UpdatedAt time.Time // set by the store
}

// MatchQueue reports whether a claim that names a queue or a pattern gets jobs of a queue. A pattern
// is the beginning of names and a *: mail.* is every queue whose name begins with "mail.", those
// included that come into being later. Claims take turns between the queues of a pattern.
func MatchQueue(pattern, queue string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(queue, prefix)
	}
	return pattern == queue
}
