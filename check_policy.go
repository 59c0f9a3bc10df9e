package gq

import (
	"math"
	"time"
	"unicode/utf8"
)

// Validate reports every number of the policy that cannot be.
func (p Policy) Validate() error {
	var f faults
	p.validate("policy", &f)
	return f.err()
}

func (p *Policy) validate(at string, f *faults) {
	if p.IsPreset() {
		return
	}
	if !p.Preset.Valid() {
		f.add(at+".preset", "must be one of jobmodel, semantics, scheduler, matching-ai, matching-quantum, taskqueue")
	}
	if p.MaxAttempts < 1 || p.MaxAttempts > MaxAttemptsLimit {
		f.add(at+".max_attempts", "%d is not between 1 and %d", p.MaxAttempts, MaxAttemptsLimit)
	}
	if p.MaxLeaseLosses < 0 || p.MaxLeaseLosses > MaxAttemptsLimit {
		f.add(at+".max_lease_losses", "%d is not between 0 (off) and %d", p.MaxLeaseLosses, MaxAttemptsLimit)
	}
	if !p.OnLoss.Valid() {
		f.add(at+".on_loss", "must be one of counts, free, backoff, fails")
	}
	p.Backoff.validate(at+".backoff", f)
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"lease_ttl", p.LeaseTTL}, {"hold", p.Hold}} {
		if d.value <= 0 || d.value > MaxDuration {
			f.add(at+"."+d.field, "%v is not above 0 and at most %v", d.value, MaxDuration)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"execution_timeout", p.ExecutionTimeout},
		{"lifetime", p.Lifetime},
		{"run_lifetime", p.RunLifetime},
		{"idempotency_window", p.IdempotencyWindow},
	} {
		if d.value < 0 || d.value > MaxDuration {
			f.add(at+"."+d.field, "%v is not between 0 (no limit) and %v", d.value, MaxDuration)
		}
	}
	switch p.Extend {
	case ExtendReset:
	case ExtendAdd:
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

// validate reports every field that cannot be. A multiplier that the strategy
// does not use may be left out.
func (b Backoff) validate(at string, f *faults) {
	if !b.Strategy.Valid() {
		f.add(at+".strategy", "must be one of constant, linear, exponential, custom")
	}
	if !b.Jitter.Valid() {
		f.add(at+".jitter", "must be one of none, tenth, full, hash")
	}
	if b.Initial <= 0 || b.Initial > MaxDuration {
		f.add(at+".initial", "%v is not above 0 and at most %v", b.Initial, MaxDuration)
	}
	if b.Max < b.Initial || b.Max <= 0 || b.Max > MaxDuration {
		f.add(at+".max", "%v is not between the initial delay, %v, and %v", b.Max, b.Initial, MaxDuration)
	}
	unused := b.Multiplier == 0 && (b.Strategy == Constant || b.Strategy == Linear)
	if !unused && (!(b.Multiplier >= 1) || math.IsInf(b.Multiplier, 0)) {
		f.add(at+".multiplier", "%v is not a number of at least 1", b.Multiplier)
	}
	switch {
	case b.Strategy != Custom && b.Custom != "":
		f.add(at+".custom", "%.64q is given, but the strategy is %v", b.Custom, b.Strategy)
	case b.Strategy == Custom && (b.Custom == "" || len(b.Custom) > MaxNameBytes || !utf8.ValidString(b.Custom)):
		f.add(at+".custom", "must name a function in 1 to %d bytes of UTF-8", MaxNameBytes)
	}
	if b.Jitter == JitterHash {
		b.validateHash(at, unused, f)
	}
}

// validateHash reports what the integer arithmetic of JitterHash cannot hold.
func (b Backoff) validateHash(at string, unused bool, f *faults) {
	if b.Initial%time.Second != 0 {
		f.add(at+".initial", "%v is not in whole seconds, which jitter %v needs", b.Initial, b.Jitter)
	}
	if b.Max%time.Second != 0 || b.Max > MaxHashedDelay {
		f.add(at+".max", "%v is not in whole seconds up to %v, which jitter %v needs", b.Max, MaxHashedDelay, b.Jitter)
	}
	if unused || !(b.Multiplier >= 1) {
		return // fine, or reported already
	}
	if b.Multiplier > 10 || math.Round(b.Multiplier*ppb)/ppb != b.Multiplier {
		f.add(at+".multiplier", "%v is not between 1 and 10 with at most nine decimals, which jitter %v needs", b.Multiplier, b.Jitter)
	}
}

func (r Rate) validate(field string, f *faults) {
	if !r.Limited() {
		return
	}
	before := len(*f)
	if r.Per <= 0 || r.Per > MaxDuration {
		f.add(field+".per", "%v is not above 0 and at most %v", r.Per, MaxDuration)
	}
	if r.Count < 1 || r.Count > MaxRateCount {
		f.add(field+".count", "%d is not between 1 and %d", r.Count, MaxRateCount)
	} else if r.Per > 0 && time.Duration(r.Count) > r.Per {
		f.add(field+".count", "%d in %v are more than one a nanosecond", r.Count, r.Per)
	}
	if r.Burst < 0 || r.Burst > MaxRateBurst {
		f.add(field+".burst", "%d is not between 0 and %d", r.Burst, MaxRateBurst)
	}
	if len(*f) == before && time.Duration(r.burst()) > MaxDuration/r.interval() {
		f.add(field+".burst", "%d at once would use up more than %v", r.Burst, MaxDuration)
	}
}
