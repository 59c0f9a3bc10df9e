package machine

import (
	"math"
	"time"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// CheckPolicy reports all faults of a policy.
func CheckPolicy(p gq.Policy) error {
	var f faults
	checkPolicy(&p, "policy", &f)
	return f.err()
}

// checkWholePolicy is checkPolicy with one fault, the remedy, for a policy that has only some fields.
func checkWholePolicy(p *gq.Policy, at string, f *faults) {
	if !p.IsPreset() && (p.MaxAttempts == 0 && p.LeaseTTL == 0 || p.Preset == 0 && (p.MaxAttempts == 0 || p.LeaseTTL == 0 || p.Backoff.Strategy == 0)) {
		f.add(at, "is incomplete; begin with a whole policy and change its fields, such as p := gq.PresetResilient.Policy(); p.MaxAttempts = 5")
		return
	}
	checkPolicy(p, at, f)
}

func checkPolicy(p *gq.Policy, at string, f *faults) {
	if p.IsPreset() {
		return
	}
	if !p.Preset.Valid() {
		f.add(at+".preset", "must be one of jobmodel, semantics, scheduler, matching-ai, matching-quantum, taskqueue, resilient")
	}
	if p.MaxAttempts < 1 || p.MaxAttempts > gq.MaxAttemptsLimit {
		f.add(at+".max_attempts", "%d is not between 1 and %d", p.MaxAttempts, gq.MaxAttemptsLimit)
	}
	if p.MaxLeaseLosses < 0 || p.MaxLeaseLosses > gq.MaxAttemptsLimit {
		f.add(at+".max_lease_losses", "%d is not between 0 (off) and %d", p.MaxLeaseLosses, gq.MaxAttemptsLimit)
	}
	if !p.OnLoss.Valid() {
		f.add(at+".on_loss", "must be one of counts, free, backoff, fails")
	}
	checkBackoff(p.Backoff, at+".backoff", f)
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"lease_ttl", p.LeaseTTL}, {"hold", p.Hold}} {
		if d.value <= 0 || d.value > gq.MaxDuration {
			f.add(at+"."+d.field, "%v is not above 0 and at most %v", d.value, gq.MaxDuration)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"execution_timeout", p.ExecutionTimeout},
		{"lifetime", p.Lifetime},
		{"run_lifetime", p.RunLifetime},
		{"start_within", p.StartWithin},
		{"idempotency_window", p.IdempotencyWindow},
	} {
		switch {
		case d.value < 0 && d.field == "start_within":
			f.add(at+"."+d.field, "the start deadline was %v ago; choose a later one, or 0 for none", -d.value)
		case d.value < 0 || d.value > gq.MaxDuration:
			f.add(at+"."+d.field, "%v is not between 0 (no limit) and %v", d.value, gq.MaxDuration)
		}
	}
	if p.Aging < 0 || p.Aging > gq.MaxDuration {
		f.add(at+".aging", "%v is not between 0 (never) and %v", p.Aging, gq.MaxDuration)
	}
	if p.Retention < 0 || p.Retention > gq.MaxDuration {
		f.add(at+".retention", "%v is not between 0 (the store's setting) and %v", p.Retention, gq.MaxDuration)
	}
	switch p.Extend {
	case gq.ExtendReset:
	case gq.ExtendAdd:
		if p.ExtendPPB <= 0 || p.ExtendPPB > ppb {
			f.add(at+".extend_ppb", "%d is not above 0 and at most %d (the whole TTL)", p.ExtendPPB, ppb)
		}
		if p.RenewByPPB <= 0 || p.RenewByPPB > ppb {
			f.add(at+".renew_by_ppb", "%d is not above 0 and at most %d (the whole TTL)", p.RenewByPPB, ppb)
		}
		if p.RenewalsMax < 0 {
			f.add(at+".renewals_max", "%d is negative", p.RenewalsMax)
		}
	default:
		f.add(at+".extend", "must be one of reset, extend")
	}
}

// checkBackoff reports all faults of a backoff. The multiplier is optional if the strategy does
// not use it.
func checkBackoff(b gq.Backoff, at string, f *faults) {
	if !b.Strategy.Valid() {
		f.add(at+".strategy", "must be one of constant, linear, exponential, custom")
	}
	if !b.Jitter.Valid() {
		f.add(at+".jitter", "must be one of none, tenth, full, hash")
	}
	if b.Initial <= 0 || b.Initial > gq.MaxDuration {
		f.add(at+".initial", "%v is not above 0 and at most %v", b.Initial, gq.MaxDuration)
	}
	if b.Max < b.Initial || b.Max <= 0 || b.Max > gq.MaxDuration {
		f.add(at+".max", "%v is not between the initial delay, %v, and %v", b.Max, b.Initial, gq.MaxDuration)
	}
	unused := b.Multiplier == 0 && (b.Strategy == gq.StrategyConstant || b.Strategy == gq.StrategyLinear)
	if !unused && (!(b.Multiplier >= 1) || math.IsInf(b.Multiplier, 0)) {
		f.add(at+".multiplier", "%v is not a number of at least 1", b.Multiplier)
	}
	switch {
	case b.Strategy != gq.StrategyCustom && b.Custom != "":
		f.add(at+".custom", "%.64q is given, but the strategy is %v", b.Custom, b.Strategy)
	case b.Strategy == gq.StrategyCustom && (b.Custom == "" || len(b.Custom) > gq.MaxNameBytes || !utf8.ValidString(b.Custom)):
		f.add(at+".custom", "must name a function in 1 to %d bytes of UTF-8", gq.MaxNameBytes)
	}
	if b.Jitter == gq.JitterHash {
		checkHashBackoff(b, at, unused, f)
	}
}

// checkHashBackoff reports values that exceed the integer arithmetic of JitterHash.
func checkHashBackoff(b gq.Backoff, at string, unused bool, f *faults) {
	if b.Initial%time.Second != 0 {
		f.add(at+".initial", "%v is not in whole seconds, which jitter %v needs", b.Initial, b.Jitter)
	}
	if b.Max%time.Second != 0 || b.Max > gq.MaxHashedDelay {
		f.add(at+".max", "%v is not in whole seconds up to %v, which jitter %v needs", b.Max, gq.MaxHashedDelay, b.Jitter)
	}
	if unused || !(b.Multiplier >= 1) {
		return // valid, or already reported
	}
	if b.Multiplier > 10 || math.Round(b.Multiplier*ppb)/ppb != b.Multiplier {
		f.add(at+".multiplier", "%v is not between 1 and 10 with at most nine decimals, which jitter %v needs", b.Multiplier, b.Jitter)
	}
}

func checkRate(r gq.Rate, field string, f *faults) {
	if !r.Limited() {
		return
	}
	before := len(*f)
	if r.Per <= 0 || r.Per > gq.MaxDuration {
		f.add(field+".per", "%v is not above 0 and at most %v", r.Per, gq.MaxDuration)
	}
	if r.Count < 1 || r.Count > gq.MaxRateCount {
		f.add(field+".count", "%d is not between 1 and %d", r.Count, gq.MaxRateCount)
	} else if r.Per > 0 && time.Duration(r.Count) > r.Per {
		f.add(field+".count", "%d in %v are more than one a nanosecond", r.Count, r.Per)
	}
	if r.Burst < 0 || r.Burst > gq.MaxRateBurst {
		f.add(field+".burst", "%d is not between 0 and %d", r.Burst, gq.MaxRateBurst)
	}
	if len(*f) == before && time.Duration(burst(r)) > gq.MaxDuration/interval(r) {
		f.add(field+".burst", "%d at once would use up more than %v", r.Burst, gq.MaxDuration)
	}
}
