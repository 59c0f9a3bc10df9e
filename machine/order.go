package machine

import "github.com/gopherqueue/gq"

// OrderKey sorts the claimable jobs of a queue; the smaller one is served
// first. It is opaque to stores, so that a new order needs no new store. Jobs
// with equal keys are served by ascending id.
type OrderKey struct{ Hi, Lo uint64 }

// Order is the job's place among the claimable jobs of its queue: by priority,
// in a fair queue then by turn, then by submission.
func Order(s *gq.State) OrderKey {
	return OrderKey{uint64(s.Priority())<<56 | s.Turn, s.Sequence}
}

// Less reports whether k is served before o.
func (k OrderKey) Less(o OrderKey) bool { return k.Hi < o.Hi || k.Hi == o.Hi && k.Lo < o.Lo }

// FairTurn is the turn of a job that joins a level of a fair queue. now is the
// turn that is being served there, last the newest turn of the job's key, and
// both are 0 at first. Serving a job moves now to its turn, unless it is there
// already.
//
// It is start-time fair queueing: a key that has much waiting takes one turn
// after the other, and a key that comes later joins at the turn being served.
// What a key did not use while it had nothing to run is not made up for.
func FairTurn(now, last uint64) uint64 { return min(max(now, last+1), MaxTurn) }

// MaxTurn is more turns than will ever be.
const MaxTurn = 1<<56 - 1
