package match

import "github.com/gopherqueue/gq"

// Outcome is how a lease ended for its provider. The zero value is not an outcome.
type Outcome uint8

const (
	Done         Outcome = iota + 1 // the job was completed
	AckTimeout                      // not acknowledged in time
	LeaseExpired                    // not completed in time
	ProofInvalid                    // completed with an invalid proof
	ProviderFail                    // the provider gave up
	Declined                        // the provider did not accept the job
	Withdrawn                       // taken away without fault
)

var outcomeNames = [...]string{"", "COMPLETED", "ACK_TIMEOUT", "LEASE_EXPIRED", "PROOF_INVALID", "PROVIDER_FAIL", "DECLINED", "CANCELLED"}

func (o Outcome) String() string { return nameOf(outcomeNames[:], int(o)) }

// Fault reports whether the outcome is one of the four that count as an attempt.
func (o Outcome) Fault() bool { return o >= AckTimeout && o <= ProviderFail }

// LeaseState returns the state of a lease with this outcome.
func (o Outcome) LeaseState() gq.LeaseState {
	switch o {
	case Done:
		return gq.LeaseCompleted
	case LeaseExpired:
		return gq.LeaseExpired
	default:
		return gq.LeaseCancelled
	}
}

// Codes of failures and reasons of withdrawals, as in the history of a job.
const (
	CodeAckTimeout   = "ack_timeout"
	CodeLeaseExpired = "lease_expired"
	CodeProofInvalid = "proof_invalid"
	CodeProviderFail = "provider_fail"

	ReasonDeclined     = "declined"
	ReasonQuotaReduced = "quota_reduced"
)

// FaultOf returns the outcome for a failure code, 0 for other codes.
func FaultOf(code string) Outcome {
	switch code {
	case CodeAckTimeout:
		return AckTimeout
	case CodeLeaseExpired:
		return LeaseExpired
	case CodeProofInvalid:
		return ProofInvalid
	case CodeProviderFail:
		return ProviderFail
	default:
		return 0
	}
}

// FaultName returns the name of the fault for a failure code, or else the code.
func FaultName(code string) string {
	if o := FaultOf(code); o != 0 {
		return o.String()
	}
	return code
}

// OutcomeOf returns the outcome of the lease that an event ended, 0 if it ended none.
func OutcomeOf(e *gq.Event) Outcome {
	if e.Lease == "" || e.LeaseState == gq.LeaseActive || e.LeaseState == 0 {
		return 0
	}
	if e.Failure != nil {
		if o := FaultOf(e.Failure.Code); o != 0 {
			return o
		}
	}
	switch {
	case e.Type == gq.EventCompleted:
		return Done
	case e.Reason == ReasonDeclined:
		return Declined
	default:
		return Withdrawn
	}
}

// Standing is the record of a provider: health, pauses, and the units it got in an epoch.
// Only outcomes and assignments change it.
type Standing struct {
	Health        int64     `json:"health_ppb"`     // at HealthAt
	HealthAt      int64     `json:"health_at"`      // Unix seconds
	Fails         int64     `json:"fails,omitzero"` // consecutive failures
	CooldownUntil Cooldowns `json:"cooldown_until,omitzero"`
	Epoch         int64     `json:"epoch_id"`
	AIUnits       int64     `json:"ai_units_used,omitzero"`      // in Epoch
	QuantumUnits  int64     `json:"quantum_units_used,omitzero"` // in Epoch
	Findings      int64     `json:"findings,omitzero"`           // invalid proofs
	Slashed       int64     `json:"slashed,omitzero"`            // stake lost so far
}

// NewStanding returns the standing of a new provider.
func NewStanding(now int64) Standing { return Standing{Health: ppb, HealthAt: now} }

// HealthNow returns the health at a given time: it recovers over time.
func (s *Standing) HealthNow(h *Health, now int64) int64 {
	passed := max(0, now-s.HealthAt)
	if h.Recover > 0 && passed >= (ppb-s.Health)/h.Recover+1 {
		return ppb
	}
	return min(ppb, s.Health+h.Recover*passed)
}

// Note records how a lease of a kind ended at a given time.
func (s *Standing) Note(o Outcome, k Kind, now int64, set *Settings) {
	decay := func(by int64) {
		s.Health, s.HealthAt = max(0, s.HealthNow(&set.Health, now)-by), now
	}
	c := &set.Cooldown
	switch o {
	case Done:
		s.Fails = 0
	case AckTimeout:
		decay(set.Health.DecayAckTimeout)
	case LeaseExpired:
		decay(set.Health.DecayLeaseExpired)
		s.pause(c.LeaseExpired, now, AI, Quantum)
	case ProofInvalid:
		s.Findings++
	case Declined:
		s.pause(c.Decline, now, k)
	default: // no penalty, or none beyond a failure
	}
	if !o.Fault() {
		return
	}
	if s.Fails++; c.FailsInARow > 0 && s.Fails >= c.FailsInARow {
		s.Fails = 0
		s.pause(c.Fails, now, AI, Quantum)
	}
}

// pause blocks jobs of some kinds for at least secs.
func (s *Standing) pause(secs, now int64, kinds ...Kind) {
	if secs == 0 {
		return
	}
	until := min(now+secs, MaxTime)
	for _, k := range kinds {
		if k == AI {
			s.CooldownUntil.AI = max(s.CooldownUntil.AI, until)
		} else {
			s.CooldownUntil.Quantum = max(s.CooldownUntil.Quantum, until)
		}
	}
}

// Units returns how many units of a kind the provider got in an epoch.
func (s *Standing) Units(k Kind, epoch int64) int64 {
	switch {
	case epoch != s.Epoch:
		return 0
	case k == AI:
		return s.AIUnits
	default:
		return s.QuantumUnits
	}
}

// Spend adds the units of an assignment in an epoch; negative units give them back.
func (s *Standing) Spend(k Kind, epoch, units int64) {
	if epoch != s.Epoch {
		s.Epoch, s.AIUnits, s.QuantumUnits = epoch, 0, 0
	}
	if k == AI {
		s.AIUnits = max(0, s.AIUnits+units)
	} else {
		s.QuantumUnits = max(0, s.QuantumUnits+units)
	}
}

// Enter copies the standing into the provider of a round's input.
func (s *Standing) Enter(p *Provider, h *Health, epoch, now int64) {
	p.Health = s.HealthNow(h, now)
	p.CooldownUntil = s.CooldownUntil
	p.AIUnitsUsed, p.QuantumUnitsUsed = s.Units(AI, epoch), s.Units(Quantum, epoch)
}

// UnitsMax returns the most units of a kind that a provider gets in an epoch.
func (q *Quotas) UnitsMax(k Kind) int64 { return q.unitsPerEpoch(k) }

// Serves reports whether a provider could ever get a job under a policy. It ignores
// temporary conditions, such as full quotas and pauses.
func (p *Policy) Serves(q *Provider, j *Job) bool {
	in := Input{Policy: *p}
	return fitRefusals(&in, q, j).Passing() && j.Units <= p.Quotas.unitsPerEpoch(j.Kind) && p.Quotas.LeasesMax > 0
}

// Eligible reports whether a provider is in the snapshot of a round at a given time.
func (p *Policy) Eligible(q *Provider, now int64) bool {
	in := Input{Policy: *p, Now: now}
	return snapshotRefusals(&in, q) == 0
}

// PartOf returns a share of an amount, in parts per billion, rounded down.
func PartOf(amount, share int64) int64 {
	return amount/ppb*share + amount%ppb*share/ppb
}
