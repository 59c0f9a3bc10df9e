package match

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Hex is a byte string, encoded in hexadecimal digits.
type Hex []byte

// MarshalText encodes the bytes in lowercase digits.
func (h Hex) MarshalText() ([]byte, error) { return hex.AppendEncode([]byte{}, h), nil }

// UnmarshalText decodes digits in either case.
func (h *Hex) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("%w: %w", err, gq.ErrInvalid)
	}
	*h = b
	return nil
}

// Decode decodes an input from one JSON object. Missing or null members are zero; in the
// policy they have their defaults, and units of a job are [DefaultUnits]. It is strict: an unknown or repeated member, null in a
// list or map, a number that is not a plain integer, and everything that [Input.Validate]
// rejects are faults. It reports all of them at once in a [gq.InvalidError]; only text
// that is not JSON ends decoding early.
func Decode(text []byte) (Input, error) {
	in := Input{Policy: DefaultPolicy()}
	if err := decode(text, &in, inputMembers, in.Validate); err != nil {
		return Input{}, err
	}
	return in, nil
}

// decode decodes one object and reports every fault: of its form, and those that validate
// finds.
func decode[T any](text []byte, into *T, members []member[T], validate func() error) error {
	if problem := malformed(text); problem != "" {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "input", Problem: problem}}}
	}
	d := decoder{scanner: scanner{text: text}}
	if d.peek() != '{' {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "input", Problem: "is not a JSON object"}}}
	}
	object(&d, into, members)

	// A member that could not be decoded is zero now, and may also be missing or out of
	// range. That is not a second fault.
	reported := make(map[string]bool, len(d.faults))
	for _, f := range d.faults {
		reported[f.Field] = true
	}
	for _, f := range errs.FaultsOf(validate()) {
		if !reported[f.Field] {
			d.faults = append(d.faults, f)
		}
	}
	return d.err()
}

// malformed says why text is not one JSON value in UTF-8, or returns "" if it is.
func malformed(text []byte) string {
	if !utf8.Valid(text) {
		at := 0
		for at < len(text) {
			r, size := utf8.DecodeRune(text[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		return "is not valid UTF-8" + position(text, at)
	}
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return "is not JSON: " + e.Error() + position(text, max(0, int(e.Offset)-1))
		}
		return "is not JSON: " + err.Error()
	}
	return ""
}

func position(text []byte, at int) string {
	before := text[:min(at, len(text))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf(" at line %d, column %d", line, column)
}

// member decodes one member of an object into a T.
type member[T any] struct {
	name string
	read func(*decoder, *T)
}

var inputMembers = []member[Input]{
	{"chain_id", func(d *decoder, in *Input) { d.text(&in.Chain) }},
	{"epoch_id", func(d *decoder, in *Input) { d.integer(&in.Epoch) }},
	{"block_height", func(d *decoder, in *Input) { d.integer(&in.Height) }},
	{"beacon", func(d *decoder, in *Input) { d.hex(&in.Beacon) }},
	{"now", func(d *decoder, in *Input) { d.integer(&in.Now) }},
	{"match_count", func(d *decoder, in *Input) { d.integer(&in.Matches) }},
	{"rotation", func(d *decoder, in *Input) { d.integer(&in.Rotation) }},
	{"requester_grants", func(d *decoder, in *Input) { d.amounts(&in.Grants) }},
	{"policy", func(d *decoder, in *Input) { object(d, &in.Policy, policyMembers) }},
	{"providers", func(d *decoder, in *Input) { objects(d, &in.Providers, Provider{}, providerMembers) }},
	{"jobs", func(d *decoder, in *Input) { objects(d, &in.Jobs, Job{Units: DefaultUnits}, jobMembers) }},
}

var policyMembers = []member[Policy]{
	{"batch_size", func(d *decoder, p *Policy) { d.integer(&p.BatchSize) }},
	{"priority", func(d *decoder, p *Policy) { object(d, &p.Priority, priorityMembers) }},
	{"eligibility", func(d *decoder, p *Policy) { object(d, &p.Eligibility, eligibilityMembers) }},
	{"quotas", func(d *decoder, p *Policy) { object(d, &p.Quotas, quotasMembers) }},
	{"starvation", func(d *decoder, p *Policy) { object(d, &p.Starvation, starvationMembers) }},
}

// FormerAgeRef says what replaces age_ref_secs, a member of earlier policies.
const FormerAgeRef = "is no longer known: age_ref_ai_secs and age_ref_quantum_secs replace it"

var priorityMembers = []member[Priority]{
	{"w_fee_ppb", func(d *decoder, p *Priority) { d.integer(&p.FeeWeight) }},
	{"w_age_ppb", func(d *decoder, p *Priority) { d.integer(&p.AgeWeight) }},
	{"w_size_ppb", func(d *decoder, p *Priority) { d.integer(&p.SizeWeight) }},
	{"w_tier_ppb", func(d *decoder, p *Priority) { d.integer(&p.TierWeight) }},
	{"fee_ref", func(d *decoder, p *Priority) { d.integer(&p.FeeRef) }},
	{"age_ref_ai_secs", func(d *decoder, p *Priority) { d.integer(&p.AgeRefAI) }},
	{"age_ref_quantum_secs", func(d *decoder, p *Priority) { d.integer(&p.AgeRefQuantum) }},
	{"size_ref_bytes", func(d *decoder, p *Priority) { d.integer(&p.SizeRef) }},
	{"tiers", func(d *decoder, p *Priority) { d.amounts(&p.Tiers) }}, // merged with the defaults by name
}

var eligibilityMembers = []member[Eligibility]{
	{"min_health_ppb", func(d *decoder, e *Eligibility) { d.integer(&e.MinHealth) }},
	{"heartbeat_timeout_secs", func(d *decoder, e *Eligibility) { d.integer(&e.HeartbeatTimeout) }},
	{"min_stake_ai", func(d *decoder, e *Eligibility) { d.integer(&e.MinStakeAI) }},
	{"min_stake_quantum", func(d *decoder, e *Eligibility) { d.integer(&e.MinStakeQuantum) }},
}

var quotasMembers = []member[Quotas]{
	{"leases_max_per_provider", func(d *decoder, q *Quotas) { d.integer(&q.LeasesMax) }},
	{"ai_units_per_epoch", func(d *decoder, q *Quotas) { d.integer(&q.AIUnitsPerEpoch) }},
	{"quantum_units_per_epoch", func(d *decoder, q *Quotas) { d.integer(&q.QuantumUnitsPerEpoch) }},
	{"requester_max", func(d *decoder, q *Quotas) { d.integer(&q.RequesterMax) }},
	{"requester_window_secs", func(d *decoder, q *Quotas) { d.integer(&q.RequesterWindow) }},
}

var starvationMembers = []member[Starvation]{
	{"every", func(d *decoder, s *Starvation) { d.integer(&s.Every) }},
	{"low_fee_max", func(d *decoder, s *Starvation) { d.integer(&s.LowFeeMax) }},
}

var providerMembers = []member[Provider]{
	{"id", func(d *decoder, p *Provider) { d.text(&p.ID) }},
	{"status", func(d *decoder, p *Provider) { d.status(&p.Status) }},
	{"capabilities", func(d *decoder, p *Provider) { d.kinds(&p.Capabilities) }},
	{"models", func(d *decoder, p *Provider) { d.texts(&p.Models) }},
	{"precisions", func(d *decoder, p *Provider) { d.texts(&p.Precisions) }},
	{"gates", func(d *decoder, p *Provider) { d.texts(&p.Gates) }},
	{"max_depth", func(d *decoder, p *Provider) { d.integer(&p.MaxDepth) }},
	{"max_width", func(d *decoder, p *Provider) { d.integer(&p.MaxWidth) }},
	{"region", func(d *decoder, p *Provider) { d.text(&p.Region) }},
	{"allow", func(d *decoder, p *Provider) { d.texts(&p.Allow) }},
	{"deny", func(d *decoder, p *Provider) { d.texts(&p.Deny) }},
	{"stake", func(d *decoder, p *Provider) { d.integer(&p.Stake) }},
	{"attestation_expires_at", func(d *decoder, p *Provider) { d.integer(&p.AttestationExpiresAt) }},
	{"health_ppb", func(d *decoder, p *Provider) { d.integer(&p.Health) }},
	{"last_heartbeat_at", func(d *decoder, p *Provider) { d.integer(&p.LastHeartbeatAt) }},
	{"cooldown_until", func(d *decoder, p *Provider) { object(d, &p.CooldownUntil, cooldownMembers) }},
	{"leases_active", func(d *decoder, p *Provider) { d.integer(&p.LeasesActive) }},
	{"ai_units_used", func(d *decoder, p *Provider) { d.integer(&p.AIUnitsUsed) }},
	{"quantum_units_used", func(d *decoder, p *Provider) { d.integer(&p.QuantumUnitsUsed) }},
}

var cooldownMembers = []member[Cooldowns]{
	{"AI", func(d *decoder, c *Cooldowns) { d.integer(&c.AI) }},
	{"QUANTUM", func(d *decoder, c *Cooldowns) { d.integer(&c.Quantum) }},
}

var jobMembers = []member[Job]{
	{"id", func(d *decoder, j *Job) { d.text(&j.ID) }},
	{"kind", func(d *decoder, j *Job) { d.kind(&j.Kind) }},
	{"spec", func(d *decoder, j *Job) { object(d, &j.Spec, demandMembers) }},
	{"requester", func(d *decoder, j *Job) { d.text(&j.Requester) }},
	{"tier", func(d *decoder, j *Job) { d.text(&j.Tier) }},
	{"max_fee", func(d *decoder, j *Job) { d.integer(&j.MaxFee) }},
	{"enqueue_ts", func(d *decoder, j *Job) { d.integer(&j.EnqueuedAt) }},
	{"size_bytes", func(d *decoder, j *Job) { d.integer(&j.SizeBytes) }},
	{"units", func(d *decoder, j *Job) { d.integer(&j.Units) }},
	{"attempt", func(d *decoder, j *Job) { d.integer(&j.Attempt) }},
	{"regions", func(d *decoder, j *Job) { d.texts(&j.Regions) }},
	{"excluded", func(d *decoder, j *Job) { d.texts(&j.Excluded) }},
}

var demandMembers = []member[Demand]{
	{"model", func(d *decoder, w *Demand) { d.text(&w.Model) }},
	{"precision", func(d *decoder, w *Demand) { d.text(&w.Precision) }},
	{"gates", func(d *decoder, w *Demand) { d.texts(&w.Gates) }},
	{"depth", func(d *decoder, w *Demand) { d.integer(&w.Depth) }},
	{"width", func(d *decoder, w *Demand) { d.integer(&w.Width) }},
}

// object decodes an object member by member; null changes nothing.
func object[T any](d *decoder, into *T, members []member[T]) {
	var given uint64
	d.members(func(name string) {
		i := slices.IndexFunc(members, func(m member[T]) bool { return m.name == name })
		switch {
		case i < 0:
			if name == "age_ref_secs" {
				d.fault("", FormerAgeRef)
			} else {
				d.fault("", "is not a known member")
			}
			d.skip()
		case given&(1<<i) != 0:
			d.fault("", "is given more than once")
			d.skip()
		default:
			given |= 1 << i
			if !d.null() {
				members[i].read(d, into)
			}
		}
	})
}

// objects decodes a list of objects. Members that an object does not give are those of blank.
func objects[T any](d *decoder, into *[]T, blank T, members []member[T]) {
	d.entries(func() {
		entry := blank
		object(d, &entry, members)
		*into = append(*into, entry)
	})
}
