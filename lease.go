package gq

import "time"

// LeaseVersion is a fencing number: every claim of a job issues a larger one. A system that
// handlers write to can reject versions smaller than the largest it has seen.
type LeaseVersion uint64

// LeaseState is the state of a lease. The zero value means no lease.
type LeaseState uint8

const (
	LeaseActive    LeaseState = iota + 1 // its holder can settle the job
	LeaseCompleted                       // its holder settled the job
	LeaseExpired                         // its time ran out
	LeaseCancelled                       // revoked
	leaseEnd
)

var leaseNames = [...]string{"", "ACTIVE", "COMPLETED", "EXPIRED", "CANCELLED"}

// Valid reports whether s is a state of a lease.
func (s LeaseState) Valid() bool { return s >= LeaseActive && s < leaseEnd }

func (s LeaseState) String() string { return nameOf(leaseNames[:], int(s)) }

// Lease is the temporary, exclusive right to run one job. A job never has two active leases.
// The lease id is also the id of the attempt.
type Lease struct {
	ID       LeaseID
	Version  LeaseVersion
	State    LeaseState
	Worker   string
	Attempt  int     // number of the attempt; 0 before it starts
	Previous LeaseID // the lease of the attempt before it; empty before and during the first attempt

	GrantedAt   time.Time
	HeartbeatAt time.Time     // last heartbeat, or the grant
	ExpiresAt   time.Time     // the lease is expired from this time on
	TTL         time.Duration // extension by a heartbeat
	Renewals    int
	CostUnits   int64 // capacity that the lease occupies
}

// Expired reports whether the lease has expired, which includes the instant ExpiresAt.
func (l Lease) Expired(now time.Time) bool { return !now.Before(l.ExpiresAt) }

// Ref returns the reference that its holder sends with calls.
func (l Lease) Ref() LeaseRef { return LeaseRef{ID: l.ID, Version: l.Version, Worker: l.Worker} }

// LeaseRef names a lease in a call of its holder. ID is required; Version and Worker are
// checked if they are set.
type LeaseRef struct {
	ID      LeaseID
	Version LeaseVersion
	Worker  string
}
