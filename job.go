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

// GraphJob is a job of a graph that is submitted in one call. Its spec's DependsOn
// names jobs that exist already; Needs names others of the same call.
type GraphJob struct {
	Spec  Spec
	Ref   string       // what the others call it; unique within the call, may be empty
	Needs []Dependency // on others of the call, by Ref
}

// SubmitResult is the answer to a submission: where the job stands, or why it was
// refused.
type SubmitResult struct {
	State    State // of the new job, or of the one that has the idempotency key
	Existing bool  // the key was taken; nothing was inserted
	Same     bool  // and by a submission with the same fingerprint
	Err      error
}

// ID is the id of the job that the submission led to.
func (s SubmitResult) ID() JobID { return s.State.ID }

// KeyReused is [ErrKeyReused], with the id of the job that has the idempotency key, if
// that job was submitted with other content, and nil otherwise.
func (s SubmitResult) KeyReused() error {
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

// Heartbeat is a sign of life of a lease's holder, with what it has to report.
type Heartbeat struct {
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
	VerdictComplete Verdict = iota + 1 // the job is done; Result is its result
	VerdictFail                        // the attempt failed; Failure says how
	VerdictRelease                     // released without fault; Delay and Reason say how
	verdictEnd
)

var verdictNames = [...]string{"", "complete", "fail", "release"}

func (v Verdict) String() string { return nameOf(verdictNames[:], int(v)) }

// Valid reports whether v is a verdict.
func (v Verdict) Valid() bool { return v >= VerdictComplete && v < verdictEnd }

// Outcome ends a lease.
type Outcome struct {
	Lease   LeaseRef
	Verdict Verdict
	Result  []byte        // VerdictComplete; Failing may leave one too
	Failure Failure       // VerdictFail
	Delay   time.Duration // VerdictRelease: not claimable before; 0 is at once
	Reason  string        // VerdictRelease
	Spawn   []Spec        // VerdictComplete: children, inserted together with the result or not at all
	Begin   bool          // VerdictComplete, Failing: a held job starts and ends in one commit; within one process only, the wire has no word for it
}

// LeaseResult is what became of a [Heartbeat] or an [Outcome]: the job's state from here
// on, or why nothing changed. An error of kind [KindStaleLease] means that the
// job belongs to someone else now.
type LeaseResult struct {
	State   State
	Spawned []SubmitResult // in the order of Spawn
	Err     error
}
