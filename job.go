package gq

import (
	"fmt"
	"time"
)

// Job is everything there is to know about one job.
type Job struct {
	Spec       Spec // Payload.Data only where asked for
	State      State
	Metadata   Metadata // current
	Result     []byte   // where asked for
	Checkpoint []byte   // where asked for
}

// Draft is a job of a graph that is submitted in one call. Its spec's DependsOn
// names jobs that exist already; Needs names others of the same call.
type Draft struct {
	Spec  Spec
	Ref   string // what the others call it; unique within the call, may be empty
	Needs []Need
}

// Need is a dependency on another draft of the same call.
type Need struct {
	Kind DependencyKind
	Ref  string
}

// Submitted is the answer to a submission: where the job stands, or why it was
// refused.
type Submitted struct {
	State    State // of the new job, or of the one that has the idempotency key
	Existing bool  // the key was taken; nothing was inserted
	Same     bool  // and by a submission with the same fingerprint
	Err      error
}

// ID is the id of the job that the submission led to.
func (s Submitted) ID() JobID { return s.State.ID }

// KeyReused is [ErrKeyReused], with the id of the job that has the idempotency key, if
// that job was submitted with other content, and nil otherwise.
func (s Submitted) KeyReused() error {
	if !s.Existing || s.Same {
		return nil
	}
	return fmt.Errorf("job %s: %w", s.State.ID, ErrKeyReused)
}

// ClaimRequest is what a worker asks for.
type ClaimRequest struct {
	Worker  string        // who asks; unique among live workers
	Queues  []string      // tried in this order; none is [DefaultQueue]
	Types   []string      // job types the worker can run; none is any
	Offers  []string      // capabilities; a job's Requires must be among them
	MaxCost int64         // largest CostUnits; 0 is any
	N       int           // at most this many jobs; at least 1
	Wait    time.Duration // how long to wait for the first job; 0 answers at once
	TTL     time.Duration // of the lease; 0 is the policy's
	Hold    bool          // claim only; the execution begins with Start
}

// Beat is a sign of life of a lease's holder, with what it has to report.
type Beat struct {
	Lease      LeaseRef
	Progress   float64 // 0 to 1; below 0 leaves the last one
	Note       string  // empty leaves the last one
	Checkpoint []byte  // nil leaves the last one
	Spawn      []Spec  // children, inserted together with the checkpoint or not at all
}

// Verdict is how a holder ends its lease. The zero value is not a verdict.
type Verdict uint8

// The verdicts.
const (
	Succeeded Verdict = iota + 1 // the job is done; Result is its result
	Failing                      // the attempt failed; Failure says how
	GivenBack                    // released without fault; Delay and Reason say how
	verdictEnd
)

var verdictNames = [...]string{"", "complete", "fail", "release"}

func (v Verdict) String() string { return nameOf(verdictNames[:], int(v)) }

// Valid reports whether v is a verdict.
func (v Verdict) Valid() bool { return v >= Succeeded && v < verdictEnd }

// Outcome ends a lease.
type Outcome struct {
	Lease   LeaseRef
	Verdict Verdict
	Result  []byte        // Succeeded; Failing may leave one too
	Failure Failure       // Failing
	Delay   time.Duration // GivenBack: not claimable before; 0 is at once
	Reason  string        // GivenBack
	Spawn   []Spec        // Succeeded: children, inserted together with the result or not at all
	Begin   bool          // Succeeded, Failing: a held job starts and ends in one commit; within one process only, the wire has no word for it
}

// Answer is what became of a [Beat] or an [Outcome]: the job's state from here
// on, or why nothing changed. An error of kind [KindStaleLease] means that the
// job belongs to someone else now.
type Answer struct {
	State   State
	Spawned []Submitted // in the order of Spawn
	Err     error
}
