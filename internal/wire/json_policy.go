package wire

import (
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// Policy has the numbers that govern a job. When a policy is set, absent members come
// from its preset if it names one, or else from the queue.
type Policy struct {
	Preset            *gq.Preset `json:"preset,omitempty" doc:"Where the numbers come from that are not given; without it from the queue."`
	MaxAttempts       *int       `json:"max_attempts,omitempty" doc:"Executions, the first included."`
	MaxLeaseLosses    *int       `json:"max_lease_losses,omitempty" doc:"Lost leases that the job survives; the next one makes it a dead letter. 0 is no limit."`
	Backoff           *Backoff   `json:"backoff,omitempty"`
	RetryTimeout      *bool      `json:"retry_timeout,omitempty" doc:"An execution timeout is retried."`
	RetrySystem       *bool      `json:"retry_system,omitempty" doc:"A crash is retried."`
	RetryNever        *bool      `json:"retry_never,omitempty" doc:"Every verdict is final."`
	OnLoss            *LossRule  `json:"on_loss,omitempty" doc:"What the expiry of a lease does to the job."`
	CancelWins        *bool      `json:"cancel_wins,omitempty" doc:"A success reported after a cancel request ends CANCELLED."`
	LeaseTTL          *Duration  `json:"lease_ttl,omitempty" doc:"How long a silent holder keeps the job."`
	Hold              *Duration  `json:"hold,omitempty" doc:"How long a claim that has not started keeps the job."`
	HoldFault         *bool      `json:"hold_fault,omitempty" doc:"Letting a hold run out is the holder's fault."`
	Extend            *Extend    `json:"extend,omitempty" doc:"What a heartbeat does to the end of the lease."`
	ExtendPPB         *int       `json:"extend_ppb,omitempty" doc:"Share of the TTL that a renewal adds, in parts per billion."`
	RenewByPPB        *int       `json:"renew_by_ppb,omitempty" doc:"Share of the TTL after which the holder should renew."`
	RenewalsMax       *int       `json:"renewals_max,omitempty" doc:"Renewals before the deadline stands."`
	ExecutionTimeout  *Duration  `json:"execution_timeout,omitempty" doc:"Limit of one execution; 0s is none."`
	Lifetime          *Duration  `json:"lifetime,omitempty" doc:"From submission to the end; 0s is no limit."`
	RunLifetime       *Duration  `json:"run_lifetime,omitempty" doc:"From the first lease to the end; 0s is no limit."`
	StartWithin       *Duration  `json:"start_within,omitempty" doc:"From submission to the start of the first attempt; 0s is no limit."`
	IdempotencyWindow *Duration  `json:"idempotency_window,omitempty" doc:"How long an idempotency key finds its job."`
	Aging             *Duration  `json:"aging,omitempty" doc:"A waiting job moves up by one priority for each; 0s is never."`
	Retention         *Retention `json:"retention,omitempty" doc:"How long the finished job is kept; none removes it at once, 0s is the store's setting."`
}

// Backoff is the delay before a retry.
type Backoff struct {
	Strategy   *gq.Strategy `json:"strategy,omitempty"`
	Initial    *Duration    `json:"initial,omitempty" doc:"Before the first retry."`
	Max        *Duration    `json:"max,omitempty" doc:"No delay is longer."`
	Multiplier *float64     `json:"multiplier,omitempty" doc:"From one delay to the next, of the exponential strategy."`
	Jitter     *gq.Jitter   `json:"jitter,omitempty"`
	Custom     *string      `json:"custom,omitempty" doc:"The application's function, of the custom strategy."`
}

// LossRule is a [gq.LossRule], encoded by name.
type LossRule gq.LossRule

// MarshalText returns the name.
func (l LossRule) MarshalText() ([]byte, error) { return []byte(gq.LossRule(l).String()), nil }

// UnmarshalText parses a name.
func (l *LossRule) UnmarshalText(text []byte) error {
	return readName(l, gq.LossRule.String, string(text))
}

// Extend is a [gq.ExtendMode], encoded by name.
type Extend gq.ExtendMode

// MarshalText returns the name.
func (m Extend) MarshalText() ([]byte, error) { return []byte(gq.ExtendMode(m).String()), nil }

// UnmarshalText parses a name.
func (m *Extend) UnmarshalText(text []byte) error {
	return readName(m, gq.ExtendMode.String, string(text))
}

// Retention is how long a finished job is kept: a duration, or none.
type Retention time.Duration

// MarshalText returns none or the duration.
func (r Retention) MarshalText() ([]byte, error) {
	if time.Duration(r) == gq.KeepNone {
		return []byte("none"), nil
	}
	return Duration(r).MarshalText()
}

// UnmarshalText parses none or a duration.
func (r *Retention) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*r = Retention(gq.KeepNone)
		return nil
	}
	if err := (*Duration)(r).UnmarshalText(text); err != nil {
		return fault("retention", `%.64q is neither none nor a duration such as "90s" or "24h"`, text)
	}
	return nil
}

// Names lists the names of an enum that starts at 1 and ends where String has no more
// names.
func Names[T ~uint8](name func(T) string) (all []string) {
	for v := T(1); !strings.HasPrefix(name(v), "unknown("); v++ {
		all = append(all, name(v))
	}
	return all
}

func readName[W, T ~uint8](into *W, name func(T) string, text string) error {
	names := Names(name)
	for i, n := range names {
		if n == text {
			*into = W(i + 1)
			return nil
		}
	}
	return fault("", "%.64q is not one of %v", text, names)
}

// PolicyDifference encodes a policy as its preset and the differences from it.
// [Policy.Over] restores the policy.
func PolicyDifference(p *gq.Policy) *Policy {
	if !p.Preset.Valid() {
		return PolicyOf(p)
	}
	out, base := &Policy{Preset: new(p.Preset)}, p.Preset.Policy()
	if *p == base {
		return out
	}
	differs(&out.MaxAttempts, p.MaxAttempts, base.MaxAttempts)
	differs(&out.MaxLeaseLosses, p.MaxLeaseLosses, base.MaxLeaseLosses)
	differs(&out.RetryTimeout, p.RetryTimeout, base.RetryTimeout)
	differs(&out.RetrySystem, p.RetrySystem, base.RetrySystem)
	differs(&out.RetryNever, p.RetryNever, base.RetryNever)
	differs(&out.OnLoss, LossRule(p.OnLoss), LossRule(base.OnLoss))
	differs(&out.CancelWins, p.CancelWins, base.CancelWins)
	differs(&out.LeaseTTL, Duration(p.LeaseTTL), Duration(base.LeaseTTL))
	differs(&out.Hold, Duration(p.Hold), Duration(base.Hold))
	differs(&out.HoldFault, p.HoldFault, base.HoldFault)
	differs(&out.Extend, Extend(p.Extend), Extend(base.Extend))
	differs(&out.ExtendPPB, p.ExtendPPB, base.ExtendPPB)
	differs(&out.RenewByPPB, p.RenewByPPB, base.RenewByPPB)
	differs(&out.RenewalsMax, p.RenewalsMax, base.RenewalsMax)
	differs(&out.ExecutionTimeout, Duration(p.ExecutionTimeout), Duration(base.ExecutionTimeout))
	differs(&out.Lifetime, Duration(p.Lifetime), Duration(base.Lifetime))
	differs(&out.RunLifetime, Duration(p.RunLifetime), Duration(base.RunLifetime))
	differs(&out.StartWithin, Duration(p.StartWithin), Duration(base.StartWithin))
	differs(&out.IdempotencyWindow, Duration(p.IdempotencyWindow), Duration(base.IdempotencyWindow))
	differs(&out.Aging, Duration(p.Aging), Duration(base.Aging))
	differs(&out.Retention, Retention(p.Retention), Retention(base.Retention))
	if b, from := p.Backoff, base.Backoff; b != from {
		out.Backoff = &Backoff{}
		differs(&out.Backoff.Strategy, b.Strategy, from.Strategy)
		differs(&out.Backoff.Initial, Duration(b.Initial), Duration(from.Initial))
		differs(&out.Backoff.Max, Duration(b.Max), Duration(from.Max))
		differs(&out.Backoff.Multiplier, b.Multiplier, from.Multiplier)
		differs(&out.Backoff.Jitter, b.Jitter, from.Jitter)
		differs(&out.Backoff.Custom, b.Custom, from.Custom)
	}
	return out
}

func differs[T comparable](to **T, value, base T) {
	if value != base {
		*to = &value
	}
}

// PolicyOf encodes a policy with all its numbers.
func PolicyOf(p *gq.Policy) *Policy {
	b := p.Backoff
	out := &Policy{
		Preset:            new(p.Preset),
		MaxAttempts:       new(p.MaxAttempts),
		MaxLeaseLosses:    new(p.MaxLeaseLosses),
		RetryTimeout:      new(p.RetryTimeout),
		RetrySystem:       new(p.RetrySystem),
		RetryNever:        new(p.RetryNever),
		OnLoss:            new(LossRule(p.OnLoss)),
		CancelWins:        new(p.CancelWins),
		LeaseTTL:          new(Duration(p.LeaseTTL)),
		Hold:              new(Duration(p.Hold)),
		HoldFault:         new(p.HoldFault),
		Extend:            new(Extend(p.Extend)),
		ExecutionTimeout:  new(Duration(p.ExecutionTimeout)),
		Lifetime:          new(Duration(p.Lifetime)),
		RunLifetime:       new(Duration(p.RunLifetime)),
		StartWithin:       new(Duration(p.StartWithin)),
		IdempotencyWindow: new(Duration(p.IdempotencyWindow)),
		Aging:             new(Duration(p.Aging)),
		Retention:         new(Retention(p.Retention)),
		Backoff: &Backoff{
			Strategy: new(b.Strategy), Initial: new(Duration(b.Initial)), Max: new(Duration(b.Max)),
			Jitter: new(b.Jitter),
		},
	}
	if p.Extend == gq.ExtendAdd {
		out.ExtendPPB, out.RenewByPPB, out.RenewalsMax = new(p.ExtendPPB), new(p.RenewByPPB), new(p.RenewalsMax)
	}
	if b.Multiplier != 0 {
		out.Backoff.Multiplier = new(b.Multiplier)
	}
	if b.Custom != "" {
		out.Backoff.Custom = new(b.Custom)
	}
	return out
}

// Whole reports whether the policy is complete without the queue's: it is empty or names
// a preset.
func (p *Policy) Whole() bool { return p == nil || *p == (Policy{}) || p.Preset != nil }

// override sets the members as overrides of a spec, which the queue applies to its own policy.
// It reports false, and changes nothing, if there is no override for one of them.
func (p *Policy) override(s *gq.Spec) bool {
	rest, o := *p, s.Overrides
	if n := p.MaxAttempts; n != nil && *n != 0 {
		o.MaxAttempts, rest.MaxAttempts = *n, nil
	}
	if d := p.LeaseTTL; d != nil && *d > 0 {
		o.LeaseTTL, rest.LeaseTTL = time.Duration(*d), nil
	}
	for _, d := range []struct {
		from **Duration
		to   *time.Duration
	}{
		{&rest.ExecutionTimeout, &o.ExecutionTimeout}, {&rest.Lifetime, &o.Lifetime},
		{&rest.StartWithin, &o.StartWithin}, {&rest.IdempotencyWindow, &o.IdempotencyWindow},
	} {
		if *d.from == nil || **d.from < 0 {
			continue // Unlimited is negative
		}
		if *d.to = time.Duration(**d.from); *d.to == 0 {
			*d.to = gq.Unlimited
		}
		*d.from = nil
	}
	if d := p.Retention; d != nil && *d >= 0 {
		if o.Retention, rest.Retention = time.Duration(*d), nil; o.Retention == 0 {
			o.Retention = gq.Unlimited
		}
	}
	if rest != (Policy{}) {
		return false
	}
	s.Overrides = o
	return true
}

// overridesOf encodes the parts of the policy that a spec sets, except its backoff. Domain restores them.
func overridesOf(s *gq.Spec) *Policy {
	o, out := &s.Overrides, &Policy{}
	given := func(d time.Duration) *Duration { // 0 removes a limit
		switch d {
		case 0:
			return nil
		case gq.Unlimited:
			return new(Duration(0))
		}
		return new(Duration(d))
	}
	differs(&out.Preset, o.Preset, 0)
	differs(&out.MaxAttempts, o.MaxAttempts, 0)
	differs(&out.LeaseTTL, Duration(o.LeaseTTL), 0)
	out.ExecutionTimeout, out.Lifetime = given(o.ExecutionTimeout), given(o.Lifetime)
	out.StartWithin, out.IdempotencyWindow = given(o.StartWithin), given(o.IdempotencyWindow)
	out.Retention = (*Retention)(given(o.Retention))
	return out
}

// Over fills absent members from the preset, if one is named, or else from base. An empty
// policy gives base.
func (p *Policy) Over(base gq.Policy) gq.Policy {
	if p == nil {
		return base
	}
	if p.Preset != nil {
		base = p.Preset.Policy()
	}
	set(&base.MaxAttempts, p.MaxAttempts)
	set(&base.MaxLeaseLosses, p.MaxLeaseLosses)
	set(&base.RetryTimeout, p.RetryTimeout)
	set(&base.RetrySystem, p.RetrySystem)
	set(&base.RetryNever, p.RetryNever)
	set(&base.CancelWins, p.CancelWins)
	set(&base.HoldFault, p.HoldFault)
	set(&base.ExtendPPB, p.ExtendPPB)
	set(&base.RenewByPPB, p.RenewByPPB)
	set(&base.RenewalsMax, p.RenewalsMax)
	convert(&base.OnLoss, p.OnLoss)
	convert(&base.Extend, p.Extend)
	lasting(&base.LeaseTTL, p.LeaseTTL)
	lasting(&base.Hold, p.Hold)
	lasting(&base.ExecutionTimeout, p.ExecutionTimeout)
	lasting(&base.Lifetime, p.Lifetime)
	lasting(&base.RunLifetime, p.RunLifetime)
	lasting(&base.StartWithin, p.StartWithin)
	lasting(&base.IdempotencyWindow, p.IdempotencyWindow)
	lasting(&base.Aging, p.Aging)
	lasting(&base.Retention, (*Duration)(p.Retention))
	if b := p.Backoff; b != nil {
		set(&base.Backoff.Strategy, b.Strategy)
		lasting(&base.Backoff.Initial, b.Initial)
		lasting(&base.Backoff.Max, b.Max)
		set(&base.Backoff.Multiplier, b.Multiplier)
		set(&base.Backoff.Jitter, b.Jitter)
		set(&base.Backoff.Custom, b.Custom)
	}
	return base
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func convert[T, F ~uint8](to *T, from *F) {
	if from != nil {
		*to = T(*from)
	}
}

func lasting[T ~int64](to *T, from *Duration) {
	if from != nil {
		*to = T(*from)
	}
}
