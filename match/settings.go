package match

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// Settings are all parameters of a matching queue, including the [Policy] of its rounds.
// [DefaultSettings] sets all of them; the zero value is not valid.
type Settings struct {
	Policy
	DispatchInterval int64    `json:"dispatch_interval_ms"` // between rounds while jobs wait
	AckTimeout       int64    `json:"ack_timeout_ms"`       // deadline for acknowledging a lease
	DepthMax         int64    `json:"depth_max"`            // most live jobs; further ones are rejected
	Lease            Terms    `json:"lease"`
	Retries          Retries  `json:"retries"`
	TTL              TTL      `json:"ttl"`
	Health           Health   `json:"health"`
	Cooldown         Cooldown `json:"cooldown"`
	SLA              SLA      `json:"sla"`
	Clock            Clock    `json:"seed"`
}

// Terms are the parameters of a lease.
type Terms struct {
	AI          int64 `json:"ai_secs"`
	Quantum     int64 `json:"quantum_secs"`
	RenewAlpha  Share `json:"renew_alpha"` // part of its length after which it should be renewed
	RenewBeta   Share `json:"renew_beta"`  // part of its length that a renewal adds
	RenewalsMax int64 `json:"renewals_max"`
}

// Retries limit the attempts of a job and the delays between them.
type Retries struct {
	AttemptMax  int64 `json:"attempt_max"`
	BaseAI      int64 `json:"base_backoff_ai_secs"`
	BaseQuantum int64 `json:"base_backoff_quantum_secs"`
	Factor      Share `json:"backoff_factor"`
	Cap         int64 `json:"backoff_cap_secs"`
}

// TTL limits how long a job lives, and how long it is kept afterwards.
type TTL struct {
	AI        int64 `json:"abs_default_ai_secs"`      // from its submission; default
	Quantum   int64 `json:"abs_default_quantum_secs"` // from its submission; default
	RelMax    int64 `json:"rel_max_secs"`             // from its first start
	GCHorizon int64 `json:"gc_horizon_secs"`          // after its end
}

// Health configures how the health of a provider changes.
type Health struct {
	DecayAckTimeout   int64 `json:"decay_ack_timeout_ppb"`
	DecayLeaseExpired int64 `json:"decay_lease_expired_ppb"`
	Recover           int64 `json:"recover_ppb_per_sec"`
}

// Cooldown is how long a provider gets no jobs after an event. 0 is off.
type Cooldown struct {
	Decline      int64 `json:"decline_secs"`       // no job of the kind it declined
	LeaseExpired int64 `json:"lease_expired_secs"` // no job at all
	FailsInARow  int64 `json:"fails_in_a_row"`     // this many consecutive failures
	Fails        int64 `json:"fails_secs"`         // cause this long without any job
}

// SLA is the penalty for an invalid proof, unless a custom rule decides. 0 is off.
type SLA struct {
	Slash     int64 `json:"slash_ppb"`  // of the stake
	JailAfter int64 `json:"jail_after"` // this many invalid proofs
}

// Clock derives epochs and heights from the time while there is no beacon.
type Clock struct {
	Chain  string `json:"chain_id"`
	Epoch  int64  `json:"epoch_secs"`
	Height int64  `json:"height_secs"`
}

// At returns the epoch and the height at a time.
func (c Clock) At(now int64) (epoch, height int64) { return now / c.Epoch, now / c.Height }

// Next returns when the next epoch and the next height begin.
func (c Clock) Next(now int64) (epoch, height int64) {
	return (now/c.Epoch + 1) * c.Epoch, (now/c.Height + 1) * c.Height
}

// Share is in parts per billion, encoded as a decimal: 0.6 is 600 000 000.
type Share int64

// MarshalJSON encodes the decimal.
func (s Share) MarshalJSON() ([]byte, error) {
	text := fmt.Sprintf("%d.%09d", s/ppb, s%ppb)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON decodes a decimal.
func (s *Share) UnmarshalJSON(text []byte) error {
	read, ok := parseShare(string(text))
	if !ok {
		return fmt.Errorf("%.64s is not a decimal with at most nine places: %w", text, gq.ErrInvalid)
	}
	*s = read
	return nil
}

// parseShare parses a decimal with at most nine places.
func parseShare(literal string) (Share, bool) {
	whole, fraction, _ := strings.Cut(literal, ".")
	if len(fraction) > 9 || len(whole) > 9 {
		return 0, false
	}
	high, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || high < 0 || whole[0] == '-' || whole[0] == '+' {
		return 0, false
	}
	low, err := strconv.ParseUint(fraction+strings.Repeat("0", 9-len(fraction)), 10, 64)
	return Share(high*ppb + int64(low)), err == nil
}

// DefaultSettings returns the default settings of a queue.
func DefaultSettings() Settings {
	ai, quantum := gq.PresetAI.Policy(), gq.PresetQuantum.Policy()
	secs := func(d time.Duration) int64 { return int64(d / time.Second) }
	return Settings{
		Policy:           DefaultPolicy(),
		DispatchInterval: 250,
		AckTimeout:       ai.Hold.Milliseconds(),
		DepthMax:         100_000,
		Lease: Terms{
			AI: secs(ai.LeaseTTL), Quantum: secs(quantum.LeaseTTL),
			RenewAlpha: Share(ai.RenewByPPB), RenewBeta: Share(ai.ExtendPPB), RenewalsMax: int64(ai.RenewalsMax),
		},
		Retries: Retries{
			AttemptMax: int64(ai.MaxAttempts), BaseAI: secs(ai.Backoff.Initial), BaseQuantum: secs(quantum.Backoff.Initial),
			Factor: Share(ai.Backoff.Multiplier * ppb), Cap: secs(ai.Backoff.Max),
		},
		TTL:      TTL{AI: secs(ai.Lifetime), Quantum: secs(quantum.Lifetime), RelMax: secs(ai.RunLifetime), GCHorizon: secs(7 * 24 * time.Hour)},
		Health:   Health{DecayAckTimeout: 20_000_000, DecayLeaseExpired: 100_000_000, Recover: 100_000},
		Cooldown: Cooldown{Decline: 5, FailsInARow: 3, Fails: 60},
		Clock:    Clock{Chain: "gq", Epoch: 3600, Height: 10},
	}
}

// Clone copies the settings with their tiers.
func (s Settings) Clone() Settings {
	s.Priority.Tiers = maps.Clone(s.Priority.Tiers)
	return s
}

// LeaseSecs returns the length of a lease of a kind.
func (s *Settings) LeaseSecs(k Kind) int64 {
	if k == AI {
		return s.Lease.AI
	}
	return s.Lease.Quantum
}

// JobPolicy returns the policy of a job of a kind that is submitted now, with a lifetime
// in seconds; 0 is the default.
func (s *Settings) JobPolicy(k Kind, ttl int64) gq.Policy {
	p := gq.PresetAI.Policy()
	base, life := s.Retries.BaseAI, s.TTL.AI
	if k == Quantum {
		p = gq.PresetQuantum.Policy()
		base, life = s.Retries.BaseQuantum, s.TTL.Quantum
	}
	if ttl > 0 {
		life = ttl
	}
	secs := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	p.MaxAttempts = int(s.Retries.AttemptMax)
	p.Backoff.Initial, p.Backoff.Max, p.Backoff.Multiplier = secs(base), secs(s.Retries.Cap), float64(s.Retries.Factor)/ppb
	p.LeaseTTL, p.Hold = secs(s.LeaseSecs(k)), time.Duration(s.AckTimeout)*time.Millisecond
	p.RenewByPPB, p.ExtendPPB, p.RenewalsMax = int(s.Lease.RenewAlpha), int(s.Lease.RenewBeta), int(s.Lease.RenewalsMax)
	p.Lifetime, p.RunLifetime = secs(life), secs(s.TTL.RelMax)
	p.IdempotencyWindow = min(p.IdempotencyWindow, secs(s.TTL.GCHorizon))
	return p
}

const longest = int64(gq.MaxDuration / time.Second)

// Limits of the policy of a server: what fits into one commit, and into the document of one
// provider. Rounds of [Match] alone have no such limits.
const (
	MaxBatch  = 512  // jobs of a round
	MaxLeases = 4096 // that a provider holds at once
)

// Bound reduces what exceeds the limits, as in settings that an earlier version stored, to what
// rounds use.
func (s *Settings) Bound() {
	s.BatchSize = min(s.BatchSize, MaxBatch)
	s.Quotas.LeasesMax = min(s.Quotas.LeasesMax, MaxLeases)
}

// Validate reports all faults of the settings as a [gq.InvalidError].
func (s *Settings) Validate() error {
	var c checker
	c.settings(s)
	return c.err()
}

func (c *checker) settings(s *Settings) {
	c.policy(&s.Policy, MaxBatch, MaxLeases)
	c.within("dispatch_interval_ms", s.DispatchInterval, 1, 1000*longest)
	c.within("ack_timeout_ms", s.AckTimeout, 1, 1000*longest)
	if least := min(s.Lease.AI, s.Lease.Quantum); least > 0 && least <= longest && s.AckTimeout >= 1000*least {
		c.fault("ack_timeout_ms", "is not shorter than a lease of %d s", least)
	}
	c.within("depth_max", s.DepthMax, 1, MaxInteger)
	c.enter("lease")
	c.within("ai_secs", s.Lease.AI, 1, longest)
	c.within("quantum_secs", s.Lease.Quantum, 1, longest)
	c.decimal("renew_alpha", s.Lease.RenewAlpha, 1, ppb)
	c.decimal("renew_beta", s.Lease.RenewBeta, 1, ppb)
	c.within("renewals_max", s.Lease.RenewalsMax, 0, gq.MaxAttemptsLimit)
	c.leave()
	c.enter("retries")
	c.within("attempt_max", s.Retries.AttemptMax, 1, gq.MaxAttemptsLimit)
	c.within("backoff_cap_secs", s.Retries.Cap, 1, 1_000_000)
	most := max(1, min(s.Retries.Cap, 1_000_000))
	c.within("base_backoff_ai_secs", s.Retries.BaseAI, 1, most)
	c.within("base_backoff_quantum_secs", s.Retries.BaseQuantum, 1, most)
	c.decimal("backoff_factor", s.Retries.Factor, ppb, 10*ppb)
	c.leave()
	c.enter("ttl")
	c.within("abs_default_ai_secs", s.TTL.AI, 1, longest)
	c.within("abs_default_quantum_secs", s.TTL.Quantum, 1, longest)
	c.within("rel_max_secs", s.TTL.RelMax, 1, longest)
	c.within("gc_horizon_secs", s.TTL.GCHorizon, 1, longest)
	c.leave()
	c.enter("health")
	c.share("decay_ack_timeout_ppb", s.Health.DecayAckTimeout)
	c.share("decay_lease_expired_ppb", s.Health.DecayLeaseExpired)
	c.share("recover_ppb_per_sec", s.Health.Recover)
	c.leave()
	c.enter("cooldown")
	c.within("decline_secs", s.Cooldown.Decline, 0, longest)
	c.within("lease_expired_secs", s.Cooldown.LeaseExpired, 0, longest)
	c.integer("fails_in_a_row", s.Cooldown.FailsInARow)
	c.within("fails_secs", s.Cooldown.Fails, 0, longest)
	c.leave()
	c.enter("sla")
	c.share("slash_ppb", s.SLA.Slash)
	c.integer("jail_after", s.SLA.JailAfter)
	c.leave()
	c.enter("seed")
	c.id("chain_id", s.Clock.Chain)
	c.within("epoch_secs", s.Clock.Epoch, 1, MaxTime)
	c.within("height_secs", s.Clock.Height, 1, MaxTime)
	c.leave()
}

// decimal checks a share against its range.
func (c *checker) decimal(name string, v Share, least, most Share) {
	if v < least || v > most {
		low, _ := least.MarshalJSON()
		high, _ := most.MarshalJSON()
		c.fault(name, "is not between %s and %s", low, high)
	}
}
