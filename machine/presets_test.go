package machine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

const (
	day = 24 * time.Hour
	ms  = time.Millisecond
)

func TestPresetsAreValid(t *testing.T) {
	for _, preset := range enum.All[gq.Preset]() {
		policy := preset.Policy()
		if err := machine.CheckPolicy(policy); err != nil {
			t.Errorf("%v: %v", preset, err)
		}
		if policy.Preset != preset {
			t.Errorf("the policy of %v says it is that of %v", preset, policy.Preset)
		}
	}
	text := machine.CheckPolicy(gq.Policy{Preset: 99}).Error()
	for _, preset := range enum.All[gq.Preset]() {
		if !strings.Contains(text, preset.String()) {
			t.Errorf("the error of an unknown preset does not offer %v: %s", preset, text)
		}
	}
	if machine.DefaultPolicy() != gq.PresetJobModel.Policy() {
		t.Error("the default is not the job model's policy")
	}
}

func TestPresetNames(t *testing.T) {
	checkNames(t, enum.All[gq.Preset](), enum.Parse[gq.Preset], "jobmodel", "semantics", "scheduler", "matching-ai", "matching-quantum", "taskqueue", "resilient")
}

func TestJobModelPreset(t *testing.T) {
	spec.Covers(t, "J-51", "J-52", "J-54", "J-62", "J-63", "J-64", "J-65", "J-66")
	want := gq.Policy{
		Preset:      gq.PresetJobModel,
		MaxAttempts: 3,
		Backoff: gq.Backoff{
			Strategy: gq.StrategyExponential, Initial: time.Second, Max: time.Hour, Multiplier: 2, Jitter: gq.JitterNone,
		},
		RetryTimeout:      true,
		RetrySystem:       true,
		OnLoss:            gq.LossCounts,
		LeaseTTL:          5 * time.Minute,
		Hold:              time.Minute,
		Extend:            gq.ExtendReset,
		ExecutionTimeout:  30 * time.Minute,
		Lifetime:          7 * day,
		IdempotencyWindow: day,
	}
	got := gq.PresetJobModel.Policy()
	if got != want {
		t.Errorf("policy %+v\nwant %+v", got, want)
	}
	for n, want := 1, time.Second; n <= 100; n, want = n+1, min(2*want, time.Hour) {
		if d := delays(got.Backoff, machine.Draw{U: 0.7}, n)[0]; d != want {
			t.Errorf("retry %d waits %v, want %v", n, d, want)
		}
	}
}

func TestSemanticsPreset(t *testing.T) {
	spec.Covers(t, "Q-69", "Q-70", "Q-74", "Q-75", "Q-86")
	p := gq.PresetSemantics.Policy()
	if p.MaxAttempts != 4 {
		t.Errorf("%d attempts, want 4: the first and 3 retries", p.MaxAttempts)
	}
	want := gq.Backoff{Strategy: gq.StrategyExponential, Initial: 500 * ms, Max: 30 * time.Second, Multiplier: 2, Jitter: gq.JitterFull}
	if p.Backoff != want {
		t.Errorf("backoff %+v, want %+v", p.Backoff, want)
	}
	if p.LeaseTTL != 5*time.Second || p.Extend != gq.ExtendReset {
		t.Errorf("lease of %v that heartbeats %v, want 5s and reset", p.LeaseTTL, p.Extend)
	}
	if p.ExecutionTimeout != 30*time.Minute {
		t.Errorf("execution timeout %v: it does not follow the lease", p.ExecutionTimeout)
	}
	if p.OnLoss != gq.LossFree || p.MaxLeaseLosses != 20 {
		t.Errorf("a lost lease %v, at most %d: only a nack may use up a retry, and 20 losses are the most", p.OnLoss, p.MaxLeaseLosses)
	}
	if p.Lifetime != 0 || p.RunLifetime != 0 {
		t.Errorf("lifetimes %v and %v, want none", p.Lifetime, p.RunLifetime)
	}
}

func TestSeparateTimeouts(t *testing.T) {
	spec.Covers(t, "Q-104")
	p := gq.PresetSemantics.Policy()
	p.LeaseTTL, p.ExecutionTimeout = 30*time.Second, 5*time.Minute
	if err := machine.CheckPolicy(p); err != nil {
		t.Error(err)
	}
	if p.LeaseTTL != 30*time.Second || p.ExecutionTimeout != 5*time.Minute {
		t.Errorf("lease %v, execution %v", p.LeaseTTL, p.ExecutionTimeout)
	}
}

func TestSchedulerPreset(t *testing.T) {
	p := gq.PresetScheduler.Policy()
	if p.Hold != time.Minute || p.LeaseTTL != 30*time.Second || p.HoldFault {
		t.Errorf("hold %v (fault %v), lease %v; want 1m0s without fault, 30s", p.Hold, p.HoldFault, p.LeaseTTL)
	}
	if !p.RetryNever || p.OnLoss != gq.LossFails {
		t.Errorf("verdicts final %v, a lost lease %v", p.RetryNever, p.OnLoss)
	}
	if p.MaxAttempts != 3 || p.Lifetime != 0 {
		t.Errorf("%d attempts, lifetime %v; want 3 and none", p.MaxAttempts, p.Lifetime)
	}
}

func TestMatchingPresets(t *testing.T) {
	ai, quantum := gq.PresetAI.Policy(), gq.PresetQuantum.Policy()
	for _, test := range []struct {
		name     string
		p        gq.Policy
		lease    time.Duration
		base     time.Duration
		lifetime time.Duration
	}{
		{"AI", ai, 600 * time.Second, 5 * time.Second, 86_400 * time.Second},
		{"QUANTUM", quantum, 180 * time.Second, 2 * time.Second, 7200 * time.Second},
	} {
		want := gq.Backoff{Strategy: gq.StrategyExponential, Initial: test.base, Max: 900 * time.Second, Multiplier: 2, Jitter: gq.JitterHash}
		if test.p.Backoff != want {
			t.Errorf("%s: backoff %+v, want %+v", test.name, test.p.Backoff, want)
		}
		if test.p.LeaseTTL != test.lease || test.p.Lifetime != test.lifetime {
			t.Errorf("%s: lease %v and lifetime %v, want %v and %v", test.name, test.p.LeaseTTL, test.p.Lifetime, test.lease, test.lifetime)
		}
		if test.p.Hold != 5000*ms || !test.p.HoldFault {
			t.Errorf("%s: hold %v, fault %v", test.name, test.p.Hold, test.p.HoldFault)
		}
		if test.p.RunLifetime != 21_600*time.Second || test.p.MaxAttempts != 6 || test.p.OnLoss != gq.LossBackoff {
			t.Errorf("%s: run lifetime %v, %d attempts, a lost lease %v", test.name, test.p.RunLifetime, test.p.MaxAttempts, test.p.OnLoss)
		}
		if test.p.Extend != gq.ExtendAdd || test.p.RenewByPPB != 600_000_000 || test.p.ExtendPPB != 500_000_000 || test.p.RenewalsMax != 4 {
			t.Errorf("%s: renewals %v by %d, add %d, at most %d", test.name, test.p.Extend, test.p.RenewByPPB, test.p.ExtendPPB, test.p.RenewalsMax)
		}
	}
}

func TestTaskQueuePreset(t *testing.T) {
	p := gq.PresetTaskQueue.Policy()
	if p.LeaseTTL != 4000*ms || !p.RetryNever || p.MaxAttempts != 3 || p.OnLoss != gq.LossCounts || p.Lifetime != 0 {
		t.Errorf("policy %+v", p)
	}
}

func TestResilientPreset(t *testing.T) {
	p := gq.PresetResilient.Policy()
	want := machine.DefaultPolicy()
	want.Preset, want.MaxAttempts, want.Backoff.Jitter = gq.PresetResilient, 20, gq.JitterFull
	if p != want {
		t.Errorf("policy %+v, want %+v", p, want)
	}
	if p.Backoff.Initial != time.Second || p.Backoff.Max != time.Hour || p.Backoff.Strategy != gq.StrategyExponential {
		t.Errorf("backoff %+v", p.Backoff)
	}
}

func TestPolicyReportsEveryFault(t *testing.T) {
	p := gq.Policy{MaxLeaseLosses: -1, Lifetime: -1, RunLifetime: -1, ExecutionTimeout: -1, IdempotencyWindow: gq.MaxDuration + 1}
	want := []string{
		"policy.preset", "policy.max_attempts", "policy.max_lease_losses", "policy.on_loss",
		"policy.backoff.strategy", "policy.backoff.jitter", "policy.backoff.initial", "policy.backoff.max", "policy.backoff.multiplier",
		"policy.lease_ttl", "policy.hold", "policy.execution_timeout", "policy.lifetime", "policy.run_lifetime",
		"policy.idempotency_window", "policy.extend",
	}
	if got := faultFields(machine.CheckPolicy(p)); !slices.Equal(got, want) {
		t.Errorf("faults in %v\nwant %v", got, want)
	}
}

func TestLimits(t *testing.T) {
	spec.Covers(t, "J-125")
	limits := machine.DefaultLimits()
	if limits.PayloadBytes != 1_048_576 || machine.CheckLimits(limits) != nil {
		t.Errorf("default limits %+v: %v", limits, machine.CheckLimits(limits))
	}
	limits.PayloadBytes = 16 * 1_048_576
	if err := machine.CheckLimits(limits); err != nil {
		t.Errorf("16 MiB: %v", err)
	}
	job := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "t", Payload: gq.Payload{Data: make([]byte, 16*1_048_576), ContentType: "application/octet-stream"}}.WithDefaults()
	if err := machine.CheckSpec(&job, limits); err != nil {
		t.Errorf("a payload of 16 MiB where so much is allowed: %v", err)
	}
	if err := machine.CheckSpec(&job, machine.DefaultLimits()); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a payload of 16 MiB where nothing was configured: %v", err)
	}
	job.Payload.Data = append(job.Payload.Data, 0)
	if err := machine.CheckSpec(&job, limits); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a payload above 16 MiB: %v", err)
	}
	limits.PayloadBytes++
	if err := machine.CheckLimits(limits); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a limit above 16 MiB: %v", err)
	}
}
