package gq

import "fmt"

// Status is a state of the job's state machine. The zero value is not a status.
type Status uint8

const (
	StatusPending    Status = iota + 1 // accepted and persisted; waits for dependencies
	StatusDelayed                      // delayed until a later first run
	StatusScheduled                    // claimable
	StatusClaimed                      // held by a worker that has not started it
	StatusRunning                      // executing under a lease
	StatusRetrying                     // an attempt ended without success; waits for the next one
	StatusCompleted                    // succeeded
	StatusFailed                       // failed for good: a permanent error, or retries disabled
	StatusDeadLetter                   // retries exhausted or lifetime over; needs an operator
	StatusCancelled                    // cancelled before it could succeed
	statusEnd
)

var statusNames = [...]string{
	"", "PENDING", "DELAYED", "SCHEDULED", "CLAIMED", "RUNNING", "RETRYING",
	"COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED",
}

func (s Status) String() string { return nameOf(statusNames[:], int(s)) }

// Valid reports whether s is one of the ten statuses.
func (s Status) Valid() bool { return s >= StatusPending && s < statusEnd }

// Terminal reports whether a job in s never moves again.
func (s Status) Terminal() bool { return s >= StatusCompleted && s < statusEnd }

// Held reports whether a job in s belongs to the holder of a lease.
func (s Status) Held() bool { return s == StatusClaimed || s == StatusRunning }

// MarshalText returns the canonical name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a canonical name.
func (s *Status) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(statusNames[:], name); ok {
		*s = Status(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"state", fmt.Sprintf("%.64q is not one of %v", name, statusNames[1:])}}}
}

// Detail refines StatusClaimed: what the worker that holds the job is doing.
type Detail uint8

const (
	DetailNone         Detail = iota
	DetailClaimed             // has reported nothing yet
	DetailPreparing           // prepares the execution
	DetailLeasePending        // waits for capacity
	DetailAssigned            // assigned the job to a provider that has not acknowledged
	detailEnd
)

var detailNames = [...]string{"", "CLAIMED", "PREPARING", "LEASE_PENDING", "ASSIGNED"}

// Valid reports whether d is a detail, or none.
func (d Detail) Valid() bool { return d < detailEnd }

func (d Detail) String() string {
	if d == DetailNone {
		return ""
	}
	return nameOf(detailNames[:], int(d))
}

// Priority is the urgency of a job. Smaller values are claimed first. The zero value means
// "not set", so a value is its level plus one.
type Priority uint8

const (
	PriorityCritical Priority = iota + 1 // level 0: before everything else
	PriorityHigh                         // level 1
	PriorityNormal                       // level 2: the default
	PriorityLow                          // level 3
	PriorityBulk                         // level 4: only if no other job waits
	priorityEnd
)

var priorityNames = [...]string{"", "CRITICAL", "HIGH", "NORMAL", "LOW", "BULK"}

func (p Priority) String() string { return nameOf(priorityNames[:], int(p)) }

// Valid reports whether p is one of the five levels.
func (p Priority) Valid() bool { return p >= PriorityCritical && p < priorityEnd }

// Level returns the number that APIs use: 0 for CRITICAL to 4 for BULK.
func (p Priority) Level() int { return int(p) - 1 }

// Inherit returns the more urgent of p and from. A priority that is not set never wins.
func (p Priority) Inherit(from Priority) Priority {
	if !p.Valid() || (from.Valid() && from < p) {
		return from
	}
	return p
}

// MarshalText returns the name.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses a name or a level.
func (p *Priority) UnmarshalText(text []byte) error {
	s := string(text)
	if i, ok := indexOf(priorityNames[:], s); ok {
		*p = Priority(i)
		return nil
	}
	if len(s) == 1 && s[0] >= '0' && s[0] <= '4' {
		*p = Priority(s[0]-'0') + 1
		return nil
	}
	return &InvalidError{Faults: []Fault{{"priority", fmt.Sprintf(
		"%.64q is not one of CRITICAL, HIGH, NORMAL, LOW, BULK or 0 to 4", s)}}}
}
