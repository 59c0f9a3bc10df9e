package match

import "maps"

// ppb is parts per billion: 1.0 is 1 000 000 000.
const ppb = 1_000_000_000

// Limits of what an integer of the input may be. Within them no sum or product
// of this package leaves 64 bits.
const (
	MaxInteger = 1<<53 - 1 // any integer
	MaxTime    = 1<<33 - 1 // times in seconds since 1970, and what is multiplied by a weight
)

// Policy is the set of numbers that govern a round. [DefaultPolicy] has all of
// them; the zero value is not valid.
type Policy struct {
	BatchSize   int64       `json:"batch_size"` // jobs a round considers at most
	Priority    Priority    `json:"priority"`
	Eligibility Eligibility `json:"eligibility"`
	Quotas      Quotas      `json:"quotas"`
	Starvation  Starvation  `json:"starvation"`
}

// Priority weighs what makes a job urgent. Weights and tiers are parts per
// billion, at most 1.0.
type Priority struct {
	FeeWeight  int64            `json:"w_fee_ppb"`
	AgeWeight  int64            `json:"w_age_ppb"`
	SizeWeight int64            `json:"w_size_ppb"`
	TierWeight int64            `json:"w_tier_ppb"`
	FeeRef     int64            `json:"fee_ref"`        // a higher fee weighs no more than this one
	AgeRef     int64            `json:"age_ref_secs"`   // at this age the weight is earned in full
	SizeRef    int64            `json:"size_ref_bytes"` // at this size half the weight is left
	Tiers      map[string]int64 `json:"tiers"`          // by name; [FreeTier] is always there
}

// FreeTier is the tier of a job that names none.
const FreeTier = "FREE"

// Eligibility is what a provider must fulfil to get any job.
type Eligibility struct {
	MinHealth        int64 `json:"min_health_ppb"`
	HeartbeatTimeout int64 `json:"heartbeat_timeout_secs"`
	MinStakeAI       int64 `json:"min_stake_ai"`
	MinStakeQuantum  int64 `json:"min_stake_quantum"`
}

// minStake is what a provider must have at stake for jobs of a kind.
func (e *Eligibility) minStake(k Kind) int64 {
	if k == AI {
		return e.MinStakeAI
	}
	return e.MinStakeQuantum
}

// Quotas bound what one provider and one requester may hold.
type Quotas struct {
	LeasesMax            int64 `json:"leases_max_per_provider"`
	AIUnitsPerEpoch      int64 `json:"ai_units_per_epoch"`      // of one provider
	QuantumUnitsPerEpoch int64 `json:"quantum_units_per_epoch"` // of one provider
	RequesterMax         int64 `json:"requester_max"`           // leases within the window; 0 is no limit
	RequesterWindow      int64 `json:"requester_window_secs"`   // for whoever counts [Input.Grants]
}

// unitsPerEpoch is how many units of a kind a provider may get in an epoch.
func (q *Quotas) unitsPerEpoch(k Kind) int64 {
	if k == AI {
		return q.AIUnitsPerEpoch
	}
	return q.QuantumUnitsPerEpoch
}

// Starvation protects jobs that pay little: every so many matches the oldest of
// them goes first.
type Starvation struct {
	Every     int64 `json:"every"` // 0 is never
	LowFeeMax int64 `json:"low_fee_max"`
}

// DefaultPolicy is the policy of an input that gives none.
func DefaultPolicy() Policy {
	return Policy{
		BatchSize: 256,
		Priority: Priority{
			FeeWeight: 550_000_000, AgeWeight: 250_000_000, SizeWeight: 100_000_000, TierWeight: 100_000_000,
			FeeRef: 1_000_000, AgeRef: 625_000, SizeRef: 1 << 20,
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

// Cached is the part of a job's score that does not depend on the time. Ordering
// by it, highest first, is ordering by score at any moment.
func (p *Priority) Cached(j *Job) int64 {
	fee := p.FeeWeight * min(j.MaxFee, p.FeeRef) / p.FeeRef
	size := p.SizeWeight * p.SizeRef / (p.SizeRef + j.SizeBytes)
	return fee + size + p.tier(j.Tier) - p.age(j.EnqueuedAt)
}

// Score is how urgent a job is at an instant, in parts per billion. It grows
// with time at the same rate for all jobs.
func (p *Priority) Score(j *Job, now int64) int64 { return p.Cached(j) + p.age(now) }

func (p *Priority) tier(name string) int64 {
	if name == "" {
		name = FreeTier
	}
	return p.TierWeight * p.Tiers[name] / ppb
}

// age is the weight of the time since 1970. Only differences of it mean anything. Rounding before subtracting keeps the order of two jobs fixed.
func (p *Priority) age(t int64) int64 { return p.AgeWeight * t / p.AgeRef }
