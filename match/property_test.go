package match_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// drawInput draws a [sample] that rapid can shrink.
func drawInput(t *rapid.T) match.Input {
	intn := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
	return sample(intn, intn(8), intn(16))
}

// round computes a round of an input that must be valid.
func round(t rapid.TB, in *match.Input) match.Result {
	t.Helper()
	out, err := match.Match(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The sets and shortcuts decide like the plain loops.
func TestMatchEqualsOracle(t *testing.T) {
	spec.Covers(t, "M-41")
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		if diff := gocmp.Diff(oracle(&in), round(t, &in)); diff != "" {
			t.Fatalf("(-oracle +match):\n%s", diff)
		}
	})
}

// The same for inputs too large for rapid, with more ties and rematches.
func TestMatchEqualsOracleAtScale(t *testing.T) {
	race.Spare(t)
	spec.Covers(t, "M-41")
	runs := 120
	if testing.Short() {
		runs = 30
	}
	lanes, requeued, contested := 0, 0, 0
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 0))
		in := sample(rng.IntN, 5+rng.IntN(120), 20+rng.IntN(150))
		want, got := oracle(&in), round(t, &in)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-oracle +match):\n%s", seed, diff)
		}
		requeued += len(got.Requeued)
		if !slices.IsSortedFunc(got.Assignments, func(a, b match.Assignment) int { return cmp.Compare(b.Score, a.Score) }) {
			lanes++
		}
		in.Policy.Starvation.Every = 0
		if len(round(t, &in).Requeued) > 0 && len(got.Assignments) > 0 {
			contested++
		}
	}
	if lanes < runs/10 || requeued < runs || contested < runs/10 {
		t.Errorf("of %d runs %d used the lane and %d were short of room, %d jobs were requeued: too few to tell", runs, lanes, contested, requeued)
	}
}

// Planning again after a match of the lane reuses what was learnt before, which must not
// change the result.
func TestMatchEqualsOracleInACrowd(t *testing.T) {
	race.Spare(t)
	spec.Covers(t, "M-41", "M-47", "M-112")
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		in := crowd(rng.IntN, 2+rng.IntN(10), 4+rng.IntN(24))
		if diff := gocmp.Diff(oracle(&in), round(t, &in)); diff != "" {
			t.Fatalf("seed %d (-oracle +match):\n%s", seed, diff)
		}
	}
}

// Many tied jobs compete for few slots, with matches of the lane between them.
func TestMatchEqualsOracleInARush(t *testing.T) {
	race.Spare(t)
	assigned := 0
	for seed := range 12 {
		in := market(100+7*seed, 60+5*seed, 1+seed%3)
		in.Policy.Quotas.LeasesMax = 1 + int64(seed%2)
		for i := range in.Jobs {
			j := &in.Jobs[i]
			j.MaxFee, j.SizeBytes, j.EnqueuedAt = 0, 0, now-100
		}
		want, got := oracle(&in), round(t, &in)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-oracle +match):\n%s", seed, diff)
		}
		assigned += len(got.Assignments)
	}
	if assigned < 500 {
		t.Errorf("%d jobs were assigned: too few to tell", assigned)
	}
}

// However the input is ordered, the result is byte-identical.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	spec.Covers(t, "M-08", "M-15")
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		want := round(t, &in)
		if diff := gocmp.Diff(want, round(t, &in)); diff != "" {
			t.Fatalf("a second time (-first +second):\n%s", diff)
		}
		other := in
		other.Providers = rapid.Permutation(in.Providers).Draw(t, "providers")
		other.Jobs = rapid.Permutation(in.Jobs).Draw(t, "jobs")
		for i := range other.Providers {
			p := &other.Providers[i]
			for _, list := range []*[]string{&p.Models, &p.Precisions, &p.Gates, &p.Allow, &p.Deny} {
				*list = rapid.Permutation(*list).Draw(t, "list")
			}
			p.Capabilities = rapid.Permutation(p.Capabilities).Draw(t, "capabilities")
		}
		for i := range other.Jobs {
			j := &other.Jobs[i]
			for _, list := range []*[]string{&j.Regions, &j.Excluded, &j.Spec.Gates} {
				*list = rapid.Permutation(*list).Draw(t, "list")
			}
		}
		if diff := gocmp.Diff(want, round(t, &other)); diff != "" {
			t.Fatalf("(-as given +permuted):\n%s", diff)
		}
	})
}

// The first jobs of the queue and of the lane are enough: further jobs, which a caller
// need not load, change nothing.
func TestRestOfTheQueueDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		want := round(t, &in)
		n := int(min(in.Policy.BatchSize, int64(len(in.Jobs))))
		older := func(a, b match.Job) int {
			return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), strings.Compare(a.ID, b.ID))
		}
		queue, lane := slices.Clone(in.Jobs), slices.Clone(in.Jobs)
		slices.SortFunc(queue, func(a, b match.Job) int {
			p := &in.Policy.Priority
			return cmp.Or(cmp.Compare(p.Score(&b, in.Now), p.Score(&a, in.Now)), older(a, b))
		})
		lane = slices.DeleteFunc(lane, func(j match.Job) bool { return j.MaxFee > in.Policy.Starvation.LowFeeMax })
		slices.SortFunc(lane, older)
		in.Jobs = queue[:n]
		for _, x := range lane[:min(n, len(lane))] {
			if !slices.ContainsFunc(in.Jobs, func(j match.Job) bool { return j.ID == x.ID }) {
				in.Jobs = append(slices.Clip(in.Jobs), x)
			}
		}
		if diff := gocmp.Diff(want, round(t, &in)); diff != "" {
			t.Fatalf("(-all jobs +first ones):\n%s", diff)
		}
	})
}

// Invariants of every round, checked from its result alone.
func TestRoundInvariants(t *testing.T) {
	spec.Covers(t, "M-21", "M-37", "M-44")
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		out := round(t, &in)
		jobs, providers := make(map[string]match.Job), make(map[string]*match.Provider)
		for _, j := range in.Jobs {
			jobs[j.ID] = j
		}
		after := in // counters after the assignments
		after.Providers = slices.Clone(in.Providers)
		after.Grants = make(map[string]int64)
		maps.Copy(after.Grants, in.Grants)
		for i := range after.Providers {
			providers[after.Providers[i].ID] = &after.Providers[i]
		}

		visited := make(map[string]bool)
		visit := func(id string) {
			if visited[id] {
				t.Errorf("%s is there twice", id)
			}
			visited[id] = true
		}
		for _, a := range out.Assignments {
			visit(a.Job)
			j, p := jobs[a.Job], providers[a.Provider]
			verdicts, err := match.Explain(&after, j.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range verdicts {
				if v.Provider == p.ID && v.Reasons != 0 {
					t.Errorf("%s was given to %s, which refuses it: %v", j.ID, p.ID, v.Reasons)
				}
			}
			if !slices.Contains(out.Order, a.Provider) {
				t.Errorf("%s is not in the order", a.Provider)
			}
			p.LeasesActive++
			if j.Kind == match.AI {
				p.AIUnitsUsed += j.Units
			} else {
				p.QuantumUnitsUsed += j.Units
			}
			after.Grants[j.Requester]++
			if a.Lease != out.Seed.Lease(a.Job, a.Provider, j.Attempt) || a.Attempt != j.Attempt || a.Score != in.Policy.Priority.Score(&j, in.Now) {
				t.Errorf("%+v does not belong to %+v", a, j)
			}
		}
		for i, p := range after.Providers {
			before, q := in.Providers[i], in.Policy.Quotas
			if p.LeasesActive > max(before.LeasesActive, q.LeasesMax) || p.AIUnitsUsed > max(before.AIUnitsUsed, q.AIUnitsPerEpoch) ||
				p.QuantumUnitsUsed > max(before.QuantumUnitsUsed, q.QuantumUnitsPerEpoch) {
				t.Errorf("a quota was exceeded: %+v", p)
			}
		}
		for r, n := range after.Grants {
			if most := in.Policy.Quotas.RequesterMax; most > 0 && n > max(in.Grants[r], most) {
				t.Errorf("requester %q got %d leases", r, n)
			}
		}
		for _, id := range out.Requeued {
			visit(id)
			if in.Policy.Starvation.Every > 0 {
				continue // the lane may end a round before the slot withheld from this job is used
			}
			verdicts, err := match.Explain(&after, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range verdicts {
				if v.Reasons == 0 {
					t.Errorf("%s was left, and %s still has room for it", id, v.Provider)
				}
			}
		}
		if n := int64(len(visited)); n != min(in.Policy.BatchSize, int64(len(in.Jobs))) {
			t.Errorf("%d of %d jobs were considered, batch %d", n, len(in.Jobs), in.Policy.BatchSize)
		}
	})
}

// The input is not modified.
func TestInputIsNotChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		intn := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		providers, jobs := intn(8), intn(16)
		seed := rapid.Uint64().Draw(t, "seed")
		in := sample(rand.New(rand.NewPCG(seed, 1)).IntN, providers, jobs)
		same := sample(rand.New(rand.NewPCG(seed, 1)).IntN, providers, jobs)
		round(t, &in)
		if diff := gocmp.Diff(same, in); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Providers for a job are found in sets by capability and demand, not by scanning every
// provider for every job.
func TestNoScanOfProvidersForEachJob(t *testing.T) {
	spec.Covers(t, "M-34")
	for _, v := range []struct {
		name   string
		change func(*match.Input)
		most   int // visits of a provider, for 256 jobs and 1000 providers
	}{
		{"room for all", func(*match.Input) {}, 2 * 256},
		{"nobody has room", func(in *match.Input) { in.Policy.Quotas.LeasesMax = 0 }, 0},
		{"one slot each", func(in *match.Input) { in.Policy.Quotas.LeasesMax = 1 }, 2 * 256},
		{"nobody is capable", func(in *match.Input) {
			for i := range in.Providers {
				in.Providers[i].Capabilities = []match.Kind{match.Quantum}
			}
		}, 0},
		{"units are spent", func(in *match.Input) { in.Policy.Quotas.AIUnitsPerEpoch = 9 }, 10 * 1000}, // once for each model
		{"the last one asked", func(in *match.Input) {
			order := in.Seed().Shuffle(providerIDs(in.Providers))
			for i := range in.Providers {
				if in.Providers[i].ID != order[len(order)-1] {
					in.Providers[i].Models = []string{"none"}
				}
				in.Providers[i].LeasesActive = 0
			}
			in.Policy.Quotas.LeasesMax = 1000
		}, 2 * 256},
	} {
		in := market(256, 1000, 10)
		v.change(&in)
		if looked := match.Looked(&in); looked > v.most {
			t.Errorf("%s: %d looks at a provider, want at most %d of %d", v.name, looked, v.most, 256*1000)
		}
	}
}

func providerIDs(providers []match.Provider) (list []string) {
	for i := range providers {
		list = append(list, providers[i].ID)
	}
	return list
}
