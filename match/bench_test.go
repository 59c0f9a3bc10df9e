package match_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gopherqueue/gq/match"
)

// market returns a large input: each provider has a few of many models, and the jobs have
// several shapes. Every provider has room for everything.
func market(jobs, providers, shapes int) match.Input {
	rng := rand.New(rand.NewPCG(uint64(jobs), uint64(providers)))
	in := input(nil)
	in.Policy.BatchSize = int64(jobs)
	for i := range providers {
		p := provider(fmt.Sprintf("provider-%06d", i))
		p.LeasesActive, p.AIUnitsUsed, p.QuantumUnitsUsed, p.Allow, p.Models = 0, 0, 0, nil, nil
		for range 8 {
			p.Models = append(p.Models, fmt.Sprintf("model-%d", rng.IntN(shapes)))
		}
		p.Region = []string{"eu", "us", "ap"}[rng.IntN(3)]
		in.Providers = append(in.Providers, p)
	}
	for i := range jobs {
		j := job(fmt.Sprintf("3f0c5e5a-0000-4000-8000-%012d", i), match.AI)
		j.Spec.Model = fmt.Sprintf("model-%d", rng.IntN(shapes))
		j.Requester = fmt.Sprintf("requester-%d", rng.IntN(1000))
		j.MaxFee, j.SizeBytes, j.EnqueuedAt = rng.Int64N(2_000_000), rng.Int64N(1<<20), now-rng.Int64N(10_000)
		j.Excluded = nil
		in.Jobs = append(in.Jobs, j)
	}
	return in
}

func BenchmarkMatch(b *testing.B) {
	alike := func(in match.Input) match.Input {
		for i := range in.Jobs {
			in.Jobs[i].MaxFee, in.Jobs[i].SizeBytes, in.Jobs[i].EnqueuedAt, in.Jobs[i].Spec.Model = 0, 0, now-100, ""
		}
		return in
	}
	oneSlot := func(in match.Input) match.Input {
		in.Policy.Quotas.LeasesMax = 1
		return in
	}
	full := func(in match.Input) match.Input {
		in.Policy.Quotas.LeasesMax = 0
		return in
	}
	exhausted := func(in match.Input) match.Input {
		in.Policy.Quotas.AIUnitsPerEpoch = 9
		return in
	}
	batch := func(in match.Input, n int64) match.Input {
		in.Policy.BatchSize = n
		return in
	}
	for _, v := range []struct {
		name string
		make func() match.Input
	}{
		{"256x1000", func() match.Input { return market(256, 1000, 10) }},
		{"256x1000/full", func() match.Input { return full(market(256, 1000, 10)) }},
		{"256x1000/exhausted", func() match.Input { return exhausted(market(256, 1000, 10)) }},
		{"256x1000/tied", func() match.Input { return alike(market(256, 1000, 10)) }},
		{"256x1000/tied, one slot each", func() match.Input { return oneSlot(alike(market(256, 1000, 10))) }},
		{"10000x10000", func() match.Input { return market(10_000, 10_000, 50) }},
		{"10000x10000/exhausted", func() match.Input { return exhausted(market(10_000, 10_000, 50)) }},
		{"1000000x10000, 1000 shapes", func() match.Input { return batch(market(1_000_000, 10_000, 1000), 256) }},
	} {
		b.Run(v.name, func(b *testing.B) {
			in := v.make()
			b.ReportAllocs()
			fastest := time.Hour // the least disturbed by other load
			for b.Loop() {
				start := time.Now()
				match.MatchUnchecked(&in)
				fastest = min(fastest, time.Since(start))
			}
			b.ReportMetric(float64(fastest.Microseconds()), "µs/fastest")
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		in := market(n, n, 10)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if err := in.Validate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	text, err := json.Marshal(market(256, 1000, 10))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := match.Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}
