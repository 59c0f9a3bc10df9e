package match

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// Size limits of what is hashed.
const (
	MaxIDBytes     = 255
	MaxBeaconBytes = 1024
)

// Validate reports all faults of the input as a [gq.InvalidError].
func (in *Input) Validate() error {
	var c checker
	c.input(in)
	return c.err()
}

// Validate reports all faults of the policy as a [gq.InvalidError].
func (p *Policy) Validate() error {
	var c checker
	c.policy(p, MaxInteger, MaxInteger)
	return c.err()
}

// Validate reports all faults of the job under any policy as a [gq.InvalidError]. It does
// not check whether a policy has the job's tier.
func (j *Job) Validate() error {
	var c checker
	c.job(j, nil)
	return c.err()
}

// CheckID reports what is wrong with an id of a chain, provider or job, or "". Ids are
// parts of hashed texts, so separators of the parts and characters that look the same in
// print are not allowed.
func CheckID(id string) (problem string) {
	switch {
	case id == "":
		return "is missing"
	case len(id) > MaxIDBytes:
		return fmt.Sprintf("has %d bytes, and %d are allowed", len(id), MaxIDBytes)
	case !utf8.ValidString(id):
		return fmt.Sprintf("%.64q is not valid UTF-8", id)
	}
	for _, r := range id {
		if r == '|' || r < 0x20 || r == 0x7f || r == utf8.RuneError {
			return fmt.Sprintf("%.64q contains %q, which an id must not", id, r)
		}
	}
	return ""
}

// checker collects faults. It builds the path of a field only for a fault, since most
// inputs have many fields and no fault.
type checker struct {
	faults []gq.Fault
	path   []step
}

// step is one element of a path: a member name or, without one, a list index.
type step struct {
	name  string
	index int
}

func (c *checker) err() error {
	if len(c.faults) == 0 {
		return nil
	}
	return &gq.InvalidError{Faults: c.faults}
}

// fault reports a problem of the member with that name, "" for the object itself.
func (c *checker) fault(name, format string, args ...any) {
	field := c.field(name)
	c.faults = append(c.faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (c *checker) field(name string) string {
	var at strings.Builder
	member := func(name string) {
		if at.Len() > 0 {
			at.WriteByte('.')
		}
		at.WriteString(name)
	}
	for _, s := range c.path {
		if s.name == "" {
			fmt.Fprintf(&at, "[%d]", s.index)
		} else {
			member(s.name)
		}
	}
	if name != "" {
		member(name)
	}
	return at.String()
}

func (c *checker) enter(name string) { c.path = append(c.path, step{name: name}) }
func (c *checker) enterAt(i int)     { c.path = append(c.path, step{index: i}) }
func (c *checker) leave()            { c.path = c.path[:len(c.path)-1] }

// label returns a name as a path shows it: quoted unless it is a plain word.
func label(name string) string {
	word := func(r rune) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	}
	if name != "" && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool { return !word(r) }) < 0 {
		return name
	}
	return fmt.Sprintf("%.64q", name)
}

// within checks an integer against its range.
func (c *checker) within(name string, v, least, most int64) {
	if v < least || v > most {
		c.fault(name, "is not between %d and %d", least, most)
	}
}

func (c *checker) integer(name string, v int64) { c.within(name, v, 0, MaxInteger) }
func (c *checker) time(name string, v int64)    { c.within(name, v, 0, MaxTime) }
func (c *checker) share(name string, v int64)   { c.within(name, v, 0, ppb) }

func (c *checker) id(name, id string) {
	if problem := CheckID(id); problem != "" {
		c.fault(name, "%s", problem)
	}
}

func (c *checker) text(name, s string) {
	if !utf8.ValidString(s) {
		c.fault(name, "%.64q is not valid UTF-8", s)
	}
}

func (c *checker) texts(name string, list []string) {
	for i, s := range list {
		if !utf8.ValidString(s) {
			c.text(fmt.Sprintf("%s[%d]", name, i), s)
		}
	}
}

func (c *checker) input(in *Input) {
	c.id("chain_id", in.Chain)
	c.integer("epoch_id", in.Epoch)
	c.integer("block_height", in.Height)
	if len(in.Beacon) > MaxBeaconBytes {
		c.fault("beacon", "has %d bytes, and %d are allowed", len(in.Beacon), MaxBeaconBytes)
	}
	c.time("now", in.Now)
	c.integer("match_count", in.Matches)
	c.integer("rotation", in.Rotation)
	c.enter("policy")
	c.policy(&in.Policy, MaxInteger, MaxInteger)
	c.leave()
	c.amounts("requester_grants", in.Grants, MaxInteger)

	c.enter("providers")
	seen := make(map[string]int, len(in.Providers))
	for i := range in.Providers {
		c.enterAt(i)
		c.provider(&in.Providers[i])
		c.unique(seen, in.Providers[i].ID, i)
		c.leave()
	}
	c.leave()

	c.enter("jobs")
	seen = make(map[string]int, len(in.Jobs))
	for i := range in.Jobs {
		c.enterAt(i)
		c.job(&in.Jobs[i], in.Policy.Priority.Tiers)
		c.unique(seen, in.Jobs[i].ID, i)
		c.leave()
	}
	c.leave()
}

// unique rejects an id that an earlier entry of the list has.
func (c *checker) unique(seen map[string]int, id string, i int) {
	if first, ok := seen[id]; ok && id != "" {
		c.fault("id", "%.64q is that of entry %d too", id, first)
		return
	}
	seen[id] = i
}

// amounts checks a map in order of names, so that faults have a fixed order.
func (c *checker) amounts(name string, m map[string]int64, most int64) {
	c.enter(name)
	defer c.leave()
	sound := true
	for key, v := range m {
		sound = sound && v >= 0 && v <= most && utf8.ValidString(key)
	}
	if sound {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		c.text(label(key), key)
		c.within(label(key), m[key], 0, most)
	}
}

func (c *checker) policy(p *Policy, batch, leases int64) {
	c.within("batch_size", p.BatchSize, 1, batch)

	c.enter("priority")
	c.share("w_fee_ppb", p.Priority.FeeWeight)
	c.share("w_age_ppb", p.Priority.AgeWeight)
	c.share("w_size_ppb", p.Priority.SizeWeight)
	c.share("w_tier_ppb", p.Priority.TierWeight)
	c.within("fee_ref", p.Priority.FeeRef, 1, MaxTime)
	c.within("age_ref_ai_secs", p.Priority.AgeRefAI, 1, MaxTime)
	c.within("age_ref_quantum_secs", p.Priority.AgeRefQuantum, 1, MaxTime)
	c.within("size_ref_bytes", p.Priority.SizeRef, 1, MaxTime)
	c.amounts("tiers", p.Priority.Tiers, ppb)
	if _, ok := p.Priority.Tiers[FreeTier]; !ok {
		c.fault("tiers", "%s is missing", FreeTier)
	}
	c.leave()

	c.enter("eligibility")
	c.share("min_health_ppb", p.Eligibility.MinHealth)
	c.time("heartbeat_timeout_secs", p.Eligibility.HeartbeatTimeout)
	c.integer("min_stake_ai", p.Eligibility.MinStakeAI)
	c.integer("min_stake_quantum", p.Eligibility.MinStakeQuantum)
	c.leave()

	c.enter("quotas")
	c.within("leases_max_per_provider", p.Quotas.LeasesMax, 0, leases)
	c.integer("ai_units_per_epoch", p.Quotas.AIUnitsPerEpoch)
	c.integer("quantum_units_per_epoch", p.Quotas.QuantumUnitsPerEpoch)
	c.integer("requester_max", p.Quotas.RequesterMax)
	c.time("requester_window_secs", p.Quotas.RequesterWindow)
	c.leave()

	c.enter("starvation")
	c.integer("every", p.Starvation.Every)
	c.integer("low_fee_max", p.Starvation.LowFeeMax)
	c.leave()
}

func (c *checker) provider(p *Provider) {
	c.id("id", p.ID)
	if !p.Status.Valid() {
		c.fault("status", "is missing; want one of %v", statusNames[1:])
	}
	for i, k := range p.Capabilities {
		if !k.Valid() {
			c.fault(fmt.Sprintf("capabilities[%d]", i), "is not one of %v", kindNames[1:])
		}
	}
	c.texts("models", p.Models)
	c.texts("precisions", p.Precisions)
	c.texts("gates", p.Gates)
	c.integer("max_depth", p.MaxDepth)
	c.integer("max_width", p.MaxWidth)
	c.text("region", p.Region)
	c.texts("allow", p.Allow)
	c.texts("deny", p.Deny)
	c.integer("stake", p.Stake)
	c.time("attestation_expires_at", p.AttestationExpiresAt)
	c.share("health_ppb", p.Health)
	c.time("last_heartbeat_at", p.LastHeartbeatAt)
	c.enter("cooldown_until")
	c.time("AI", p.CooldownUntil.AI)
	c.time("QUANTUM", p.CooldownUntil.Quantum)
	c.leave()
	c.integer("leases_active", p.LeasesActive)
	c.integer("ai_units_used", p.AIUnitsUsed)
	c.integer("quantum_units_used", p.QuantumUnitsUsed)
}

// job checks a job, and its tier if tiers are given.
func (c *checker) job(j *Job, tiers map[string]int64) {
	c.id("id", j.ID)
	if !j.Kind.Valid() {
		c.fault("kind", "is missing; want one of %v", kindNames[1:])
	}
	c.enter("spec")
	c.text("model", j.Spec.Model)
	c.text("precision", j.Spec.Precision)
	c.texts("gates", j.Spec.Gates)
	c.integer("depth", j.Spec.Depth)
	c.integer("width", j.Spec.Width)
	c.leave()
	c.text("requester", j.Requester)
	if _, known := tiers[j.Tier]; tiers != nil && !known && j.Tier != "" {
		c.fault("tier", "%.64q is not one of %v", j.Tier, slices.Sorted(maps.Keys(tiers)))
	}
	c.integer("max_fee", j.MaxFee)
	c.time("enqueue_ts", j.EnqueuedAt)
	c.integer("size_bytes", j.SizeBytes)
	c.integer("units", j.Units)
	c.integer("attempt", j.Attempt)
	c.texts("regions", j.Regions)
	for i, id := range j.Excluded {
		if CheckID(id) != "" {
			c.id(fmt.Sprintf("excluded[%d]", i), id)
		}
	}
}
