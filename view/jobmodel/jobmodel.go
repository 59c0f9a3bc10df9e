// Package jobmodel shows jobs in the states and fields of the formal job model, and in no others.
// It is one of the two views of a job; the other is package semantics. APIs show it with
// ?view=jobmodel.
package jobmodel

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// State is one of the eight states of the job model, or CANCELLED, which the model names as the
// state of a dependency.
type State string

// The states.
const (
	Pending    State = "PENDING"
	Scheduled  State = "SCHEDULED" // also while a worker holds the job and has not started it
	Delayed    State = "DELAYED"
	Running    State = "RUNNING"
	Completed  State = "COMPLETED"
	Failed     State = "FAILED"
	Retrying   State = "RETRYING"
	DeadLetter State = "DEAD_LETTER"
	Cancelled  State = "CANCELLED"
)

// States lists the states.
func States() []State {
	return []State{Pending, Scheduled, Delayed, Running, Completed, Failed, Retrying, DeadLetter, Cancelled}
}

// Statuses lists the statuses that a job in the state can have. A job whose holder lost it before
// an execution is SCHEDULED, although it may be RETRYING: use [StateOf] to tell.
func (s State) Statuses() (all []gq.Status) {
	for status := gq.StatusPending; status.Valid(); status++ {
		if stateOf(status) == s {
			all = append(all, status)
		}
	}
	if s == Scheduled {
		all = append(all, gq.StatusRetrying)
	}
	return all
}

// StateOf returns the state of a job.
func StateOf(s *gq.State) State {
	if s.HoldLost() {
		return Scheduled
	}
	return stateOf(s.Status)
}

func stateOf(s gq.Status) State {
	if s == gq.StatusClaimed {
		return Scheduled
	}
	return State(s.String())
}

// Duration is encoded the way Go prints it: "30m0s".
type Duration = wire.Duration

// Job is a job in the names of the job model. Its JSON has these members and no others;
// Redacted, which is no member of the document, only in answers that leave something out.
type Job struct {
	ID          gq.JobID  `json:"id"`
	CreatedAt   time.Time `json:"created_at" doc:"Submission time."`
	UpdatedAt   time.Time `json:"updated_at" doc:"Last change of state."`
	State       State     `json:"state"`
	Attempt     int       `json:"attempt" doc:"Current attempt, from 1; 0 before the first."`
	ScheduledAt time.Time `json:"scheduled_at,omitzero" doc:"Became SCHEDULED."`
	StartedAt   time.Time `json:"started_at,omitzero" doc:"When the current attempt started."`
	CompletedAt time.Time `json:"completed_at,omitzero" doc:"Reached its terminal state."`

	Type          string            `json:"type,omitzero"`
	Priority      gq.Priority       `json:"priority,omitzero"`
	Tags          map[string]string `json:"tags,omitempty"`
	CorrelationID string            `json:"correlation_id,omitzero"`
	CallbackURL   string            `json:"callback_url,omitzero"`

	IdempotencyKey    string          `json:"idempotency_key,omitzero"`
	Payload           json.RawMessage `json:"payload,omitempty" doc:"A string with its base64 if it is not JSON."`
	Result            json.RawMessage `json:"result,omitempty" doc:"A string with its base64 if it is not JSON."`
	Dependencies      []Dependency    `json:"dependencies,omitempty"`
	Timeouts          Timeouts        `json:"timeouts"`
	PreviousAttemptID gq.LeaseID      `json:"previous_attempt_id,omitzero" doc:"The attempt before this one."`
	Failure           *Failure        `json:"failure,omitempty" doc:"Of the last attempt that failed."`
	Redacted          bool            `json:"redacted,omitzero" doc:"The token may not see the payload, the result and the message of the failure, so they are left out."`
}

// Dependency is a job that another one depends on.
type Dependency struct {
	Type  gq.DependencyKind `json:"type"`
	JobID gq.JobID          `json:"job_id"`
}

// Timeouts are the limits of a job. One that is absent does not limit it.
type Timeouts struct {
	Execution  Duration `json:"execution,omitzero" doc:"Limit of one execution of the handler."`
	Visibility Duration `json:"visibility,omitzero" doc:"From dispatch until the job is reclaimed."`
	Lifetime   Duration `json:"lifetime,omitzero" doc:"From submission to a terminal state."`
}

// Limit sets the limits of a job to be submitted. One that is zero stays that of the job's policy,
// and [gq.Unlimited] removes the limit of an execution or a lifetime.
func (t Timeouts) Limit(s *gq.Spec) {
	for _, limit := range t.limits(s) {
		if limit.given != 0 {
			*limit.own = time.Duration(limit.given)
		}
	}
}

// limit is a timeout and the part of a job's policy that it sets.
type limit struct {
	name, policy string
	given        Duration
	own          *time.Duration
}

func (t Timeouts) limits(s *gq.Spec) []limit {
	o := &s.Overrides
	return []limit{
		{"execution", "execution_timeout", t.Execution, &o.ExecutionTimeout},
		{"visibility", "lease_ttl", t.Visibility, &o.LeaseTTL},
		{"lifetime", "lifetime", t.Lifetime, &o.Lifetime},
	}
}

// conflicts lists the limits that options of a job set to other values.
func (t Timeouts) conflicts(s *gq.Spec) (faults []gq.Fault) {
	for _, l := range t.limits(s) {
		if given := time.Duration(l.given); given != 0 && *l.own != 0 && *l.own != given {
			faults = append(faults, gq.Fault{Field: "timeouts." + l.name, Problem: fmt.Sprintf("%v is not the %v of policy.%s; give one of the two", given, *l.own, l.policy)})
		}
	}
	return faults
}

// Failure says why an attempt failed.
type Failure struct {
	Category gq.Category `json:"category"`
	Message  string      `json:"message,omitzero"`
	Code     string      `json:"code,omitzero"`
}

// Of returns the view of a job.
func Of(j *gq.Job) Job {
	s, spec, m := &j.State, &j.Spec, &j.Metadata
	out := Job{
		ID: s.ID, CreatedAt: utc(s.CreatedAt), UpdatedAt: utc(s.UpdatedAt), State: StateOf(s), Attempt: s.Attempt,
		ScheduledAt: utc(s.ScheduledAt), StartedAt: utc(s.StartedAt), CompletedAt: utc(s.CompletedAt),
		Type: spec.Type, Priority: m.Priority, Tags: m.Tags, CorrelationID: m.CorrelationID, CallbackURL: m.CallbackURL,
		IdempotencyKey: machine.ShownKey(spec).Name,
		Payload:        content(spec.Payload.Data, spec.Payload.IsJSON()), Result: content(j.Result, true),
		PreviousAttemptID: previous(s), Failure: failureOf(s.Failure), Redacted: j.Redacted,
	}
	switch {
	case out.State == Pending:
		out.ScheduledAt = time.Time{} // a signal has one while it waits
	case out.State == Scheduled:
		out.UpdatedAt = out.ScheduledAt // neither a claim nor a lost hold changed the state
	case out.State == Completed && spec.Gate == gq.GateSignal:
		out.Attempt, out.StartedAt = 1, out.CompletedAt // see History
	}
	for _, d := range spec.DependsOn {
		out.Dependencies = append(out.Dependencies, Dependency{Type: d.Kind, JobID: d.Job})
	}
	p := &spec.Policy
	if s.Policy != nil {
		p = s.Policy
	}
	out.Timeouts = Timeouts{Execution: Duration(p.ExecutionTimeout), Visibility: Duration(p.LeaseTTL), Lifetime: Duration(p.Lifetime)}
	return out
}

// previous returns the id of the attempt before the current one, or before the next one of a job
// that waits for it.
func previous(s *gq.State) gq.LeaseID {
	if s.Lease != nil && s.Attempting() {
		return s.Lease.Previous
	}
	return s.LastAttempt()
}

// content returns data as JSON: unchanged if it is JSON, and otherwise a string with its base64.
func content(data []byte, isJSON bool) json.RawMessage {
	if len(data) == 0 || isJSON && json.Valid(data) {
		return data
	}
	text, _ := json.Marshal(data) // a []byte cannot fail
	return text
}

func failureOf(f *gq.Failure) *Failure {
	if f == nil || *f == (gq.Failure{}) {
		return nil
	}
	return &Failure{Category: f.Category, Message: f.Message, Code: f.Code}
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// Event is one entry of a job's history: what its state was from then on.
type Event struct {
	Seq       uint64    `json:"-"` // of the [gq.Event]
	ID        gq.JobID  `json:"id"`
	State     State     `json:"state"`
	UpdatedAt time.Time `json:"updated_at" doc:"When it changed to this state."`
	Attempt   int       `json:"attempt"`
	Failure   *Failure  `json:"failure,omitempty"`
}

// History returns the view of consecutive events, of one job or of many: one for each change of state.
// What it says of an event does not depend on the others, so a stream can be shown part by part. Only
// events of an earlier version do not say that their job was claimed: those of a job are shown together.
// A signal of a workflow, which no worker runs, is SCHEDULED and RUNNING at the instant at
// which it comes or its time is over.
func History(events []gq.Event) (all []Event) {
	held, back := make(map[gq.JobID]bool), make(map[gq.JobID]bool) // back: it waits because a hold was lost
	for i := range events {
		e := &events[i]
		out := Event{Seq: e.Seq, ID: e.Job, State: stateOf(e.Status), UpdatedAt: utc(e.Time), Attempt: e.Attempt, Failure: failureOf(e.Failure)}
		switch e.Type {
		case gq.EventClaimed:
			held[e.Job] = true
			continue
		case gq.EventScheduled:
			lost := e.Lease != "" || e.Detail == gq.DetailClaimed || back[e.Job]
			delete(held, e.Job)
			delete(back, e.Job)
			if lost { // a hold was lost: SCHEDULED before and after
				continue
			}
		case gq.EventRetrying:
			if e.Detail == gq.DetailClaimed || held[e.Job] { // so was this one, before an execution
				delete(held, e.Job)
				back[e.Job] = true
				continue
			}
		case gq.EventStarted:
			delete(held, e.Job)
		case gq.EventCompleted, gq.EventFailed:
			if e.Type == gq.EventCompleted && e.Lease == "" || e.Reason == machine.ReasonSignalTimeout {
				out.Attempt = 1
				all = append(all, Event{Seq: e.Seq, ID: e.Job, State: Scheduled, UpdatedAt: out.UpdatedAt},
					Event{Seq: e.Seq, ID: e.Job, State: Running, UpdatedAt: out.UpdatedAt, Attempt: 1})
			}
		case gq.EventSubmitted, gq.EventDelayed, gq.EventDeadLettered, gq.EventCancelled:
		default:
			continue
		}
		all = append(all, out)
	}
	return all
}
