package gq

import (
	"fmt"
	"time"
)

// EventType names what happened to a job. Every move of the state machine has
// one; heartbeats have none.
type EventType uint8

const (
	EventSubmitted       EventType = iota + 1 // born, PENDING
	EventScheduled                            // claimable
	EventDelayed                              // waits for its run time
	EventClaimed                              // held, not started
	EventPreparing                            // the holder reported a new detail
	EventStarted                              // an execution began under a lease
	EventCompleted                            // succeeded
	EventFailed                               // failed for good
	EventRetrying                             // an attempt ended; another will follow
	EventDeadLettered                         // given up
	EventCancelled                            // cancelled
	EventCancelRequested                      // a running job was asked to stop
	EventCancelDelivered                      // its worker has been told
	EventRenewed                              // a limited renewal was used up
	EventUpdated                              // user metadata changed
	eventEnd
)

var eventNames = [...]string{
	"", "job.submitted", "job.scheduled", "job.delayed", "job.claimed", "job.preparing",
	"job.started", "job.completed", "job.failed", "job.retrying", "job.dead_lettered",
	"job.cancelled", "job.cancel_requested", "job.cancel_delivered", "lease.renewed", "job.updated",
}

func (t EventType) String() string { return nameOf(eventNames[:], int(t)) }

// Valid reports whether t is an event type.
func (t EventType) Valid() bool { return t >= EventSubmitted && t < eventEnd }

// MarshalText is the name.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a name.
func (t *EventType) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(eventNames[:], name); ok {
		*t = EventType(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"type", fmt.Sprintf("%.64q is not an event type", name)}}}
}

// Event is one entry of the history, written in the same commit as what it
// tells of. A transition fills all but Seq, Time and Queue, which the store
// knows.
type Event struct {
	Seq    uint64    // order of all events of a store; replay resumes after any of them
	Time   time.Time // when the store applied it
	Queue  string
	Job    JobID
	Type   EventType
	Status Status // the job's status from here on

	Attempt    int
	Lease      LeaseID // the lease it happened under
	Version    LeaseVersion
	LeaseState LeaseState // that lease from here on
	Worker     string
	CostUnits  int64     // capacity the lease occupies
	Beat       time.Time // last sign of life under the lease, where the job goes on without it
	Until      time.Time // when the lease ends or the next run is due
	Detail     Detail
	Failure    *Failure
	Reason     string
}
