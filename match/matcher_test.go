package match_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

const now = 1_700_000_000

// provider returns a provider that just meets each condition of any [job].
func provider(id string) match.Provider {
	return match.Provider{
		ID: id, Status: match.Active, Capabilities: []match.Kind{match.AI, match.Quantum},
		Models: []string{"m", "n"}, Precisions: []string{"fp16"}, Gates: []string{"h", "cx"}, MaxDepth: 5, MaxWidth: 6,
		Region: "eu", Allow: []string{"alice"}, Stake: 5000, AttestationExpiresAt: now + 1, Health: 500_000_000,
		LastHeartbeatAt: now - 30, CooldownUntil: match.Cooldowns{AI: now, Quantum: now},
		LeasesActive: 15, AIUnitsUsed: 99_990, QuantumUnitsUsed: 9_990,
	}
}

func job(id string, kind match.Kind) match.Job {
	return match.Job{
		ID: id, Kind: kind, Requester: "alice", EnqueuedAt: now - 100, Units: 10, Regions: []string{"us", "eu"},
		Spec: match.Demand{Model: "n", Precision: "fp16", Gates: []string{"cx"}, Depth: 5, Width: 6}, Excluded: []string{"q"},
	}
}

func input(providers []match.Provider, jobs ...match.Job) match.Input {
	return match.Input{
		Chain: "testnet-1", Epoch: 42, Height: 1000, Beacon: match.Hex{0x00, 0xff, 0x10}, Now: now,
		Policy: match.DefaultPolicy(), Providers: providers, Jobs: jobs,
	}
}

// pairs returns the assignments in short form: "job provider".
func pairs(out match.Result) (list []string) {
	for _, a := range out.Assignments {
		list = append(list, a.Job+" "+a.Provider)
	}
	return list
}

func TestQueueMatcher(t *testing.T) {
	spec.Covers(t, "M-149")
	t.Run("eligibility", testEligibility)
	t.Run("quotas", testQuotas)
	t.Run("ties", testTies)
}

// Each violated condition alone keeps a provider from the job, and nothing else does.
func testEligibility(t *testing.T) {
	spec.Covers(t, "M-21", "M-22", "M-23", "M-24", "M-25", "M-29", "M-30", "M-31", "M-32", "M-33")
	both := []match.Kind{match.AI, match.Quantum}
	ai, quantum := both[:1], both[1:]
	for _, test := range []struct {
		reason match.Reason // 0 if it still fits
		kinds  []match.Kind
		change func(*match.Input, *match.Provider, *match.Job)
	}{
		{0, both, func(*match.Input, *match.Provider, *match.Job) {}},
		{match.NotActive, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Status = match.Jailed }},
		{match.NotActive, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Status = match.Suspended }},
		{match.NotActive, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Status = match.Retired }},
		{match.Unattested, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.AttestationExpiresAt = now }},
		{match.Unhealthy, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Health-- }},
		{match.Silent, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.LastHeartbeatAt-- }},
		{0, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.LastHeartbeatAt = now + 1000 }},
		{match.Incapable, ai, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Capabilities = quantum }},
		{match.Incapable, quantum, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Capabilities = ai }},
		{match.Incapable, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Capabilities = nil }},
		{match.Understaked, quantum, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Stake = 4999 }},
		{0, ai, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Stake = 1000 }},
		{match.Understaked, ai, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Stake = 999 }},
		{match.Cooling, ai, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.CooldownUntil.AI++ }},
		{match.Cooling, quantum, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.CooldownUntil.Quantum++ }},
		{0, ai, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.CooldownUntil.Quantum++ }},
		{match.Excluded, both, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Excluded = []string{"q", "p"} }},
		{match.WrongRegion, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Region = "EU" }},
		{match.WrongRegion, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Region = "" }},
		{0, both, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Regions = nil }},
		{0, both, func(_ *match.Input, p *match.Provider, j *match.Job) { p.Region, j.Regions = "", []string{""} }},
		{match.Denied, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Deny = []string{"bob", "alice"} }},
		{match.NotAllowed, both, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Requester = "bob" }},
		{match.NotAllowed, both, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Requester = "" }},
		{0, both, func(_ *match.Input, p *match.Provider, j *match.Job) { p.Allow, j.Requester = []string{""}, "" }},
		{0, both, func(_ *match.Input, p *match.Provider, j *match.Job) {
			p.Allow, p.Deny, j.Requester = nil, []string{"alice"}, "bob"
		}},
		{match.Denied, both, func(_ *match.Input, p *match.Provider, j *match.Job) {
			p.Allow, p.Deny, j.Requester = nil, []string{""}, ""
		}},
		{match.NoModel, ai, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Spec.Model = "N" }},
		{match.NoModel, ai, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Models = nil }},
		{0, both, func(_ *match.Input, p *match.Provider, j *match.Job) { p.Models, j.Spec.Model = nil, "" }},
		{match.NoPrecision, ai, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Spec.Precision = "fp8" }},
		{0, both, func(_ *match.Input, p *match.Provider, j *match.Job) { p.Precisions, j.Spec.Precision = nil, "" }},
		{0, quantum, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Spec.Model, j.Spec.Precision = "x", "x" }},
		{match.NoGate, quantum, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Spec.Gates = []string{"h", "t"} }},
		{match.NoGate, quantum, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.Gates = nil }},
		{0, both, func(_ *match.Input, p *match.Provider, j *match.Job) { p.Gates, j.Spec.Gates = nil, nil }},
		{match.TooDeep, quantum, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Spec.Depth++ }},
		{match.TooWide, quantum, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Spec.Width++ }},
		{0, ai, func(_ *match.Input, _ *match.Provider, j *match.Job) {
			j.Spec.Depth, j.Spec.Width, j.Spec.Gates = 99, 99, []string{"x"}
		}},
		{match.NoLease, both, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.LeasesActive = 16 }},
		{match.NoLease, both, func(in *match.Input, _ *match.Provider, _ *match.Job) { in.Policy.Quotas.LeasesMax = 0 }},
		{match.NoUnits, ai, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.AIUnitsUsed++ }},
		{match.NoUnits, quantum, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.QuantumUnitsUsed++ }},
		{match.NoUnits, both, func(_ *match.Input, _ *match.Provider, j *match.Job) { j.Units++ }},
		{match.NoUnits, ai, func(_ *match.Input, p *match.Provider, j *match.Job) { p.AIUnitsUsed, j.Units = 100_001, 0 }},
		{0, quantum, func(_ *match.Input, p *match.Provider, _ *match.Job) { p.AIUnitsUsed++ }},
		{match.RequesterSpent, both, func(in *match.Input, _ *match.Provider, _ *match.Job) {
			in.Policy.Quotas.RequesterMax, in.Grants = 3, map[string]int64{"alice": 3, "bob": 9}
		}},
		{0, both, func(in *match.Input, _ *match.Provider, _ *match.Job) {
			in.Policy.Quotas.RequesterMax, in.Grants = 3, map[string]int64{"alice": 2, "bob": 9}
		}},
		{0, both, func(in *match.Input, _ *match.Provider, _ *match.Job) { in.Grants = map[string]int64{"alice": 99} }},
	} {
		for _, kind := range test.kinds {
			in := input([]match.Provider{provider("p")}, job("j", kind))
			test.change(&in, &in.Providers[0], &in.Jobs[0])
			name := fmt.Sprintf("%v %s %+v %+v", kind, test.reason, in.Providers[0], in.Jobs[0])
			verdicts, err := match.Explain(&in, "j")
			if err != nil {
				t.Fatal(err)
			}
			wantReasons, wantPairs, wantRequeued := []match.Reason(nil), []string{"j p"}, []string{}
			if test.reason != 0 {
				wantReasons, wantPairs, wantRequeued = []match.Reason{test.reason}, nil, []string{"j"}
			}
			if got := verdicts[0].Reasons.List(); !slices.Equal(got, wantReasons) {
				t.Errorf("%s: refused for %v, want %v", name, got, wantReasons)
			}
			out := round(t, &in)
			if !slices.Equal(pairs(out), wantPairs) || !slices.Equal(out.Requeued, wantRequeued) {
				t.Errorf("%s: assigned %v and requeued %v", name, pairs(out), out.Requeued)
			}
			inOrder := test.reason == 0 || test.reason > match.Silent
			if slices.Contains(out.Order, "p") != inOrder {
				t.Errorf("%s: the order is %v", name, out.Order)
			}
		}
	}
}

func testQuotas(t *testing.T) {
	t.Run("leases", func(t *testing.T) {
		spec.Covers(t, "M-26", "M-42", "M-110")
		p := provider("p")
		p.LeasesActive, p.AIUnitsUsed = 0, 0
		in := input([]match.Provider{p})
		for i := range 20 {
			in.Jobs = append(in.Jobs, job(fmt.Sprintf("j%02d", i), match.AI))
		}
		if out := round(t, &in); len(out.Assignments) != 16 || len(out.Requeued) != 4 {
			t.Errorf("%d of 20 assigned, %d requeued", len(out.Assignments), len(out.Requeued))
		}
		in.Providers[0].LeasesActive = 15 // one slot is free
		if out := round(t, &in); len(out.Assignments) != 1 || len(out.Requeued) != 19 {
			t.Errorf("one slot: %d assigned, %d requeued", len(out.Assignments), len(out.Requeued))
		}
		in.Providers[0].LeasesActive = 16
		if out := round(t, &in); len(out.Assignments) != 0 || len(out.Order) != 1 {
			t.Errorf("no slot: %d assigned", len(out.Assignments))
		}
	})
	t.Run("units", func(t *testing.T) {
		p := provider("p")
		p.LeasesActive, p.AIUnitsUsed, p.QuantumUnitsUsed = 0, 99_975, 9_989
		large := job("large", match.AI)
		large.MaxFee, large.Units = 1_000_000, 20
		next := job("next", match.AI)
		next.MaxFee = 500_000
		small := job("small", match.AI)
		small.Units = 5
		in := input([]match.Provider{p}, small, next, large, job("quantum", match.Quantum))
		in.Policy.Starvation.Every = 0
		out := round(t, &in)
		if want := []string{"large p", "quantum p", "small p"}; !slices.Equal(pairs(out), want) {
			t.Errorf("%v, want %v", pairs(out), want)
		}
		if !slices.Equal(out.Requeued, []string{"next"}) {
			t.Errorf("requeued %v", out.Requeued)
		}
	})
	t.Run("requester", func(t *testing.T) {
		spec.Covers(t, "M-28")
		a, b := provider("a"), provider("b")
		a.LeasesActive, b.LeasesActive, a.AIUnitsUsed, b.AIUnitsUsed, a.Allow, b.Allow = 0, 0, 0, 0, nil, nil
		in := input([]match.Provider{a, b})
		for i := range 6 {
			j := job(fmt.Sprintf("j%d", i), match.AI)
			j.EnqueuedAt += int64(i)
			in.Jobs = append(in.Jobs, j)
		}
		in.Jobs[5].Requester = "bob"
		in.Grants = map[string]int64{"alice": 1}
		if out := round(t, &in); len(out.Assignments) != 6 {
			t.Errorf("without a limit %v", pairs(out))
		}
		in.Policy.Quotas.RequesterMax = 3
		out := round(t, &in)
		if len(out.Assignments) != 3 || out.Assignments[2].Job != "j5" || !slices.Equal(out.Requeued, []string{"j2", "j3", "j4"}) {
			t.Errorf("with a limit %v, requeued %v", pairs(out), out.Requeued)
		}
	})
}

func testTies(t *testing.T) {
	roomy := provider("p")
	roomy.LeasesActive, roomy.AIUnitsUsed = 0, 0
	t.Run("order", func(t *testing.T) {
		spec.Covers(t, "M-16", "M-17")
		// A fee of 1,000 weighs as much as 1,375 seconds, so all three tie.
		c, d, e := job("c", match.AI), job("d", match.AI), job("e", match.AI)
		c.EnqueuedAt, c.MaxFee = now-100, 200_000
		d.EnqueuedAt, d.MaxFee = now-694, 196_875
		e.EnqueuedAt, e.MaxFee = now-694, 196_875
		in := input([]match.Provider{roomy}, e, c, d)
		out := round(t, &in)
		if want := []string{"d p", "e p", "c p"}; !slices.Equal(pairs(out), want) {
			t.Errorf("%v, want %v", pairs(out), want)
		}
		if out.Assignments[0].Score != out.Assignments[2].Score {
			t.Errorf("scores %d and %d were to be equal", out.Assignments[0].Score, out.Assignments[2].Score)
		}
	})
	t.Run("pair", func(t *testing.T) {
		spec.Covers(t, "M-47")
		for _, test := range []struct{ first, second string }{{"job-0001", "job-0002"}, {"job-0002", "job-0001"}} {
			in := input([]match.Provider{provider("p3")}, job(test.first, match.AI), job(test.second, match.AI))
			out := round(t, &in)
			if !slices.Equal(pairs(out), []string{"job-0001 p3"}) || !slices.Equal(out.Requeued, []string{"job-0002"}) {
				t.Errorf("%v, requeued %v", pairs(out), out.Requeued)
			}
		}
		// Under most seeds that holds for only about half of all pairs.
		second := 0
		for height := range int64(200) {
			in := input([]match.Provider{provider("p3")}, job("job-0001", match.AI), job("job-0002", match.AI))
			in.Height = height
			out := round(t, &in)
			a, b := in.Seed().Pair("job-0001", "p3"), in.Seed().Pair("job-0002", "p3")
			lower := "job-0001"
			if string(b[:]) < string(a[:]) {
				lower = "job-0002"
				second++
			}
			if out.Assignments[0].Job != lower {
				t.Errorf("height %d: %v", height, pairs(out))
			}
		}
		if second < 60 || second > 140 {
			t.Errorf("job-0002 had the lower hash %d times of 200", second)
		}
	})
	t.Run("better score first", func(t *testing.T) {
		rich := job("job-0002", match.AI) // has the higher hash
		rich.MaxFee = 100_001
		in := input([]match.Provider{provider("p3")}, job("job-0001", match.AI), rich)
		if out := round(t, &in); !slices.Equal(pairs(out), []string{"job-0002 p3"}) {
			t.Errorf("%v", pairs(out))
		}
	})
}

// Other weights reverse the order.
func TestWeightsArePolicy(t *testing.T) {
	spec.Covers(t, "M-19")
	roomy := provider("p")
	roomy.LeasesActive, roomy.AIUnitsUsed = 0, 0
	for _, test := range []struct {
		first string
		set   func(*match.Priority) *int64
	}{
		{"fee", func(p *match.Priority) *int64 { return &p.FeeWeight }},
		{"age", func(p *match.Priority) *int64 { return &p.AgeWeight }},
		{"size", func(p *match.Priority) *int64 { return &p.SizeWeight }},
		{"tier", func(p *match.Priority) *int64 { return &p.TierWeight }},
	} {
		fee, age, size, tier := job("fee", match.AI), job("age", match.AI), job("size", match.AI), job("tier", match.AI)
		fee.MaxFee, age.EnqueuedAt, tier.Tier = 1_000_000, now-600_000, "PREMIUM"
		fee.SizeBytes, age.SizeBytes, tier.SizeBytes = 1e9, 1e9, 1e9
		in := input([]match.Provider{roomy}, fee, age, size, tier)
		p := &in.Policy.Priority
		p.FeeWeight, p.AgeWeight, p.SizeWeight, p.TierWeight = 0, 0, 0, 0
		*test.set(p) = 1e9
		if out := round(t, &in); out.Assignments[0].Job != test.first {
			t.Errorf("with the weight on %s, %s came first", test.first, out.Assignments[0].Job)
		}
	}
}

func TestBatch(t *testing.T) {
	spec.Covers(t, "M-37")
	in := input(nil)
	for i := range 300 {
		j := job(fmt.Sprintf("j%03d", i), match.AI)
		j.MaxFee = int64(i+1) * 1000
		in.Jobs = append(in.Jobs, j)
	}
	out := round(t, &in)
	if len(out.Requeued) != 256 || out.Requeued[0] != "j299" || out.Requeued[255] != "j044" || len(out.Assignments) != 0 {
		t.Errorf("%d requeued, from %v", len(out.Requeued), out.Requeued)
	}
	if len(out.Order) != 0 {
		t.Errorf("order %v without providers", out.Order)
	}
}

// In a queue flooded with better paid jobs, each run of 20 matches has one of the cheap
// jobs, oldest first, across rounds too.
func TestLane(t *testing.T) {
	spec.Covers(t, "M-112")
	var in match.Input
	var lane []string
	matches := int64(0)
	for n := range 5 {
		in = input(nil)
		in.Matches, in.Policy.BatchSize = matches, 30
		for i := range 3 {
			p := provider(fmt.Sprintf("p%d", i))
			p.LeasesActive, p.AIUnitsUsed = 0, 0
			in.Providers = append(in.Providers, p)
		}
		for i := range 200 {
			rich := job(fmt.Sprintf("rich-%d-%d", n, i), match.AI)
			rich.MaxFee = 1_000_000
			in.Jobs = append(in.Jobs, rich)
		}
		for i := len(lane); i < 20; i++ {
			cheap := job(fmt.Sprintf("cheap-%02d", i), match.AI)
			cheap.EnqueuedAt, cheap.MaxFee = now-50+int64(i), 100_000
			in.Jobs = append(in.Jobs, cheap)
		}
		for _, a := range round(t, &in).Assignments {
			matches++
			isCheap := strings.HasPrefix(a.Job, "cheap")
			if isCheap != (matches%20 == 0) {
				t.Errorf("match %d is %s", matches, a.Job)
			}
			if isCheap {
				lane = append(lane, a.Job)
			}
		}
	}
	if matches != 150 || !slices.IsSorted(lane) || len(lane) != 7 {
		t.Errorf("%d matches, of the lane %v", matches, lane)
	}
}

// With a rotation by the number of assignments so far, rounds under one seed give equal
// providers equal shares.
func TestRotationTakesTurns(t *testing.T) {
	counts := make(map[string]int)
	for n := range int64(100) {
		in := input(nil, job(fmt.Sprintf("j%d", n), match.AI))
		in.Rotation = n
		for i := range 5 {
			in.Providers = append(in.Providers, provider(fmt.Sprintf("p%d", i)))
		}
		counts[round(t, &in).Assignments[0].Provider]++
	}
	for id, n := range counts {
		if n != 20 {
			t.Errorf("%s got %d of 100", id, n)
		}
	}
}

// The published round, unchanged and with the order rotated by one.
func TestRoundVector(t *testing.T) {
	spec.Covers(t, "M-08")
	text, err := os.ReadFile("testdata/round.json")
	if err != nil {
		t.Fatal(err)
	}
	in, err := match.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	want := match.Result{
		Seed: seed1, Order: []string{"p4", "p0", "p1"}, Requeued: []string{"a3", "z2"},
		Assignments: []match.Assignment{
			{"q1", "p1", "c88ff6446d3274716e4f063e7fd8f27f816d18eb62fc58e5b6511792dc8eabf8", 0, 713472222},
			{"a1", "p4", "fa30868c9e3d2b2ea1dc4b91f80f4a6f5efedcb349e12195da54eb4af8c0a81d", 0, 405289352},
			{"z1", "p0", "f14ff0804ce833f42337ceed6348d889f592e051d5673b931018b57da4d38e51", 2, 114467593},
			{"a2", "p0", "9b378f1e52c8deec7dd4eb97dac551419b437bb0cdaa97816b246b375d526821", 0, 405289352},
		},
	}
	if diff := cmp.Diff(want, round(t, &in)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	in.Rotation = 1
	want.Order = []string{"p0", "p1", "p4"}
	want.Assignments[1].Provider, want.Assignments[1].Lease = "p0", "1dd5a622617b94a8fa91c6b0e51ddf92dba80b155856e681b222099bd7c1e221"
	want.Assignments[3].Provider, want.Assignments[3].Lease = "p4", "e0d771b1dbf4555962f7b77b0d4c100aca68b4803216890b937aabd7f38d8cee"
	if diff := cmp.Diff(want, round(t, &in)); diff != "" {
		t.Errorf("rotated (-want +got):\n%s", diff)
	}
}

// Two AI units and no QUANTUM unit are left. Jobs that do not name their units count one;
// those that name 0 count none.
func TestUnitsByDefault(t *testing.T) {
	text, err := os.ReadFile("testdata/units.json")
	if err != nil {
		t.Fatal(err)
	}
	in, err := match.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	out := round(t, &in)
	var got []string
	for _, a := range out.Assignments {
		got = append(got, fmt.Sprintf("%s %s %d", a.Job, a.Provider, a.Score))
	}
	if want := []string{"n1 p0 430000000", "n2 p0 375000000", "n4 p0 265000000", "n6 p0 155000550"}; !slices.Equal(got, want) {
		t.Errorf("assigned %v, want %v", got, want)
	}
	if want := []string{"n3", "n5"}; !slices.Equal(out.Requeued, want) {
		t.Errorf("requeued %v, want %v", out.Requeued, want)
	}
	written, err := json.Marshal(in.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(written), `"units":0`); n != 2 || strings.Count(string(written), `"units":1`) != 4 {
		t.Errorf("written without its units: %s", written)
	}
}

// Two jobs of different kinds compete for one slot. The AI job leads at first; the QUANTUM job
// rises faster, so they tie once and then change places.
func TestKindsChangePlaces(t *testing.T) {
	spec.Covers(t, "M-15")
	in := input([]match.Provider{{
		ID: "p0", Status: match.Active, Capabilities: match.Kinds(), Stake: 5000, AttestationExpiresAt: 1700009999, Health: 1e9,
		LastHeartbeatAt: 1700003455, LeasesActive: 15,
	}},
		match.Job{ID: "a1", Kind: match.AI, MaxFee: 500_000, EnqueuedAt: 1700000000},
		match.Job{ID: "q1", Kind: match.Quantum, MaxFee: 300_000, EnqueuedAt: 1700000000})
	const (
		leaseA = "1dd5a622617b94a8fa91c6b0e51ddf92dba80b155856e681b222099bd7c1e221"
		leaseQ = "c95875bd536ed3831782e5bc60ece42e6f58a6707aa17506eaec3b69dcfa2e11"
	)
	for _, test := range []struct {
		now      int64
		want     match.Assignment
		other    int64 // the score of the job that is requeued
		requeued string
	}{
		{1700003455, match.Assignment{Job: "a1", Provider: "p0", Lease: leaseA, Score: 384997106}, 384965278, "q1"},
		{1700003456, match.Assignment{Job: "q1", Provider: "p0", Lease: leaseQ, Score: 385000000}, 385000000, "a1"},
		{1700003457, match.Assignment{Job: "q1", Provider: "p0", Lease: leaseQ, Score: 385034723}, 385002894, "a1"},
	} {
		in.Now = test.now
		out := round(t, &in)
		if diff := cmp.Diff([]match.Assignment{test.want}, out.Assignments); diff != "" || !slices.Equal(out.Requeued, []string{test.requeued}) {
			t.Errorf("at %d %v are requeued (-want +got):\n%s", test.now, out.Requeued, diff)
		}
		for i := range in.Jobs {
			if j := &in.Jobs[i]; j.ID == test.requeued && in.Policy.Priority.Score(j, test.now) != test.other {
				t.Errorf("at %d %s scores %d, want %d", test.now, j.ID, in.Policy.Priority.Score(j, test.now), test.other)
			}
		}
		if diff := cmp.Diff(oracle(&in), out); diff != "" {
			t.Errorf("at %d (-oracle +got):\n%s", test.now, diff)
		}
	}
}
