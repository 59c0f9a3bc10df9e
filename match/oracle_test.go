package match_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// oracle computes a round the slow way: every job against every provider, each rule where
// it applies. It shares the package's types but no code.
func oracle(in *match.Input) match.Result {
	o := oracleRound{
		in: in, seed: oracleHash("AICF|match", in.Chain, num(in.Epoch), num(in.Height), hex.EncodeToString(in.Beacon)),
		count: oracleCounters{map[string]int64{}, map[string]int64{}, map[string]int64{}},
	}
	maps.Copy(o.count.grants, in.Grants)
	for _, p := range in.Providers {
		o.count.leases[p.ID] = p.LeasesActive
		o.count.units[p.ID+"|AI"], o.count.units[p.ID+"|QUANTUM"] = p.AIUnitsUsed, p.QuantumUnitsUsed
		if p.Status == match.Active && in.Now < p.AttestationExpiresAt && p.Health >= in.Policy.Eligibility.MinHealth &&
			in.Now-p.LastHeartbeatAt <= in.Policy.Eligibility.HeartbeatTimeout {
			o.order = append(o.order, p)
		}
	}
	o.shuffle()
	return o.run()
}

type oracleCounters struct{ leases, units, grants map[string]int64 }

type oracleRound struct {
	in    *match.Input
	seed  []byte
	order []match.Provider
	count oracleCounters
	queue []match.Job
}

func num(n int64) string { return strconv.FormatInt(n, 10) }

func oracleHash(fields ...string) []byte {
	sum := sha256.Sum256([]byte(strings.Join(fields, "|")))
	return sum[:]
}

func (o *oracleRound) shuffle() {
	slices.SortFunc(o.order, func(a, b match.Provider) int { return strings.Compare(a.ID, b.ID) })
	drawn := 0
	word := func() uint64 {
		block := sha256.Sum256(binary.BigEndian.AppendUint64(slices.Clone(o.seed), uint64(drawn/4)))
		w := binary.BigEndian.Uint64(block[drawn%4*8:])
		drawn++
		return w
	}
	for i := len(o.order) - 1; i >= 1; i-- {
		n := uint64(i + 1)
		excess := (1 << 63 % n * 2) % n // 2⁶⁴ mod n
		w := word()
		for excess > 0 && w >= -excess {
			w = word()
		}
		j := w % n
		o.order[i], o.order[j] = o.order[j], o.order[i]
	}
	for range int(o.in.Rotation % int64(max(1, len(o.order)))) {
		o.order = append(o.order[1:], o.order[0])
	}
}

func (o *oracleRound) score(j match.Job) int64 {
	p := o.in.Policy.Priority
	tier := j.Tier
	if tier == "" {
		tier = "FREE"
	}
	fee := p.FeeWeight * min(j.MaxFee, p.FeeRef) / p.FeeRef
	size := p.SizeWeight * p.SizeRef / (p.SizeRef + j.SizeBytes)
	ref := p.AgeRefAI
	if j.Kind == match.Quantum {
		ref = p.AgeRefQuantum
	}
	return fee + size + p.TierWeight*p.Tiers[tier]/1e9 - p.AgeWeight*j.EnqueuedAt/ref + p.AgeWeight*o.in.Now/ref
}

func (o *oracleRound) fits(p match.Provider, j match.Job, c oracleCounters) bool {
	e, q := o.in.Policy.Eligibility, o.in.Policy.Quotas
	stake, cooldown, units := e.MinStakeAI, p.CooldownUntil.AI, q.AIUnitsPerEpoch
	if j.Kind == match.Quantum {
		stake, cooldown, units = e.MinStakeQuantum, p.CooldownUntil.Quantum, q.QuantumUnitsPerEpoch
	}
	in := slices.Contains[[]string]
	ok := slices.Contains(p.Capabilities, j.Kind) && p.Stake >= stake && o.in.Now >= cooldown && !in(j.Excluded, p.ID)
	ok = ok && (len(j.Regions) == 0 || in(j.Regions, p.Region))
	ok = ok && !in(p.Deny, j.Requester) && (len(p.Allow) == 0 || in(p.Allow, j.Requester))
	if j.Kind == match.AI {
		ok = ok && (j.Spec.Model == "" || in(p.Models, j.Spec.Model)) && (j.Spec.Precision == "" || in(p.Precisions, j.Spec.Precision))
	} else {
		for _, g := range j.Spec.Gates {
			ok = ok && in(p.Gates, g)
		}
		ok = ok && j.Spec.Depth <= p.MaxDepth && j.Spec.Width <= p.MaxWidth
	}
	return ok && c.leases[p.ID] < q.LeasesMax && c.units[p.ID+"|"+j.Kind.String()]+j.Units <= units &&
		(q.RequesterMax == 0 || c.grants[j.Requester] < q.RequesterMax)
}

func (c oracleCounters) add(p match.Provider, j match.Job) {
	c.leases[p.ID]++
	c.units[p.ID+"|"+j.Kind.String()] += j.Units
	c.grants[j.Requester]++
}

func (c oracleCounters) clone() oracleCounters {
	return oracleCounters{maps.Clone(c.leases), maps.Clone(c.units), maps.Clone(c.grants)}
}

func (o *oracleRound) plan(group []match.Job) map[string]match.Provider {
	plan, c := map[string]match.Provider{}, o.count.clone()
	for _, p := range o.order {
		hash := func(j match.Job) []byte { return oracleHash(j.ID, p.ID, hex.EncodeToString(o.seed)) }
		byHash := slices.Clone(group)
		slices.SortFunc(byHash, func(a, b match.Job) int { return bytes.Compare(hash(a), hash(b)) })
		for _, j := range byHash {
			if _, planned := plan[j.ID]; !planned && o.fits(p, j, c) {
				plan[j.ID] = p
				c.add(p, j)
			}
		}
	}
	return plan
}

func (o *oracleRound) take(id string) {
	o.queue = slices.DeleteFunc(o.queue, func(j match.Job) bool { return j.ID == id })
}

func (o *oracleRound) run() match.Result {
	o.queue = slices.Clone(o.in.Jobs)
	slices.SortFunc(o.queue, func(a, b match.Job) int {
		return cmp.Or(cmp.Compare(o.score(b), o.score(a)), cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), strings.Compare(a.ID, b.ID))
	})
	lane := slices.DeleteFunc(slices.Clone(o.in.Jobs), func(j match.Job) bool { return j.MaxFee > o.in.Policy.Starvation.LowFeeMax })
	slices.SortFunc(lane, func(a, b match.Job) int {
		return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), strings.Compare(a.ID, b.ID))
	})
	lane = lane[:min(int64(len(lane)), o.in.Policy.BatchSize)]

	var out match.Result
	copy(out.Seed[:], o.seed)
	out.Order, out.Assignments, out.Requeued = []string{}, []match.Assignment{}, []string{}
	for _, p := range o.order {
		out.Order = append(out.Order, p.ID)
	}
	assign := func(j match.Job, p match.Provider) {
		o.count.add(p, j)
		lease := hex.EncodeToString(oracleHash("AICF|lease", j.ID, p.ID, num(j.Attempt), hex.EncodeToString(o.seed)))
		out.Assignments = append(out.Assignments, match.Assignment{Job: j.ID, Provider: p.ID, Lease: gq.LeaseID(lease), Attempt: j.Attempt, Score: o.score(j)})
	}
	fromLane := func() bool {
		every := o.in.Policy.Starvation.Every
		if every == 0 || (o.in.Matches+int64(len(out.Assignments))+1)%every != 0 {
			return false
		}
		for _, x := range lane {
			if !slices.ContainsFunc(o.queue, func(j match.Job) bool { return j.ID == x.ID }) {
				continue
			}
			for _, p := range o.order {
				if o.fits(p, x, o.count) {
					assign(x, p)
					o.take(x.ID)
					return true
				}
			}
		}
		return false
	}
	for budget := o.in.Policy.BatchSize; budget > 0 && len(o.queue) > 0; {
		var group []match.Job
		for _, j := range o.queue {
			if o.score(j) == o.score(o.queue[0]) && j.EnqueuedAt == o.queue[0].EnqueuedAt && int64(len(group)) < budget {
				group = append(group, j)
			}
		}
		plan := o.plan(group)
		for _, j := range group {
			if fromLane() {
				budget--
				break
			}
			o.take(j.ID)
			budget--
			if p, ok := plan[j.ID]; ok {
				assign(j, p)
			} else {
				out.Requeued = append(out.Requeued, j.ID)
			}
		}
	}
	return out
}

// sample returns a valid input with few distinct values, so that ties, scarce slots and
// rejections of every kind are common. Each choice is a call of intn.
func sample(intn func(n int) int, providers, jobs int) match.Input {
	of := func(list ...string) string { return list[intn(len(list))] }
	some := func(list ...string) (chosen []string) {
		for _, s := range list {
			if intn(2) == 0 {
				chosen = append(chosen, s)
			}
		}
		return chosen
	}
	rarely := func(n int, list ...string) []string {
		if intn(n) > 0 {
			return nil
		}
		return some(list...)
	}
	number := func(list ...int64) int64 { return list[intn(len(list))] }
	const now = 1_700_000_000

	in := match.Input{
		Chain: of("testnet-1", "kjede-å"), Epoch: number(0, 42), Height: int64(intn(1000)), Now: now,
		Matches: int64(intn(25)), Rotation: number(0, 0, 1, 7, match.MaxInteger), Policy: match.DefaultPolicy(),
	}
	if intn(2) == 0 {
		in.Beacon = match.Hex{0, 0xff, byte(intn(256))}
	}
	p := &in.Policy
	p.BatchSize = number(256, 256, 1, 5, 17, match.MaxInteger)
	p.Starvation.Every = number(20, 0, 1, 2, 4)
	p.Starvation.LowFeeMax = number(100_000, 0, match.MaxInteger)
	p.Quotas.LeasesMax = number(16, 16, 0, 1, 2, 3)
	p.Quotas.AIUnitsPerEpoch = number(100_000, 10, 3)
	p.Quotas.QuantumUnitsPerEpoch = number(10_000, 5)
	p.Quotas.RequesterMax = number(0, 0, 1, 3)
	switch intn(6) {
	case 0:
		p.Priority.AgeWeight, p.Priority.AgeRefAI, p.Priority.AgeRefQuantum = 7, 13, 11
	case 1: // jobs of both kinds with the same demands tie
		p.Priority.AgeRefAI, p.Priority.AgeRefQuantum = 625_000, 625_000
	}
	if intn(3) == 0 {
		in.Grants = map[string]int64{"": 1, "r1": int64(intn(4))}
	}

	for i := range providers {
		made := match.Provider{
			ID: fmt.Sprintf("p%d", i), Status: match.Statuses()[intn(24)/21], Stake: number(5000, 5000, 5000, 4999, 1000, 999),
			Capabilities: [][]match.Kind{{match.AI}, {match.Quantum}, {match.AI, match.Quantum}, {match.AI, match.Quantum}, nil}[intn(5)],
			Models:       some("m1", "m2", ""), Precisions: some("fp16", "int8"), Gates: some("h", "cx", "t"),
			MaxDepth: number(5, 10), MaxWidth: number(5, 10), Region: of("eu", "us", ""),
			Allow: rarely(6, "r1", "r2", ""), Deny: rarely(6, "r1", "r2", ""),
			AttestationExpiresAt: number(now+1, now+1, now+1, now+1, now+100, now), Health: number(5e8, 1e9, 1e9, 1e9, 1e9, 5e8-1),
			LastHeartbeatAt: number(now, now-30, now+5, now, now, now-31), LeasesActive: number(0, 0, 14, 15, 16, 17),
			AIUnitsUsed: number(0, 0, 2, 9), QuantumUnitsUsed: number(0, 4),
		}
		if intn(5) == 0 {
			made.CooldownUntil = match.Cooldowns{AI: number(0, now, now+1), Quantum: number(0, now, now+1)}
		}
		in.Providers = append(in.Providers, made)
	}
	for i := range jobs {
		made := match.Job{
			ID: fmt.Sprintf("j%d", i), Kind: match.Kinds()[intn(3)/2], Requester: of("", "r1", "r2", "r3"),
			Tier: of("", "FREE", "PRO", "PREMIUM"), MaxFee: number(0, 100_000, 100_001, 2_000_000), EnqueuedAt: number(now-100, now-100, now-200, now+5),
			SizeBytes: number(0, 0, 1048576), Units: number(0, 1, 1, 1, 3), Attempt: number(0, 0, 1, 5),
			Regions: rarely(4, "eu", "us", "moon"), Excluded: rarely(6, "p0", "p1", "gone"),
		}
		if made.Kind == match.AI {
			made.Spec = match.Demand{Model: of("", "m1", "m2", "m3"), Precision: of("", "", "fp16", "int8"), Depth: 99, Gates: some("x")}
		} else {
			made.Spec = match.Demand{Gates: rarely(2, "h", "cx"), Depth: number(0, 5, 6), Width: number(0, 5, 6, 11), Model: of("", "m3")}
		}
		in.Jobs = append(in.Jobs, made)
	}
	return in
}

// crowd returns an input in which nearly all jobs tie, slots are few and the lane is due
// every few matches, so that plans are repeated often.
func crowd(intn func(n int) int, providers, jobs int) match.Input {
	in := input(nil)
	in.Height, in.Matches = int64(intn(1000)), int64(intn(4))
	in.Policy.BatchSize = int64(2 + intn(jobs))
	in.Policy.Starvation.Every = int64(2 + intn(3))
	in.Policy.Quotas.LeasesMax = int64(1 + intn(3))
	in.Policy.Quotas.AIUnitsPerEpoch = int64(2 + intn(5))
	in.Policy.Quotas.RequesterMax = int64(intn(3) * intn(8))
	for i := range providers {
		p := provider(fmt.Sprintf("p%d", i))
		p.LeasesActive, p.AIUnitsUsed, p.Allow, p.Models = int64(intn(2)), 0, nil, []string{"m", "n"}[:1+intn(2)]
		in.Providers = append(in.Providers, p)
	}
	for i := range jobs {
		j := job(fmt.Sprintf("j%d", i), match.AI)
		j.MaxFee = []int64{0, 200_000, 200_000, 200_000}[intn(4)]
		j.Units, j.Spec.Model, j.Requester = int64(intn(3)), []string{"", "m", "n"}[intn(3)], []string{"r", "s"}[intn(2)]
		if intn(5) == 0 {
			j.Excluded = []string{fmt.Sprintf("p%d", intn(providers))}
		}
		in.Jobs = append(in.Jobs, j)
	}
	return in
}
