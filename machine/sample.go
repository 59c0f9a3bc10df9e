package machine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// Measure is a value that is sampled over time. Levels are current values; the others count
// events since the previous sample.
type Measure uint8

// The measures.
const (
	QueuedLevel   Measure = iota // jobs not held by a worker
	ClaimedLevel                 // jobs held and not started
	RunningLevel                 // running jobs, each under a live lease
	UsedLevel                    // capacity in use
	CapacityLevel                // total capacity
	SubmittedCount
	ClaimedCount
	StartedCount   // executions, each a lease that occupies capacity
	CompletedCount // successfully
	FailedCount    // finally, other than by a timeout
	TimedOutCount  // finally, by a timeout
	CancelledCount
	ExpiredCount  // leases of executions that expired
	ReleasedCount // leases of executions that ended otherwise
	MeasureEnd    // number of measures
)

var measureNames = [MeasureEnd]string{
	"queued", "claimed", "running", "used", "capacity", "submitted_total", "claimed_total", "started_total",
	"completed_total", "failed_total", "timed_out_total", "cancelled_total", "expired_total", "released_total",
}

func (m Measure) String() string {
	if m < MeasureEnd {
		return measureNames[m]
	}
	return fmt.Sprintf("unknown(%d)", m)
}

// Level reports whether m is a level rather than a count.
func (m Measure) Level() bool { return m <= CapacityLevel }

// Sample has the measurements of one interval, which begins at Time: the levels at its end,
// and the counts of the whole interval.
type Sample struct {
	Time   time.Time
	Values [MeasureEnd]int64
}

// Count adds an event to the counts.
func (s *Sample) Count(e *gq.Event) {
	switch e.Type {
	case gq.EventSubmitted:
		s.Values[SubmittedCount]++
	case gq.EventClaimed:
		s.Values[ClaimedCount]++
	case gq.EventStarted:
		s.Values[StartedCount]++
	case gq.EventCompleted:
		s.Values[CompletedCount]++
	case gq.EventFailed, gq.EventDeadLettered:
		if e.Failure != nil && e.Failure.Category == gq.CategoryTimeout {
			s.Values[TimedOutCount]++
		} else {
			s.Values[FailedCount]++
		}
	case gq.EventCancelled:
		s.Values[CancelledCount]++
	default: // not counted
	}
	switch {
	case !EndsRun(e):
	case e.LeaseState == gq.LeaseExpired:
		s.Values[ExpiredCount]++
	default:
		s.Values[ReleasedCount]++
	}
}

// EndsRun reports whether the event ends a lease under which the job had started. It is
// false for a hold that was released, expired or was cancelled with its job.
func EndsRun(e *gq.Event) bool {
	switch e.Type {
	case gq.EventCompleted, gq.EventFailed, gq.EventDeadLettered:
		return e.LeaseState > gq.LeaseActive
	case gq.EventRetrying:
		claimed := e.Detail == gq.DetailClaimed || e.Failure != nil && e.Failure.Code == "ack_timeout" // earlier events have no detail
		return e.LeaseState > gq.LeaseActive && !claimed
	case gq.EventCancelled:
		return e.LeaseState == gq.LeaseCompleted || e.LeaseState == gq.LeaseExpired
	default:
		return false
	}
}
