package gq

import (
	"fmt"
	"time"
)

// Preset names one of the five documents whose defaults a policy starts from.
// The zero value is not a preset.
type Preset uint8

const (
	PresetJobModel  Preset = iota + 1 // the default: long leases, typed failures, three attempts
	PresetSemantics                   // short leases, only a nack uses up a retry
	PresetScheduler                   // claim, then a capacity lease; the release is final
	PresetAI                          // matching, kind AI
	PresetQuantum                     // matching, kind QUANTUM
	PresetTaskQueue                   // heartbeating workers; outcomes are final
	presetEnd
)

var presetNames = [...]string{"", "jobmodel", "semantics", "scheduler", "matching-ai", "matching-quantum", "taskqueue"}

func (p Preset) String() string { return nameOf(presetNames[:], int(p)) }

// Valid reports whether p is a preset.
func (p Preset) Valid() bool { return p >= PresetJobModel && p < presetEnd }

// MarshalText is the name.
func (p Preset) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a name.
func (p *Preset) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(presetNames[:], name); ok {
		*p = Preset(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"preset", fmt.Sprintf("%.64q is not one of %v", name, presetNames[1:])}}}
}

// LossRule says what the loss of a lease (its expiry) does to the job.
type LossRule uint8

const (
	LossCounts  LossRule = iota + 1 // the interrupted attempt counts; run again at once
	LossFree                        // changes no count and never fails the job; run again at once
	LossBackoff                     // counts as a fault; run again after the backoff
	LossFails                       // the job ends FAILED with category TIMEOUT
	lossEnd
)

var lossNames = [...]string{"", "counts", "free", "backoff", "fails"}

// Valid reports whether l is a rule.
func (l LossRule) Valid() bool { return l >= LossCounts && l < lossEnd }

func (l LossRule) String() string { return nameOf(lossNames[:], int(l)) }

// ExtendMode says how a heartbeat moves the end of a lease.
type ExtendMode uint8

const (
	ExtendReset ExtendMode = iota + 1 // a fresh full TTL from now
	ExtendAdd                         // the deadline moves on by a share of the TTL, a limited number of times
	extendEnd
)

var extendNames = [...]string{"", "reset", "extend"}

func (m ExtendMode) String() string { return nameOf(extendNames[:], int(m)) }

// ppb is parts per billion: 1.0 is 1 000 000 000. Shares are integers, so that
// every platform computes the same instant.
const ppb = 1_000_000_000

// Policy is the set of numbers that govern one job. It is fixed at submission
// and comparable, so that equal policies can share memory.
//
// A zero duration or count in MaxLeaseLosses, ExecutionTimeout, Lifetime,
// RunLifetime and IdempotencyWindow means "no such limit"; the other numbers
// must be positive.
type Policy struct {
	Preset Preset

	MaxAttempts    int      // executions including the first
	MaxLeaseLosses int      // lost leases after which the job is dead-lettered
	Backoff        Backoff  // delay before a retry
	RetryTimeout   bool     // an execution timeout is retried
	RetrySystem    bool     // a crash or exhausted resource is retried
	RetryNever     bool     // every verdict is final
	OnLoss         LossRule // what the expiry of a lease does
	CancelWins     bool     // a success reported after a cancel request ends CANCELLED

	LeaseTTL    time.Duration // visibility: how long a silent holder keeps the job
	Hold        time.Duration // how long a claim that has not started keeps the job
	HoldFault   bool          // letting a hold run out is the holder's fault
	Extend      ExtendMode    // what a heartbeat does to the end of the lease
	ExtendPPB   int           // ExtendAdd: share of the TTL added by each renewal
	RenewByPPB  int           // ExtendAdd: share of the TTL after which the holder should renew
	RenewalsMax int           // ExtendAdd: renewals before the deadline stands

	ExecutionTimeout time.Duration // wall-clock limit of one execution
	Lifetime         time.Duration // from submission to a terminal status
	RunLifetime      time.Duration // from the first lease to a terminal status

	IdempotencyWindow time.Duration // how long a key finds its job
}

// Policy is the preset's policy, with every default of its document.
func (p Preset) Policy() Policy {
	if p.Valid() {
		return presets[p]
	}
	return p.policy()
}

// presets are computed once. Nothing points to them: whoever could would change them for
// the whole process.
var presets = func() (all [presetEnd]Policy) {
	for p := PresetJobModel; p < presetEnd; p++ {
		all[p] = p.policy()
	}
	return all
}()

// IsPreset reports whether a policy is its preset, with nothing changed.
func (p *Policy) IsPreset() bool { return p.Preset.Valid() && *p == presets[p.Preset] }

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
	default: // the job model is what the others differ from
	}
	return policy
}
