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

// NewQueue is a queue with the default policy and no limits.
func NewQueue(name string) Queue { return Queue{Name: name, Policy: Default()} }

// Configure is q as it is when next takes its place. With UpdatedAt next is a change of
// what was read, and [ErrConflict] if q is not that any more.
func (q Queue) Configure(next Queue, now time.Time) (Queue, error) {
	if !next.UpdatedAt.IsZero() && !next.UpdatedAt.Equal(q.UpdatedAt) {
		return q, ErrConflict
	}
	next.UpdatedAt = now
	if !now.After(q.UpdatedAt) {
		next.UpdatedAt = q.UpdatedAt.Add(1)
	}
	return next, nil
}

// Validate reports everything that is wrong with the queue.
func (q Queue) Validate() error {
	var f faults
	checkQueueName("name", q.Name, &f)
	q.Policy.validate("policy", &f)
	if q.MaxRunning < 0 {
		f.add("max_running", "%d is negative; 0 is no limit", q.MaxRunning)
	}
	if q.MaxDepth < 0 {
		f.add("max_depth", "%d is negative; 0 is no limit", q.MaxDepth)
	}
	q.Rate.validate("rate", &f)
	if q.KeyLimit < 0 {
		f.add("key_limit", "%d is negative; 0 is no limit", q.KeyLimit)
	}
	if q.Pool != "" {
		checkQueueName("pool", q.Pool, &f)
	}
	return f.err()
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

// Counts reports whether a job in that status occupies capacity.
func (p Pool) Counts(s Status) bool { return s == Running || s == Claimed && !p.AtStart }

// Validate reports everything that is wrong with the pool.
func (p Pool) Validate() error {
	var f faults
	checkQueueName("name", p.Name, &f)
	if p.Capacity < 0 || p.Capacity > MaxCapacity {
		f.add("capacity", "%d is not between 0 and %d", p.Capacity, int64(MaxCapacity))
	}
	return f.err()
}

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
