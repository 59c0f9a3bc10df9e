package gq

import (
	"fmt"
	"time"
)

// Cause is why a job does not run, or how it stands. The zero value is not a
// cause.
type Cause uint8

// The causes, in the order in which they hold a job up: one that waits for a
// dependency is not yet asked whether its queue is paused.
const (
	CauseDependency  Cause = iota + 1 // a job it depends on has not ended as it must
	CauseDelay                        // its first run lies in the future
	CauseBackoff                      // the next attempt does
	CausePaused                       // its queue is paused
	CauseConcurrency                  // as many jobs of its queue are held as may be
	CauseKeyLimit                     // as many jobs of its key are held as may be
	CauseRate                         // its queue starts no more jobs at the moment
	CausePool                         // the capacity pool has no room for its cost
	CauseNoWorker                     // no live worker asks for its queue and type
	CauseConstraint                   // no such worker offers what it requires
	CauseCost                         // no such worker takes a job as dear
	CauseLifetime                     // its lifetime is about to end
	CauseNext                         // nothing holds it up: it is in line
	CauseHeld                         // a worker has it and has not started
	CauseRunning                      // a worker runs it
	CauseCancelling                   // a worker runs it and was asked to stop
	CauseLost                         // its worker is silent: the lease has run out
	CauseFinished                     // it has ended
	causeEnd
)

var causeNames = [...]string{
	"", "dependency", "delay", "backoff", "paused", "concurrency", "key_limit", "rate", "pool",
	"no_worker", "constraint", "cost", "lifetime", "next", "held", "running", "cancelling", "lost", "finished",
}

func (c Cause) String() string { return nameOf(causeNames[:], int(c)) }

// Valid reports whether c is a cause.
func (c Cause) Valid() bool { return c >= CauseDependency && c < causeEnd }

// MarshalText is the name.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a name.
func (c *Cause) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(causeNames[:], name); ok {
		*c = Cause(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"cause", fmt.Sprintf("%.64q is not one of %v", name, causeNames[1:])}}}
}

// Reason is one thing that holds a job up, or how it stands.
type Reason struct {
	Cause   Cause
	Summary string    // one line
	Remedy  string    // what would help, one line; empty where nothing need be done
	Until   time.Time // when it will be over by itself; zero if that is not known
	Jobs    []Related // those it waits for, or who hold what it needs; at most a few
	More    int       // and this many more
}

// Related is another job that has to do with the answer.
type Related struct {
	Job    JobID
	Status Status
	Kind   DependencyKind // of a dependency
	Worker string         // of a holder
	Since  time.Time      // of a holder: when it got the job
	Cost   int64          // of a holder in a capacity pool
}

// Explanation answers "why is my job not running?". The embedded reason is what
// holds the job up first; Also has what would be next in its way.
type Explanation struct {
	Reason
	Job      JobID
	Queue    string
	Type     string
	Status   Status
	Attempt  int
	Bound    int
	Ahead    int // CauseNext: jobs in line before it; below 0 is more than were looked at
	Also     []Reason
	Timeline []Event // what has happened to it
}
