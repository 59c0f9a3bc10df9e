package gq

import "time"

// LeaseVersion is the fencing number of a lease: every claim of a job issues a
// larger one. A system that a handler writes to can refuse a smaller version
// than it has seen.
type LeaseVersion uint64

// LeaseState is how a lease stands. The zero value is no lease.
type LeaseState uint8

const (
	LeaseActive    LeaseState = iota + 1 // its holder may settle the job
	LeaseCompleted                       // its holder settled or released the job
	LeaseExpired                         // its time ran out
	LeaseCancelled                       // taken away before its time
	leaseEnd
)

var leaseNames = [...]string{"", "ACTIVE", "COMPLETED", "EXPIRED", "CANCELLED"}

// Valid reports whether s is a state of a lease.
func (s LeaseState) Valid() bool { return s >= LeaseActive && s < leaseEnd }

func (s LeaseState) String() string { return nameOf(leaseNames[:], int(s)) }

// Lease is the temporary, exclusive right to run one job. A job has at most one
// active lease, ever. The lease id is also the id of the attempt it covers.
type Lease struct {
	ID       LeaseID
	Version  LeaseVersion
	State    LeaseState
	Worker   string
	Attempt  int     // the attempt it covers; 0 while the job has not started
	Previous LeaseID // the lease before this one, empty for the first

	GrantedAt   time.Time
	HeartbeatAt time.Time     // last sign of life; the grant counts
	ExpiresAt   time.Time     // from this instant on the lease is worth nothing
	TTL         time.Duration // what a heartbeat grants
	Renewals    int
	CostUnits   int64 // capacity it occupies
}

// Expired reports whether the lease is past its end. The end itself is past.
func (l Lease) Expired(now time.Time) bool { return !now.Before(l.ExpiresAt) }

// Ref is how the holder names it.
func (l Lease) Ref() LeaseRef { return LeaseRef{ID: l.ID, Version: l.Version, Worker: l.Worker} }

// LeaseRef names the lease under which a worker acts. ID is required; Version
// and Worker are checked where they are given.
type LeaseRef struct {
	ID      LeaseID
	Version LeaseVersion
	Worker  string
}
