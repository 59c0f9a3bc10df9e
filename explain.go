package gq

import (
	"fmt"
	"time"
)

// Cause says why a job does not run. The zero value is not a cause.
type Cause uint8

// The causes come in the order in which they apply: a job that waits for a dependency does not
// yet wait for a paused queue.
const (
	CauseDependency  Cause = iota + 1 // a dependency has not ended
	CauseSignal                       // the signal of its workflow has not come
	CauseDelay                        // its first run is in the future
	CauseBackoff                      // its next attempt is in the future
	CausePaused                       // its queue is paused
	CauseConcurrency                  // its queue has reached MaxRunning
	CauseKeyLimit                     // its limit key has reached Queue.KeyLimit
	CauseKeyRate                      // its limit key has reached Queue.KeyRate
	CauseRate                         // its queue has reached its rate limit
	CausePool                         // the pool has too little free capacity
	CauseNoWorker                     // no live worker claims its queue and type
	CauseConstraint                   // no matching worker offers the required capabilities
	CauseCost                         // no matching worker accepts a job this expensive
	CauseLifetime                     // its lifetime or start deadline is about to end
	CauseNext                         // nothing blocks it; it waits for earlier jobs
	CauseHeld                         // a worker has claimed it and not started it
	CauseRunning                      // a worker runs it
	CauseCancelling                   // a worker runs it and was asked to stop
	CauseLost                         // its lease expired
	CauseFinished                     // it has ended
	causeEnd
)

var causeNames = [...]string{
	"", "dependency", "signal", "delay", "backoff", "paused", "concurrency", "key_limit", "key_rate", "rate", "pool",
	"no_worker", "constraint", "cost", "lifetime", "next", "held", "running", "cancelling", "lost", "finished",
}

func (c Cause) String() string { return nameOf(causeNames[:], int(c)) }

// Valid reports whether c is a cause.
func (c Cause) Valid() bool { return c >= CauseDependency && c < causeEnd }

// MarshalText returns the name.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses a name.
func (c *Cause) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(causeNames[:], name); ok {
		*c = Cause(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"cause", fmt.Sprintf("%.64q is not one of %v", name, causeNames[1:])}}}
}

// Reason is one reason why a job does not run.
type Reason struct {
	Cause   Cause
	Summary string    // one line
	Remedy  string    // one line; empty if no action is needed
	Until   time.Time // when the cause ends by itself; zero if unknown
	Never   bool      // the cause never ends by itself: the job, or what is in its way, has to be changed
	Jobs    []Related // the first few jobs that it waits for, or that occupy the capacity it needs
	More    int       // number of further jobs
}

// Related is another job that a [Reason] refers to.
type Related struct {
	Job    JobID
	Status Status
	Kind   DependencyKind // of a dependency
	Worker string         // that holds the job
	Since  time.Time      // when that worker claimed the job
	Cost   int64          // capacity that the job occupies in the pool
}

// Explanation answers "why is my job not running?". The embedded reason is the first one;
// Also has the reasons that would apply next.
type Explanation struct {
	Reason
	Job      JobID
	Queue    string
	Type     string
	Status   Status
	Attempt  int
	Bound    int
	Ahead    int // CauseNext: number of jobs before it; negative if unknown: they are too many to count, or rounds of matching decide
	Also     []Reason
	Timeline []Event // the events of the job
}
