package gq

import "time"

// Revoke takes a lease away before its time without fault: nothing is used up,
// and the job may run again at once. It is for a holder that does not want the
// job, and for a system that will not leave it with this one. A job that was
// asked to stop ends instead. The identical call again changes nothing.
func (s State) Revoke(ref LeaseRef, reason string, now time.Time) (State, []Event, error) {
	reason = cut(reason, MaxReasonBytes)
	settled := digest('v', []byte(reason))
	if s.repeated(ref, settled) {
		return s, nil, nil
	}
	if err := s.holds(ref, now); err != nil {
		return s, nil, err
	}
	t := begin(s)
	t.endLease(LeaseCancelled, settled)
	switch {
	case t.Cancellation.Requested():
		t.cancelled(false, now)
	case t.Status == Claimed:
		t.RunAt = earlier(t.RunAt, now)
		t.move(Scheduled, now).of(t.Lease).Reason = reason
	default:
		t.Bound++
		t.retry(0, now).Reason = reason
	}
	return t.State, t.events, nil
}
