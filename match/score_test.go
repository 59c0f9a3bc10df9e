package match_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

func TestScoreVectors(t *testing.T) {
	spec.Covers(t, "M-10", "M-18")
	p := match.DefaultPolicy().Priority
	const now = 1700000000
	for _, test := range []struct {
		job                    match.Job
		size                   int64
		cachedAI, scoreAI      int64
		cachedQuantum, quantum int64
	}{
		{match.Job{MaxFee: 500_000, EnqueuedAt: 1699999900, SizeBytes: 1000, Tier: "PRO"}, 99904723, -4918576287406, 405194075, -59027369400832, 408376945},
		{match.Job{MaxFee: 2_000_000, EnqueuedAt: 1699913600, SizeBytes: 1048576, Tier: "PREMIUM"}, 50000000, -4918071481481, 910000000, -59024117777777, 3660000000},
		{match.Job{MaxFee: 123_457, EnqueuedAt: 1699992799, SizeBytes: 777777, Tier: "FREE"}, 57413654, -4918835330250, 146151231, -59027402428051, 375349726},
		{match.Job{MaxFee: 1, EnqueuedAt: 1700000005, SizeBytes: 3, Tier: "PRO"}, 99999713, -4918851495686, 129985795, -59027647951125, 129826652},
		{match.Job{MaxFee: 1_000_000, EnqueuedAt: 1699375000, Tier: "PREMIUM"}, 100000000, -4916463032407, 2518449074, -59005366388888, 22411388889},
		{match.Job{EnqueuedAt: 1699992800, Tier: "FREE"}, 100000000, -4918860648148, 120833333, -59027427777777, 350000000},
	} {
		for _, k := range match.Kinds() {
			j, wantCached, wantScore := test.job, test.cachedAI, test.scoreAI
			if j.Kind = k; k == match.Quantum {
				wantCached, wantScore = test.cachedQuantum, test.quantum
			}
			cached, score := p.Cached(&j), p.Score(&j, now)
			if cached != wantCached || score != wantScore {
				t.Errorf("%+v: cached %d, score %d; want %d and %d", j, cached, score, wantCached, wantScore)
			}
			alone := match.Priority{SizeWeight: p.SizeWeight, SizeRef: p.SizeRef, FeeRef: 1, AgeRefAI: 1, AgeRefQuantum: 1}
			if got := alone.Cached(&j); got != test.size {
				t.Errorf("%+v: size term %d, want %d", j, got, test.size)
			}
			if again := p.Score(&j, now); again != score {
				t.Errorf("%+v: scored again %d instead of %d", j, again, score)
			}
			if exact := realScore(&p, &j, now); math.Abs(exact-float64(score)/1e9) >= 2e-9 {
				t.Errorf("%+v: score %d is not within 2e-9 of %v", j, score, exact)
			}
		}
	}
	if ai, quantum := p.Age(match.AI, now), p.Age(match.Quantum, now); ai != 4918981481481 || quantum != 59027777777777 {
		t.Errorf("age weights of %d are %d and %d", now, ai, quantum)
	}
	odd := match.Priority{AgeWeight: 7, AgeRefAI: 13, AgeRefQuantum: 11}
	for _, test := range []struct{ at, ai, quantum int64 }{
		{now, 915384615, 1081818181}, {1699999990, 915384610, 1081818175}, {1699999989, 915384609, 1081818174},
	} {
		if ai, quantum := odd.Age(match.AI, test.at), odd.Age(match.Quantum, test.at); ai != test.ai || quantum != test.quantum {
			t.Errorf("age weights of %d are %d and %d, want %d and %d", test.at, ai, quantum, test.ai, test.quantum)
		}
	}
}

// A job that waits for its default lifetime earns the whole weight of the age, and goes on
// rising if it lives longer.
func TestAgeBlendsWithinALife(t *testing.T) {
	spec.Covers(t, "M-11")
	s := match.DefaultSettings()
	for k, life := range map[match.Kind]int64{match.AI: s.TTL.AI, match.Quantum: s.TTL.Quantum} {
		const start = 27 * 60_000_000
		j := match.Job{Kind: k, EnqueuedAt: start}
		young := s.Priority.Score(&j, start)
		for part, want := range map[int64]int64{0: 0, 1: s.Priority.AgeWeight, 4: 4 * s.Priority.AgeWeight} {
			if got := s.Priority.Score(&j, start+part*life) - young; got != want {
				t.Errorf("%v: after %d lives the age is %d, want %d", k, part, got, want)
			}
		}
	}
}

// realScore computes the formula in floating point.
func realScore(p *match.Priority, j *match.Job, now int64) float64 {
	sum := new(big.Rat)
	add := func(weight, numerator, denominator int64) {
		term := new(big.Rat).Mul(big.NewRat(weight, 1e9), big.NewRat(numerator, denominator))
		sum.Add(sum, term)
	}
	add(p.FeeWeight, min(j.MaxFee, p.FeeRef), p.FeeRef)
	ref := p.AgeRefAI
	if j.Kind == match.Quantum {
		ref = p.AgeRefQuantum
	}
	add(p.AgeWeight, now-j.EnqueuedAt, ref)
	add(p.SizeWeight, p.SizeRef, p.SizeRef+j.SizeBytes)
	add(p.TierWeight, p.Tiers[j.Tier], 1e9)
	score, _ := sum.Float64()
	return score
}

// jobGenerator draws what affects a score, small and large.
func jobGenerator() *rapid.Generator[match.Job] {
	return rapid.Custom(func(t *rapid.T) match.Job {
		return match.Job{
			Kind:       rapid.SampledFrom(match.Kinds()).Draw(t, "kind"),
			MaxFee:     rapid.Int64Range(0, match.MaxInteger).Draw(t, "fee"),
			EnqueuedAt: rapid.Int64Range(0, match.MaxTime).Draw(t, "enqueued"),
			SizeBytes:  rapid.Int64Range(0, match.MaxInteger).Draw(t, "size"),
			Tier:       rapid.SampledFrom([]string{"", "FREE", "PRO", "PREMIUM"}).Draw(t, "tier"),
		}
	})
}

func TestScoreGrows(t *testing.T) {
	spec.Covers(t, "M-11", "M-12", "M-13")
	policy := match.DefaultPolicy()
	p := &policy.Priority
	rapid.Check(t, func(t *rapid.T) {
		j := jobGenerator().Draw(t, "job")
		now := rapid.Int64Range(0, match.MaxTime-1).Draw(t, "now")
		score := p.Score(&j, now)

		fee := j
		fee.MaxFee = rapid.Int64Range(j.MaxFee, match.MaxInteger).Draw(t, "higher fee")
		if got := p.Score(&fee, now); got < score {
			t.Errorf("fee %d scores %d, fee %d only %d", j.MaxFee, score, fee.MaxFee, got)
		}
		later := rapid.Int64Range(now, match.MaxTime).Draw(t, "later")
		if got := p.Score(&j, later); got < score {
			t.Errorf("at %d it scores %d, at %d only %d", now, score, later, got)
		}
		large := j
		large.SizeBytes = rapid.Int64Range(j.SizeBytes, match.MaxInteger).Draw(t, "larger")
		if got := p.Score(&large, now); got > score {
			t.Errorf("%d bytes score %d, %d bytes even %d", j.SizeBytes, score, large.SizeBytes, got)
		}
		small := j
		small.SizeBytes = rapid.Int64Range(0, 9_194_623).Draw(t, "small")
		one := small
		one.SizeBytes++
		if a, b := p.Score(&small, now), p.Score(&one, now); a <= b {
			t.Errorf("%d bytes score %d and one more %d", small.SizeBytes, a, b)
		}
	})
}

// The order of two jobs of a kind never changes, so an index on the cached part is valid at
// any time.
func TestScoreOrderNeverChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := match.DefaultPolicy().Priority
		p.AgeWeight = rapid.Int64Range(0, 1e9).Draw(t, "weight")
		p.AgeRefAI = rapid.Int64Range(1, match.MaxTime).Draw(t, "reference of AI")
		p.AgeRefQuantum = rapid.Int64Range(1, match.MaxTime).Draw(t, "reference of QUANTUM")
		a, b := jobGenerator().Draw(t, "a"), jobGenerator().Draw(t, "b")
		b.Kind = a.Kind
		then, now := rapid.Int64Range(0, match.MaxTime).Draw(t, "then"), rapid.Int64Range(0, match.MaxTime).Draw(t, "now")
		if p.Score(&a, then)-p.Score(&b, then) != p.Score(&a, now)-p.Score(&b, now) || p.Cached(&a)-p.Cached(&b) != p.Score(&a, now)-p.Score(&b, now) {
			t.Error("the distance of two jobs changed with time")
		}
	})
}

// At the limits of all ranges the sums still fit into 64 bits.
func TestScoreAtTheEdges(t *testing.T) {
	p := match.Priority{
		FeeWeight: 1e9, AgeWeight: 1e9, SizeWeight: 1e9, TierWeight: 1e9,
		FeeRef: match.MaxTime, AgeRefAI: 1, AgeRefQuantum: 1, SizeRef: match.MaxTime, Tiers: map[string]int64{"FREE": 1e9},
	}
	j := match.Job{MaxFee: match.MaxInteger, EnqueuedAt: match.MaxTime}
	if got, want := p.Cached(&j), int64(3e9)-match.MaxTime*1_000_000_000; got != want {
		t.Errorf("cached %d, want %d", got, want)
	}
	j.EnqueuedAt = 0
	if got, want := p.Score(&j, match.MaxTime), int64(3e9)+match.MaxTime*1_000_000_000; got != want {
		t.Errorf("score %d, want %d", got, want)
	}
}

func TestTiers(t *testing.T) {
	spec.Covers(t, "M-14")
	p := match.DefaultPolicy().Priority
	for tier, want := range map[string]int64{"": 0, "FREE": 0, "PRO": 300_000_000, "PREMIUM": 600_000_000} {
		if got := p.Tiers[tier]; got != want {
			t.Errorf("tier %q adds %d, want %d", tier, got, want)
		}
		alone := match.Priority{TierWeight: 1e9, Tiers: p.Tiers, FeeRef: 1, AgeRefAI: 1, AgeRefQuantum: 1, SizeRef: 1}
		if got := alone.Cached(&match.Job{Tier: tier}); got != want {
			t.Errorf("tier %q scores %d, want %d", tier, got, want)
		}
	}
}

func TestDefaultPolicy(t *testing.T) {
	spec.Covers(t, "M-20", "M-136", "M-145", "M-146")
	p := match.DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		name      string
		got, want int64
	}{
		{"batch_size", p.BatchSize, 256},
		{"w_fee_ppb", p.Priority.FeeWeight, 550_000_000},
		{"w_age_ppb", p.Priority.AgeWeight, 250_000_000},
		{"w_size_ppb", p.Priority.SizeWeight, 100_000_000},
		{"w_tier_ppb", p.Priority.TierWeight, 100_000_000},
		{"fee_ref", p.Priority.FeeRef, 1_000_000},
		{"age_ref_ai_secs", p.Priority.AgeRefAI, 86_400},
		{"age_ref_quantum_secs", p.Priority.AgeRefQuantum, 7200},
		{"size_ref_bytes", p.Priority.SizeRef, 1_048_576},
		{"tiers", int64(len(p.Priority.Tiers)), 3},
		{"min_health_ppb", p.Eligibility.MinHealth, 500_000_000},
		{"heartbeat_timeout_secs", p.Eligibility.HeartbeatTimeout, 30},
		{"min_stake_ai", p.Eligibility.MinStakeAI, 1000},
		{"min_stake_quantum", p.Eligibility.MinStakeQuantum, 5000},
		{"leases_max_per_provider", p.Quotas.LeasesMax, 16},
		{"ai_units_per_epoch", p.Quotas.AIUnitsPerEpoch, 100_000},
		{"quantum_units_per_epoch", p.Quotas.QuantumUnitsPerEpoch, 10_000},
		{"requester_max", p.Quotas.RequesterMax, 0},
		{"requester_window_secs", p.Quotas.RequesterWindow, 60},
		{"every", p.Starvation.Every, 20},
		{"low_fee_max", p.Starvation.LowFeeMax, 100_000},
		{"all weights", p.Priority.FeeWeight + p.Priority.AgeWeight + p.Priority.SizeWeight + p.Priority.TierWeight, 1_000_000_000},
	} {
		if test.got != test.want {
			t.Errorf("%s is %d, want %d", test.name, test.got, test.want)
		}
	}
	clone := p.Clone()
	clone.Priority.Tiers["PRO"] = 1
	if p.Priority.Tiers["PRO"] != 300_000_000 {
		t.Error("a clone shares its tiers")
	}
}
