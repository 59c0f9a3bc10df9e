package codec

import (
	"time"

	"github.com/gopherqueue/gq"
)

// The optional fields of a Spec that follow.
const (
	hasKey = 1 << iota
	hasFirstRun
	hasDependsOn
	hasCost
	hasRequires
	hasRequester
	hasAttributes
	hasReplayOf
	hasMetadata
	hasDelay
	hasKeys
	hasUnique
	hasReplaces
	hasWorkflow
	hasOrderKey
	hasWeight
	specBits
)

// AppendSpec appends the spec. The payload comes last, unchanged.
func AppendSpec(s *gq.Spec, b []byte) ([]byte, error) {
	e := encoder{b}
	e.byte(codecVersion)
	has := specHas(s)
	e.uvarint(has)
	e.id(s.ID)
	e.string(s.Queue)
	e.string(s.Type)
	e.policy(&s.Policy)
	e.byte(byte(s.Metadata.Priority))
	if s.Payload.ContentType == gq.JSON {
		e.byte(1)
	} else {
		e.byte(0)
		e.string(s.Payload.ContentType)
	}
	if has&hasKey != 0 {
		e.string(s.Key.Scope)
		e.string(s.Key.Name)
		e.fixed(s.Key.Fingerprint)
	}
	if has&hasUnique != 0 {
		e.unique(&s.Unique)
	}
	if has&hasFirstRun != 0 {
		e.fixed(uint64(s.RunAt.UnixNano()))
	}
	if has&hasDelay != 0 {
		e.uvarint(uint64(s.Delay))
	}
	if has&hasDependsOn != 0 {
		e.uvarint(uint64(len(s.DependsOn)))
		for _, d := range s.DependsOn {
			e.byte(byte(d.Kind))
			e.id(d.Job)
		}
	}
	if has&hasCost != 0 {
		e.uvarint(uint64(s.CostUnits))
	}
	if has&hasRequires != 0 {
		e.uvarint(uint64(len(s.Requires)))
		for _, r := range s.Requires {
			e.string(r)
		}
	}
	if has&hasRequester != 0 {
		e.string(s.Requester)
		e.string(s.Tier)
		e.uvarint(uint64(s.MaxFee))
	}
	if has&hasKeys != 0 {
		e.string(s.LimitKey)
		e.string(s.FairKey)
	}
	if has&hasAttributes != 0 {
		e.strings(s.Attributes)
	}
	if has&hasReplayOf != 0 {
		e.id(s.ReplayOf)
	}
	if has&hasReplaces != 0 {
		e.id(s.Replaces)
	}
	if has&hasWorkflow != 0 {
		e.id(gq.JobID(s.Workflow))
		e.string(s.Ref)
		e.byte(byte(s.Gate))
	}
	if has&hasOrderKey != 0 {
		e.string(s.OrderKey)
	}
	if has&hasWeight != 0 {
		e.uvarint(uint64(s.Weight))
	}
	if has&hasMetadata != 0 {
		e.metadata(s.Metadata)
	}
	e.bytes(s.Payload.Data)
	return e.b, nil
}

func specHas(s *gq.Spec) (bits uint64) {
	set := func(bit uint64, present bool) {
		if present {
			bits |= bit
		}
	}
	m := &s.Metadata
	set(hasKey, s.Key.Name != "")
	set(hasFirstRun, !s.RunAt.IsZero())
	set(hasDelay, s.Delay != 0)
	set(hasDependsOn, len(s.DependsOn) > 0)
	set(hasCost, s.CostUnits != 0)
	set(hasRequires, len(s.Requires) > 0)
	set(hasRequester, s.Requester != "" || s.Tier != "" || s.MaxFee != 0)
	set(hasKeys, s.LimitKey != "" || s.FairKey != "")
	set(hasAttributes, len(s.Attributes) > 0)
	set(hasWorkflow, !s.Workflow.IsZero() || s.Ref != "" || s.Gate != 0)
	set(hasReplayOf, !s.ReplayOf.IsZero())
	set(hasUnique, !s.Unique.IsZero())
	set(hasReplaces, !s.Replaces.IsZero())
	set(hasOrderKey, s.OrderKey != "")
	set(hasWeight, s.Weight != 0)
	set(hasMetadata, len(m.Tags) > 0 || m.CorrelationID != "" || m.CallbackURL != "")
	return bits
}

// SkimSpec reads the id and the queue of an encoded spec.
func SkimSpec(b []byte) (id gq.JobID, queue string, err error) {
	d := decoder{b: b}
	d.version()
	d.uvarint()
	id, queue = d.id(), d.string()
	return id, queue, d.err
}

// SkimSpecType reads the type of an encoded spec. It returns known, without allocating, if it is equal.
func SkimSpecType(b []byte, known string) (string, error) {
	d := decoder{b: b}
	d.version()
	d.uvarint()
	d.id()
	d.bytes()
	typ := d.stringLike(known)
	return typ, d.err
}

// SetSpecID replaces the id in an encoded spec.
func SetSpecID(b []byte, id gq.JobID) {
	d := decoder{b: b[1:]} // after the version
	d.uvarint()
	copy(b[len(b)-len(d.b):], id[:])
}

// DecodeSpec reads what AppendSpec wrote. The payload is a part of b, not a copy.
func DecodeSpec(b []byte) (s gq.Spec, err error) {
	if err := Decode(&s, b); err != nil {
		return gq.Spec{}, err
	}
	return s, nil
}

// Decode is [DecodeSpec] in place. It keeps the queue and type of s if they are equal,
// which saves allocations.
func Decode(s *gq.Spec, b []byte) error {
	d := decoder{b: b}
	d.version()
	has := d.uvarint()
	if d.err == nil && has >= specBits {
		d.fail("unknown fields")
	}
	*s = gq.Spec{ID: d.id(), Queue: d.stringLike(s.Queue), Type: d.stringLike(s.Type), Policy: *d.policy()}
	s.Metadata.Priority = gq.Priority(d.byte())
	d.require(s.Metadata.Priority.Valid(), "unknown priority")
	if d.flag() {
		s.Payload.ContentType = gq.JSON
	} else {
		s.Payload.ContentType = d.stringLike(gq.OctetStream)
		d.require(s.Payload.ContentType != gq.JSON, "content type in long form")
	}
	if has&hasKey != 0 {
		s.Key = gq.IdempotencyKey{Scope: d.string(), Name: d.string(), Fingerprint: d.fixed()}
		d.require(s.Key.Name != "", "empty key")
	}
	if has&hasUnique != 0 {
		s.Unique = d.unique()
	}
	if has&hasFirstRun != 0 {
		s.RunAt = time.Unix(0, int64(d.fixed())).UTC()
	}
	if has&hasDelay != 0 {
		s.Delay = time.Duration(d.amount())
	}
	if has&hasDependsOn != 0 {
		n := d.count(1+16, gq.MaxGroupJobs)
		s.DependsOn = make([]gq.Dependency, n)
		for i := range s.DependsOn {
			s.DependsOn[i] = gq.Dependency{Kind: gq.DependencyKind(d.byte()), Job: d.id()}
			d.require(s.DependsOn[i].Kind.Valid(), "unknown dependency")
		}
	}
	if has&hasCost != 0 {
		s.CostUnits = d.amount()
	}
	if has&hasRequires != 0 {
		n := d.count(1, gq.MaxCapabilities)
		s.Requires = make([]string, n)
		for i := range s.Requires {
			s.Requires[i] = d.string()
		}
	}
	if has&hasRequester != 0 {
		s.Requester, s.Tier, s.MaxFee = d.string(), d.string(), d.amount()
	}
	if has&hasKeys != 0 {
		s.LimitKey, s.FairKey = d.string(), d.string()
	}
	if has&hasAttributes != 0 {
		s.Attributes = d.strings()
	}
	if has&hasReplayOf != 0 {
		s.ReplayOf = d.id()
	}
	if has&hasReplaces != 0 {
		s.Replaces = d.id()
	}
	if has&hasWorkflow != 0 {
		s.Workflow, s.Ref, s.Gate = gq.WorkflowID(d.id()), d.string(), gq.Gate(d.byte())
		d.require(s.Gate.Valid(), "unknown gate")
	}
	if has&hasOrderKey != 0 {
		s.OrderKey = d.string()
	}
	if has&hasWeight != 0 {
		weight := d.amount()
		d.require(weight <= gq.MaxWeight, "unknown weight")
		s.Weight = int(weight)
	}
	if has&hasMetadata != 0 {
		s.Metadata = d.metadata(s.Metadata.Priority)
	}
	d.require(specHas(s) == has, "empty field")
	s.Payload.Data = d.bytes()
	return d.end("spec")
}

func (e *encoder) unique(u *gq.UniqueRule) {
	e.byte(byte(u.While)<<4 | byte(u.OnCollision))
	e.uvarint(uint64(u.Period))
	e.uvarint(uint64(len(u.Fields)))
	for _, name := range u.Fields {
		e.string(name)
	}
}

func (d *decoder) unique() (u gq.UniqueRule) {
	mixed := d.byte()
	u.While, u.OnCollision, u.Period = gq.While(mixed>>4), gq.OnCollision(mixed&15), time.Duration(d.amount())
	d.require(u.While.Valid() && u.OnCollision.Valid(), "unknown unique rule")
	n := d.int()
	d.require(n <= gq.MaxUniqueFields, "too many unique fields")
	for range min(n, gq.MaxUniqueFields) {
		u.Fields = append(u.Fields, d.string())
	}
	return u
}

func (e *encoder) metadata(m gq.Metadata) {
	e.strings(m.Tags)
	e.string(m.CorrelationID)
	e.string(m.CallbackURL)
}

func (d *decoder) metadata(p gq.Priority) gq.Metadata {
	return gq.Metadata{Priority: p, Tags: d.strings(), CorrelationID: d.string(), CallbackURL: d.string()}
}

// AppendMetadata appends the metadata.
func AppendMetadata(m gq.Metadata, b []byte) ([]byte, error) {
	e := encoder{b}
	e.byte(codecVersion)
	e.byte(byte(m.Priority))
	e.metadata(m)
	return e.b, nil
}

// DecodeMetadata reads what AppendMetadata wrote.
func DecodeMetadata(b []byte) (gq.Metadata, error) {
	d := decoder{b: b}
	d.version()
	m := d.metadata(gq.Priority(d.byte()))
	d.require(m.Priority.Valid(), "unknown priority")
	if err := d.end("metadata"); err != nil {
		return gq.Metadata{}, err
	}
	return m, nil
}
