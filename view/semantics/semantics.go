// Package semantics shows jobs in the words of the queue semantics: four states, a lease with a
// token, a version and an expiry, and retries. It is one of the two views of a job; the other is
// package jobmodel. APIs show it with ?view=semantics.
package semantics

import (
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// State is one of the four states of the queue semantics. A job is always in exactly one.
type State string

// The states.
const (
	Ready     State = "Ready"     // waits for a claim, perhaps until its retry time
	InFlight  State = "InFlight"  // leased; also after the lease expired, until another claim
	Succeeded State = "Succeeded" // completed
	Failed    State = "Failed"    // never processed again; Job.Reason tells a cancelled job from others
)

// States lists the states.
func States() []State { return []State{Ready, InFlight, Succeeded, Failed} }

// Statuses lists the statuses that a job in the state can have. A job with an expired lease that
// nobody has reclaimed is InFlight, although it is SCHEDULED or RETRYING: use [StateOf] to tell.
func (s State) Statuses() []gq.Status {
	switch s {
	case Ready:
		return []gq.Status{gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusRetrying}
	case InFlight:
		return []gq.Status{gq.StatusClaimed, gq.StatusRunning, gq.StatusScheduled, gq.StatusRetrying}
	case Succeeded:
		return []gq.Status{gq.StatusCompleted}
	case Failed:
		return []gq.Status{gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}
	default:
		return nil
	}
}

// StateOf returns the state of a job.
func StateOf(s *gq.State) State {
	switch s.Status {
	case gq.StatusScheduled, gq.StatusRetrying:
		if s.Lease != nil && s.Lease.State == gq.LeaseExpired {
			return InFlight
		}
		return Ready
	case gq.StatusPending, gq.StatusDelayed:
		return Ready
	case gq.StatusClaimed, gq.StatusRunning:
		return InFlight
	case gq.StatusCompleted:
		return Succeeded
	case gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled:
		return Failed
	default:
		return State(s.Status.String())
	}
}

// Duration is encoded the way Go prints it: "5s".
type Duration = wire.Duration

// Job is a job in the names of the queue semantics. Its JSON has these members and no others;
// Redacted, which is no member of the document, only in answers that leave something out.
type Job struct {
	ID               gq.JobID   `json:"id"`
	Queue            string     `json:"queue,omitzero"`
	State            State      `json:"state"`
	Reason           string     `json:"reason,omitzero" doc:"Failed: cancelled if it was cancelled."`
	Retries          int        `json:"retries" doc:"Retries used up so far."`
	MaxRetries       int        `json:"MaxRetries" doc:"Retries before it is Failed."`
	RetryAt          time.Time  `json:"retry_at,omitzero" doc:"Ready: not claimable before."`
	LeaseToken       gq.LeaseID `json:"lease_token,omitzero" doc:"InFlight: what its holder must show."`
	LeaseVersion     uint64     `json:"lease_version" doc:"Grows with every claim; 0 before the first."`
	LeaseExpiresAt   time.Time  `json:"LeaseExpiresAt,omitzero" doc:"InFlight: the lease is invalid from then on. It is in the past until another worker claims the job."`
	LeaseTTL         Duration   `json:"LeaseTTL" doc:"From a claim or heartbeat until the lease expires."`
	ExecutionTimeout Duration   `json:"ExecutionTimeout,omitzero" doc:"Limit of one execution; absent is none."`
	Redacted         bool       `json:"redacted,omitzero" doc:"The token may not see the content of the job."`
}

// Of returns the view of a job.
func Of(j *gq.Job) Job {
	s, p := &j.State, &j.Spec.Policy
	if s.Policy != nil {
		p = s.Policy
	}
	out := Job{
		ID: s.ID, Queue: j.Spec.Queue, State: StateOf(s), Reason: reasonOf(s.Status), Retries: machine.RetriesUsed(s, p), MaxRetries: max(p.MaxAttempts-1, 0),
		LeaseVersion: uint64(s.Version), LeaseTTL: Duration(p.LeaseTTL), ExecutionTimeout: Duration(p.ExecutionTimeout),
		Redacted: j.Redacted,
	}
	switch {
	case s.Status.Terminal():
	case out.State == InFlight && s.Lease != nil:
		out.LeaseToken, out.LeaseExpiresAt, out.LeaseTTL = s.Lease.ID, s.Lease.ExpiresAt.UTC(), Duration(s.Lease.TTL)
	case s.Attempt > 0 || s.Status == gq.StatusDelayed || s.Status == gq.StatusRetrying:
		out.RetryAt = s.RunAt.UTC()
	}
	return out
}

func reasonOf(s gq.Status) string {
	if s == gq.StatusCancelled {
		return "cancelled"
	}
	return ""
}

// Triggers of the transitions. A transition that the document does not have, such as a
// cancellation, has no trigger.
const (
	Enqueue      = "Enqueue"
	Claim        = "Claim"
	Ack          = "Ack"
	Nack         = "Nack"
	LeaseTimeout = "Lease Timeout"
)

// Event is one entry of a job's history: the state after a transition.
type Event struct {
	Seq            uint64     `json:"-"` // of the [gq.Event]
	Time           time.Time  `json:"time"`
	ID             gq.JobID   `json:"id"`
	Queue          string     `json:"queue,omitzero"`
	State          State      `json:"state" doc:"From here on. An expired lease leaves the job InFlight until another claim."`
	Trigger        string     `json:"trigger,omitzero" doc:"Enqueue, Claim, Ack, Nack or Lease Timeout."`
	Reason         string     `json:"reason,omitzero"`
	RetryAt        time.Time  `json:"retry_at,omitzero"`
	LeaseToken     gq.LeaseID `json:"lease_token,omitzero"`
	LeaseVersion   uint64     `json:"lease_version,omitzero"`
	LeaseExpiresAt time.Time  `json:"LeaseExpiresAt,omitzero"`
}

// History returns the view of consecutive events, of one job or of many. What it says of an event does
// not depend on the others, so a stream can be shown part by part. Only events of an earlier version do
// not say that their job was claimed: those of a job are shown together. Events that are no transition
// of the four states are left out. A signal of a workflow, which no worker runs, is
// InFlight at the instant at which it comes or its time is over.
func History(events []gq.Event) (all []Event) {
	claimed := make(map[gq.LeaseID]bool) // of the claims among the events
	for i := range events {
		e := &events[i]
		switch {
		case e.Type == gq.EventClaimed:
			claimed[e.Lease] = true
		case e.Type == gq.EventStarted && claimed[e.Lease]:
			continue // InFlight before and after
		}
		out, ok := eventOf(e)
		if !ok {
			continue
		}
		if e.Type == gq.EventCompleted && e.Lease == "" || e.Reason == machine.ReasonSignalTimeout {
			all = append(all, Event{Seq: out.Seq, Time: out.Time, ID: out.ID, Queue: out.Queue, State: InFlight, Trigger: Claim})
			if out.State == Failed {
				out.Trigger = Nack
			}
		}
		all = append(all, out)
	}
	return all
}

func eventOf(e *gq.Event) (out Event, ok bool) {
	out = Event{
		Seq: e.Seq, Time: e.Time.UTC(), ID: e.Job, Queue: e.Queue, Reason: reasonOf(e.Status), LeaseToken: e.Lease, LeaseVersion: uint64(e.Version),
		State: StateOf(&gq.State{Status: e.Status, Lease: &gq.Lease{State: e.LeaseState}}),
	}
	switch e.Type {
	case gq.EventSubmitted:
		out.Trigger = Enqueue
	case gq.EventClaimed, gq.EventStarted:
		if e.Type == gq.EventStarted && e.Detail == gq.DetailClaimed {
			return out, false // InFlight before and after
		}
		out.Trigger, out.LeaseExpiresAt = Claim, e.Until.UTC()
	case gq.EventCompleted:
		out.Trigger = Ack
	case gq.EventScheduled:
		if e.Lease == "" {
			return out, false // Ready before and after
		}
	case gq.EventRetrying, gq.EventFailed, gq.EventDeadLettered:
		if e.Failure != nil && e.Lease != "" {
			out.Trigger = Nack
		}
		if out.State == Ready {
			out.RetryAt = e.Until.UTC()
		}
	case gq.EventCancelled:
	default:
		return out, false
	}
	if e.LeaseState == gq.LeaseExpired {
		out.Trigger = LeaseTimeout
	}
	if out.State != InFlight {
		out.LeaseToken = ""
	}
	return out, true
}
