package gq

import "time"

// Claimable reports whether a claim may take the job at an instant.
func (s *State) Claimable(now time.Time) bool {
	return (s.Status == Scheduled || waitsForTime(s) && !now.Before(s.RunAt)) && !s.over(now)
}

// Due is the next instant at which [State.Advance] will have something to do,
// and the zero instant if there is none.
func (s *State) Due() time.Time {
	due := s.LifeEnd()
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	switch s.Status {
	case Delayed, Retrying:
		earlier(s.RunAt)
	case Claimed:
		earlier(s.Lease.ExpiresAt)
	case Running:
		earlier(s.Lease.ExpiresAt)
		earlier(s.Deadline())
	case Pending, Scheduled:
	default:
		return time.Time{}
	}
	return due
}

// ReasonLifetime is the State.Reason of a job whose lifetime was over, or would
// have been before its next attempt.
const ReasonLifetime = "lifetime"

// LifeEnd is when the job must have ended, zero for never.
func (s *State) LifeEnd() (end time.Time) {
	if s.Policy.Lifetime > 0 {
		end = s.CreatedAt.Add(s.Policy.Lifetime)
	}
	if s.Policy.RunLifetime > 0 && !s.FirstStartedAt.IsZero() {
		if t := s.FirstStartedAt.Add(s.Policy.RunLifetime); end.IsZero() || t.Before(end) {
			end = t
		}
	}
	return end
}

func (s *State) over(now time.Time) bool {
	end := s.LifeEnd()
	return !end.IsZero() && !now.Before(end)
}

// Deadline is when the running attempt exceeds its execution timeout, zero for
// never.
func (s *State) Deadline() time.Time {
	if s.Status != Running || s.Policy.ExecutionTimeout == 0 {
		return time.Time{}
	}
	return s.StartedAt.Add(s.Policy.ExecutionTimeout)
}

// tooLong reports whether the running attempt is over its deadline.
func (s *State) tooLong(now time.Time) bool {
	d := s.Deadline()
	return !d.IsZero() && !now.Before(d)
}

// waitsForTime reports whether only time keeps the job from being claimable.
func waitsForTime(s *State) bool { return s.Status == Delayed || s.Status == Retrying }

// RenewBy is the instant by which the holder of a lease under p should renew it.
func (l Lease) RenewBy(p *Policy) time.Time {
	if p.Extend == ExtendAdd {
		return l.ExpiresAt.Add(-(l.TTL - share(l.TTL, p.RenewByPPB)))
	}
	return l.HeartbeatAt.Add(l.TTL / 3)
}

// share is the part of d that parts per billion name, without overflow for any
// d up to MaxDuration.
func share(d time.Duration, parts int) time.Duration {
	whole, rest := d/ppb, d%ppb
	return whole*time.Duration(parts) + rest*time.Duration(parts)/ppb
}
