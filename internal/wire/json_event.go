package wire

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Event is one entry of the history.
type Event struct {
	Seq    uint64       `json:"seq" doc:"Order of all events; reading can resume after any of them."`
	Time   time.Time    `json:"time"`
	Entity string       `json:"entity" doc:"The job that it is about."`
	Type   gq.EventType `json:"type"`
	Data   EventData    `json:"data"`
}

// EventData is the event-specific data about the job.
type EventData struct {
	Queue      string     `json:"queue,omitzero"`
	JobType    string     `json:"job_type,omitzero" doc:"The type of the job."`
	State      gq.Status  `json:"state,omitzero" doc:"From here on."`
	Attempt    int        `json:"attempt,omitzero"`
	Detail     string     `json:"detail,omitzero"`
	LeaseID    gq.LeaseID `json:"lease_id,omitzero" doc:"The lease it happened under."`
	Version    uint64     `json:"version,omitzero"`
	LeaseState string     `json:"lease_state,omitzero"`
	Worker     string     `json:"worker,omitzero"`
	CostUnits  int64      `json:"cost_units,omitzero"`
	Until      time.Time  `json:"until,omitzero" doc:"When the lease ends or the next run is due."`
	Failure    *Failure   `json:"failure,omitempty"`
	Reason     string     `json:"reason,omitzero"`
	Progress   *float64   `json:"progress,omitempty" doc:"0 to 1; only of job.progress, which is not kept: it has the sequence number of the event before it."`
	Note       string     `json:"note,omitzero" doc:"Only of job.progress."`
	Elapsed    Duration   `json:"elapsed,omitzero" doc:"How long the job had waited when it started, or how long the execution took that ended."`

	TraceParent string `json:"traceparent,omitzero" doc:"W3C trace context that the job was submitted in."`
}

// EventOf converts an event.
func EventOf(e *gq.Event) Event {
	out := Event{
		Seq: e.Seq, Time: utc(e.Time), Entity: e.Job.String(), Type: e.Type,
		Data: EventData{
			Queue: e.Queue, JobType: e.JobType, State: e.Status, Attempt: e.Attempt, Detail: e.Detail.String(),
			LeaseID: e.Lease, Version: uint64(e.Version), Worker: e.Worker, CostUnits: e.CostUnits,
			Until: utc(e.Until), Reason: e.Reason, Note: e.Note, Elapsed: Duration(e.Elapsed), TraceParent: e.TraceParent,
		},
	}
	if e.Type.OfProvider() {
		out.Entity = e.Worker
	}
	if e.LeaseState != 0 {
		out.Data.LeaseState = e.LeaseState.String()
	}
	if e.Type == gq.EventProgress {
		out.Data.Progress = new(e.Progress)
	}
	if e.Failure != nil && *e.Failure != (gq.Failure{}) {
		out.Data.Failure = failureOf(e.Failure)
	}
	return out
}

// EventsOf converts events.
func EventsOf(events []gq.Event) []Event {
	out := make([]Event, len(events))
	for i := range events {
		out[i] = EventOf(&events[i])
	}
	return out
}

// Explanation answers the question "why is my job not running?".
type Explanation struct {
	Job     gq.JobID  `json:"job"`
	Queue   string    `json:"queue"`
	Type    string    `json:"type"`
	State   gq.Status `json:"state"`
	Attempt int       `json:"attempt"`
	Bound   int       `json:"bound"`
	Reason
	Ahead    *int     `json:"ahead,omitempty" doc:"Jobs in line before it; below 0 is unknown: more than were looked at, or rounds of matching decide."`
	Also     []Reason `json:"also,omitempty" doc:"What would be next in its way."`
	Timeline []Event  `json:"timeline" doc:"What has happened to it."`
}

// Reason is one cause that delays a job, or its current state.
type Reason struct {
	Cause   gq.Cause  `json:"cause"`
	Summary string    `json:"summary"`
	Remedy  string    `json:"remedy,omitzero" doc:"What would help."`
	Until   time.Time `json:"until,omitzero" doc:"When it will be over by itself."`
	Never   bool      `json:"never,omitzero" doc:"It is never over by itself: the job, or what is in its way, has to be changed."`
	Jobs    []Related `json:"jobs,omitempty" doc:"Those it waits for, or who hold what it needs."`
	More    int       `json:"more,omitzero" doc:"And this many more."`
}

// Related is another job that a reason refers to.
type Related struct {
	Job    gq.JobID           `json:"job"`
	State  gq.Status          `json:"state,omitzero"`
	Kind   *gq.DependencyKind `json:"kind,omitempty"`
	Worker string             `json:"worker,omitzero"`
	Since  time.Time          `json:"since,omitzero"`
	Cost   int64              `json:"cost,omitzero"`
}

// ExplanationOf converts an explanation.
func ExplanationOf(x *gq.Explanation) Explanation {
	out := Explanation{
		Job: x.Job, Queue: x.Queue, Type: x.Type, State: x.Status, Attempt: x.Attempt, Bound: x.Bound,
		Reason: reasonOf(&x.Reason), Timeline: EventsOf(x.Timeline),
	}
	if x.Cause == gq.CauseNext {
		out.Ahead = new(x.Ahead)
	}
	for i := range x.Also {
		out.Also = append(out.Also, reasonOf(&x.Also[i]))
	}
	return out
}

func reasonOf(r *gq.Reason) Reason {
	out := Reason{Cause: r.Cause, Summary: r.Summary, Remedy: r.Remedy, Until: utc(r.Until), Never: r.Never, More: r.More}
	for _, j := range r.Jobs {
		related := Related{Job: j.Job, State: j.Status, Worker: j.Worker, Since: utc(j.Since), Cost: j.Cost}
		if j.Kind.Valid() {
			related.Kind = new(j.Kind)
		}
		out.Jobs = append(out.Jobs, related)
	}
	return out
}
