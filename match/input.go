package match

import (
	"encoding/json"
	"maps"

	"github.com/gopherqueue/gq"
)

// Input is everything a round depends on. The order of providers, of jobs and of their
// lists does not matter. [Decode] decodes it from JSON, and the result can be marshalled
// again without loss.
type Input struct {
	Chain    string `json:"chain_id"`
	Epoch    int64  `json:"epoch_id"`
	Height   int64  `json:"block_height"`
	Beacon   Hex    `json:"beacon"`
	Now      int64  `json:"now"`                  // Unix seconds
	Matches  int64  `json:"match_count,omitzero"` // made in this queue before the round; determines when the lane is due
	Rotation int64  `json:"rotation,omitzero"`    // how many positions later the order starts
	Policy   Policy `json:"policy"`

	// Grants counts the leases that requesters got in the rolling window that ends now.
	Grants map[string]int64 `json:"requester_grants,omitempty"`

	Providers []Provider `json:"providers"`
	Jobs      []Job      `json:"jobs"` // all queued and claimable
}

// UnmarshalJSON decodes what was marshalled, without checks; [Decode] is for other input. Both
// kinds get the one age reference that inputs recorded by earlier versions have.
func (in *Input) UnmarshalJSON(text []byte) error {
	type input Input // without this method
	if err := json.Unmarshal(text, (*input)(in)); err != nil || in.Policy.Priority.AgeRefAI != 0 {
		return err
	}
	var before struct {
		Policy struct {
			Priority struct {
				AgeRef int64 `json:"age_ref_secs"`
			} `json:"priority"`
		} `json:"policy"`
	}
	err := json.Unmarshal(text, &before)
	ref := before.Policy.Priority.AgeRef
	in.Policy.Priority.AgeRefAI, in.Policy.Priority.AgeRefQuantum = ref, ref
	return err
}

// Seed returns the seed of the round.
func (in *Input) Seed() Seed { return NewSeed(in.Chain, in.Epoch, in.Height, in.Beacon) }

// Provider is a registered provider at the time of the round.
type Provider struct {
	ID           string   `json:"id"`
	Status       Status   `json:"status"`
	Capabilities []Kind   `json:"capabilities,omitempty"`
	Models       []string `json:"models,omitempty"`     // AI
	Precisions   []string `json:"precisions,omitempty"` // AI
	Gates        []string `json:"gates,omitempty"`      // quantum
	MaxDepth     int64    `json:"max_depth,omitzero"`   // quantum
	MaxWidth     int64    `json:"max_width,omitzero"`   // quantum
	Region       string   `json:"region,omitzero"`
	Allow        []string `json:"allow,omitempty"` // requesters it serves; empty means all
	Deny         []string `json:"deny,omitempty"`  // requesters it does not serve, even if allowed

	Stake                int64     `json:"stake,omitzero"`
	AttestationExpiresAt int64     `json:"attestation_expires_at,omitzero"`
	Health               int64     `json:"health_ppb,omitzero"` // as of now
	LastHeartbeatAt      int64     `json:"last_heartbeat_at,omitzero"`
	CooldownUntil        Cooldowns `json:"cooldown_until,omitzero"`

	LeasesActive     int64 `json:"leases_active,omitzero"`
	AIUnitsUsed      int64 `json:"ai_units_used,omitzero"`      // in this epoch
	QuantumUnitsUsed int64 `json:"quantum_units_used,omitzero"` // in this epoch
}

// Cooldowns are the times until which a provider gets no job of a kind.
type Cooldowns struct {
	AI      int64 `json:"AI,omitzero"`
	Quantum int64 `json:"QUANTUM,omitzero"`
}

func (c Cooldowns) of(k Kind) int64 {
	if k == AI {
		return c.AI
	}
	return c.Quantum
}

// Job is a queued job.
type Job struct {
	ID         string   `json:"id,omitzero"`
	Kind       Kind     `json:"kind"`
	Spec       Demand   `json:"spec,omitzero"`
	Requester  string   `json:"requester,omitzero"`
	Tier       string   `json:"tier,omitzero"` // "" is [FreeTier]
	MaxFee     int64    `json:"max_fee,omitzero"`
	EnqueuedAt int64    `json:"enqueue_ts,omitzero"`
	SizeBytes  int64    `json:"size_bytes,omitzero"`
	Units      int64    `json:"units"`              // of its kind; always written, since a missing one is not 0
	Attempt    int64    `json:"attempt,omitzero"`   // attempts counted so far
	Regions    []string `json:"regions,omitempty"`  // where it may run; empty means anywhere
	Excluded   []string `json:"excluded,omitempty"` // providers that had it in this attempt under this seed
}

// Queue is the queue whose jobs rounds assign.
const Queue = "matching"

// DefaultUnits is what a job counts that does not name its units.
const DefaultUnits = 1

// AttributeUnits is an attribute with which a submission names its units if they are 0. A cost of 0 is also that
// of a submission that names none.
const AttributeUnits = "matching.units"

// CountUnits gives a submission to [Queue] that names no units the default.
func CountUnits(s *gq.Spec) {
	if s.Queue != Queue || s.CostUnits != 0 || s.Attributes[AttributeUnits] == "0" {
		return
	}
	if _, err := ParseKind(s.Type); err == nil {
		s.CostUnits = DefaultUnits
	}
}

// KeepUnits makes a spec name its units if it is that of a stored job of [Queue] with 0, so that [CountUnits] leaves
// a copy of the job at 0. Jobs that were stored
// before there was a default lack the attribute.
func KeepUnits(s *gq.Spec) {
	if s.Queue != Queue || s.CostUnits != 0 || len(s.Attributes) >= gq.MaxAttributes {
		return
	}
	if _, err := ParseKind(s.Type); err != nil {
		return
	}
	if s.Attributes = maps.Clone(s.Attributes); s.Attributes == nil {
		s.Attributes = make(map[string]string, 1)
	}
	s.Attributes[AttributeUnits] = "0"
}

// Demand is what a job needs of a provider. Fields of the other kind are ignored.
type Demand struct {
	Model     string   `json:"model,omitzero"`     // AI; "" is any
	Precision string   `json:"precision,omitzero"` // AI; "" is any
	Gates     []string `json:"gates,omitempty"`    // quantum
	Depth     int64    `json:"depth,omitzero"`     // quantum
	Width     int64    `json:"width,omitzero"`     // quantum
}
