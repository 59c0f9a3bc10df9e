package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// otherMatching has a non-default value for every key of matching.
var otherMatching = map[string]string{
	"matching.queue.batch_size": "7", "matching.queue.dispatch_interval_ms": "300", "matching.queue.ack_timeout_ms": "4000", "matching.queue.depth_max": "9",
	"matching.queue.lease.ai_secs": "601", "matching.queue.lease.quantum_secs": "181", "matching.queue.lease.renew_alpha": "0.7",
	"matching.queue.lease.renew_beta": "0.25", "matching.queue.lease.renewals_max": "3",
	"matching.queue.retries.attempt_max": "5", "matching.queue.retries.base_backoff_ai_secs": "6", "matching.queue.retries.base_backoff_quantum_secs": "3",
	"matching.queue.retries.backoff_factor": "1.5", "matching.queue.retries.backoff_cap_secs": "901",
	"matching.queue.quotas.leases_max_per_provider": "15", "matching.queue.quotas.ai_units_per_epoch": "100001",
	"matching.queue.quotas.quantum_units_per_epoch": "10001", "matching.queue.quotas.requester_max": "2", "matching.queue.quotas.requester_window_secs": "61",
	"matching.queue.ttl.abs_default_ai_secs": "86401", "matching.queue.ttl.abs_default_quantum_secs": "7201",
	"matching.queue.ttl.rel_max_secs": "21601", "matching.queue.ttl.gc_horizon_secs": "604801",
	"matching.queue.priority.w_fee_ppb": "1", "matching.queue.priority.w_age_ppb": "2", "matching.queue.priority.w_size_ppb": "3",
	"matching.queue.priority.w_tier_ppb": "4", "matching.queue.priority.fee_ref": "5", "matching.queue.priority.age_ref_ai_secs": "86402", "matching.queue.priority.age_ref_quantum_secs": "7203",
	"matching.queue.priority.size_ref_bytes": "7", "matching.queue.priority.tiers": "FREE=0, GOLD=9, PREMIUM=600000000, PRO=1",
	"matching.queue.eligibility.min_health_ppb": "8", "matching.queue.eligibility.heartbeat_timeout_secs": "31",
	"matching.queue.eligibility.min_stake_ai": "9", "matching.queue.eligibility.min_stake_quantum": "10",
	"matching.queue.starvation.every": "21", "matching.queue.starvation.low_fee_max": "11",
	"matching.queue.health.decay_ack_timeout_ppb": "12", "matching.queue.health.decay_lease_expired_ppb": "13", "matching.queue.health.recover_ppb_per_sec": "14",
	"matching.queue.cooldown.decline_secs": "6", "matching.queue.cooldown.lease_expired_secs": "1",
	"matching.queue.cooldown.fails_in_a_row": "4", "matching.queue.cooldown.fails_secs": "59",
	"matching.queue.sla.slash_ppb": "15", "matching.queue.sla.jail_after": "16",
	"matching.queue.seed.chain_id": "chain", "matching.queue.seed.epoch_secs": "3601", "matching.queue.seed.height_secs": "11",
}

// leaves lists the members of the policy's document by their paths.
func leaves(prefix string, doc map[string]any, into map[string]string) {
	for name, v := range doc {
		if below, nested := v.(map[string]any); nested && name != "tiers" {
			leaves(prefix+name+".", below, into)
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // it comes from JSON
		}
		into[prefix+name] = string(text)
	}
}

// Every parameter of a matching queue has a key of the same name below matching.queue,
// with the same default, and there are no others.
func TestMatchingKeysAreThoseOfThePolicy(t *testing.T) {
	spec.Covers(t, "M-136", "M-137", "M-138", "M-139", "M-140", "M-141", "M-142", "M-143", "M-144", "M-145", "M-146", "M-147", "M-148", "M-162")
	text, err := json.Marshal(match.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	doc := map[string]any{}
	if err := decoder.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	leaves("matching.queue.", doc, want)
	want["matching.queue.priority.tiers"] = "FREE=0, PREMIUM=600000000, PRO=300000000"
	want["matching.queue.seed.chain_id"] = "gq"

	got := map[string]string{}
	c := Default()
	for _, s := range c.Settings() {
		if strings.HasPrefix(s.Key, "matching.queue.") && !s.Short {
			got[s.Key] = s.Text()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys and defaults (-policy +configuration):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(otherMatching))); diff != "" {
		t.Errorf("keys that are tried (-all +tried):\n%s", diff)
	}
	// The numbers of the specification, so that a wrong default cannot prove itself.
	for key, text := range map[string]string{
		"batch_size": "256", "dispatch_interval_ms": "250", "ack_timeout_ms": "5000",
		"lease.ai_secs": "600", "lease.quantum_secs": "180", "lease.renew_alpha": "0.6", "lease.renew_beta": "0.5", "lease.renewals_max": "4",
		"retries.attempt_max": "6", "retries.base_backoff_ai_secs": "5", "retries.base_backoff_quantum_secs": "2",
		"retries.backoff_factor": "2", "retries.backoff_cap_secs": "900",
		"quotas.leases_max_per_provider": "16", "quotas.ai_units_per_epoch": "100000", "quotas.quantum_units_per_epoch": "10000",
		"ttl.abs_default_ai_secs": "86400", "ttl.abs_default_quantum_secs": "7200", "ttl.rel_max_secs": "21600", "ttl.gc_horizon_secs": "604800",
		"eligibility.min_health_ppb": "500000000", "eligibility.heartbeat_timeout_secs": "30", "eligibility.min_stake_ai": "1000",
		"eligibility.min_stake_quantum": "5000", "cooldown.lease_expired_secs": "0", "cooldown.decline_secs": "5", "cooldown.fails_in_a_row": "3",
		"cooldown.fails_secs": "60", "health.decay_ack_timeout_ppb": "20000000", "health.decay_lease_expired_ppb": "100000000", "depth_max": "100000",
	} {
		if got["matching.queue."+key] != text {
			t.Errorf("%s is %s by default, want %s", key, got["matching.queue."+key], text)
		}
	}
}

func TestMatchingFile(t *testing.T) {
	c, err := load(`matching:
  queue:
    batch_size: 64
    lease:
      renew_beta: 0.25
    retries: {backoff_factor: 2.0}
    priority:
      tiers:
        GOLD: 450000000
        PRO: 1
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := match.DefaultSettings()
	want.BatchSize, want.Lease.RenewBeta = 64, 250_000_000
	want.Priority.Tiers["GOLD"], want.Priority.Tiers["PRO"] = 450_000_000, 1
	if diff := cmp.Diff(want, c.Matching); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var printed strings.Builder
	if err := c.Print(&printed); err != nil {
		t.Fatal(err)
	}
	again, err := load(printed.String(), nil, nil)
	if err != nil {
		t.Fatalf("%v of\n%s", err, printed.String())
	}
	if diff := cmp.Diff(c.Config, again.Config); diff != "" {
		t.Errorf("what is printed is not what was loaded (-want +got):\n%s", diff)
	}
	for _, line := range []string{"  queue:\n    batch_size: 64 # gq.yaml:3\n", "    lease:\n      ai_secs: 600 # default\n", "      renew_beta: 0.25 # gq.yaml:5\n"} {
		if !strings.Contains(printed.String(), line) {
			t.Errorf("%q is not in\n%s", line, printed.String())
		}
	}
}

func TestMatchingFaultsHaveTheirLines(t *testing.T) {
	spec.Covers(t, "M-65")
	for _, v := range []struct{ file, want string }{
		{"matching:\n  queue:\n    batch_size: 0\n", "gq.yaml:3: matching.queue.batch_size: is not between 1"},
		{"matching:\n  queue:\n    lease:\n      renew_beta: 1.1\n", "gq.yaml:4: matching.queue.lease.renew_beta: is not between 0.000000001 and 1"},
		{"matching:\n  queue:\n    ack_timeout_ms: 180000\n", "gq.yaml:3: matching.queue.ack_timeout_ms: is not shorter than a lease of 180 s"},
		{"matching:\n  queue:\n    ttl:\n      abs_default_ai_secs: 315360001\n", "gq.yaml:4: matching.queue.ttl.abs_default_ai_secs: is not between 1 and 315360000"},
		{"matching:\n  queue:\n    retries:\n      backoff_factor: two\n", `gq.yaml:4: matching.queue.retries.backoff_factor: "two" is not a plain decimal`},
		{"matching:\n  queue:\n    batch_sise: 1\n", "gq.yaml:3: matching.queue.batch_sise: is not a known key; did you mean matching.queue.batch_size?"},
		{"matching:\n  queue:\n    seed:\n      chain_id: a|b\n", "gq.yaml:4: matching.queue.seed.chain_id: \"a|b\" contains '|'"},
		{"matching:\n  queue:\n    priority:\n      tiers:\n        GOLD: 2000000000\n", "gq.yaml:4: matching.queue.priority.tiers.GOLD: is not between 0 and 1000000000"},
		{"matching:\n  queue:\n    priority:\n      tiers:\n        GOLD: a lot\n", `gq.yaml:4: matching.queue.priority.tiers: "GOLD=a lot" is not a name with a whole number`},
		{"matching:\n  queue:\n    priority:\n      tiers: {A: 1, A: 2}\n", `matching.queue.priority.tiers: has "A" more than once`},
		{"matching:\n  queue:\n    batch_size:\n      a: 1\n", "gq.yaml:3: matching.queue.batch_size: is one value, and keys stand below it"},
	} {
		_, err := load(v.file, nil, nil)
		if err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%q is %v, want %s", v.file, err, v.want)
		}
	}
}

// The key of an earlier version is refused wherever it is set, even with what was its default.
func TestFormerAgeReference(t *testing.T) {
	const key = "matching.queue.priority.age_ref_secs"
	for from, load := range map[string]func() (Loaded, error){
		"gq.yaml:4": func() (Loaded, error) {
			return load("matching:\n  queue:\n    priority:\n      age_ref_secs: 625000\n", nil, nil)
		},
		"GQ_MATCHING_QUEUE_PRIORITY_AGE_REF_SECS": func() (Loaded, error) {
			return load("", map[string]string{"GQ_MATCHING_QUEUE_PRIORITY_AGE_REF_SECS": "625000"}, nil)
		},
		"--matching-queue-priority-age-ref-secs": func() (Loaded, error) { return load("", nil, map[string]string{key: "625000"}) },
	} {
		_, err := load()
		want := from + ": " + key + ": is no longer known: age_ref_ai_secs and age_ref_quantum_secs replace it"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
