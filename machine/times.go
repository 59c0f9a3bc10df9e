package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Claimable reports whether a claim may take the job now.
func Claimable(s *gq.State, now time.Time) bool {
	return (s.Status == gq.StatusScheduled || waitsForTime(s) && !now.Before(s.RunAt)) && !over(s, now)
}

// Due returns the next time at which [Advance] changes the job; zero is never.
func Due(s *gq.State) time.Time {
	due := LifeEnd(s)
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	switch s.Status {
	case gq.StatusDelayed, gq.StatusRetrying:
		earlier(s.RunAt)
	case gq.StatusClaimed:
		earlier(s.Lease.ExpiresAt)
	case gq.StatusRunning:
		earlier(s.Lease.ExpiresAt)
		earlier(Deadline(s))
	case gq.StatusPending:
		earlier(SignalBy(s))
	case gq.StatusScheduled:
	default:
		return time.Time{}
	}
	return due
}

// ReasonLifetime is the State.Reason of a job whose lifetime ended, or would have ended before
// its next attempt.
const ReasonLifetime = "lifetime"

// ReasonStartDeadline is the State.Reason of a job that no worker started in time.
const ReasonStartDeadline = "start_deadline"

// StartBy returns when a job ends that has not started; zero is never. Only the first start
// counts. A job that waits for a signal is never started, so the limit is not for it.
func StartBy(s *gq.State) time.Time {
	if s.Policy.StartWithin == 0 || s.Attempt > 0 || s.Gate == gq.GateSignal || s.Gate == gq.GateSignalled {
		return time.Time{}
	}
	return Submitted(s).Add(s.Policy.StartWithin)
}

// Submitted returns when a job was submitted, or the first of the jobs whose place it has taken: its deadlines
// count from then.
func Submitted(s *gq.State) time.Time {
	if s.SubmittedAt.IsZero() {
		return s.CreatedAt
	}
	return s.SubmittedAt
}

// LifeEnd returns when the job ends at the latest, by its lifetime or by its start deadline; zero
// is never.
func LifeEnd(s *gq.State) (end time.Time) {
	end = lifetimeEnd(s)
	if by := StartBy(s); !by.IsZero() && (end.IsZero() || by.Before(end)) {
		return by
	}
	return end
}

// lifetimeEnd returns the end of the job's lifetime; zero is never.
func lifetimeEnd(s *gq.State) (end time.Time) {
	if s.Policy.Lifetime > 0 {
		end = Submitted(s).Add(s.Policy.Lifetime)
	}
	if s.Policy.RunLifetime > 0 && !s.FirstStartedAt.IsZero() {
		if t := s.FirstStartedAt.Add(s.Policy.RunLifetime); end.IsZero() || t.Before(end) {
			end = t
		}
	}
	return end
}

func over(s *gq.State, now time.Time) bool {
	end := LifeEnd(s)
	return !end.IsZero() && !now.Before(end)
}

// Deadline returns the end of the execution timeout of the running attempt; zero is never.
func Deadline(s *gq.State) time.Time {
	if s.Status != gq.StatusRunning || s.Policy.ExecutionTimeout == 0 {
		return time.Time{}
	}
	return s.StartedAt.Add(s.Policy.ExecutionTimeout)
}

// tooLong reports whether the running attempt has exceeded its deadline.
func tooLong(s *gq.State, now time.Time) bool {
	d := Deadline(s)
	return !d.IsZero() && !now.Before(d)
}

// waitsForTime reports whether the job waits only for its run time.
func waitsForTime(s *gq.State) bool {
	return s.Status == gq.StatusDelayed || s.Status == gq.StatusRetrying
}

// RenewBy returns when the holder of a lease should renew it.
func RenewBy(l gq.Lease, p *gq.Policy) time.Time {
	if p.Extend == gq.ExtendAdd {
		return l.ExpiresAt.Add(-(l.TTL - share(l.TTL, p.RenewByPPB)))
	}
	return l.HeartbeatAt.Add(l.TTL / 3)
}

// share returns a share of d in parts per billion, without overflow up to MaxDuration.
func share(d time.Duration, parts int) time.Duration {
	whole, rest := d/ppb, d%ppb
	return whole*time.Duration(parts) + rest*time.Duration(parts)/ppb
}
