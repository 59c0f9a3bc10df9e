package gq

import (
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
)

// Payload is what a client hands to a handler, or a handler back. The system
// does not interpret it. It only checks, at submission, that text is UTF-8 and
// that what is declared as JSON is JSON.
type Payload struct {
	Data        []byte
	ContentType string // "application/json" if empty; JSON is shown as JSON, everything else as base64
}

// IsJSON reports whether the content type declares JSON: application/json or
// application/*+json, whatever its parameters.
func (p Payload) IsJSON() bool {
	if p.ContentType == JSON {
		return true
	}
	name, _, err := mime.ParseMediaType(p.ContentType)
	return err == nil && (name == JSON || strings.HasPrefix(name, "application/") && strings.HasSuffix(name, "+json"))
}

// IdempotencyKey makes a submission idempotent: while the window lasts, a second
// submission with the same scope and key finds the first job instead of making
// another.
type IdempotencyKey struct {
	Scope       string // what the key is unique within, such as a job type
	Name        string // the client's key, up to 256 characters; empty for none
	Fingerprint uint64 // of the submission, so that a changed one can be told
}

// Spec is what was asked for. It never changes once it is stored.
type Spec struct {
	ID        JobID // assigned by the system
	Queue     string
	Type      string
	Payload   Payload
	Policy    Policy    // zero is the queue's
	Overrides overrides // parts of the policy that options set; an engine applies and clears them
	Key       IdempotencyKey
	RunAt     time.Time     // not before this instant; zero is at once
	Delay     time.Duration // not before this long after submission; the later of both counts
	DependsOn []Dependency

	CostUnits int64    // capacity a lease of this job occupies; 0 is none
	Requires  []string // capabilities a worker must offer
	LimitKey  string   // jobs of a queue with the same one share its KeyLimit; "" is not limited
	FairKey   string   // whose turn it takes in a fair queue, such as a tenant; all without one share theirs
	Requester string
	Tier      string
	MaxFee    int64

	Attributes map[string]string // kept for a face, not interpreted
	ReplayOf   JobID             // the finished job this one repeats

	Metadata Metadata // as submitted; the current values live beside the state
}

// Metadata is what a user may change while the job is live.
type Metadata struct {
	Priority      Priority // only until the first claim
	Tags          map[string]string
	CorrelationID string
	CallbackURL   string
}

// Equal reports whether two sets of metadata say the same.
func (m Metadata) Equal(o Metadata) bool {
	return m.Priority == o.Priority && m.CorrelationID == o.CorrelationID &&
		m.CallbackURL == o.CallbackURL && maps.Equal(m.Tags, o.Tags)
}

// WithDefaults fills what the client left open: queue, policy, priority,
// content type, the JSON null for no payload, the scope of the key, and the order
// of Requires.
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
