package projection

import (
	"strconv"

	"github.com/gopherqueue/gq"
)

// View is what the faces' names for a job's state depend on. Each of its
// methods is total: every view has exactly one name on every face.
type View struct {
	Status   gq.Status
	Detail   gq.Detail   // of a Claimed job
	Attempt  int         // executions started
	Category gq.Category // of the last failure, zero where there was none
}

// Scheduler is the name on the scheduler API.
func (v View) Scheduler() string {
	switch v.Status {
	case gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusRetrying:
		return "QUEUED"
	case gq.StatusClaimed:
		if v.Detail == gq.DetailPreparing || v.Detail == gq.DetailLeasePending {
			return v.Detail.String()
		}
		return "CLAIMED" // also while assigned to a provider, which that API does not know
	case gq.StatusRunning:
		return "RUNNING"
	case gq.StatusCompleted:
		return "DONE"
	case gq.StatusFailed, gq.StatusDeadLetter:
		if v.Category == gq.CategoryTimeout {
			return "TIMEOUT"
		}
		return "FAILED"
	case gq.StatusCancelled:
		return "CANCELED"
	default:
		return v.Status.String()
	}
}

// Matching is the name on the matching API. FAILED and CANCELLED appear only
// where another face ended the job.
func (v View) Matching() string {
	switch v.Status {
	case gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusRetrying:
		return "QUEUED"
	case gq.StatusClaimed, gq.StatusRunning:
		return "ASSIGNED"
	case gq.StatusCompleted:
		return "COMPLETED"
	case gq.StatusFailed:
		return "FAILED"
	case gq.StatusDeadLetter:
		return "EXPIRED"
	case gq.StatusCancelled:
		return "CANCELLED"
	default:
		return v.Status.String()
	}
}

// TaskQueue is the name on the task queue API. There a job never goes back to
// QUEUED: once an execution has started it reads RUNNING until it ends.
func (v View) TaskQueue() string {
	switch v.Status {
	case gq.StatusPending, gq.StatusDelayed:
		return "QUEUED"
	case gq.StatusScheduled, gq.StatusClaimed:
		if v.Attempt >= 1 {
			return "RUNNING"
		}
		return "QUEUED"
	case gq.StatusRunning, gq.StatusRetrying:
		return "RUNNING"
	case gq.StatusCompleted:
		return "DONE"
	case gq.StatusFailed, gq.StatusDeadLetter:
		return "FAILED"
	case gq.StatusCancelled:
		return "CANCELED"
	default:
		return v.Status.String()
	}
}

// MatchingLease is the lease's name on the matching API, which tells a lease that
// was ever renewed from a fresh one.
func MatchingLease(s gq.LeaseState, renewals int) string {
	if s == gq.LeaseActive && renewals > 0 {
		return "RENEWED"
	}
	return s.String()
}

// SchedulerLease is the lease's name on the scheduler API, where every early end is
// a release.
func SchedulerLease(s gq.LeaseState) string {
	if s == gq.LeaseCompleted || s == gq.LeaseCancelled {
		return "RELEASED"
	}
	return s.String()
}

// NamedPriority is a priority and its name.
type NamedPriority struct {
	Name string
	Is   gq.Priority
}

// SchedulerPriorities are the priorities of the scheduler API, most urgent first.
func SchedulerPriorities() []NamedPriority {
	return []NamedPriority{
		{"URGENT", gq.PriorityCritical}, {"HIGH", gq.PriorityHigh}, {"NORMAL", gq.PriorityNormal}, {"LOW", gq.PriorityLow},
	}
}

// SchedulerPriority is the priority's name on the scheduler API. A job of another face may be
// less urgent than LOW; there it is LOW.
func SchedulerPriority(p gq.Priority) string {
	for _, known := range SchedulerPriorities() {
		if known.Is == p {
			return known.Name
		}
	}
	return "LOW"
}

// MatchingAttribute is the nth attribute in which a matching job keeps what it asks for.
func MatchingAttribute(n int) string { return "matching." + strconv.Itoa(n) }

// MatchingText is what a matching job asks for, in JSON, put together from its attributes.
func MatchingText(attributes map[string]string) (text []byte) {
	for n := range len(attributes) {
		text = append(text, attributes[MatchingAttribute(n)]...)
	}
	return text
}
