package gq

import (
	"fmt"
	"time"
)

// EventType says what happened to a job or a provider. Every transition of the state machine has
// a type; heartbeats have none, except that progress is told to followers and not kept.
type EventType uint8

const (
	EventSubmitted       EventType = iota + 1 // accepted, PENDING
	EventScheduled                            // became claimable
	EventDelayed                              // waits for its run time
	EventClaimed                              // claimed, not started
	EventPreparing                            // its worker reported a new detail
	EventStarted                              // an execution began
	EventCompleted                            // succeeded
	EventFailed                               // failed for good
	EventRetrying                             // an attempt ended; another one follows
	EventDeadLettered                         // attempts or lifetime used up
	EventCancelled                            // cancelled
	EventCancelRequested                      // a user cancelled a running job
	EventCancelDelivered                      // its worker learned of the cancellation
	EventRenewed                              // a limited renewal was used up
	EventUpdated                              // metadata changed
	EventProgress                             // its worker reported progress; only followers at the head get it, see [Driver.Follow]
	EventProviderStatus                       // a provider of matching was registered, has another status or was removed
	EventProviderSlashed                      // a provider of matching lost stake
	eventEnd
)

var eventNames = [...]string{
	"", "job.submitted", "job.scheduled", "job.delayed", "job.claimed", "job.preparing",
	"job.started", "job.completed", "job.failed", "job.retrying", "job.dead_lettered",
	"job.cancelled", "job.cancel_requested", "job.cancel_delivered", "lease.renewed", "job.updated", "job.progress",
	"provider.status", "provider.slashed",
}

func (t EventType) String() string { return nameOf(eventNames[:], int(t)) }

// Valid reports whether t is an event type.
func (t EventType) Valid() bool { return t >= EventSubmitted && t < eventEnd }

// OfProvider reports whether events of the type are about a provider of matching, and not about
// a job.
func (t EventType) OfProvider() bool { return t == EventProviderStatus || t == EventProviderSlashed }

// MarshalText returns the name.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses a name.
func (t *EventType) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(eventNames[:], name); ok {
		*t = EventType(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"type", fmt.Sprintf("%.64q is not an event type", name)}}}
}

// Event is one entry of the history. The store writes it in the same commit as the change
// that it describes.
//
// Events of a provider have its id in Worker, an id that no job has in Job, the same in all of
// them, and no Status. Reason has the new status, REMOVED of a provider that was removed, or why stake was
// taken; CostUnits how much.
type Event struct {
	Seq   uint64    // consecutive number within the store; Follow can resume after any of them
	Time  time.Time // when the store applied the change
	Queue string
	Job   JobID
	// JobType is the type of the job, such as "mail.send". It is empty in events of stores that did
	// not record it yet.
	JobType string
	Type    EventType
	Status  Status // after the change

	Attempt    int
	Lease      LeaseID // the lease that the change happened under
	Version    LeaseVersion
	LeaseState LeaseState // after the change
	Worker     string
	CostUnits  int64     // capacity that the lease occupies
	Beat       time.Time // last heartbeat, if the change ended the lease but not the job
	Until      time.Time // when the lease expires or the next run is due

	// Detail is what the worker reported. Otherwise DetailClaimed says that the job was claimed before the
	// change: before it started, or went back without an attempt (EventRetrying, and EventScheduled at the
	// end of that wait). Earlier events do not say so.
	Detail Detail

	Failure  *Failure
	Reason   string
	Progress float64 // 0 to 1; only of EventProgress
	Note     string  // only of EventProgress

	// Elapsed is how long the job had been claimable when it started, or how long the
	// execution took that the change ended, in whole microseconds. Other changes have none.
	Elapsed time.Duration

	TraceParent string // W3C trace context that the job was submitted in; empty if there was none
}
