package match

import (
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
)

// Reason is a condition that a provider does not meet for a job. The zero value is not a
// reason.
type Reason uint8

const (
	NotActive      Reason = iota + 1 // it has another status
	Unattested                       // its attestation has expired
	Unhealthy                        // its health is below the minimum
	Silent                           // its last heartbeat is too old
	Incapable                        // it does not do jobs of this kind
	Understaked                      // its stake is below the minimum for the kind
	Cooling                          // it gets no job of this kind for now
	Excluded                         // it had the job in this attempt under this seed
	WrongRegion                      // the job must run elsewhere
	Denied                           // it does not serve the requester
	NotAllowed                       // it serves only listed requesters, not this one
	NoModel                          // it lacks the model
	NoPrecision                      // it lacks the precision
	NoGate                           // it lacks a gate
	TooDeep                          // the circuit is deeper than it can run
	TooWide                          // the circuit is wider than it can run
	NoLease                          // it has reached its lease limit
	NoUnits                          // too few units are left in this epoch
	RequesterSpent                   // the requester has reached its limit
	reasonEnd
)

var reasonNames = [...]string{
	"", "not_active", "unattested", "unhealthy", "silent", "incapable", "understaked", "cooling", "excluded",
	"wrong_region", "denied", "not_allowed", "no_model", "no_precision", "no_gate", "too_deep", "too_wide",
	"no_lease", "no_units", "requester_spent",
}

// AllReasons lists every reason, in the order in which they are reported.
func AllReasons() []Reason {
	all := make([]Reason, 0, reasonEnd-1)
	for r := NotActive; r < reasonEnd; r++ {
		all = append(all, r)
	}
	return all
}

func (r Reason) String() string { return nameOf(reasonNames[:], int(r)) }

// MarshalText returns the name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Reasons is a set of reasons; if it is empty, the provider fits.
type Reasons uint32

func (s *Reasons) note(r Reason, refused bool) {
	if refused {
		*s |= 1 << r
	}
}

// Has reports whether r is among the reasons.
func (s Reasons) Has(r Reason) bool { return s&(1<<r) != 0 }

// List returns the reasons in a fixed order.
func (s Reasons) List() (list []Reason) {
	for _, r := range AllReasons() {
		if s.Has(r) {
			list = append(list, r)
		}
	}
	return list
}

// Passing reports whether all reasons pass by themselves, without a change of the provider.
func (s Reasons) Passing() bool {
	return s&^(1<<Cooling|1<<Excluded|1<<NoLease|1<<NoUnits|1<<RequesterSpent) == 0
}

func (s Reasons) String() string { return fmt.Sprintf("%v", s.List()) }

// Verdict has the reasons why a provider cannot get a job.
type Verdict struct {
	Provider string
	Reasons  Reasons // empty if it fits
}

// Explain judges every provider of a valid input for one of its jobs, by the counters at
// the start of the round, in the order of the input. It returns [gq.ErrNotFound] if there
// is no such job.
func Explain(in *Input, job string) ([]Verdict, error) {
	i := slices.IndexFunc(in.Jobs, func(j Job) bool { return j.ID == job })
	if i < 0 {
		return nil, fmt.Errorf("explain job %.64q: %w", job, gq.ErrNotFound)
	}
	verdicts := make([]Verdict, len(in.Providers))
	for n := range in.Providers {
		p := &in.Providers[n]
		verdicts[n] = Verdict{p.ID, snapshotRefusals(in, p) | fitRefusals(in, p, &in.Jobs[i])}
	}
	return verdicts, nil
}

// snapshotRefusals returns why a provider cannot take part in the round at all.
func snapshotRefusals(in *Input, p *Provider) (refused Reasons) {
	e := &in.Policy.Eligibility
	refused.note(NotActive, p.Status != Active)
	refused.note(Unattested, in.Now >= p.AttestationExpiresAt)
	refused.note(Unhealthy, p.Health < e.MinHealth)
	refused.note(Silent, in.Now-p.LastHeartbeatAt > e.HeartbeatTimeout)
	return refused
}

// fitRefusals returns why a provider cannot get one job, by the counters of the input.
func fitRefusals(in *Input, p *Provider, j *Job) (refused Reasons) {
	q := &in.Policy.Quotas
	refused.note(Incapable, !slices.Contains(p.Capabilities, j.Kind))
	refused.note(Understaked, p.Stake < in.Policy.Eligibility.minStake(j.Kind))
	refused.note(Cooling, in.Now < p.CooldownUntil.of(j.Kind))
	refused.note(Excluded, slices.Contains(j.Excluded, p.ID))
	refused.note(WrongRegion, len(j.Regions) > 0 && !slices.Contains(j.Regions, p.Region))
	refused.note(Denied, slices.Contains(p.Deny, j.Requester))
	refused.note(NotAllowed, len(p.Allow) > 0 && !slices.Contains(p.Allow, j.Requester))
	used := p.AIUnitsUsed
	if j.Kind == AI {
		refused.note(NoModel, j.Spec.Model != "" && !slices.Contains(p.Models, j.Spec.Model))
		refused.note(NoPrecision, j.Spec.Precision != "" && !slices.Contains(p.Precisions, j.Spec.Precision))
	} else {
		used = p.QuantumUnitsUsed
		for _, g := range j.Spec.Gates {
			refused.note(NoGate, !slices.Contains(p.Gates, g))
		}
		refused.note(TooDeep, j.Spec.Depth > p.MaxDepth)
		refused.note(TooWide, j.Spec.Width > p.MaxWidth)
	}
	refused.note(NoLease, p.LeasesActive >= q.LeasesMax)
	refused.note(NoUnits, used+j.Units > q.unitsPerEpoch(j.Kind))
	refused.note(RequesterSpent, q.RequesterMax > 0 && in.Grants[j.Requester] >= q.RequesterMax)
	return refused
}
