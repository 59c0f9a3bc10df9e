package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// WorkflowStatus computes the status of a workflow from the states of its jobs. Jobs that were
// never to run, because they were for a failure and there was none, do not count.
func WorkflowStatus(states []*gq.State) gq.WorkflowStatus {
	failed, cancelled := false, false
	for _, s := range states {
		switch {
		case !s.Status.Terminal():
			return gq.WorkflowRunning
		case s.Status == gq.StatusFailed || s.Status == gq.StatusDeadLetter:
			failed = true
		case s.Status == gq.StatusCancelled && s.Reason != ReasonNoFailure:
			cancelled = true
		}
	}
	switch {
	case failed:
		return gq.WorkflowFailed
	case cancelled:
		return gq.WorkflowCancelled
	default:
		return gq.WorkflowSucceeded
	}
}

// FinalDependency returns the kind of dependency that a final job has on all other jobs, and
// its gate.
func FinalDependency(f gq.Final) (gq.DependencyKind, gq.Gate) {
	switch f {
	case gq.OnSuccess:
		return gq.DependencyAfter, 0
	case gq.OnFailure:
		return gq.DependencyFanIn, gq.GateFailure
	default:
		return gq.DependencyFanIn, 0
	}
}

// FollowsFinal returns the kind of dependency by which a final job follows another one. Only FAN_IN
// opens the gate of a job for a failure, and another final job that had nothing to do is none.
func FollowsFinal(f gq.Final, kind gq.DependencyKind) gq.DependencyKind {
	if f == gq.OnFailure && kind == gq.DependencyFanIn {
		return gq.DependencyAfterAny
	}
	return kind
}

// NewWorkflowID returns an id with the time it was made and ten random bytes.
func NewWorkflowID(now time.Time, random [16]byte) (id gq.WorkflowID) {
	copy(id[:], random[:])
	ms := uint64(max(now.UnixMilli(), 0))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}
