package match_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
)

// The parameters have the documented names and defaults.
func TestDefaultSettings(t *testing.T) {
	spec.Covers(t, "M-35", "M-65", "M-101", "M-102", "M-137", "M-138", "M-139", "M-140", "M-141", "M-142", "M-143", "M-144", "M-147", "M-148", "M-162")
	s := match.DefaultSettings()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"batch_size": 256.0, "dispatch_interval_ms": 250.0, "ack_timeout_ms": 5000.0, "depth_max": 100000.0,
		"lease":   map[string]any{"ai_secs": 600.0, "quantum_secs": 180.0, "renew_alpha": 0.6, "renew_beta": 0.5, "renewals_max": 4.0},
		"retries": map[string]any{"attempt_max": 6.0, "base_backoff_ai_secs": 5.0, "base_backoff_quantum_secs": 2.0, "backoff_factor": 2.0, "backoff_cap_secs": 900.0},
		"quotas": map[string]any{
			"leases_max_per_provider": 16.0, "ai_units_per_epoch": 100000.0, "quantum_units_per_epoch": 10000.0,
			"requester_max": 0.0, "requester_window_secs": 60.0,
		},
		"ttl": map[string]any{"abs_default_ai_secs": 86400.0, "abs_default_quantum_secs": 7200.0, "rel_max_secs": 21600.0, "gc_horizon_secs": 604800.0},
		"priority": map[string]any{
			"w_fee_ppb": 550000000.0, "w_age_ppb": 250000000.0, "w_size_ppb": 100000000.0, "w_tier_ppb": 100000000.0,
			"fee_ref": 1000000.0, "age_ref_ai_secs": 86400.0, "age_ref_quantum_secs": 7200.0, "size_ref_bytes": 1048576.0,
			"tiers": map[string]any{"FREE": 0.0, "PRO": 300000000.0, "PREMIUM": 600000000.0},
		},
		"eligibility": map[string]any{"min_health_ppb": 500000000.0, "heartbeat_timeout_secs": 30.0, "min_stake_ai": 1000.0, "min_stake_quantum": 5000.0},
		"starvation":  map[string]any{"every": 20.0, "low_fee_max": 100000.0},
		"health":      map[string]any{"decay_ack_timeout_ppb": 20000000.0, "decay_lease_expired_ppb": 100000000.0, "recover_ppb_per_sec": 100000.0},
		"cooldown":    map[string]any{"decline_secs": 5.0, "lease_expired_secs": 0.0, "fails_in_a_row": 3.0, "fails_secs": 60.0},
		"sla":         map[string]any{"slash_ppb": 0.0, "jail_after": 0.0},
		"seed":        map[string]any{"chain_id": "gq", "epoch_secs": 3600.0, "height_secs": 10.0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again := match.DefaultSettings()
	if err := again.Update(text); err != nil {
		t.Errorf("what was written cannot be read: %v", err)
	}
	if diff := cmp.Diff(s, again); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	for _, k := range match.Kinds() {
		preset := gq.PresetAI
		if k == match.Quantum {
			preset = gq.PresetQuantum
		}
		if p := s.JobPolicy(k, 0); p != preset.Policy() {
			t.Errorf("%s: policy %+v\nwant %+v", k, p, preset.Policy())
		}
	}
}

// Every parameter can be set, and has its documented effect.
func TestSettingsUpdate(t *testing.T) {
	spec.Covers(t, "M-57", "M-157")
	s := match.DefaultSettings()
	err := s.Update([]byte(`{"ack_timeout_ms": 700, "lease": {"ai_secs": 60, "renew_alpha": 0.25, "renew_beta": 1, "renewals_max": 9},
		"retries": {"attempt_max": 2, "base_backoff_ai_secs": 3, "backoff_factor": 1.5, "backoff_cap_secs": 100},
		"ttl": {"abs_default_ai_secs": 50, "rel_max_secs": 40}, "priority": {"tiers": {"GOLD": 1000000000}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if s.Priority.Tiers["GOLD"] != 1e9 || s.Priority.Tiers["PRO"] != 3e8 {
		t.Errorf("tiers %v", s.Priority.Tiers)
	}
	p := s.JobPolicy(match.AI, 0)
	want := gq.PresetAI.Policy()
	want.Hold, want.LeaseTTL, want.RenewByPPB, want.ExtendPPB, want.RenewalsMax = 700*time.Millisecond, time.Minute, 250_000_000, 1_000_000_000, 9
	want.MaxAttempts, want.Backoff.Initial, want.Backoff.Multiplier, want.Backoff.Max = 2, 3*time.Second, 1.5, 100*time.Second
	want.Lifetime, want.RunLifetime = 50*time.Second, 40*time.Second
	if p != want {
		t.Errorf("policy %+v\nwant %+v", p, want)
	}
	if err := machine.CheckPolicy(p); err != nil {
		t.Error(err)
	}
	if got := s.JobPolicy(match.AI, 20).Lifetime; got != 20*time.Second {
		t.Errorf("a lifetime of its own: %v", got)
	}
	eachSetting(t)
}

// eachSetting changes one parameter at a time and checks that only that one changes.
func eachSetting(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(match.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	var walk func(at string, v any, set func(any) any)
	changed := 0
	walk = func(at string, v any, set func(any) any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				walk(at+"."+name, inner, func(x any) any { return set(map[string]any{name: x}) })
			}
			return
		case string:
			text, err = json.Marshal(set("other"))
		case float64:
			step := 1.0
			if v != math.Trunc(v) {
				step = 0.125
			}
			text, err = json.Marshal(set(v + step))
		}
		if err != nil {
			t.Fatal(err)
		}
		s := match.DefaultSettings()
		if err := s.Update(text); err != nil {
			t.Errorf("%s cannot be set: %v", at, err)
			return
		}
		if n := strings.Count(cmp.Diff(match.DefaultSettings(), s), "\n+ "); n > 1 || cmp.Equal(match.DefaultSettings(), s) {
			t.Errorf("%s: %d parameters changed", at, n)
		}
		changed++
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	walk("", all, func(x any) any { return x })
	if changed < 45 {
		t.Errorf("only %d parameters", changed)
	}
}

func TestSettingsReportEveryFault(t *testing.T) {
	spec.Covers(t, "M-65")
	s := match.DefaultSettings()
	before := s.Clone()
	err := s.Update([]byte(`{"batch_size": 0, "dispatch_interval_ms": 0, "ack_timeout_ms": 180000, "depth_max": 0, "unknown": 1,
		"lease": {"renew_alpha": 0, "renew_beta": 1.1, "renewals_max": -1, "ai_secs": 1.5},
		"retries": {"attempt_max": 0, "base_backoff_ai_secs": 901, "backoff_factor": 0.9, "backoff_cap_secs": 900},
		"ttl": {"abs_default_ai_secs": 315360001, "rel_max_secs": 0}, "health": {"decay_ack_timeout_ppb": 1000000001},
		"cooldown": {"decline_secs": -1}, "sla": {"slash_ppb": -1}, "seed": {"chain_id": "a|b", "epoch_secs": 0}}`))
	var got []string
	for _, f := range errs.FaultsOf(err) {
		got = append(got, f.Field)
	}
	slices.Sort(got)
	want := []string{
		"batch_size", "cooldown.decline_secs", "depth_max", "dispatch_interval_ms", "health.decay_ack_timeout_ppb",
		"lease.ai_secs", "lease.renew_alpha", "lease.renew_beta", "lease.renewals_max",
		"retries.attempt_max", "retries.backoff_factor", "retries.base_backoff_ai_secs", "seed.chain_id", "seed.epoch_secs",
		"sla.slash_ppb", "ttl.abs_default_ai_secs", "ttl.rel_max_secs", "unknown",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, err)
	}
	for _, given := range []string{`{"batch_size": 0}`, `{"batch_size": 513}`} { // the range is the one that is enforced
		if err := s.Update([]byte(given)); len(errs.FaultsOf(err)) != 1 || errs.FaultsOf(err)[0].Problem != "is not between 1 and 512" {
			t.Errorf("%s: %v", given, err)
		}
	}
	if err := s.Update([]byte(`{"quotas": {"leases_max_per_provider": -1}}`)); len(errs.FaultsOf(err)) != 1 || errs.FaultsOf(err)[0].Problem != "is not between 0 and 4096" {
		t.Errorf("leases: %v", err)
	}
	if _, err := match.DecodeEnqueue([]byte(`{"kind": "AI", "units": -1}`), &s); len(errs.FaultsOf(err)) != 1 {
		t.Errorf("units: %v", err)
	}
	err = s.Update([]byte(`{"ack_timeout_ms": 180000}`))
	if f := errs.FaultsOf(err); len(f) != 1 || f[0].Field != "ack_timeout_ms" {
		t.Errorf("an acknowledgement after the end of the lease: %v", err)
	}
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("refused settings changed something:\n%s", diff)
	}
}

func TestShare(t *testing.T) {
	for text, want := range map[string]match.Share{"0.6": 600_000_000, "2": 2_000_000_000, "2.0": 2_000_000_000, "0.000000001": 1, "10": 10_000_000_000} {
		var got match.Share
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
		again, err := json.Marshal(got)
		if err != nil || string(again) != strings.TrimSuffix(text, ".0") {
			t.Errorf("%s is written as %s", text, again)
		}
	}
	for _, text := range []string{"-0.1", "0.1234567891", "1e3", "-1", `"1"`, "12345678901"} {
		var got match.Share
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s was read as %d", text, got)
		}
	}
}

// Health falls with outcomes and recovers over time.
func TestHealth(t *testing.T) {
	spec.Covers(t, "M-91", "M-92")
	set := match.DefaultSettings()
	s := match.NewStanding(now)
	s.Note(match.AckTimeout, match.AI, now, &set)
	if got := s.HealthNow(&set.Health, now); got != 980_000_000 {
		t.Errorf("after an ACK_TIMEOUT: %d", got)
	}
	s.Note(match.LeaseExpired, match.AI, now, &set)
	if got := s.HealthNow(&set.Health, now); got != 880_000_000 {
		t.Errorf("after a LEASE_EXPIRED: %d", got)
	}
	if got := s.HealthNow(&set.Health, now+100); got != 890_000_000 {
		t.Errorf("100 s later: %d", got)
	}
	if got := s.HealthNow(&set.Health, now+match.MaxTime); got != 1e9 {
		t.Errorf("in the end: %d", got)
	}
	for range 20 {
		s.Note(match.LeaseExpired, match.AI, now, &set)
	}
	if got := s.HealthNow(&set.Health, now); got != 0 {
		t.Errorf("at the bottom: %d", got)
	}
	set.Health.Recover = 0
	if got := s.HealthNow(&set.Health, now+match.MaxTime); got != 0 {
		t.Errorf("without recovery: %d", got)
	}
	for _, o := range []match.Outcome{match.Done, match.ProofInvalid, match.ProviderFail, match.Declined, match.Withdrawn} {
		s := match.NewStanding(now)
		s.Note(o, match.AI, now, &set)
		if s.Health != 1e9 {
			t.Errorf("%s costs health: %d", o, s.Health)
		}
	}
}

func TestCooldowns(t *testing.T) {
	spec.Covers(t, "M-69", "M-93", "M-133")
	set := match.DefaultSettings()
	set.Cooldown.LeaseExpired = 30
	s := match.NewStanding(now)
	s.Note(match.Declined, match.Quantum, now, &set)
	if s.CooldownUntil != (match.Cooldowns{Quantum: now + 5}) {
		t.Errorf("after a decline: %+v", s.CooldownUntil)
	}
	s.Note(match.LeaseExpired, match.AI, now, &set)
	if s.CooldownUntil != (match.Cooldowns{AI: now + 30, Quantum: now + 30}) {
		t.Errorf("after a LEASE_EXPIRED: %+v", s.CooldownUntil)
	}
	s.Note(match.Declined, match.AI, now, &set)
	if s.CooldownUntil.AI != now+30 {
		t.Errorf("a shorter pause ended a longer one: %+v", s.CooldownUntil)
	}

	set.Cooldown.LeaseExpired = 0
	for name, test := range map[string]struct {
		outcomes []match.Outcome
		until    int64
	}{
		"two failures":                {[]match.Outcome{match.ProviderFail, match.AckTimeout}, 0},
		"three":                       {[]match.Outcome{match.ProviderFail, match.AckTimeout, match.ProofInvalid}, now + 60},
		"a completion between":        {[]match.Outcome{match.ProviderFail, match.AckTimeout, match.Done, match.LeaseExpired, match.ProviderFail}, 0},
		"no fault between":            {[]match.Outcome{match.ProviderFail, match.Withdrawn, match.AckTimeout, match.ProviderFail}, now + 60},
		"two more after the pause":    {[]match.Outcome{match.ProviderFail, match.ProviderFail, match.ProviderFail, match.ProviderFail}, now + 60},
		"withdrawals are no failures": {[]match.Outcome{match.Withdrawn, match.Withdrawn, match.Withdrawn, match.Withdrawn}, 0},
	} {
		s := match.NewStanding(now)
		for _, o := range test.outcomes {
			s.Note(o, match.AI, now, &set)
		}
		if s.CooldownUntil.AI != test.until || s.CooldownUntil.Quantum != test.until {
			t.Errorf("%s: %+v, want %d", name, s.CooldownUntil, test.until)
		}
	}
	set.Cooldown.FailsInARow = 0
	off := match.NewStanding(now)
	for range 10 {
		off.Note(match.ProviderFail, match.AI, now, &set)
	}
	if off.CooldownUntil != (match.Cooldowns{}) {
		t.Errorf("switched off: %+v", off.CooldownUntil)
	}
}

func TestUnitsOfAnEpoch(t *testing.T) {
	s := match.NewStanding(now)
	s.Spend(match.AI, 7, 10)
	s.Spend(match.Quantum, 7, 3)
	s.Spend(match.AI, 7, 5)
	if s.Units(match.AI, 7) != 15 || s.Units(match.Quantum, 7) != 3 || s.Units(match.AI, 8) != 0 {
		t.Errorf("%+v", s)
	}
	s.Spend(match.AI, 7, -20)
	s.Spend(match.Quantum, 8, 1)
	if s.Units(match.AI, 8) != 0 || s.Units(match.Quantum, 8) != 1 {
		t.Errorf("in the next epoch: %+v", s)
	}
}

// The history distinguishes the four faults from other outcomes.
func TestOutcomeOf(t *testing.T) {
	spec.Covers(t, "M-161")
	for _, test := range []struct {
		e    gq.Event
		want match.Outcome
	}{
		{gq.Event{Type: gq.EventStarted, Lease: "l", LeaseState: gq.LeaseActive}, 0},
		{gq.Event{Type: gq.EventScheduled}, 0},
		{gq.Event{Type: gq.EventCompleted, Lease: "l", LeaseState: gq.LeaseCompleted}, match.Done},
		{gq.Event{Type: gq.EventScheduled, Lease: "l", LeaseState: gq.LeaseCancelled, Reason: match.ReasonDeclined}, match.Declined},
		{gq.Event{Type: gq.EventRetrying, Lease: "l", LeaseState: gq.LeaseCancelled, Reason: "provider_jailed"}, match.Withdrawn},
		{gq.Event{Type: gq.EventRetrying, Lease: "l", LeaseState: gq.LeaseExpired, Failure: &gq.Failure{Code: "ack_timeout"}}, match.AckTimeout},
		{gq.Event{Type: gq.EventDeadLettered, Lease: "l", LeaseState: gq.LeaseExpired, Failure: &gq.Failure{Code: "lease_expired"}}, match.LeaseExpired},
		{gq.Event{Type: gq.EventRetrying, Lease: "l", LeaseState: gq.LeaseCompleted, Failure: &gq.Failure{Code: "proof_invalid"}}, match.ProofInvalid},
		{gq.Event{Type: gq.EventRetrying, Lease: "l", LeaseState: gq.LeaseCompleted, Failure: &gq.Failure{Code: "provider_fail"}}, match.ProviderFail},
	} {
		if got := match.OutcomeOf(&test.e); got != test.want {
			t.Errorf("%+v: %v, want %v", test.e, got, test.want)
		}
	}
	var faults []string
	for o := match.Done; o <= match.Withdrawn; o++ {
		if o.Fault() {
			faults = append(faults, o.String())
		}
	}
	if got := fmt.Sprint(faults); got != "[ACK_TIMEOUT LEASE_EXPIRED PROOF_INVALID PROVIDER_FAIL]" {
		t.Errorf("faults %s", got)
	}
}

// What a requester may set of a job, and what only the queue may.
func TestDecodeEnqueue(t *testing.T) {
	spec.Covers(t, "M-03")
	set := match.DefaultSettings()
	for _, k := range match.Kinds() {
		e, err := match.DecodeEnqueue(fmt.Appendf(nil, `{"kind":%q,"spec":{"depth":3},"tier":"PRO","payload":{"a":[1]},"ttl_abs":10}`, k), &set)
		if err != nil || e.Kind != k || e.Spec.Depth != 3 || e.SizeBytes != 9 || string(e.Payload) != `{"a":[1]}` || e.TTL != 10 {
			t.Errorf("%s: %+v, %v", k, e, err)
		}
	}
	for text, want := range map[string]int64{``: 1, `,"units":null`: 1, `,"units":0`: 0, `,"units":1`: 1, `,"units":7`: 7} {
		e, err := match.DecodeEnqueue([]byte(`{"kind":"AI"`+text+`}`), &set)
		if named := want != 1 || text == `,"units":1`; err != nil || e.Units != want || e.Unnamed == named {
			t.Errorf("%q: %d units, unnamed %t, %v", text, e.Units, e.Unnamed, err)
		}
	}
	for text, field := range map[string]string{
		`{}`: "kind", `{"kind":"GPU"}`: "kind", `{"kind":"AI","tier":"GOLD"}`: "tier", `{"kind":"AI","max_fee":-1}`: "max_fee",
		`{"kind":"AI","id":"x"}`: "id", `{"kind":"AI","attempt":1}`: "attempt", `{"kind":"AI","ttl_abs":315360001}`: "ttl_abs",
		`{"kind":"AI","units":1099511627777}`: "units", `{"kind":"AI","colour":1}`: "colour",
	} {
		_, err := match.DecodeEnqueue([]byte(text), &set)
		if f := errs.FaultsOf(err); len(f) != 1 || f[0].Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
}
