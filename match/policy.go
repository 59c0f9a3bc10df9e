package match

import "maps"

// ppb is the denominator of parts per billion: 1.0 is 1 000 000 000.
const ppb = 1_000_000_000

// Limits of integers in the input. Within them no sum or product in this package
// overflows 64 bits.
const (
	MaxInteger = 1<<53 - 1 // any integer
	MaxTime    = 1<<33 - 1 // times in Unix seconds, and numbers that are multiplied by a weight
)

// Policy is the set of numbers that govern a round. [DefaultPolicy] sets all of them; the
// zero value is not valid.
type Policy struct {
	BatchSize   int64       `json:"batch_size"` // most jobs that a round considers
	Priority    Priority    `json:"priority"`
	Eligibility Eligibility `json:"eligibility"`
	Quotas      Quotas      `json:"quotas"`
	Starvation  Starvation  `json:"starvation"`
}

// Priority weighs what makes a job urgent. Weights and tiers are parts per billion, at
// most 1.0.
type Priority struct {
	FeeWeight     int64            `json:"w_fee_ppb"`
	AgeWeight     int64            `json:"w_age_ppb"`
	SizeWeight    int64            `json:"w_size_ppb"`
	TierWeight    int64            `json:"w_tier_ppb"`
	FeeRef        int64            `json:"fee_ref"`              // fees above this one count the same
	AgeRefAI      int64            `json:"age_ref_ai_secs"`      // at this age an AI job has earned the full weight, and later more
	AgeRefQuantum int64            `json:"age_ref_quantum_secs"` // the same for a quantum job
	SizeRef       int64            `json:"size_ref_bytes"`       // at this size half the weight is left
	Tiers         map[string]int64 `json:"tiers"`                // by name; always includes [FreeTier]
}

// FreeTier is the tier of a job that names none.
const FreeTier = "FREE"

// Eligibility is what a provider must meet to get any job.
type Eligibility struct {
	MinHealth        int64 `json:"min_health_ppb"`
	HeartbeatTimeout int64 `json:"heartbeat_timeout_secs"`
	MinStakeAI       int64 `json:"min_stake_ai"`
	MinStakeQuantum  int64 `json:"min_stake_quantum"`
}

// minStake returns the minimum stake of a provider for jobs of a kind.
func (e *Eligibility) minStake(k Kind) int64 {
	if k == AI {
		return e.MinStakeAI
	}
	return e.MinStakeQuantum
}

// Quotas limit what one provider and one requester may hold.
type Quotas struct {
	LeasesMax            int64 `json:"leases_max_per_provider"`
	AIUnitsPerEpoch      int64 `json:"ai_units_per_epoch"`      // per provider
	QuantumUnitsPerEpoch int64 `json:"quantum_units_per_epoch"` // per provider
	RequesterMax         int64 `json:"requester_max"`           // leases within the window; 0 is no limit
	RequesterWindow      int64 `json:"requester_window_secs"`   // for the counting of [Input.Grants]
}

// unitsPerEpoch returns how many units of a kind a provider may get in an epoch.
func (q *Quotas) unitsPerEpoch(k Kind) int64 {
	if k == AI {
		return q.AIUnitsPerEpoch
	}
	return q.QuantumUnitsPerEpoch
}

// Starvation protects jobs that pay little: once in every so many matches, the oldest of
// them goes first.
type Starvation struct {
	Every     int64 `json:"every"` // 0 is never
	LowFeeMax int64 `json:"low_fee_max"`
}

// DefaultPolicy returns the policy of an input that has none.
func DefaultPolicy() Policy {
	return Policy{
		BatchSize: 256,
		Priority: Priority{
			FeeWeight: 550_000_000, AgeWeight: 250_000_000, SizeWeight: 100_000_000, TierWeight: 100_000_000,
			FeeRef: 1_000_000, AgeRefAI: 86_400, AgeRefQuantum: 7200, SizeRef: 1 << 20,
			Tiers: map[string]int64{FreeTier: 0, "PRO": 300_000_000, "PREMIUM": 600_000_000},
		},
		Eligibility: Eligibility{MinHealth: 500_000_000, HeartbeatTimeout: 30, MinStakeAI: 1000, MinStakeQuantum: 5000},
		Quotas: Quotas{
			LeasesMax: 16, AIUnitsPerEpoch: 100_000, QuantumUnitsPerEpoch: 10_000,
			RequesterMax: 0, RequesterWindow: 60,
		},
		Starvation: Starvation{Every: 20, LowFeeMax: 100_000},
	}
}

// Clone copies the policy with its tiers.
func (p Policy) Clone() Policy {
	p.Priority.Tiers = maps.Clone(p.Priority.Tiers)
	return p
}

// Cached returns the part of a job's score that does not depend on the time. Ordering the
// jobs of a kind by it, highest first, is the same as ordering them by score at any time.
func (p *Priority) Cached(j *Job) int64 {
	fee := p.FeeWeight * min(j.MaxFee, p.FeeRef) / p.FeeRef
	size := p.SizeWeight * p.SizeRef / (p.SizeRef + j.SizeBytes)
	return fee + size + p.tier(j.Tier) - p.Age(j.Kind, j.EnqueuedAt)
}

// Score returns how urgent a job is at a given time, in parts per billion. It grows with
// time at the same rate for all jobs of a kind.
func (p *Priority) Score(j *Job, now int64) int64 { return p.Cached(j) + p.Age(j.Kind, now) }

func (p *Priority) tier(name string) int64 {
	if name == "" {
		name = FreeTier
	}
	return p.TierWeight * p.Tiers[name] / ppb
}

// Age returns the weight of a Unix time for jobs of a kind; only differences are meaningful.
// Rounding before subtracting keeps the order of two jobs of a kind fixed.
func (p *Priority) Age(k Kind, t int64) int64 {
	if k == AI {
		return p.AgeWeight * t / p.AgeRefAI
	}
	return p.AgeWeight * t / p.AgeRefQuantum
}
