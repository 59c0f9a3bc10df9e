package gq

import (
	"fmt"
	"time"
)

// Preset names a complete policy to start from. The zero value is not a preset.
type Preset uint8

const (
	PresetJobModel  Preset = iota + 1 // the default: long leases, three attempts
	PresetSemantics                   // short leases; only a reported failure uses up a retry
	PresetScheduler                   // of the scheduler API: no retries, expiry fails the job
	PresetAI                          // of matching, kind AI
	PresetQuantum                     // of matching, kind QUANTUM
	PresetTaskQueue                   // of the task queue: no retries after a reported failure
	PresetResilient                   // survives an outage: 20 attempts over about nine hours; only a handler's own verdict is final
	presetEnd
)

var presetNames = [...]string{"", "jobmodel", "semantics", "scheduler", "matching-ai", "matching-quantum", "taskqueue", "resilient"}

func (p Preset) String() string { return nameOf(presetNames[:], int(p)) }

// Valid reports whether p is a preset.
func (p Preset) Valid() bool { return p >= PresetJobModel && p < presetEnd }

// MarshalText returns the name.
func (p Preset) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses a name.
func (p *Preset) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(presetNames[:], name); ok {
		*p = Preset(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"preset", fmt.Sprintf("%.64q is not one of %v", name, presetNames[1:])}}}
}

// LossRule says how the expiry of a lease affects the job.
type LossRule uint8

const (
	LossCounts  LossRule = iota + 1 // the interrupted attempt counts; retry at once
	LossFree                        // uses up no attempt; retry at once, up to MaxLeaseLosses
	LossBackoff                     // counts as a fault; retry after the backoff
	LossFails                       // the job fails with CategoryTimeout
	lossEnd
)

var lossNames = [...]string{"", "counts", "free", "backoff", "fails"}

// Valid reports whether l is a rule.
func (l LossRule) Valid() bool { return l >= LossCounts && l < lossEnd }

func (l LossRule) String() string { return nameOf(lossNames[:], int(l)) }

// ExtendMode says how a heartbeat extends a lease.
type ExtendMode uint8

const (
	ExtendReset ExtendMode = iota + 1 // to a full TTL from now
	ExtendAdd                         // by a share of the TTL, a limited number of times
	extendEnd
)

var extendNames = [...]string{"", "reset", "extend"}

func (m ExtendMode) String() string { return nameOf(extendNames[:], int(m)) }

// ppb is one in parts per billion. Shares are integers so that every platform computes the
// same times.
const ppb = 1_000_000_000

// Policy has the retry, lease and timeout settings of a job. It is fixed at submission and
// comparable, so equal policies can share memory.
//
// Zero means "no limit" in MaxLeaseLosses, ExecutionTimeout, Lifetime, RunLifetime, StartWithin
// and IdempotencyWindow, and "no aging" in Aging. The other numbers must be positive.
type Policy struct {
	Preset Preset

	MaxAttempts    int      // executions, including the first
	MaxLeaseLosses int      // expired leases that the job survives; the next one makes it a dead letter
	Backoff        Backoff  // delay before a retry
	RetryTimeout   bool     // retry after CategoryTimeout
	RetrySystem    bool     // retry after CategorySystem
	RetryNever     bool     // never retry a reported failure
	OnLoss         LossRule // how the expiry of a lease affects the job
	CancelWins     bool     // a success reported after a cancel request ends CANCELLED

	LeaseTTL    time.Duration // how long a worker keeps a job without a heartbeat
	Hold        time.Duration // how long a worker keeps a claimed job without starting it
	HoldFault   bool          // an expired hold counts as a fault
	Extend      ExtendMode    // how a heartbeat extends the lease
	ExtendPPB   int           // ExtendAdd: share of the TTL that each renewal adds
	RenewByPPB  int           // ExtendAdd: share of the TTL after which the worker should renew
	RenewalsMax int           // ExtendAdd: maximum number of renewals

	ExecutionTimeout time.Duration // maximum duration of one execution
	Lifetime         time.Duration // maximum time from submission to the end
	RunLifetime      time.Duration // maximum time from the first lease to the end
	StartWithin      time.Duration // maximum time from submission to the start of the first attempt; see [StartWithin]

	IdempotencyWindow time.Duration // how long an idempotency key refers to its job
	Aging             time.Duration // a waiting job moves up by one priority for each; 0 is never; no effect in a fair queue
	Retention         time.Duration // how long the finished job is kept; 0 is the store's setting; see [KeepFor]
}

// Policy returns the policy of the preset.
func (p Preset) Policy() Policy {
	if p.Valid() {
		return presets[p]
	}
	return p.policy()
}

// presets are computed once. Callers get copies, because a pointer would let them change a
// preset for the whole process.
var presets = func() (all [presetEnd]Policy) {
	for p := PresetJobModel; p < presetEnd; p++ {
		all[p] = p.policy()
	}
	return all
}()

// IsPreset reports whether p equals the policy of its preset.
func (p *Policy) IsPreset() bool { return p.Preset.Valid() && *p == presets[p.Preset] }

// KeepsLeaseTTL reports whether the lease time is that of the preset.
func (p *Policy) KeepsLeaseTTL() bool {
	return p.Preset.Valid() && p.LeaseTTL == presets[p.Preset].LeaseTTL
}

func (p Preset) policy() Policy {
	policy := Policy{
		Preset:      p,
		MaxAttempts: 3,
		Backoff: Backoff{
			Strategy: StrategyExponential, Initial: time.Second, Max: time.Hour, Multiplier: 2,
			Jitter: JitterNone,
		},
		RetryTimeout:      true,
		RetrySystem:       true,
		OnLoss:            LossCounts,
		LeaseTTL:          5 * time.Minute,
		Hold:              time.Minute,
		Extend:            ExtendReset,
		ExecutionTimeout:  30 * time.Minute,
		Lifetime:          7 * 24 * time.Hour,
		IdempotencyWindow: 24 * time.Hour,
	}
	switch p {
	case PresetSemantics:
		policy.MaxAttempts = 4
		policy.Backoff = Backoff{
			Strategy: StrategyExponential, Initial: 500 * time.Millisecond, Max: 30 * time.Second, Multiplier: 2,
			Jitter: JitterFull,
		}
		policy.OnLoss = LossFree
		policy.MaxLeaseLosses = 20
		policy.LeaseTTL = 5 * time.Second
		policy.Hold = 5 * time.Second
		policy.Lifetime = 0
	case PresetScheduler:
		policy.RetryNever = true
		policy.CancelWins = true
		policy.OnLoss = LossFails
		policy.LeaseTTL = 30 * time.Second
		policy.Lifetime = 0
	case PresetAI, PresetQuantum:
		policy.MaxAttempts = 6
		policy.Backoff = Backoff{
			Strategy: StrategyExponential, Initial: 5 * time.Second, Max: 15 * time.Minute, Multiplier: 2,
			Jitter: JitterHash,
		}
		policy.OnLoss = LossBackoff
		policy.LeaseTTL = 10 * time.Minute
		policy.Hold = 5 * time.Second
		policy.HoldFault = true
		policy.Extend = ExtendAdd
		policy.ExtendPPB = ppb / 2
		policy.RenewByPPB = ppb * 6 / 10
		policy.RenewalsMax = 4
		policy.ExecutionTimeout = 0
		policy.Lifetime = 24 * time.Hour
		policy.RunLifetime = 6 * time.Hour
		if p == PresetQuantum {
			policy.Backoff.Initial = 2 * time.Second
			policy.LeaseTTL = 3 * time.Minute
			policy.Lifetime = 2 * time.Hour
		}
	case PresetTaskQueue:
		policy.RetryNever = true
		policy.CancelWins = true
		policy.LeaseTTL = 4 * time.Second
		policy.Hold = 4 * time.Second
		policy.Lifetime = 0
	case PresetResilient:
		policy.MaxAttempts = 20
		policy.Backoff.Jitter = JitterFull
	default: // PresetJobModel has the values above
	}
	return policy
}
