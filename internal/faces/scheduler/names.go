package scheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/projection"
)

func priorityNames() (all []string) {
	for _, p := range projection.SchedulerPriorities() {
		all = append(all, p.Name)
	}
	return all
}

func priorityName(p gq.Priority) string { return projection.SchedulerPriority(p) }

func parsePriority(name string) (gq.Priority, bool) {
	for _, known := range projection.SchedulerPriorities() {
		if known.Name == name {
			return known.Is, true
		}
	}
	return 0, false
}

// The states of jobs, in the order of their life cycle.
const (
	stateQueued       = "QUEUED"
	stateClaimed      = "CLAIMED"
	statePreparing    = "PREPARING"
	stateLeasePending = "LEASE_PENDING"
	stateRunning      = "RUNNING"
	stateDone         = "DONE"
	stateFailed       = "FAILED"
	stateCanceled     = "CANCELED"
	stateTimeout      = "TIMEOUT"
)

// jobStates maps each state to the statuses that it covers.
var jobStates = []struct {
	name     string
	statuses []gq.Status
}{
	{stateQueued, []gq.Status{gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusRetrying}},
	{stateClaimed, []gq.Status{gq.StatusClaimed}},
	{statePreparing, []gq.Status{gq.StatusClaimed}},
	{stateLeasePending, []gq.Status{gq.StatusClaimed}},
	{stateRunning, []gq.Status{gq.StatusRunning}},
	{stateDone, []gq.Status{gq.StatusCompleted}},
	{stateFailed, []gq.Status{gq.StatusFailed, gq.StatusDeadLetter}},
	{stateCanceled, []gq.Status{gq.StatusCancelled}},
	{stateTimeout, []gq.Status{gq.StatusFailed, gq.StatusDeadLetter}},
}

func jobStateNames() (all []string) {
	for _, s := range jobStates {
		all = append(all, s.name)
	}
	return all
}

// statusesOf returns the statuses of a state, none for an unknown state.
func statusesOf(state string) []gq.Status {
	for _, s := range jobStates {
		if s.name == state {
			return s.statuses
		}
	}
	return nil
}

// stateOf returns the state of a job.
func stateOf(s *gq.State) string {
	v := projection.View{Status: s.Status, Detail: s.Detail, Attempt: s.Attempt}
	if s.Failure != nil {
		v.Category = s.Failure.Category
	}
	return v.Scheduler()
}

// Final statuses.
const (
	finalSucceeded = "SUCCEEDED"
	finalFailed    = "FAILED"
	finalCanceled  = "CANCELED"
	finalTimeout   = "TIMEOUT"
)

func finalNames() []string { return []string{finalSucceeded, finalFailed, finalCanceled, finalTimeout} }

// finalOf returns the final status of a job in a terminal state.
func finalOf(state string) string {
	if state == stateDone {
		return finalSucceeded
	}
	return state
}

// stamp is encoded as ISO 8601 in UTC with microseconds.
type stamp time.Time

const stampForm = "2006-01-02T15:04:05.999999Z07:00"

// MarshalText implements [encoding.TextMarshaler].
func (s stamp) MarshalText() ([]byte, error) {
	return time.Time(s).UTC().AppendFormat(nil, stampForm), nil
}

// at returns nil for the zero time.
func at(t time.Time) *stamp {
	if t.IsZero() {
		return nil
	}
	s := stamp(t)
	return &s
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// oneOf lists names for an error message.
func oneOf(names []string) string { return fmt.Sprintf("one of %s", strings.Join(names, ", ")) }
