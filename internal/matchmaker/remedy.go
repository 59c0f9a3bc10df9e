package matchmaker

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// candidate is the provider that is closest to getting a job.
type candidate struct {
	*match.Provider
	reasons match.Reasons
}

// nearest returns the provider of an input whose refusals are the easiest to end: they pass by
// themselves, or else its operator can end them, or else they are the fewest.
func nearest(in *match.Input, verdicts []match.Verdict) candidate {
	best, bestRank := 0, 0
	for i, v := range verdicts {
		rank := bits.OnesCount32(uint32(v.Reasons))
		if !v.Reasons.Passing() {
			rank += 100
		}
		if own := v.Reasons &^ outside; !own.Passing() || in.Providers[i].Status == match.Retired {
			rank += 100
		}
		if i == 0 || rank < bestRank {
			best, bestRank = i, rank
		}
	}
	return candidate{&in.Providers[best], verdicts[best].Reasons}
}

// outside are the reasons that keep a provider out of the snapshot.
const outside = match.Reasons(1<<match.NotActive | 1<<match.Unattested | 1<<match.Unhealthy | 1<<match.Silent)

// remedy says what ends the refusals of a provider, and when they end by themselves; zero if
// that is unknown.
func (d *Dispatcher) remedy(in *match.Input, p candidate) (text string, until time.Time) {
	j, own := &in.Jobs[0], p.reasons&^outside
	if !own.Passing() || p.Status == match.Retired || !in.Policy.Serves(p.Provider, j) {
		return d.missing(in, p), time.Time{}
	}
	var parts []string
	known := true
	for _, r := range p.reasons.List() {
		part, at := d.wait(in, p, r)
		parts = append(parts, part)
		known = known && at > 0
		if end := time.Unix(at, 0).UTC(); known && end.After(until) {
			until = end
		}
	}
	if !known {
		until = time.Time{}
	}
	return strings.Join(parts, "; "), until
}

// wait says what ends one refusal of a provider that can serve the job, and when; 0 if it does
// not end by itself or that is unknown.
func (d *Dispatcher) wait(in *match.Input, p candidate, r match.Reason) (text string, until int64) {
	j, q := &in.Jobs[0], &in.Policy.Quotas
	switch r {
	case match.Excluded:
		return d.nextSeed(in.Now)
	case match.Cooling:
		until = p.CooldownUntil.AI
		if j.Kind == match.Quantum {
			until = p.CooldownUntil.Quantum
		}
		return fmt.Sprintf("wait: the pause of provider %s ends at %s", p.ID, clockText(until)), until
	case match.NoLease:
		return fmt.Sprintf("wait until a lease of provider %s ends, or raise quotas.leases_max_per_provider, which is %d", p.ID, q.LeasesMax), 0
	case match.NoUnits:
		key := fmt.Sprintf("quotas.%s_units_per_epoch, which is %d", strings.ToLower(j.Kind.String()), q.UnitsMax(j.Kind))
		if d.beacon != nil {
			return "post a beacon of the next epoch (POST /api/matching/beacon), or raise " + key, 0
		}
		until, _ = d.settings.Clock.Next(in.Now)
		return fmt.Sprintf("wait: the next epoch begins at %s; or raise %s", clockText(until), key), until
	case match.RequesterSpent:
		return fmt.Sprintf("wait: requester %q has had quotas.requester_max leases, %d, within %d s", j.Requester, q.RequesterMax, q.RequesterWindow), 0
	case match.Silent:
		return fmt.Sprintf("let provider %s send heartbeats: gq provide, or POST /api/matching/providers/ID/heartbeat", p.ID), 0
	case match.NotActive:
		return fmt.Sprintf("activate the provider: gq provider status %s ACTIVE", p.ID), 0
	case match.Unattested:
		return fmt.Sprintf("register provider %s again with a later attestation_expires_at", p.ID), 0
	case match.Unhealthy:
		least, rate := in.Policy.Eligibility.MinHealth, d.settings.Health.Recover
		if rate <= 0 {
			return fmt.Sprintf("register provider %s again with health_ppb", p.ID), 0
		}
		until = in.Now + (least-p.Health+rate-1)/rate
		return fmt.Sprintf("wait: the health of provider %s recovers by %s", p.ID, clockText(until)), until
	default: // what no wait ends; see missing
		return "register a provider that fits", 0
	}
}

// nextSeed says what changes the seed of rounds, and when the clock does; 0 after a beacon was
// posted.
func (d *Dispatcher) nextSeed(now int64) (text string, until int64) {
	if b := d.beacon; b != nil {
		return fmt.Sprintf("post the next beacon (POST /api/matching/beacon): that of %s gives this seed", placeOf(&b.Beacon)), 0
	}
	epoch, height := d.settings.Clock.Next(now)
	until = min(epoch, height)
	return "wait: the next height begins at " + clockText(until) + " and gives another seed", until
}

// StalledBeacon begins the explanation of a job that waits for another beacon while the posted
// one has stood for long.
const StalledBeacon = "the beacon stands still: "

// stalledHeights is for how many heights of the clock a posted beacon may stand.
const stalledHeights = 10

// stalled returns a reason if the posted beacon has stood for too long.
func (d *Dispatcher) stalled(now int64) []gq.Reason {
	heights := (now - d.beacon.At) / d.settings.Clock.Height
	if heights < stalledHeights {
		return nil
	}
	return []gq.Reason{{
		Cause:   gq.CauseConstraint,
		Summary: fmt.Sprintf("%sthat of %s was posted %d heights of %d s ago", StalledBeacon, placeOf(&d.beacon.Beacon), heights, d.settings.Clock.Height),
		Remedy:  "post the next beacon: POST /api/matching/beacon",
	}}
}

func placeOf(b *match.Beacon) string {
	return fmt.Sprintf("chain %s, epoch %d, height %d", b.Chain, b.Epoch, b.Height)
}

func clockText(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) }

// missing says what a provider would have to offer that gets the job.
func (d *Dispatcher) missing(in *match.Input, p candidate) string {
	j, has := &in.Jobs[0], p.reasons.Has
	var wants []string
	want := func(refused bool, format string, args ...any) {
		if refused {
			wants = append(wants, fmt.Sprintf(format, args...))
		}
	}
	want(has(match.Incapable), "the capability %s", j.Kind)
	if has(match.Understaked) {
		least := in.Policy.Eligibility.MinStakeAI
		if j.Kind == match.Quantum {
			least = in.Policy.Eligibility.MinStakeQuantum
		}
		want(true, "a stake of %d", least)
	}
	want(has(match.WrongRegion), "a region of %s", strings.Join(j.Regions, ", "))
	want(has(match.Denied) || has(match.NotAllowed), "requester %q allowed", j.Requester)
	want(has(match.NoModel), "model %s", j.Spec.Model)
	want(has(match.NoPrecision), "precision %s", j.Spec.Precision)
	lacking := slices.DeleteFunc(slices.Clone(j.Spec.Gates), func(g string) bool { return slices.Contains(p.Gates, g) })
	want(has(match.NoGate), "gates %s", strings.Join(lacking, ", "))
	want(has(match.TooDeep), "max_depth %d", j.Spec.Depth)
	want(has(match.TooWide), "max_width %d", j.Spec.Width)
	if most := in.Policy.Quotas.UnitsMax(j.Kind); j.Units > most {
		return fmt.Sprintf("raise quotas.%s_units_per_epoch, which is %d: the job counts %d", strings.ToLower(j.Kind.String()), most, j.Units)
	}
	if in.Policy.Quotas.LeasesMax == 0 {
		return "raise quotas.leases_max_per_provider, which is 0"
	}
	if len(wants) == 0 {
		return "register a provider that fits"
	}
	return fmt.Sprintf("register a provider that fits: %s lacks %s", p.ID, strings.Join(wants, ", "))
}
