package codec_test

import (
	"math"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

// Generators of everything that the codecs write. Each optional field is sometimes
// absent, and numbers reach their limits.

// maybe draws the zero value half of the time.
func maybe[T any](g *rapid.Generator[T]) *rapid.Generator[T] {
	return rapid.Custom(func(r *rapid.T) (v T) {
		if rapid.Bool().Draw(r, "present") {
			v = g.Draw(r, "value")
		}
		return v
	})
}

var (
	jobIDs = rapid.Custom(func(r *rapid.T) gq.JobID {
		return machine.NewJobID([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "random")))
	})
	leaseIDs = rapid.Custom(func(r *rapid.T) gq.LeaseID {
		if rapid.Bool().Draw(r, "minted") {
			return machine.NewLeaseID([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "unique")))
		}
		return gq.LeaseID(rapid.StringN(1, 40, -1).Draw(r, "foreign"))
	})
	// Times range from 1900 to 2250; on disk they are in nanoseconds.
	times = rapid.Custom(func(r *rapid.T) time.Time {
		return time.Unix(0, rapid.Int64Range(-2_200_000_000_000_000_000, 8_800_000_000_000_000_000).Draw(r, "time")).UTC()
	})
	durations = rapid.Custom(func(r *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(1, int64(gq.MaxDuration)).Draw(r, "d"))
	})
	texts      = rapid.StringN(1, 60, -1)
	numbers    = rapid.IntRange(1, math.MaxInt32)
	amounts    = rapid.Int64Range(1, math.MaxInt64)
	priorities = rapid.SampledFrom(enum.All[gq.Priority]())
	labels     = rapid.MapOfN(rapid.String(), rapid.String(), 1, 8)
)

var policies = rapid.Custom(func(r *rapid.T) gq.Policy {
	p := rapid.SampledFrom(enum.All[gq.Preset]()).Draw(r, "preset").Policy()
	if rapid.Bool().Draw(r, "as it is") {
		return p
	}
	p.MaxAttempts = rapid.IntRange(1, gq.MaxAttemptsLimit).Draw(r, "attempts")
	p.MaxLeaseLosses = rapid.IntRange(0, gq.MaxAttemptsLimit).Draw(r, "losses")
	for _, b := range []*bool{&p.RetryTimeout, &p.RetrySystem, &p.RetryNever, &p.CancelWins, &p.HoldFault} {
		*b = rapid.Bool().Draw(r, "rule")
	}
	p.OnLoss = rapid.SampledFrom([]gq.LossRule{gq.LossCounts, gq.LossFree, gq.LossBackoff, gq.LossFails}).Draw(r, "on loss")
	p.LeaseTTL, p.Hold = durations.Draw(r, "ttl"), durations.Draw(r, "hold")
	for _, d := range []*time.Duration{&p.ExecutionTimeout, &p.Lifetime, &p.RunLifetime, &p.StartWithin, &p.Retention, &p.Aging, &p.IdempotencyWindow} {
		*d = maybe(durations).Draw(r, "limit")
	}
	p.Extend = rapid.SampledFrom([]gq.ExtendMode{gq.ExtendReset, gq.ExtendAdd}).Draw(r, "extend")
	p.ExtendPPB, p.RenewByPPB = rapid.IntRange(1, 1_000_000_000).Draw(r, "extend by"), rapid.IntRange(1, 1_000_000_000).Draw(r, "renew by")
	p.RenewalsMax = rapid.IntRange(0, math.MaxInt32).Draw(r, "renewals")
	p.Backoff = gq.Backoff{
		Strategy: rapid.SampledFrom(enum.All[gq.Strategy]()).Draw(r, "strategy"),
		Initial:  durations.Draw(r, "initial"), Max: gq.MaxDuration, Multiplier: rapid.Float64Range(1, 100).Draw(r, "multiplier"),
		Jitter: rapid.SampledFrom([]gq.Jitter{gq.JitterNone, gq.JitterTenth, gq.JitterFull}).Draw(r, "jitter"),
	}
	if p.Backoff.Strategy == gq.StrategyCustom {
		p.Backoff.Custom = texts.Draw(r, "custom")
	}
	if err := machine.CheckPolicy(p); err != nil {
		r.Fatal(err)
	}
	return p
})

var failures = rapid.Custom(func(r *rapid.T) gq.Failure {
	return gq.Failure{
		Category: rapid.SampledFrom(enum.All[gq.Category]()).Draw(r, "category"), Code: maybe(texts).Draw(r, "code"),
		Message: maybe(texts).Draw(r, "message"), RetryAfter: maybe(durations).Draw(r, "retry after"),
	}
})

var leases = rapid.Custom(func(r *rapid.T) gq.Lease {
	return gq.Lease{
		ID: leaseIDs.Draw(r, "id"), Version: gq.LeaseVersion(rapid.Uint64().Draw(r, "version")),
		State: rapid.SampledFrom(enum.All[gq.LeaseState]()).Draw(r, "state"), Worker: texts.Draw(r, "worker"),
		Attempt: maybe(numbers).Draw(r, "attempt"), Previous: maybe(leaseIDs).Draw(r, "previous"),
		GrantedAt: times.Draw(r, "granted"), HeartbeatAt: times.Draw(r, "heartbeat"), ExpiresAt: times.Draw(r, "expires"),
		TTL: durations.Draw(r, "ttl"), Renewals: maybe(numbers).Draw(r, "renewals"), CostUnits: maybe(amounts).Draw(r, "cost"),
	}
})

var gates = rapid.SampledFrom([]gq.Gate{gq.GateSignal, gq.GateFailure, gq.GateSignalled})

var states = rapid.Custom(func(r *rapid.T) gq.State {
	p := policies.Draw(r, "policy")
	s := gq.State{
		ID: jobIDs.Draw(r, "id"), Sequence: rapid.Uint64().Draw(r, "sequence"), Policy: &p,
		Turn:   maybe(rapid.Uint64Range(1, machine.MaxTurn)).Draw(r, "turn"),
		Status: rapid.SampledFrom(enum.All[gq.Status]()).Draw(r, "status"),
		Detail: rapid.SampledFrom([]gq.Detail{gq.DetailNone, gq.DetailClaimed, gq.DetailPreparing, gq.DetailLeasePending, gq.DetailAssigned}).Draw(r, "detail"),
		Own:    priorities.Draw(r, "own"), Inherited: maybe(priorities).Draw(r, "inherited"),
		Depth: maybe(numbers).Draw(r, "depth"), Waits: maybe(numbers).Draw(r, "waits"), AnyOpen: rapid.Bool().Draw(r, "any"),
		Gate:    maybe(gates).Draw(r, "gate"),
		Attempt: maybe(numbers).Draw(r, "attempt"), Bound: p.MaxAttempts + maybe(numbers).Draw(r, "more"),
		Faults: maybe(numbers).Draw(r, "faults"), Losses: maybe(numbers).Draw(r, "losses"),
		CreatedAt: times.Draw(r, "created"), UpdatedAt: times.Draw(r, "updated"), RunAt: maybe(times).Draw(r, "run at"),
		ScheduledAt: maybe(times).Draw(r, "scheduled"), CompletedAt: maybe(times).Draw(r, "completed"),
		Version:  gq.LeaseVersion(maybe(rapid.Uint64()).Draw(r, "version")),
		Progress: maybe(rapid.Float64Range(0, 1)).Draw(r, "progress"), Note: maybe(texts).Draw(r, "note"), Reason: maybe(texts).Draw(r, "reason"),
		ResultBytes: maybe(numbers).Draw(r, "result"), CheckpointBytes: maybe(numbers).Draw(r, "checkpoint"), Checkpoints: maybe(numbers).Draw(r, "checkpoints"),
		ReplacedBy: maybe(jobIDs).Draw(r, "replaced by"), OrderedAfter: maybe(jobIDs).Draw(r, "ordered after"), SubmittedAt: maybe(times).Draw(r, "submitted at"), TraceParent: maybe(texts).Draw(r, "trace"),
		Cancellation: gq.Cancellation{
			RequestedAt: maybe(times).Draw(r, "requested"), DeliveredAt: maybe(times).Draw(r, "delivered"),
			HonouredAt: maybe(times).Draw(r, "honoured"), Reason: maybe(texts).Draw(r, "cancel reason"),
		},
	}
	if rapid.Bool().Draw(r, "started") {
		s.StartedAt, s.FirstStartedAt = times.Draw(r, "started at"), times.Draw(r, "first started at")
	} else {
		s.FirstStartedAt = maybe(times).Draw(r, "first leased at")
	}
	if s.Status.Held() || rapid.Bool().Draw(r, "leased") {
		l := leases.Draw(r, "lease")
		if s.Status.Held() {
			l.State = gq.LeaseActive
		}
		s.Lease, s.Settled = &l, rapid.Uint64().Draw(r, "settled")
	}
	if rapid.Bool().Draw(r, "leased before") {
		s.PreviousLease, s.PreviousDigest = leaseIDs.Draw(r, "previous"), rapid.Uint64().Draw(r, "digest")
	}
	if rapid.Bool().Draw(r, "failed") {
		f := failures.Draw(r, "failure")
		s.Failure = &f
	}
	return s
})

var metadata = rapid.Custom(func(r *rapid.T) gq.Metadata {
	return gq.Metadata{
		Priority: priorities.Draw(r, "priority"), Tags: maybe(labels).Draw(r, "tags"),
		CorrelationID: maybe(texts).Draw(r, "correlation"), CallbackURL: maybe(texts).Draw(r, "callback"),
	}
})

var specs = rapid.Custom(func(r *rapid.T) gq.Spec {
	s := gq.Spec{
		ID: jobIDs.Draw(r, "id"), Queue: texts.Draw(r, "queue"), Type: texts.Draw(r, "type"), Policy: policies.Draw(r, "policy"),
		Payload: gq.Payload{
			Data:        rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(r, "payload"),
			ContentType: rapid.OneOf(rapid.Just(gq.JSON), texts).Draw(r, "content type"),
		},
		RunAt: maybe(times).Draw(r, "run at"), Delay: maybe(durations).Draw(r, "delay"),
		CostUnits: maybe(amounts).Draw(r, "cost"), Requires: maybe(rapid.SliceOfN(texts, 1, gq.MaxCapabilities)).Draw(r, "requires"),
		LimitKey: maybe(texts).Draw(r, "limit key"), FairKey: maybe(texts).Draw(r, "fair key"),
		Requester: maybe(texts).Draw(r, "requester"), Tier: maybe(texts).Draw(r, "tier"), MaxFee: maybe(amounts).Draw(r, "fee"),
		Attributes: maybe(labels).Draw(r, "attributes"), ReplayOf: maybe(jobIDs).Draw(r, "replay of"), Workflow: gq.WorkflowID(maybe(jobIDs).Draw(r, "workflow")),
		Ref: maybe(texts).Draw(r, "ref"), Gate: maybe(gates).Draw(r, "gate"), Metadata: metadata.Draw(r, "metadata"),
	}
	s.Replaces, s.OrderKey = maybe(jobIDs).Draw(r, "replaces"), maybe(texts).Draw(r, "order key")
	s.Weight = maybe(rapid.IntRange(1, gq.MaxWeight)).Draw(r, "weight")
	if rapid.Bool().Draw(r, "unique") {
		s.Unique = gq.UniqueRule{
			While: rapid.SampledFrom(enum.All[gq.While]()).Draw(r, "while"), OnCollision: rapid.SampledFrom(enum.All[gq.OnCollision]()).Draw(r, "on collision"),
			Period: maybe(durations).Draw(r, "period"), Fields: maybe(rapid.SliceOfN(texts, 1, gq.MaxUniqueFields)).Draw(r, "fields"),
		}
	}
	if rapid.Bool().Draw(r, "keyed") {
		s.Key = gq.IdempotencyKey{Scope: maybe(texts).Draw(r, "scope"), Name: texts.Draw(r, "name"), Fingerprint: rapid.Uint64().Draw(r, "fingerprint")}
	}
	for range rapid.IntRange(0, 5).Draw(r, "dependencies") {
		s.DependsOn = append(s.DependsOn, gq.Dependency{Kind: rapid.SampledFrom(enum.All[gq.DependencyKind]()).Draw(r, "kind"), Job: jobIDs.Draw(r, "job")})
	}
	return s
})

var events = rapid.Custom(func(r *rapid.T) gq.Event {
	e := gq.Event{
		Type: rapid.SampledFrom(enum.All[gq.EventType]()).Draw(r, "type"), Status: rapid.SampledFrom(enum.All[gq.Status]()).Draw(r, "status"),
		Attempt: maybe(numbers).Draw(r, "attempt"), CostUnits: maybe(amounts).Draw(r, "cost"), Until: maybe(times).Draw(r, "until"),
		Beat: maybe(times).Draw(r, "beat"), TraceParent: maybe(texts).Draw(r, "trace"),
		Detail: rapid.SampledFrom([]gq.Detail{gq.DetailNone, gq.DetailClaimed, gq.DetailPreparing, gq.DetailLeasePending, gq.DetailAssigned}).Draw(r, "detail"),
		Reason: maybe(texts).Draw(r, "reason"), Elapsed: time.Duration(maybe(numbers).Draw(r, "elapsed")) * time.Microsecond,
		JobType: rapid.SampledFrom([]string{"", "t", "mail.send"}).Draw(r, "job type"),
	}
	if rapid.Bool().Draw(r, "leased") {
		e.Lease, e.Version = leaseIDs.Draw(r, "lease"), gq.LeaseVersion(rapid.Uint64().Draw(r, "version"))
		e.LeaseState, e.Worker = rapid.SampledFrom(enum.All[gq.LeaseState]()).Draw(r, "state"), maybe(texts).Draw(r, "worker")
	}
	if rapid.Bool().Draw(r, "failed") {
		f := failures.Draw(r, "failure")
		e.Failure = &f
	}
	return e
})
