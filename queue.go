package gq

import "time"

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
	Fair       bool      // within a priority, claims take turns between the values of Spec.FairKey
	Pool       string    // pool whose capacity leased jobs occupy; empty is none
	UpdatedAt  time.Time // set by the store
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
