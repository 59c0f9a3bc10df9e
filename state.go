package gq

import "time"

// State is the part of a job that changes, with the policy numbers its
// transitions need. It is small: the payload, the result and the checkpoint are
// stored apart, and only their sizes are known here.
//
// Package machine has the transitions. A state that a call returned is the
// caller's own, with everything it points to.
type State struct {
	ID       JobID
	Sequence uint64  // order of submission within the store
	Turn     uint64  // among the keys of a fair queue,  0 in other queues
	Policy   *Policy // fixed at submission

	Status    Status
	Detail    Detail
	Own       Priority // what the user asked for
	Inherited Priority // the most urgent of its dependencies, 0 for none
	Depth     int      // jobs on the longest chain of dependencies that ends here
	Waits     int      // dependencies that must still end
	AnyOpen   bool     // one of the AFTER_ANY dependencies must still end

	Attempt int // executions started; never decremented
	Bound   int // executions allowed: the policy's plus one for each that ended without fault
	Faults  int // failures that count
	Losses  int // leases that ran out

	CreatedAt      time.Time
	UpdatedAt      time.Time // last change of status
	RunAt          time.Time // not claimable before
	ScheduledAt    time.Time // became claimable
	StartedAt      time.Time // current or last attempt
	FirstStartedAt time.Time // first attempt; with a RunLifetime, first lease
	CompletedAt    time.Time // became terminal

	Version        LeaseVersion // the last one issued
	Lease          *Lease       // the current lease, or the last one
	Settled        uint64       // digest of the call that ended Lease
	PreviousLease  LeaseID      // the lease before it
	PreviousDigest uint64       // of the call that ended that

	Progress        float64 // 0 to 1, as the holder reported it
	Note            string
	Failure         *Failure // of the last attempt that failed
	Cancellation    Cancellation
	Reason          string // why it ended where it did, if not by its handler
	ResultBytes     int
	CheckpointBytes int
	Checkpoints     int // saved so far
}

// Cancellation follows a cancel of a running job: asked for, told to the
// worker, honoured by it. The zero instants have not come.
type Cancellation struct {
	RequestedAt time.Time
	DeliveredAt time.Time
	HonouredAt  time.Time
	Reason      string
}

// Requested reports whether the job was asked to stop.
func (c Cancellation) Requested() bool { return !c.RequestedAt.IsZero() }

// Priority is the effective priority: the more urgent of the user's and what
// the dependencies hand down.
func (s State) Priority() Priority { return s.Own.Inherit(s.Inherited) }

// Live reports whether the job has yet to reach a terminal status.
func (s State) Live() bool { return !s.Status.Terminal() }

// At is the state as a reader should see it at an instant: a job whose run time
// has come is claimable, whether or not anyone has recorded that yet.
func (s State) At(now time.Time) State {
	if (s.Status == StatusDelayed || s.Status == StatusRetrying) && !now.Before(s.RunAt) {
		s.Status, s.ScheduledAt = StatusScheduled, s.RunAt
	}
	return s
}

// Attempting reports whether the lease, the progress and the note are those of an
// attempt that is under way or ended the job. They stay recorded while a job waits
// for its next attempt, and then say nothing about it.
func (s *State) Attempting() bool { return s.Status.Held() || s.Status.Terminal() }
