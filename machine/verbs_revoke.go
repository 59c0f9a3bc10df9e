package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Revoke ends a lease early without using up an attempt; the job is claimable at once. It is for
// a holder that declines the job, and for a system that withdraws the job from its holder. A job
// with a cancel request ends instead. Repeating the call changes nothing.
func Revoke(s gq.State, ref gq.LeaseRef, reason string, now time.Time) (gq.State, []gq.Event, error) {
	reason = Truncate(reason, gq.MaxReasonBytes)
	settled := digest('v', []byte(reason))
	if repeated(&s, ref, settled) {
		return s, nil, nil
	}
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	t := begin(s)
	t.endLease(gq.LeaseCancelled, settled)
	switch {
	case t.Cancellation.Requested():
		t.cancelled(false, now)
	case t.Status == gq.StatusClaimed:
		t.RunAt = earlier(t.RunAt, now)
		withLease(t.move(gq.StatusScheduled, now), t.Lease).Reason = reason
	default:
		t.Bound++
		t.retry(0, now).Reason = reason
	}
	return t.State, t.events, nil
}
