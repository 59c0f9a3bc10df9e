package match

import (
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// Update changes the settings that a JSON object names. It is as strict as [Decode]: if
// there is any fault, it reports all of them and changes nothing.
func (s *Settings) Update(text []byte) error {
	next := s.Clone()
	if err := decode(text, &next, settingsMembers, next.Validate); err != nil {
		return err
	}
	*s = next
	return nil
}

// DecodeProvider decodes the profile of a provider, with the names of a round's input,
// and returns which members were given.
func DecodeProvider(text []byte) (p Provider, given map[string]bool, err error) {
	given = make(map[string]bool)
	members := make([]member[Provider], len(providerMembers))
	for i, m := range providerMembers {
		members[i] = member[Provider]{m.name, func(d *decoder, p *Provider) {
			given[m.name] = true
			m.read(d, p)
		}}
	}
	err = decode(text, &p, members, func() error {
		if p.Status == 0 && !given["status"] {
			p.Status = Active
		}
		var c checker
		c.provider(&p)
		return c.err()
	})
	return p, given, err
}

// Enqueue is a job as submitted by a requester.
type Enqueue struct {
	Job
	TTL     int64           `json:"ttl_abs,omitzero"` // lifetime in seconds; 0 is the default
	Payload json.RawMessage `json:"payload,omitempty"`
	Key     string          `json:"idempotency_key,omitzero"` // makes the submission idempotent for its requester

	Unnamed bool `json:"-"` // units were not given and have the default
}

// queueSays are the members of a job that only the queue sets.
var queueSays = []string{"id", "enqueue_ts", "attempt", "excluded"}

// QueueSays lists the members of a job that only the queue sets.
func QueueSays() []string { return slices.Clone(queueSays) }

var enqueueMembers = func() []member[Enqueue] {
	var members []member[Enqueue]
	for _, m := range jobMembers {
		if !slices.Contains(queueSays, m.name) {
			members = append(members, member[Enqueue]{m.name, func(d *decoder, e *Enqueue) {
				m.read(d, &e.Job)
				e.Unnamed = e.Unnamed && m.name != "units"
			}})
		}
	}
	return append(members,
		member[Enqueue]{"ttl_abs", func(d *decoder, e *Enqueue) { d.integer(&e.TTL) }},
		member[Enqueue]{"idempotency_key", func(d *decoder, e *Enqueue) { d.text(&e.Key) }},
		member[Enqueue]{"payload", func(d *decoder, e *Enqueue) {
			d.peek()
			start := d.at
			d.skip()
			e.Payload = d.scanner.text[start:d.at]
		}})
}()

// DecodeEnqueue decodes a submitted job: the members of a job of the input that the queue
// does not set, its lifetime ttl_abs in seconds, and a payload. The size defaults to that
// of the payload, and units to [DefaultUnits].
func DecodeEnqueue(text []byte, s *Settings) (e Enqueue, err error) {
	e.Units, e.Unnamed = DefaultUnits, true
	err = decode(text, &e, enqueueMembers, func() error {
		if e.SizeBytes == 0 {
			e.SizeBytes = int64(len(e.Payload))
		}
		return e.validate(s)
	})
	return e, err
}

func (e *Enqueue) validate(s *Settings) error {
	var c checker
	checked := e.Job
	checked.ID, checked.Units = "-", DefaultUnits // a job of a queue may count less than one of a round alone
	c.job(&checked, s.Priority.Tiers)
	c.within("units", e.Units, 0, gq.MaxCostUnits)
	if len(e.Requester) > gq.MaxNameBytes {
		c.fault("requester", "has %d bytes, and %d are allowed", len(e.Requester), gq.MaxNameBytes)
	}
	c.within("ttl_abs", e.TTL, 0, longest)
	if n := utf8.RuneCountInString(e.Key); n > gq.MaxKeyRunes {
		c.fault("idempotency_key", "has %d characters, and %d are allowed", n, gq.MaxKeyRunes)
	}
	return c.err()
}

// DecodeBeacon decodes the position of a chain.
func DecodeBeacon(text []byte) (b Beacon, err error) {
	err = decode(text, &b, beaconMembers, func() error {
		var c checker
		c.id("chain_id", b.Chain)
		c.integer("epoch_id", b.Epoch)
		c.integer("block_height", b.Height)
		if len(b.Beacon) > MaxBeaconBytes {
			c.fault("beacon", "has %d bytes, and %d are allowed", len(b.Beacon), MaxBeaconBytes)
		}
		return c.err()
	})
	return b, err
}

// Beacon is the position of a chain, from which a seed is derived.
type Beacon struct {
	Chain  string `json:"chain_id"`
	Epoch  int64  `json:"epoch_id"`
	Height int64  `json:"block_height"`
	Beacon Hex    `json:"beacon"`
}

// Seed returns the seed of rounds at this position.
func (b *Beacon) Seed() Seed { return NewSeed(b.Chain, b.Epoch, b.Height, b.Beacon) }

var beaconMembers = []member[Beacon]{
	{"chain_id", func(d *decoder, b *Beacon) { d.text(&b.Chain) }},
	{"epoch_id", func(d *decoder, b *Beacon) { d.integer(&b.Epoch) }},
	{"block_height", func(d *decoder, b *Beacon) { d.integer(&b.Height) }},
	{"beacon", func(d *decoder, b *Beacon) { d.hex(&b.Beacon) }},
}

var settingsMembers = []member[Settings]{
	{"batch_size", func(d *decoder, s *Settings) { d.integer(&s.BatchSize) }},
	{"dispatch_interval_ms", func(d *decoder, s *Settings) { d.integer(&s.DispatchInterval) }},
	{"ack_timeout_ms", func(d *decoder, s *Settings) { d.integer(&s.AckTimeout) }},
	{"depth_max", func(d *decoder, s *Settings) { d.integer(&s.DepthMax) }},
	{"priority", func(d *decoder, s *Settings) { object(d, &s.Priority, priorityMembers) }},
	{"eligibility", func(d *decoder, s *Settings) { object(d, &s.Eligibility, eligibilityMembers) }},
	{"quotas", func(d *decoder, s *Settings) { object(d, &s.Quotas, quotasMembers) }},
	{"starvation", func(d *decoder, s *Settings) { object(d, &s.Starvation, starvationMembers) }},
	{"lease", func(d *decoder, s *Settings) { object(d, &s.Lease, termsMembers) }},
	{"retries", func(d *decoder, s *Settings) { object(d, &s.Retries, retriesMembers) }},
	{"ttl", func(d *decoder, s *Settings) { object(d, &s.TTL, ttlMembers) }},
	{"health", func(d *decoder, s *Settings) { object(d, &s.Health, healthMembers) }},
	{"cooldown", func(d *decoder, s *Settings) { object(d, &s.Cooldown, coolingMembers) }},
	{"sla", func(d *decoder, s *Settings) { object(d, &s.SLA, slaMembers) }},
	{"seed", func(d *decoder, s *Settings) { object(d, &s.Clock, clockMembers) }},
}

var termsMembers = []member[Terms]{
	{"ai_secs", func(d *decoder, t *Terms) { d.integer(&t.AI) }},
	{"quantum_secs", func(d *decoder, t *Terms) { d.integer(&t.Quantum) }},
	{"renew_alpha", func(d *decoder, t *Terms) { d.decimal(&t.RenewAlpha) }},
	{"renew_beta", func(d *decoder, t *Terms) { d.decimal(&t.RenewBeta) }},
	{"renewals_max", func(d *decoder, t *Terms) { d.integer(&t.RenewalsMax) }},
}

var retriesMembers = []member[Retries]{
	{"attempt_max", func(d *decoder, r *Retries) { d.integer(&r.AttemptMax) }},
	{"base_backoff_ai_secs", func(d *decoder, r *Retries) { d.integer(&r.BaseAI) }},
	{"base_backoff_quantum_secs", func(d *decoder, r *Retries) { d.integer(&r.BaseQuantum) }},
	{"backoff_factor", func(d *decoder, r *Retries) { d.decimal(&r.Factor) }},
	{"backoff_cap_secs", func(d *decoder, r *Retries) { d.integer(&r.Cap) }},
}

var ttlMembers = []member[TTL]{
	{"abs_default_ai_secs", func(d *decoder, t *TTL) { d.integer(&t.AI) }},
	{"abs_default_quantum_secs", func(d *decoder, t *TTL) { d.integer(&t.Quantum) }},
	{"rel_max_secs", func(d *decoder, t *TTL) { d.integer(&t.RelMax) }},
	{"gc_horizon_secs", func(d *decoder, t *TTL) { d.integer(&t.GCHorizon) }},
}

var healthMembers = []member[Health]{
	{"decay_ack_timeout_ppb", func(d *decoder, h *Health) { d.integer(&h.DecayAckTimeout) }},
	{"decay_lease_expired_ppb", func(d *decoder, h *Health) { d.integer(&h.DecayLeaseExpired) }},
	{"recover_ppb_per_sec", func(d *decoder, h *Health) { d.integer(&h.Recover) }},
}

var coolingMembers = []member[Cooldown]{
	{"decline_secs", func(d *decoder, c *Cooldown) { d.integer(&c.Decline) }},
	{"lease_expired_secs", func(d *decoder, c *Cooldown) { d.integer(&c.LeaseExpired) }},
	{"fails_in_a_row", func(d *decoder, c *Cooldown) { d.integer(&c.FailsInARow) }},
	{"fails_secs", func(d *decoder, c *Cooldown) { d.integer(&c.Fails) }},
}

var slaMembers = []member[SLA]{
	{"slash_ppb", func(d *decoder, s *SLA) { d.integer(&s.Slash) }},
	{"jail_after", func(d *decoder, s *SLA) { d.integer(&s.JailAfter) }},
}

var clockMembers = []member[Clock]{
	{"chain_id", func(d *decoder, c *Clock) { d.text(&c.Chain) }},
	{"epoch_secs", func(d *decoder, c *Clock) { d.integer(&c.Epoch) }},
	{"height_secs", func(d *decoder, c *Clock) { d.integer(&c.Height) }},
}

// decimal decodes a number with at most nine decimal places.
func (d *decoder) decimal(into *Share) {
	c := d.peek()
	if c != '-' && (c < '0' || c > '9') {
		d.wrong("a number")
		return
	}
	literal := string(d.plain())
	read, ok := parseShare(literal)
	if !ok {
		d.fault("", "%.64s is not a plain decimal with at most nine places", literal)
		return
	}
	*into = read
}
