package gq

import "time"

// State is the part of a job that changes, together with its policy. It has the sizes of the
// payload, the result and the checkpoint, but not their content.
//
// Package machine has the transitions. The caller owns a returned state, including the values
// that it points to.
type State struct {
	ID       JobID
	Sequence uint64  // order of submission within the store
	Turn     uint64  // turn of its key in a fair queue; 0 in other queues
	Policy   *Policy // fixed at submission

	Status    Status
	Detail    Detail
	Own       Priority // as submitted or changed by a user
	Inherited Priority // the most urgent priority of its dependencies; 0 is none
	Depth     int      // length of the longest dependency chain that ends in this job
	Waits     int      // dependencies that have not ended
	AnyOpen   bool     // no AFTER_ANY dependency has ended yet
	Gate      Gate     // what it waits for besides; GateFailure is over once a dependency has failed

	OrderedAfter JobID // the job with the same order key that it was put behind; zero if none was live

	TraceParent string // W3C trace context of the submission; see [AttributeTraceParent]

	Attempt int // executions started; never decremented
	Bound   int // executions allowed: the policy's, plus one for each that ended without a fault
	Faults  int // failures that count against the policy
	Losses  int // expired leases

	CreatedAt      time.Time
	SubmittedAt    time.Time // of a job that took the place of another one, when the first of them was submitted: its deadlines count from then; zero is CreatedAt
	UpdatedAt      time.Time // last change of status
	RunAt          time.Time // claimable from then on
	ScheduledAt    time.Time // became claimable for its next attempt, or began to wait for its signal
	StartedAt      time.Time // current or last attempt
	FirstStartedAt time.Time // first attempt; with a RunLifetime, first lease
	CompletedAt    time.Time // became terminal

	Version        LeaseVersion // of the newest lease
	Lease          *Lease       // the current or last lease; nil before the first
	Settled        uint64       // digest of the call that ended Lease
	PreviousLease  LeaseID      // the lease before Lease
	PreviousDigest uint64       // digest of the call that ended PreviousLease

	Progress        float64 // 0 to 1, as the worker reported it
	Note            string
	Failure         *Failure // of the last failed attempt; nil if no attempt failed
	Cancellation    Cancellation
	Reason          string // why the job ended, unless its handler ended it; while it waits for capacity, why it does
	ReplacedBy      JobID  // the job that took its place; see Spec.Replaces
	ResultBytes     int
	CheckpointBytes int
	Checkpoints     int // saved so far
}

// Cancellation records the steps of cancelling a running job. A step that has not happened
// has a zero time.
type Cancellation struct {
	RequestedAt time.Time // a user cancelled the job
	DeliveredAt time.Time // its worker learned of it
	HonouredAt  time.Time // its worker stopped
	Reason      string
}

// Requested reports whether a user cancelled the job.
func (c Cancellation) Requested() bool { return !c.RequestedAt.IsZero() }

// Priority returns the effective priority: the more urgent of Own and Inherited.
func (s State) Priority() Priority { return s.Own.Inherit(s.Inherited) }

// Live reports whether the job has not reached a terminal status.
func (s State) Live() bool { return !s.Status.Terminal() }

// At returns the state as of now. A delayed or retrying job becomes claimable when its run
// time arrives, even before the store records the change.
func (s State) At(now time.Time) State {
	if (s.Status == StatusDelayed || s.Status == StatusRetrying) && !now.Before(s.RunAt) {
		s.Status = StatusScheduled
		if !s.HoldLost() {
			s.ScheduledAt = s.RunAt
		}
	}
	return s
}

// HoldLost reports whether the job waits because its last holder lost it or gave it back before
// the start. ScheduledAt is from before that hold then.
func (s *State) HoldLost() bool { return !s.Attempting() && s.Lease != nil && s.Lease.Attempt == 0 }

// LastAttempt returns the lease of the last attempt of a job that waits for the next one; empty
// before the first.
func (s *State) LastAttempt() LeaseID {
	switch l := s.Lease; {
	case l == nil:
		return s.PreviousLease // of the job whose place it took
	case l.Attempt > 0:
		return l.ID
	default:
		return l.Previous
	}
}

// Attempting reports whether Lease, Progress and Note describe the current or final attempt.
// In a job that waits for its next attempt they still describe the previous one.
func (s *State) Attempting() bool { return s.Status.Held() || s.Status.Terminal() }
