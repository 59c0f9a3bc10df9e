package machine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// Measure is something that is sampled over time. Levels say how things stand at
// an instant, the others count what happened since the sample before.
type Measure uint8

// The measures.
const (
	QueuedLevel   Measure = iota // jobs that nobody holds
	ClaimedLevel                 // jobs that are held and not started
	RunningLevel                 // jobs that run, each under a live lease
	UsedLevel                    // capacity in use
	CapacityLevel                // capacity in all
	SubmittedCount
	ClaimedCount
	StartedCount   // executions, each a lease that occupies capacity
	CompletedCount // by success
	FailedCount    // for good, unless by time
	TimedOutCount  // for good, by time
	CancelledCount
	ExpiredCount  // leases of executions that ran out
	ReleasedCount // leases of executions that ended otherwise
	MeasureEnd    // how many there are
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

// Level reports whether m says how things stand, rather than what happened.
func (m Measure) Level() bool { return m <= CapacityLevel }

// Sample is what was measured in one interval, which begins at Time: the levels at
// its end, and the counts of all of it.
type Sample struct {
	Time   time.Time
	Values [MeasureEnd]int64
}

// Count adds what an event tells to the counts.
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
	default: // moves nothing that is counted
	}
	switch {
	case !EndsRun(e):
	case e.LeaseState == gq.LeaseExpired:
		s.Values[ExpiredCount]++
	default:
		s.Values[ReleasedCount]++
	}
}

// EndsRun reports whether the event ends a lease under which the job had started.
// A hold that ends before that is given back, lost without an attempt, or
// cancelled with its job.
func EndsRun(e *gq.Event) bool {
	switch e.Type {
	case gq.EventCompleted, gq.EventFailed, gq.EventDeadLettered:
		return e.LeaseState > gq.LeaseActive
	case gq.EventRetrying:
		return e.LeaseState > gq.LeaseActive && (e.Failure == nil || e.Failure.Code != "ack_timeout")
	case gq.EventCancelled:
		return e.LeaseState == gq.LeaseCompleted || e.LeaseState == gq.LeaseExpired
	default:
		return false
	}
}
