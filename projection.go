package gq

// View is what the faces' names for a job's state depend on. Each of its
// methods is total: every view has exactly one name on every face.
type View struct {
	Status   Status
	Detail   Detail   // of a Claimed job
	Attempt  int      // executions started
	Category Category // of the last failure, zero where there was none
}

// Semantics is the name in the four-state model: Ready, InFlight, Succeeded or
// Failed. A cancelled job reads Failed there; its reason tells the difference.
func (v View) Semantics() string {
	switch v.Status {
	case Pending, Delayed, Scheduled, Retrying:
		return "Ready"
	case Claimed, Running:
		return "InFlight"
	case Completed:
		return "Succeeded"
	case Failed, DeadLetter, Cancelled:
		return "Failed"
	default:
		return v.Status.String()
	}
}

// JobModel is the name in the job model: the canonical one, except that a job
// which is held but not started still counts as SCHEDULED.
func (v View) JobModel() string {
	if v.Status == Claimed {
		return Scheduled.String()
	}
	return v.Status.String()
}

// Scheduler is the name on the scheduler API.
func (v View) Scheduler() string {
	switch v.Status {
	case Pending, Delayed, Scheduled, Retrying:
		return "QUEUED"
	case Claimed:
		if v.Detail == Preparing || v.Detail == LeasePending {
			return v.Detail.String()
		}
		return "CLAIMED" // also while assigned to a provider, which that API does not know
	case Running:
		return "RUNNING"
	case Completed:
		return "DONE"
	case Failed, DeadLetter:
		if v.Category == CategoryTimeout {
			return "TIMEOUT"
		}
		return "FAILED"
	case Cancelled:
		return "CANCELED"
	default:
		return v.Status.String()
	}
}

// Matching is the name on the matching API. FAILED and CANCELLED appear only
// where another face ended the job.
func (v View) Matching() string {
	switch v.Status {
	case Pending, Delayed, Scheduled, Retrying:
		return "QUEUED"
	case Claimed, Running:
		return "ASSIGNED"
	case Completed:
		return "COMPLETED"
	case Failed:
		return "FAILED"
	case DeadLetter:
		return "EXPIRED"
	case Cancelled:
		return "CANCELLED"
	default:
		return v.Status.String()
	}
}

// TaskQueue is the name on the task queue API. There a job never goes back to
// QUEUED: once an execution has started it reads RUNNING until it ends.
func (v View) TaskQueue() string {
	switch v.Status {
	case Pending, Delayed:
		return "QUEUED"
	case Scheduled, Claimed:
		if v.Attempt >= 1 {
			return "RUNNING"
		}
		return "QUEUED"
	case Running, Retrying:
		return "RUNNING"
	case Completed:
		return "DONE"
	case Failed, DeadLetter:
		return "FAILED"
	case Cancelled:
		return "CANCELED"
	default:
		return v.Status.String()
	}
}

// Matching is the lease's name on the matching API, which tells a lease that
// was ever renewed from a fresh one.
func (s LeaseState) Matching(renewals int) string {
	if s == LeaseActive && renewals > 0 {
		return "RENEWED"
	}
	return s.String()
}

// Scheduler is the lease's name on the scheduler API, where every early end is
// a release.
func (s LeaseState) Scheduler() string {
	if s == LeaseCompleted || s == LeaseCancelled {
		return "RELEASED"
	}
	return s.String()
}
