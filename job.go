package gq

import (
	"fmt"
	"time"
)

// Job is a complete job. Reads leave out the payload, the result and the checkpoint unless
// [Parts] asks for them.
type Job struct {
	Spec       Spec // Payload.Data needs WithPayload
	State      State
	Metadata   Metadata // current values; Spec.Metadata has the submitted ones
	Result     []byte   // needs WithResult
	Checkpoint []byte   // needs WithCheckpoint
	Inputs     []Input  // with a claim: the results of the dependencies of a job of a workflow

	WorkflowOutcome WorkflowStatus // with a claim of a final job: see Workflow.Outcome; 0 in other jobs

	Redacted bool // the caller may not see the payload, result, checkpoint, note and messages of failures, so they are left out
}

// GraphJob is one job of a graph that is submitted in one call. Spec.DependsOn names jobs
// that already exist; Needs names other jobs of the same call.
type GraphJob struct {
	Spec  Spec
	Ref   string       // its name within the call; unique or empty
	Needs []Dependency // other jobs of the call, by Ref
	Final Final        // only in a [Flow]: the job waits for all others
}

// SubmitResult is the result of one submission: the state of the job, or an error.
type SubmitResult struct {
	State    State // of the new job, or of the existing job with the same key
	Existing bool  // another job holds the key; State is that of the existing job
	Replaces JobID // the waiting job whose place the new job took; zero if it took none
	Same     bool  // the existing job has the same content, or the submission is unique and accepts any
	Err      error
}

// ID returns the id of the new or existing job.
func (s SubmitResult) ID() JobID { return s.State.ID }

// KeyReused returns [ErrKeyReused] with the id of the existing job if that job has different
// content, and nil otherwise.
func (s SubmitResult) KeyReused() error {
	if !s.Existing || s.Same {
		return nil
	}
	return fmt.Errorf("job %s: %w", s.State.ID, ErrKeyReused)
}

// ClaimRequest says which jobs a worker wants.
type ClaimRequest struct {
	Worker  string        // name of the worker; unique among live workers
	Queues  []string      // tried in this order; empty is [DefaultQueue]; mail.* is all queues whose names begin with mail., see [MatchQueue]
	Types   []string      // job types the worker can run; empty is any
	Offers  []string      // capabilities; they must include everything in Spec.Requires
	MaxCost int64         // largest CostUnits; 0 is any
	N       int           // maximum number of jobs; at least 1
	Wait    time.Duration // how long to wait for the first job; 0 does not wait
	TTL     time.Duration // of the leases; 0 is the policy's
	// DefaultTTL is for claimants that renew their leases: without TTL it is the lease time of
	// jobs whose policy has the lease time of its preset, if that is longer.
	DefaultTTL time.Duration
	Hold       bool // claim without starting; Start begins the execution
}

// Heartbeat renews a lease and reports progress.
type Heartbeat struct {
	Lease      LeaseRef
	Progress   float64 // 0 to 1; negative keeps the last value
	Note       string  // empty keeps the last value
	Checkpoint []byte  // nil keeps the last value
	Spawn      []Spec  // child jobs, inserted atomically with the checkpoint
}

// Verdict says how a worker ends its lease. The zero value is not a verdict.
type Verdict uint8

const (
	VerdictComplete Verdict = iota + 1 // the job succeeded; see Outcome.Result
	VerdictFail                        // the attempt failed; see Outcome.Failure
	VerdictRelease                     // the worker returned the job; see Outcome.Delay and Outcome.Reason
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
	Result  []byte        // VerdictComplete; allowed with VerdictFail too
	Failure Failure       // VerdictFail
	Delay   time.Duration // VerdictRelease: how long the job is not claimable
	Reason  string        // VerdictRelease
	Spawn   []Spec        // VerdictComplete: child jobs, inserted atomically with the result
	Begin   bool          // VerdictComplete, VerdictFail: start a held job and end it in one commit; only embedded queues support it
	NoState bool          // the caller does not use LeaseResult.State, so a remote queue need not send it
}

// LeaseResult is the result of a [Heartbeat] or an [Outcome]: the new state of the job, or an
// error if nothing changed. [KindStaleLease] means that the caller no longer holds the job.
type LeaseResult struct {
	State   State
	Spawned []SubmitResult // in the order of Spawn
	Err     error
}
