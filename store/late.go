package store

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Usable reports whether enough of a lease is left at an instant to hand its job to a
// worker: at least a quarter of the time that it was granted for. A worker that got less
// could hardly send its first heartbeat in time.
func Usable(l *gq.Lease, now time.Time) bool {
	return 4*l.ExpiresAt.Sub(now) >= l.ExpiresAt.Sub(l.GrantedAt)
}

// Late takes jobs out of the answers to claims that took too long, since their leases are
// no longer [Usable], and returns updates that give them back. If one was claimed again in
// the same call its first lease had run out, so that it is in the answers once. now is the
// time of the store, as far as that is known for a lease that was just granted.
func Late(answers []Claimed, now func(l *gq.Lease) time.Time) (back []Update) {
	for i := range answers {
		a := &answers[i]
		for k := 0; k < len(a.Jobs); {
			s := &a.Jobs[k].State
			at := now(s.Lease)
			if Usable(s.Lease, at) {
				k++
				continue
			}
			back = append(back, GiveBack(s, "the claim took most of the lease"))
			if a.Jobs = slices.Delete(a.Jobs, k, k+1); a.RetryAt.IsZero() || at.Before(a.RetryAt) {
				a.RetryAt = at
			}
		}
	}
	return back
}

// GiveBack is an update by which the holder of a lease returns its job without fault.
func GiveBack(s *gq.State, reason string) Update {
	lease := s.Lease.Ref()
	return Update{
		Ref: Ref{Job: s.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Release(s, lease, 0, reason, now)
		},
	}
}
