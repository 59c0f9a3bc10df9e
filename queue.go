package gq

import "time"

// Queue is a name with what holds for all its jobs. A queue that nobody has
// configured behaves as [NewQueue].
type Queue struct {
	Name       string
	Policy     Policy    // what a job of this queue starts from
	Paused     bool      // nothing is claimed; submissions go on
	MaxRunning int       // jobs held at once, over all workers; 0 is no limit
	MaxDepth   int       // live jobs; a submission beyond it is refused; 0 is no limit
	Rate       Rate      // claims, over all workers; zero is no limit
	KeyLimit   int       // jobs held at once that have the same Spec.LimitKey; 0 is no limit
	Fair       bool      // within a level of priority each Spec.FairKey is served in turn
	Pool       string    // whose capacity held jobs occupy by their CostUnits; "" is none
	UpdatedAt  time.Time // set by the store, when it was configured
}

// Pool is capacity that queues share. The held jobs of all its queues together
// never cost more; a job that does not fit waits, and cheaper ones may pass it.
//
// In a pool that is occupied AtStart only the running jobs count: a claim with
// Hold needs no room, and the start of a job that does not fit is refused with a
// [CapacityError].
type Pool struct {
	Name      string
	Capacity  int64     // in CostUnits; with 0 only jobs run that cost nothing
	AtStart   bool      // occupied from the start of an execution on, not from its claim
	Used      int64     // by leases that have not run out; set by the store
	UpdatedAt time.Time // set by the store
}
