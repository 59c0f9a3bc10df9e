package pbconv

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/enum"
)

// presetPolicies has the messages of unmodified presets. They are shared and never
// modified.
var presetPolicies = func() map[gq.Preset]*pb.Policy {
	all := make(map[gq.Preset]*pb.Policy)
	for _, p := range enum.All[gq.Preset]() {
		all[p] = &pb.Policy{Preset: pb.Preset(p).Enum()}
	}
	return all
}()

// ProtoPolicy encodes a complete policy as its preset and the differences from it.
func ProtoPolicy(p *gq.Policy) *pb.Policy {
	if p.IsPreset() {
		return presetPolicies[p.Preset]
	}
	base := p.Preset.Policy()
	m := protoPolicyOver(p, &base)
	m.Preset = pb.Preset(p.Preset).Enum()
	return m
}

// protoPolicyOver encodes the differences between a policy and base.
func protoPolicyOver(p, base *gq.Policy) *pb.Policy {
	return &pb.Policy{
		MaxAttempts:       changedInt(p.MaxAttempts, base.MaxAttempts),
		MaxLeaseLosses:    changedInt(p.MaxLeaseLosses, base.MaxLeaseLosses),
		Backoff:           protoBackoff(p.Backoff, base.Backoff),
		RetryTimeout:      changed(p.RetryTimeout, base.RetryTimeout),
		RetrySystem:       changed(p.RetrySystem, base.RetrySystem),
		RetryNever:        changed(p.RetryNever, base.RetryNever),
		OnLoss:            changed(pb.LossRule(p.OnLoss), pb.LossRule(base.OnLoss)),
		CancelWins:        changed(p.CancelWins, base.CancelWins),
		LeaseTtl:          changedDuration(p.LeaseTTL, base.LeaseTTL),
		Hold:              changedDuration(p.Hold, base.Hold),
		HoldFault:         changed(p.HoldFault, base.HoldFault),
		Extend:            changed(pb.ExtendMode(p.Extend), pb.ExtendMode(base.Extend)),
		ExtendPpb:         changedInt(p.ExtendPPB, base.ExtendPPB),
		RenewByPpb:        changedInt(p.RenewByPPB, base.RenewByPPB),
		RenewalsMax:       changedInt(p.RenewalsMax, base.RenewalsMax),
		ExecutionTimeout:  changedDuration(p.ExecutionTimeout, base.ExecutionTimeout),
		Lifetime:          changedDuration(p.Lifetime, base.Lifetime),
		RunLifetime:       changedDuration(p.RunLifetime, base.RunLifetime),
		StartWithin:       changedDuration(p.StartWithin, base.StartWithin),
		IdempotencyWindow: changedDuration(p.IdempotencyWindow, base.IdempotencyWindow),
		Aging:             changedDuration(p.Aging, base.Aging),
		Retention:         changedDuration(p.Retention, base.Retention),
	}
}

// protoOverrides encodes the parts of a policy that a submission sets.
func protoOverrides(s *gq.Spec) *pb.Policy {
	o := s.Overrides
	set := func(d time.Duration) *durationpb.Duration {
		switch d {
		case 0:
			return nil
		case gq.Unlimited:
			return durationpb.New(0)
		default:
			return durationpb.New(d)
		}
	}
	m := &pb.Policy{
		MaxAttempts: changedInt(o.MaxAttempts, 0), LeaseTtl: set(o.LeaseTTL), ExecutionTimeout: set(o.ExecutionTimeout),
		Lifetime: set(o.Lifetime), StartWithin: set(o.StartWithin), IdempotencyWindow: set(o.IdempotencyWindow), Retention: set(o.Retention),
	}
	if o.Preset != 0 {
		m.Preset = pb.Preset(o.Preset).Enum()
	}
	if b := o.Backoff; b != (gq.Backoff{}) {
		m.Backoff = &pb.Backoff{
			Strategy: pb.Strategy(b.Strategy).Enum(), Initial: durationpb.New(b.Initial), Max: durationpb.New(b.Max),
			Multiplier: &b.Multiplier, Jitter: pb.Jitter(b.Jitter).Enum(), Custom: &b.Custom,
		}
	}
	return m
}

func protoBackoff(b, base gq.Backoff) *pb.Backoff {
	if b == base {
		return nil
	}
	return &pb.Backoff{
		Strategy:   changed(pb.Strategy(b.Strategy), pb.Strategy(base.Strategy)),
		Initial:    changedDuration(b.Initial, base.Initial),
		Max:        changedDuration(b.Max, base.Max),
		Multiplier: changed(b.Multiplier, base.Multiplier),
		Jitter:     changed(pb.Jitter(b.Jitter), pb.Jitter(base.Jitter)),
		Custom:     changed(b.Custom, base.Custom),
	}
}

func changed[T comparable](v, base T) *T {
	if v == base {
		return nil
	}
	return &v
}

func changedInt(v, base int) *int64 {
	if v == base {
		return nil
	}
	n := int64(v)
	return &n
}

// changedDuration is present even for 0, which means "no limit" in a policy.
func changedDuration(v, base time.Duration) *durationpb.Duration {
	if v == base {
		return nil
	}
	return durationpb.New(v)
}

// PolicyIsPartial reports whether the queue's policy fills the gaps of m.
func PolicyIsPartial(m *pb.Policy) bool { return m != nil && m.Preset == nil }

// policy decodes a policy. Absent fields come from the preset, if one is named, or else from
// p. The reported faults do not depend on p.
func (r *protoReader) policy(at string, m *pb.Policy, p gq.Policy) gq.Policy {
	if m.Preset != nil {
		p = readEnum(r, at, "preset", m.GetPreset(), gq.PresetResilient).Policy()
	}
	r.setInt(at, "max_attempts", m.MaxAttempts, &p.MaxAttempts)
	r.setInt(at, "max_lease_losses", m.MaxLeaseLosses, &p.MaxLeaseLosses)
	if m.Backoff != nil {
		r.backoff(at+"backoff.", m.Backoff, &p.Backoff)
	}
	setProto(m.RetryTimeout, &p.RetryTimeout)
	setProto(m.RetrySystem, &p.RetrySystem)
	setProto(m.RetryNever, &p.RetryNever)
	if m.OnLoss != nil {
		p.OnLoss = readEnum(r, at, "on_loss", m.GetOnLoss(), gq.LossFails)
	}
	setProto(m.CancelWins, &p.CancelWins)
	r.setDuration(at, "lease_ttl", m.LeaseTtl, &p.LeaseTTL)
	r.setDuration(at, "hold", m.Hold, &p.Hold)
	setProto(m.HoldFault, &p.HoldFault)
	if m.Extend != nil {
		p.Extend = readEnum(r, at, "extend", m.GetExtend(), gq.ExtendAdd)
	}
	r.setInt(at, "extend_ppb", m.ExtendPpb, &p.ExtendPPB)
	r.setInt(at, "renew_by_ppb", m.RenewByPpb, &p.RenewByPPB)
	r.setInt(at, "renewals_max", m.RenewalsMax, &p.RenewalsMax)
	r.setDuration(at, "execution_timeout", m.ExecutionTimeout, &p.ExecutionTimeout)
	r.setDuration(at, "lifetime", m.Lifetime, &p.Lifetime)
	r.setDuration(at, "run_lifetime", m.RunLifetime, &p.RunLifetime)
	r.setDuration(at, "start_within", m.StartWithin, &p.StartWithin)
	r.setDuration(at, "idempotency_window", m.IdempotencyWindow, &p.IdempotencyWindow)
	r.setDuration(at, "aging", m.Aging, &p.Aging)
	r.setDuration(at, "retention", m.Retention, &p.Retention)
	return p
}

func (r *protoReader) backoff(at string, m *pb.Backoff, b *gq.Backoff) {
	if m.Strategy != nil {
		b.Strategy = readEnum(r, at, "strategy", m.GetStrategy(), gq.StrategyCustom)
	}
	r.setDuration(at, "initial", m.Initial, &b.Initial)
	r.setDuration(at, "max", m.Max, &b.Max)
	setProto(m.Multiplier, &b.Multiplier)
	if m.Jitter != nil {
		b.Jitter = readEnum(r, at, "jitter", m.GetJitter(), gq.JitterHash)
	}
	setProto(m.Custom, &b.Custom)
}

func setProto[T any](v, to *T) {
	if v != nil {
		*to = *v
	}
}

func (r *protoReader) setInt(at, field string, v *int64, to *int) {
	if v != nil {
		*to = r.int(at, field, *v)
	}
}

func (r *protoReader) setDuration(at, field string, v *durationpb.Duration, to *time.Duration) {
	if v != nil {
		*to = r.duration(at, field, v)
	}
}
