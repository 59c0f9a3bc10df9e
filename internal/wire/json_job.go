package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Job is a job as all APIs show it.
type Job struct {
	ID                gq.JobID    `json:"id"`
	Queue             string      `json:"queue,omitzero"`
	Type              string      `json:"type,omitzero"`
	State             gq.Status   `json:"state"`
	Detail            string      `json:"detail,omitzero" doc:"CLAIMED: what the holder is doing."`
	Priority          gq.Priority `json:"priority,omitzero" doc:"What the user asked for."`
	EffectivePriority gq.Priority `json:"effective_priority,omitzero" doc:"That, or a more urgent one of its dependencies."`
	Attempt           int         `json:"attempt" doc:"Executions started."`
	Bound             int         `json:"bound,omitzero" doc:"Executions allowed."`

	ContentType   string          `json:"content_type,omitzero"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	ResultBase64  []byte          `json:"result_base64,omitempty"`
	ResultBytes   int             `json:"result_bytes,omitzero"`
	Redacted      bool            `json:"redacted,omitzero" doc:"The token may not see the payload, result, checkpoint, note and messages of failures, so they are left out."`

	CreatedAt      time.Time `json:"created_at,omitzero"`
	SubmittedAt    time.Time `json:"submitted_at,omitzero" doc:"Of a job that took the place of another one: when the first of them was submitted. Its deadlines count from then."`
	UpdatedAt      time.Time `json:"updated_at,omitzero" doc:"Last change of state."`
	RunAt          time.Time `json:"run_at,omitzero" doc:"Not claimable before."`
	ScheduledAt    time.Time `json:"scheduled_at,omitzero" doc:"Became claimable."`
	FirstStartedAt time.Time `json:"first_started_at,omitzero"`
	StartedAt      time.Time `json:"started_at,omitzero" doc:"Of the current or last attempt."`
	CompletedAt    time.Time `json:"completed_at,omitzero" doc:"Reached its end, however."`

	Lease        *Lease        `json:"lease,omitempty" doc:"Of the attempt that is held; of a finished job the last one. A job that waits has none: its events tell of earlier ones."`
	LeaseVersion uint64        `json:"lease_version,omitzero" doc:"The last one issued."`
	Progress     float64       `json:"progress,omitzero" doc:"0 to 1, as the holder reported it; shown as long as the lease is."`
	Note         string        `json:"note,omitzero" doc:"For people, from the same report."`
	Failure      *Failure      `json:"failure,omitempty" doc:"Of the last attempt that failed."`
	Cancellation *Cancellation `json:"cancellation,omitempty"`
	Reason       string        `json:"reason,omitzero" doc:"Why it ended where it did, if not by its handler; while it waits for capacity, why it does."`

	CancelRequested bool `json:"cancel_requested,omitzero" doc:"It was asked to stop."`

	Tags          map[string]string `json:"tags,omitempty"`
	CorrelationID string            `json:"correlation_id,omitzero"`
	CallbackURL   string            `json:"callback_url,omitzero"`

	IdempotencyKey   string            `json:"idempotency_key,omitzero"`
	IdempotencyScope string            `json:"idempotency_scope,omitzero"`
	Delay            *Duration         `json:"delay,omitempty"`
	DependsOn        []Dependency      `json:"depends_on,omitempty"`
	Waits            int               `json:"waits,omitzero" doc:"Dependencies that must still end."`
	CostUnits        int64             `json:"cost_units,omitzero"`
	Requires         []string          `json:"requires,omitempty"`
	LimitKey         string            `json:"limit_key,omitzero"`
	Weight           int               `json:"weight,omitzero"`
	FairKey          string            `json:"fair_key,omitzero"`
	OrderKey         string            `json:"order_key,omitzero"`
	OrderedAfter     gq.JobID          `json:"ordered_after,omitzero" doc:"The job with the same order key that it was put behind."`
	Requester        string            `json:"requester,omitzero"`
	Tier             string            `json:"tier,omitzero"`
	MaxFee           int64             `json:"max_fee,omitzero"`
	Attributes       map[string]string `json:"attributes,omitempty"`
	ReplayOf         gq.JobID          `json:"replay_of,omitzero" doc:"The finished job that this one repeats."`
	Unique           *Unique           `json:"unique,omitempty"`
	Replaces         gq.JobID          `json:"replaces,omitzero" doc:"The waiting job whose place this one took."`
	ReplacedBy       gq.JobID          `json:"replaced_by,omitzero" doc:"The job that took its place."`
	Workflow         gq.WorkflowID     `json:"workflow,omitzero" doc:"The workflow that it is a part of."`
	Ref              string            `json:"ref,omitzero" doc:"Its name in the workflow."`
	Gate             gq.Gate           `json:"gate,omitzero" doc:"What it waits for there besides its dependencies: SIGNAL or FAILURE."`
	Inputs           []Input           `json:"inputs,omitempty" doc:"With a claim: the results of the jobs of the workflow that it depends on."`
	WorkflowOutcome  gq.WorkflowStatus `json:"workflow_outcome,omitzero" doc:"With a claim of a final job: the status of the jobs of its workflow that are not final, by which it can decide."`
	Policy           *Policy           `json:"policy,omitempty" doc:"Its preset, and what differs from that; what is absent is as in the preset."`

	Sequence         uint64          `json:"sequence,omitzero" doc:"Order of submission."`
	Faults           int             `json:"faults,omitzero" doc:"Failures that count."`
	Losses           int             `json:"losses,omitzero" doc:"Leases that ran out."`
	Checkpoint       json.RawMessage `json:"checkpoint,omitempty"`
	CheckpointBase64 []byte          `json:"checkpoint_base64,omitempty"`
	CheckpointBytes  int             `json:"checkpoint_bytes,omitzero"`
	Checkpoints      int             `json:"checkpoints,omitzero" doc:"Saved so far."`
}

// Lease is the exclusive right to run a job for a limited time.
type Lease struct {
	ID          gq.LeaseID `json:"id"`
	Version     uint64     `json:"version" doc:"The fencing number: larger in every later lease of the job."`
	State       string     `json:"state" doc:"ACTIVE, COMPLETED, EXPIRED or CANCELLED."`
	Worker      string     `json:"worker"`
	Attempt     int        `json:"attempt,omitzero" doc:"The attempt it covers."`
	Previous    gq.LeaseID `json:"previous,omitzero" doc:"The lease of the attempt before it."`
	GrantedAt   time.Time  `json:"granted_at,omitzero"`
	HeartbeatAt time.Time  `json:"heartbeat_at,omitzero"`
	ExpiresAt   time.Time  `json:"expires_at" doc:"From this instant on it is worth nothing."`
	RenewBy     time.Time  `json:"renew_by,omitzero" doc:"When the holder should send a heartbeat."`
	TTL         *Duration  `json:"ttl,omitempty"`
	Renewals    int        `json:"renewals,omitzero"`
	CostUnits   int64      `json:"cost_units,omitzero"`
}

// Failure describes why an attempt failed.
type Failure struct {
	Category   gq.Category `json:"category"`
	Code       string      `json:"code,omitzero" doc:"Stable, for programs."`
	Message    string      `json:"message,omitzero" doc:"For people."`
	RetryAfter *Duration   `json:"retry_after,omitempty"`
}

// Cancellation describes the cancellation of a running job.
type Cancellation struct {
	RequestedAt time.Time `json:"requested_at,omitzero"`
	DeliveredAt time.Time `json:"delivered_at,omitzero" doc:"Told to the worker."`
	HonouredAt  time.Time `json:"honoured_at,omitzero" doc:"The worker stopped."`
	Reason      string    `json:"reason,omitzero"`
}

// JobOf converts a job.
func JobOf(j *gq.Job) Job {
	out := StateOf(&j.State)
	s := &j.Spec
	if out.ID.IsZero() {
		out.ID = s.ID
	}
	out.Queue, out.Type, out.ContentType, out.Redacted = s.Queue, s.Type, s.Payload.ContentType, j.Redacted
	if isJSONType(s.Payload.ContentType) {
		out.Payload, out.PayloadBase64 = embedded(s.Payload.Data)
	} else if len(s.Payload.Data) > 0 {
		out.PayloadBase64 = s.Payload.Data
	}
	if s.Policy != (gq.Policy{}) {
		out.Policy = PolicyDifference(&s.Policy)
	}
	key := machine.ShownKey(s)
	out.IdempotencyKey, out.IdempotencyScope = key.Name, key.Scope
	if s.Delay != 0 {
		out.Delay = new(Duration(s.Delay))
	}
	for _, d := range s.DependsOn {
		out.DependsOn = append(out.DependsOn, Dependency{Kind: new(d.Kind), Job: d.Job})
	}
	out.CostUnits, out.Requires, out.LimitKey, out.FairKey = s.CostUnits, s.Requires, s.LimitKey, s.FairKey
	out.Requester, out.Tier, out.MaxFee = s.Requester, s.Tier, s.MaxFee
	out.Attributes, out.ReplayOf = s.Attributes, s.ReplayOf
	out.OrderKey, out.Weight = s.OrderKey, s.Weight
	out.Unique, out.Replaces = uniqueOf(&s.Unique), s.Replaces
	out.Workflow, out.Ref, out.Gate, out.Inputs = s.Workflow, s.Ref, s.Gate, inputsOf(j.Inputs)
	out.WorkflowOutcome = j.WorkflowOutcome

	m := &j.Metadata
	if m.Priority.Valid() {
		out.Priority = m.Priority
	}
	out.Tags, out.CorrelationID, out.CallbackURL = m.Tags, m.CorrelationID, m.CallbackURL
	out.Result, out.ResultBase64 = embedded(j.Result)
	out.Checkpoint, out.CheckpointBase64 = embedded(j.Checkpoint)
	return out
}

// StateOf converts a job of which only the state is known.
func StateOf(s *gq.State) Job {
	out := Job{
		ID: s.ID, State: s.Status, Detail: s.Detail.String(),
		Priority: s.Own, EffectivePriority: s.Priority(),
		Attempt: s.Attempt, Bound: s.Bound,
		CreatedAt: utc(s.CreatedAt), SubmittedAt: utc(s.SubmittedAt), UpdatedAt: utc(s.UpdatedAt), RunAt: utc(s.RunAt), ScheduledAt: utc(s.ScheduledAt),
		FirstStartedAt: utc(s.FirstStartedAt), StartedAt: utc(s.StartedAt), CompletedAt: utc(s.CompletedAt),
		LeaseVersion: uint64(s.Version),
		Progress:     s.Progress, Note: s.Note, Reason: s.Reason, ReplacedBy: s.ReplacedBy, OrderedAfter: s.OrderedAfter,
		CancelRequested: s.Cancellation.Requested(),
		Sequence:        s.Sequence, Faults: s.Faults, Losses: s.Losses, Waits: s.Waits,
		ResultBytes: s.ResultBytes, CheckpointBytes: s.CheckpointBytes, Checkpoints: s.Checkpoints,
	}
	if s.AnyOpen {
		out.Waits++
	}
	if !(s.Progress >= 0 && s.Progress <= 1) { // JSON has finite numbers only
		out.Progress = 0
	}
	switch {
	case !s.Attempting(): // values of an earlier attempt would look like current ones
		out.Progress, out.Note = 0, ""
	case s.Lease != nil:
		out.Lease = leaseOf(s.Lease, s.Policy)
	}
	if s.Failure != nil && *s.Failure != (gq.Failure{}) {
		out.Failure = failureOf(s.Failure)
	}
	if c := s.Cancellation; c != (gq.Cancellation{}) {
		out.Cancellation = &Cancellation{
			RequestedAt: utc(c.RequestedAt), DeliveredAt: utc(c.DeliveredAt), HonouredAt: utc(c.HonouredAt), Reason: c.Reason,
		}
	}
	return out
}

func leaseOf(l *gq.Lease, p *gq.Policy) *Lease {
	out := &Lease{
		ID: l.ID, Version: uint64(l.Version), State: l.State.String(), Worker: l.Worker,
		Attempt: l.Attempt, Previous: l.Previous,
		GrantedAt: utc(l.GrantedAt), HeartbeatAt: utc(l.HeartbeatAt), ExpiresAt: utc(l.ExpiresAt),
		TTL: new(Duration(l.TTL)), Renewals: l.Renewals, CostUnits: l.CostUnits,
	}
	if p != nil && l.State == gq.LeaseActive {
		out.RenewBy = utc(machine.RenewBy(*l, p))
	}
	return out
}

func failureOf(f *gq.Failure) *Failure {
	out := &Failure{Category: f.Category, Code: f.Code, Message: f.Message}
	if f.RetryAfter != 0 {
		out.RetryAfter = new(Duration(f.RetryAfter))
	}
	return out
}

// Submitted is the response to a submission.
type Submitted struct {
	Job
	Existing bool `json:"existing,omitzero" doc:"Another job holds the key, and this is that job."`
	Same     bool `json:"same,omitzero" doc:"That one was submitted with the same content, or the submission is unique and accepts any."`
}

// BatchAnswer is the result for one job of a batch: the job, or why it was rejected.
type BatchAnswer struct {
	Submitted
	Problem *Problem
}

// MarshalJSON encodes the job or the problem.
func (a BatchAnswer) MarshalJSON() ([]byte, error) {
	if a.Problem != nil {
		return marshal(Refused{a.Problem})
	}
	return marshal(a.Submitted)
}

// Refused takes the place of a rejected job in a batch response.
type Refused struct {
	Problem *Problem `json:"problem" doc:"Why the job was not accepted."`
}

// BatchAnswers are the results of a batch, in its order.
type BatchAnswers struct {
	Jobs []BatchAnswer `json:"jobs"`
}

// Jobs is a page of jobs.
type Jobs struct {
	Jobs       []Job  `json:"jobs"`
	NextCursor string `json:"next_cursor" doc:"Of the next page; empty on the last. Only this tells that there is no more, not a page with few jobs or none."`
}

// JobsOf converts a page of jobs.
func JobsOf(p gq.Page) Jobs {
	out := Jobs{Jobs: make([]Job, len(p.Jobs)), NextCursor: p.Next}
	for i := range p.Jobs {
		out.Jobs[i] = JobOf(&p.Jobs[i])
	}
	return out
}

func at(list string, i int, field string) string { return fmt.Sprintf("%s[%d].%s", list, i, field) }

// Claimed has the jobs that a worker claimed.
type Claimed struct {
	Jobs []Job `json:"jobs"`
}
