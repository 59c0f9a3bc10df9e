package machine

import "github.com/gopherqueue/gq"

// reasonExhausted and reasonLosses are reasons of jobs whose last attempt was one too many.
const (
	reasonExhausted = "attempts_exhausted"
	reasonLosses    = "lease_losses"
)

// RetriesUsed returns how many of the retries that its policy allows a job has used up. The number
// never goes down. A failure that ended the job was followed by no retry.
func RetriesUsed(s *gq.State, p *gq.Policy) int {
	used := s.Faults
	if endedByFault(s, p) {
		used--
	}
	return max(min(used, p.MaxAttempts-1), 0)
}

// endedByFault reports whether the last of a job's faults is its end. It is false where the state
// cannot tell: a job whose retry would have come after its lifetime, and one with HoldFault whose
// worker failed after a request to stop.
func endedByFault(s *gq.State, p *gq.Policy) bool {
	switch s.Status {
	case gq.StatusFailed:
		return s.Reason == "" // else a dependency's, or a signal did not come
	case gq.StatusDeadLetter:
		return s.Reason == reasonExhausted || s.Reason == reasonLosses && p.OnLoss != gq.LossFree
	case gq.StatusCancelled:
		if s.Failure != nil && s.Failure.Category == gq.CategoryCancelled {
			return true
		}
		ran := s.Cancellation.Requested() && s.Cancellation.RequestedAt.Before(s.CompletedAt)
		free := p.OnLoss == gq.LossFree && s.Lease != nil && s.Lease.State == gq.LeaseExpired
		// An attempt that ended without a fault has raised the bound, unless the job ended with it.
		return ran && !free && !p.HoldFault && s.Attempt == s.Faults+s.Bound-p.MaxAttempts
	default:
		return false
	}
}
