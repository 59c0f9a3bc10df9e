package gq

import (
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
)

// Payload is the data that a submission passes to the handler. The queue does not interpret
// it, except that it rejects text that is not UTF-8 and malformed JSON.
type Payload struct {
	Data        []byte
	ContentType string // "application/json" if empty; APIs show JSON as JSON and everything else as base64
}

// IsJSON reports whether the content type is application/json or application/*+json, with or
// without parameters.
func (p Payload) IsJSON() bool {
	if p.ContentType == JSON {
		return true
	}
	name, _, err := mime.ParseMediaType(p.ContentType)
	return err == nil && (name == JSON || strings.HasPrefix(name, "application/") && strings.HasSuffix(name, "+json"))
}

// IdempotencyKey makes a submission idempotent: within the policy's IdempotencyWindow a second
// submission with the same scope and name returns the first job instead of creating another.
type IdempotencyKey struct {
	Scope       string // namespace of Name; the job type if empty
	Name        string // up to 256 characters; empty is no key
	Fingerprint uint64 // of the content, to detect that a key is reused for different content
}

// AttributeReplayedBy is the attribute of a replay that has the name of whoever asked for it, if a
// server knows the name.
const AttributeReplayedBy = "replayed_by"

// Spec describes a job. It never changes after submission.
type Spec struct {
	ID        JobID // assigned by the queue
	Queue     string
	Type      string
	Payload   Payload
	Policy    Policy    // zero is the queue's
	Overrides overrides // parts of the policy that options set; the engine applies and clears them
	Key       IdempotencyKey
	Unique    UniqueRule    // zero is not unique beyond the idempotency key
	RunAt     time.Time     // earliest first attempt; zero is immediately
	Delay     time.Duration // minimum time between submission and first attempt; cannot be combined with RunAt
	DependsOn []Dependency

	CostUnits int64    // pool capacity that a lease of this job occupies
	Requires  []string // capabilities that a worker must offer
	LimitKey  string   // jobs of a queue with the same key share Queue.KeyLimit and Queue.KeyRate; empty is not limited
	Weight    int      // how much of Queue.KeyRate a claim uses up; 0 is 1; see [Weight]
	OrderKey  string   // jobs of a queue with the same key run one after another, in the order of submission; see [OrderKey]
	FairKey   string   // key, such as a tenant, by which a fair queue takes turns; jobs without one share a turn
	Requester string
	Tier      string
	MaxFee    int64

	// Attributes are stored for the API that set them and not interpreted, except for the
	// trace context ([AttributeTraceParent], [AttributeTraceState]).
	Attributes map[string]string
	ReplayOf   JobID // the finished job that this one replays; [AttributeReplayedBy] says who did
	Replaces   JobID // the waiting job that this one replaced; assigned by the queue

	Workflow WorkflowID // the workflow that it is a part of; set by SubmitWorkflow and AddToWorkflow
	Ref      string     // its name there; of a job that is spawned its name among those of the call, for [Dependency]
	Gate     Gate       // what it waits for there besides its dependencies

	Metadata Metadata // as submitted; Job.Metadata has the current values
}

// Metadata is the part of a job that a user can change while the job is live.
type Metadata struct {
	Priority      Priority // can change while no worker holds the job
	Tags          map[string]string
	CorrelationID string
	CallbackURL   string
}

// Equal reports whether m and o are equal.
func (m Metadata) Equal(o Metadata) bool {
	return m.Priority == o.Priority && m.CorrelationID == o.CorrelationID &&
		m.CallbackURL == o.CallbackURL && maps.Equal(m.Tags, o.Tags)
}

// WithDefaults fills in empty fields: queue, policy, priority, content type, key scope,
// the rest of a unique rule, and the JSON value null for a missing payload. It also sorts Requires.
func (s Spec) WithDefaults() Spec {
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	if s.Policy == (Policy{}) {
		s.Policy = PresetJobModel.Policy()
	}
	if s.Metadata.Priority == 0 {
		s.Metadata.Priority = PriorityNormal
	}
	if s.Payload.ContentType == "" {
		s.Payload.ContentType = JSON
	}
	if len(s.Payload.Data) == 0 && s.Payload.ContentType == JSON {
		s.Payload.Data = []byte("null")
	}
	s.Unique = s.Unique.withDefaults()
	if s.Key.Name != "" && s.Key.Scope == "" {
		s.Key.Scope = s.Type
	}
	if len(s.Requires) > 1 {
		s.Requires = slices.Clone(s.Requires)
		slices.Sort(s.Requires)
		s.Requires = slices.Compact(s.Requires)
	}
	return s
}
