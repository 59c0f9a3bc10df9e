package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker/sink"
	"github.com/gopherqueue/gq/match"
)

// matchingPrefix is the section of the matching parameters.
const matchingPrefix = "matching.queue."

// matchingSettings returns the keys of a matching queue. [match.Settings] validates the
// values, see checkMatching.
func matchingSettings(s *match.Settings) []Setting {
	key := func(name, usage string, k kind) Setting {
		return Setting{Key: matchingPrefix + name, Usage: "matching: " + usage, kind: k}
	}
	number := func(name string, to *int64, usage string) Setting {
		return key(name, usage, &numberKind[int64]{to, -1 << 63, 1<<63 - 1})
	}
	decimal := func(name string, to *match.Share, usage string) Setting { return key(name, usage, &shareKind{to}) }
	return []Setting{
		number("batch_size", &s.BatchSize, "jobs that a round considers at most"),
		number("dispatch_interval_ms", &s.DispatchInterval, "milliseconds between rounds while jobs wait"),
		number("ack_timeout_ms", &s.AckTimeout, "milliseconds in which a lease must be acknowledged"),
		number("depth_max", &s.DepthMax, "live jobs; one more is refused"),

		number("lease.ai_secs", &s.Lease.AI, "seconds that a lease of an AI job lasts"),
		number("lease.quantum_secs", &s.Lease.Quantum, "seconds that a lease of a QUANTUM job lasts"),
		decimal("lease.renew_alpha", &s.Lease.RenewAlpha, "part of a lease after which it should be renewed"),
		decimal("lease.renew_beta", &s.Lease.RenewBeta, "part of its length that a renewal adds, at most 1"),
		number("lease.renewals_max", &s.Lease.RenewalsMax, "renewals of a lease at most"),

		number("retries.attempt_max", &s.Retries.AttemptMax, "attempts of a job that may fail"),
		number("retries.base_backoff_ai_secs", &s.Retries.BaseAI, "seconds before the second attempt of an AI job"),
		number("retries.base_backoff_quantum_secs", &s.Retries.BaseQuantum, "seconds before the second attempt of a QUANTUM job"),
		decimal("retries.backoff_factor", &s.Retries.Factor, "how many times longer each wait is than the one before"),
		number("retries.backoff_cap_secs", &s.Retries.Cap, "longest wait in seconds, before its jitter"),

		number("quotas.leases_max_per_provider", &s.Quotas.LeasesMax, "leases that a provider may hold at the same time"),
		number("quotas.ai_units_per_epoch", &s.Quotas.AIUnitsPerEpoch, "units of AI jobs for one provider in an epoch"),
		number("quotas.quantum_units_per_epoch", &s.Quotas.QuantumUnitsPerEpoch, "units of QUANTUM jobs for one provider in an epoch"),
		number("quotas.requester_max", &s.Quotas.RequesterMax, "leases for one requester within the window; 0 is no limit"),
		number("quotas.requester_window_secs", &s.Quotas.RequesterWindow, "seconds of that window"),

		number("ttl.abs_default_ai_secs", &s.TTL.AI, "seconds that an AI job lives that does not say"),
		number("ttl.abs_default_quantum_secs", &s.TTL.Quantum, "seconds that a QUANTUM job lives that does not say"),
		number("ttl.rel_max_secs", &s.TTL.RelMax, "seconds that all attempts of a job may take together"),
		number("ttl.gc_horizon_secs", &s.TTL.GCHorizon, "seconds for which ended jobs and rounds are told of"),

		number("priority.w_fee_ppb", &s.Priority.FeeWeight, "weight of the fee in a job's score, in parts per billion"),
		number("priority.w_age_ppb", &s.Priority.AgeWeight, "weight of the age"),
		number("priority.w_size_ppb", &s.Priority.SizeWeight, "weight of the size, the smaller the better"),
		number("priority.w_tier_ppb", &s.Priority.TierWeight, "weight of the tier"),
		number("priority.fee_ref", &s.Priority.FeeRef, "fee from which on more counts no more"),
		number("priority.age_ref_ai_secs", &s.Priority.AgeRefAI, "age in seconds at which an AI job has earned its weight; it goes on rising"),
		number("priority.age_ref_quantum_secs", &s.Priority.AgeRefQuantum, "age in seconds at which a QUANTUM job has earned its weight; it goes on rising"),
		{Key: matchingPrefix + "priority.age_ref_secs", Usage: match.FormerAgeRef, Short: true, kind: formerKind(match.FormerAgeRef)},
		number("priority.size_ref_bytes", &s.Priority.SizeRef, "size at which half of its weight is left"),
		key("priority.tiers", "tiers that are added or replaced, as NAME=PPB with commas between", &amountsKind{&s.Priority.Tiers}),

		number("eligibility.min_health_ppb", &s.Eligibility.MinHealth, "health that a provider must have"),
		number("eligibility.heartbeat_timeout_secs", &s.Eligibility.HeartbeatTimeout, "seconds for which a provider may be silent"),
		number("eligibility.min_stake_ai", &s.Eligibility.MinStakeAI, "stake that AI jobs need"),
		number("eligibility.min_stake_quantum", &s.Eligibility.MinStakeQuantum, "stake that QUANTUM jobs need"),
		number("starvation.every", &s.Starvation.Every, "every so many matches one is for a cheap job; 0 is never"),
		number("starvation.low_fee_max", &s.Starvation.LowFeeMax, "fee up to which a job is cheap"),

		number("health.decay_ack_timeout_ppb", &s.Health.DecayAckTimeout, "health that a missed acknowledgement costs"),
		number("health.decay_lease_expired_ppb", &s.Health.DecayLeaseExpired, "health that a lease that ran out costs"),
		number("health.recover_ppb_per_sec", &s.Health.Recover, "health that comes back in a second"),
		number("cooldown.decline_secs", &s.Cooldown.Decline, "seconds without a job of the kind that was declined; 0 is none"),
		number("cooldown.lease_expired_secs", &s.Cooldown.LeaseExpired, "seconds without any job after a lease ran out; 0 is none"),
		number("cooldown.fails_in_a_row", &s.Cooldown.FailsInARow, "failures in a row that lead to a pause; 0 is never"),
		number("cooldown.fails_secs", &s.Cooldown.Fails, "seconds of that pause"),
		number("sla.slash_ppb", &s.SLA.Slash, "part of the stake that an invalid proof costs"),
		number("sla.jail_after", &s.SLA.JailAfter, "invalid proofs after which a provider is jailed; 0 is never"),
		key("seed.chain_id", "chain of the seed until a beacon is posted", &textKind{to: &s.Clock.Chain}),
		number("seed.epoch_secs", &s.Clock.Epoch, "seconds of an epoch until a beacon is posted"),
		number("seed.height_secs", &s.Clock.Height, "seconds of a block until a beacon is posted"),
	}
}

// checkMatching reports faults in the settings of a matching queue.
func (c *Config) checkMatching(fault func(key, format string, args ...any)) {
	for _, f := range errs.FaultsOf(c.Matching.Validate()) {
		fault(matchingPrefix+f.Field, "%s", f.Problem)
	}
}

// shareKind is a decimal number.
type shareKind struct{ to *match.Share }

func (k *shareKind) set(text string) error {
	if k.to.UnmarshalJSON([]byte(text)) != nil {
		return fmt.Errorf("%q is not a plain decimal with at most nine places, such as 0.6", text)
	}
	return nil
}

func (k *shareKind) text() string {
	text, _ := k.to.MarshalJSON() // cannot fail for a number
	return string(text)
}

// amountsKind maps names to numbers and adds to the existing ones. In a file they are
// keys with values.
type amountsKind struct{ to *map[string]int64 }

func (k *amountsKind) set(text string) error {
	all := maps.Clone(*k.to)
	for part := range strings.SplitSeq(text, ",") {
		name, amount, ok := strings.Cut(part, "=")
		n, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 64)
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			return fmt.Errorf("%q is not a name with a whole number, such as GOLD=450000000", strings.TrimSpace(part))
		}
		all[name] = n
	}
	*k.to = all
	return nil
}

func (k *amountsKind) text() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*k.to)) {
		parts = append(parts, name+"="+strconv.FormatInt((*k.to)[name], 10))
	}
	return strings.Join(parts, ", ")
}

// sinkKind is the target of a sink, or a URL that is asked; empty is off.
type sinkKind struct {
	to    *string
	check func(text string) error
}

func (k *sinkKind) set(text string) error {
	if text != "" {
		if err := k.check(text); err != nil {
			return err
		}
	}
	*k.to = text
	return nil
}

func (k *sinkKind) text() string { return *k.to }

func parseSink(text string) error {
	_, err := sink.Parse(text)
	return err
}

// formerKind is a key of earlier versions. Setting it is an error, which says what replaces it.
type formerKind string

func (k formerKind) set(string) error { return errors.New(string(k)) }

func (k formerKind) text() string { return "" }
