package machine

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// inTime rejects calls of a running attempt after its deadline, except a failure report.
func inTime(s gq.State, now time.Time) error {
	if tooLong(&s, now) {
		return fmt.Errorf("job %s is over its execution timeout of %v: %w", s.ID, s.Policy.ExecutionTimeout, gq.ErrStaleLease)
	}
	return nil
}

// holds rejects every lease except the newest one of the job while it has not expired. It
// compares with now and does not rely on a sweep to record the expiry.
func holds(s *gq.State, ref gq.LeaseRef, now time.Time) error {
	switch {
	case !refersTo(ref, s.Lease):
		return fmt.Errorf("job %s is not held under lease %.80q: %w", s.ID, ref.ID, gq.ErrStaleLease)
	case s.Lease.State != gq.LeaseActive:
		return fmt.Errorf("lease %s of job %s has ended (%s): %w", ref.ID, s.ID, s.Lease.State, gq.ErrStaleLease)
	case s.Lease.Expired(now):
		return fmt.Errorf("lease %s of job %s expired: %w", ref.ID, s.ID, gq.ErrStaleLease)
	case over(s, now):
		return fmt.Errorf("the %s of job %s is over: %w", limitOf(s), s.ID, gq.ErrStaleLease)
	}
	return nil
}

// limitOf names what ends a job at its [LifeEnd].
func limitOf(s *gq.State) string {
	if by := StartBy(s); !by.IsZero() && by.Equal(LifeEnd(s)) {
		return "start deadline"
	}
	return "lifetime"
}

// repeated reports whether the same call already ended the lease.
func repeated(s *gq.State, ref gq.LeaseRef, digest uint64) bool {
	if s.Lease != nil && refersTo(ref, s.Lease) && s.Lease.State != gq.LeaseActive {
		return s.Settled == digest
	}
	return ref.ID != "" && ref.ID == s.PreviousLease && digest == s.PreviousDigest
}

// digest distinguishes settling calls of the same lease. Zero means none. A non-cryptographic
// hash (FNV-1a) suffices, because both calls come from the same holder; for large results
// SHA-256 is faster.
func digest(verb byte, fields ...[]byte) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (uint64(offset) ^ uint64(verb)) * prime
	for _, f := range fields {
		h = (h ^ uint64(len(f))) * prime
		if len(f) > 1024 {
			sum := sha256.Sum256(f)
			f = sum[:]
		}
		for _, c := range f {
			h = (h ^ uint64(c)) * prime
		}
	}
	return h | 1
}

func refersTo(r gq.LeaseRef, l *gq.Lease) bool {
	return l != nil && r.ID != "" && r.ID == l.ID &&
		(r.Version == 0 || r.Version == l.Version) &&
		(r.Worker == "" || r.Worker == l.Worker)
}
