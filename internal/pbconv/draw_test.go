package pbconv

import (
	"math"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

// Generators of everything that goes over the wire: each optional field is sometimes
// absent, and numbers reach their limits.

// maybeOf gives the zero value half of the time.
func maybeOf[T any](g *rapid.Generator[T]) *rapid.Generator[T] {
	return rapid.Custom(func(r *rapid.T) (v T) {
		if rapid.Bool().Draw(r, "present") {
			v = g.Draw(r, "value")
		}
		return v
	})
}

var (
	drawJobID = rapid.Custom(func(r *rapid.T) gq.JobID {
		return machine.NewJobID([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "random")))
	})
	drawLeaseID = rapid.Custom(func(r *rapid.T) gq.LeaseID { return gq.LeaseID(drawText.Draw(r, "lease")) })
	drawTime    = rapid.Custom(func(r *rapid.T) time.Time {
		return time.Unix(0, rapid.Int64Range(1, math.MaxInt64).Draw(r, "time")).UTC()
	})
	drawDuration = rapid.Custom(func(r *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(-int64(gq.MaxDuration), int64(gq.MaxDuration)).Draw(r, "d"))
	})
	drawText     = rapid.StringN(1, 60, -1)
	drawInt      = rapid.Custom(func(r *rapid.T) int { return int(rapid.Int64().Draw(r, "n")) })
	drawPriority = rapid.SampledFrom(enum.All[gq.Priority]())
	drawLabels   = rapid.MapOfN(rapid.String(), rapid.String(), 1, 8)
	drawTexts    = rapid.SliceOfN(rapid.String(), 1, 5)
	drawBytes    = rapid.SliceOfN(rapid.Byte(), 0, 100)
)

// drawEnum draws an enum value, including zero.
func drawEnum[G ~uint8](r *rapid.T, last G) G {
	return G(rapid.IntRange(0, int(last)).Draw(r, "word"))
}

// drawPolicy also draws invalid policies, which the server rejects. It never draws the
// zero policy, which means none.
var drawPolicy = rapid.Custom(func(r *rapid.T) gq.Policy {
	p := drawEnum(r, gq.PresetResilient).Policy()
	if p.Preset.Valid() && rapid.Bool().Draw(r, "as it is") {
		return p
	}
	for _, n := range []*int{&p.MaxAttempts, &p.MaxLeaseLosses, &p.ExtendPPB, &p.RenewByPPB, &p.RenewalsMax} {
		if rapid.Bool().Draw(r, "changed") {
			*n = maybeOf(drawInt).Draw(r, "number")
		}
	}
	for _, b := range []*bool{&p.RetryTimeout, &p.RetrySystem, &p.RetryNever, &p.CancelWins, &p.HoldFault} {
		*b = rapid.Bool().Draw(r, "rule")
	}
	for _, d := range []*time.Duration{
		&p.LeaseTTL, &p.Hold, &p.ExecutionTimeout, &p.Lifetime, &p.RunLifetime, &p.StartWithin, &p.Aging, &p.Retention, &p.IdempotencyWindow, &p.Backoff.Initial, &p.Backoff.Max,
	} {
		if rapid.Bool().Draw(r, "changed") {
			*d = maybeOf(drawDuration).Draw(r, "duration")
		}
	}
	p.OnLoss, p.Extend = drawEnum(r, gq.LossFails), drawEnum(r, gq.ExtendAdd)
	p.Backoff.Strategy, p.Backoff.Jitter = drawEnum(r, gq.StrategyCustom), drawEnum(r, gq.JitterHash)
	p.Backoff.Multiplier, p.Backoff.Custom = rapid.Float64().Draw(r, "multiplier"), maybeOf(drawText).Draw(r, "custom")
	return p
})

var drawFailure = rapid.Custom(func(r *rapid.T) gq.Failure {
	return gq.Failure{
		Category: drawEnum(r, gq.CategorySystem), Code: maybeOf(drawText).Draw(r, "code"),
		Message: maybeOf(drawText).Draw(r, "message"), RetryAfter: maybeOf(drawDuration).Draw(r, "retry after"),
	}
})

var drawLease = rapid.Custom(func(r *rapid.T) gq.Lease {
	return gq.Lease{
		ID: drawLeaseID.Draw(r, "id"), Version: gq.LeaseVersion(rapid.Uint64().Draw(r, "version")),
		State: drawEnum(r, gq.LeaseCancelled), Worker: maybeOf(drawText).Draw(r, "worker"),
		Attempt: maybeOf(drawInt).Draw(r, "attempt"), Previous: maybeOf(drawLeaseID).Draw(r, "previous"),
		GrantedAt: maybeOf(drawTime).Draw(r, "granted"), HeartbeatAt: maybeOf(drawTime).Draw(r, "heartbeat"),
		ExpiresAt: maybeOf(drawTime).Draw(r, "expires"), TTL: maybeOf(drawDuration).Draw(r, "ttl"),
		Renewals: maybeOf(drawInt).Draw(r, "renewals"), CostUnits: maybeOf(rapid.Int64()).Draw(r, "cost"),
	}
})

// drawState leaves out what a store keeps for itself.
var drawState = rapid.Custom(func(r *rapid.T) gq.State {
	p := drawPolicy.Draw(r, "policy")
	s := gq.State{
		ID: drawJobID.Draw(r, "id"), Sequence: rapid.Uint64().Draw(r, "sequence"), Turn: maybeOf(rapid.Uint64()).Draw(r, "turn"), Policy: &p,
		Status: drawEnum(r, gq.StatusCancelled), Detail: drawEnum(r, gq.DetailAssigned), Own: drawEnum(r, gq.PriorityBulk), Inherited: drawEnum(r, gq.PriorityBulk),
		AnyOpen: rapid.Bool().Draw(r, "any"), Version: gq.LeaseVersion(maybeOf(rapid.Uint64()).Draw(r, "version")),
		Progress: rapid.Float64().Draw(r, "progress"), Note: maybeOf(drawText).Draw(r, "note"), Reason: maybeOf(drawText).Draw(r, "reason"), ReplacedBy: maybeOf(drawJobID).Draw(r, "replaced by"), OrderedAfter: maybeOf(drawJobID).Draw(r, "ordered after"), TraceParent: maybeOf(drawText).Draw(r, "trace"),
	}
	for _, n := range []*int{&s.Depth, &s.Waits, &s.Attempt, &s.Bound, &s.Faults, &s.Losses, &s.ResultBytes, &s.CheckpointBytes, &s.Checkpoints} {
		*n = maybeOf(drawInt).Draw(r, "number")
	}
	for _, t := range []*time.Time{
		&s.CreatedAt, &s.SubmittedAt, &s.UpdatedAt, &s.RunAt, &s.ScheduledAt, &s.StartedAt, &s.FirstStartedAt, &s.CompletedAt,
		&s.Cancellation.RequestedAt, &s.Cancellation.DeliveredAt, &s.Cancellation.HonouredAt,
	} {
		*t = maybeOf(drawTime).Draw(r, "instant")
	}
	s.Cancellation.Reason = maybeOf(drawText).Draw(r, "cancel reason")
	if rapid.Bool().Draw(r, "leased") {
		l := drawLease.Draw(r, "lease")
		s.Lease = &l
	}
	if rapid.Bool().Draw(r, "failed") {
		f := drawFailure.Draw(r, "failure")
		s.Failure = &f
	}
	return s
})

var drawMetadata = rapid.Custom(func(r *rapid.T) gq.Metadata {
	return gq.Metadata{
		Priority: drawEnum(r, gq.PriorityBulk), Tags: maybeOf(drawLabels).Draw(r, "tags"),
		CorrelationID: maybeOf(drawText).Draw(r, "correlation"), CallbackURL: maybeOf(drawText).Draw(r, "callback"),
	}
})

var drawSpec = rapid.Custom(func(r *rapid.T) gq.Spec {
	s := gq.Spec{
		ID: maybeOf(drawJobID).Draw(r, "id"), Queue: maybeOf(drawText).Draw(r, "queue"), Type: maybeOf(drawText).Draw(r, "type"),
		Payload: gq.Payload{Data: maybeOf(drawBytes).Draw(r, "payload"), ContentType: maybeOf(drawText).Draw(r, "content type")},
		Policy:  maybeOf(drawPolicy).Draw(r, "policy"),
		Key: gq.IdempotencyKey{
			Scope: maybeOf(drawText).Draw(r, "scope"), Name: maybeOf(drawText).Draw(r, "key"),
			Fingerprint: maybeOf(rapid.Uint64()).Draw(r, "fingerprint"),
		},
		RunAt: maybeOf(drawTime).Draw(r, "run at"), Delay: maybeOf(drawDuration).Draw(r, "delay"),
		CostUnits: maybeOf(rapid.Int64()).Draw(r, "cost"), Requires: maybeOf(drawTexts).Draw(r, "requires"),
		LimitKey: maybeOf(drawText).Draw(r, "limit key"), FairKey: maybeOf(drawText).Draw(r, "fair key"), Weight: maybeOf(drawInt).Draw(r, "weight"),
		Requester: maybeOf(drawText).Draw(r, "requester"), Tier: maybeOf(drawText).Draw(r, "tier"), MaxFee: maybeOf(rapid.Int64()).Draw(r, "fee"),
		Attributes: maybeOf(drawLabels).Draw(r, "attributes"), ReplayOf: maybeOf(drawJobID).Draw(r, "replay of"),
		Metadata: drawMetadata.Draw(r, "metadata"),
	}
	s.Replaces, s.OrderKey = maybeOf(drawJobID).Draw(r, "replaces"), maybeOf(drawText).Draw(r, "order key")
	if rapid.Bool().Draw(r, "unique") {
		s.Unique = gq.UniqueRule{
			While: drawEnum(r, gq.ForPeriod), OnCollision: drawEnum(r, gq.Throttled),
			Period: maybeOf(drawDuration).Draw(r, "period"), Fields: maybeOf(drawTexts).Draw(r, "fields"),
		}
	}
	for range rapid.IntRange(0, 3).Draw(r, "dependencies") {
		s.DependsOn = append(s.DependsOn, gq.Dependency{Kind: drawEnum(r, gq.DependencyFanIn), Job: drawJobID.Draw(r, "dependency")})
	}
	return s
})

// drawJob draws a job as a store returns it, with defaults filled in.
var drawJob = rapid.Custom(func(r *rapid.T) gq.Job {
	s := drawSpec.Draw(r, "spec")
	s.Policy, s.Metadata.Priority = drawPolicy.Draw(r, "policy"), drawPriority.Draw(r, "priority")
	j := gq.Job{
		Spec: s, State: drawState.Draw(r, "state"), Metadata: s.Metadata,
		Result: maybeOf(drawBytes).Draw(r, "result"), Checkpoint: maybeOf(drawBytes).Draw(r, "checkpoint"),
	}
	j.Spec.ID = j.State.ID
	if rapid.Bool().Draw(r, "changed") {
		j.Metadata = drawMetadata.Draw(r, "metadata")
	}
	if rapid.Bool().Draw(r, "one policy") {
		j.State.Policy = &s.Policy
	}
	return j
})

var drawEvent = rapid.Custom(func(r *rapid.T) gq.Event {
	e := gq.Event{
		Seq: rapid.Uint64().Draw(r, "seq"), Time: maybeOf(drawTime).Draw(r, "time"), Queue: maybeOf(drawText).Draw(r, "queue"),
		Job: maybeOf(drawJobID).Draw(r, "job"), Type: drawEnum(r, gq.EventProviderSlashed), Status: drawEnum(r, gq.StatusCancelled),
		Attempt: maybeOf(drawInt).Draw(r, "attempt"), Lease: maybeOf(drawLeaseID).Draw(r, "lease"),
		Version: gq.LeaseVersion(rapid.Uint64().Draw(r, "version")), LeaseState: drawEnum(r, gq.LeaseCancelled),
		Worker: maybeOf(drawText).Draw(r, "worker"), CostUnits: maybeOf(rapid.Int64()).Draw(r, "cost"),
		Until: maybeOf(drawTime).Draw(r, "until"), Detail: drawEnum(r, gq.DetailAssigned), Reason: maybeOf(drawText).Draw(r, "reason"),
		TraceParent: maybeOf(drawText).Draw(r, "trace"), Elapsed: maybeOf(drawDuration).Draw(r, "elapsed"),
	}
	if rapid.Bool().Draw(r, "failed") {
		f := drawFailure.Draw(r, "failure")
		e.Failure = &f
	}
	return e
})

var drawReason = rapid.Custom(func(r *rapid.T) gq.Reason {
	reason := gq.Reason{
		Cause: drawEnum(r, gq.CauseFinished), Summary: maybeOf(drawText).Draw(r, "summary"), Remedy: maybeOf(drawText).Draw(r, "remedy"),
		Until: maybeOf(drawTime).Draw(r, "until"), Never: rapid.Bool().Draw(r, "never"), More: maybeOf(drawInt).Draw(r, "more"),
	}
	for range rapid.IntRange(0, 2).Draw(r, "jobs") {
		reason.Jobs = append(reason.Jobs, gq.Related{
			Job: maybeOf(drawJobID).Draw(r, "job"), Status: drawEnum(r, gq.StatusCancelled), Kind: drawEnum(r, gq.DependencyFanIn),
			Worker: maybeOf(drawText).Draw(r, "worker"), Since: maybeOf(drawTime).Draw(r, "since"), Cost: maybeOf(rapid.Int64()).Draw(r, "cost"),
		})
	}
	return reason
})

var drawExplanation = rapid.Custom(func(r *rapid.T) gq.Explanation {
	return gq.Explanation{
		Reason: drawReason.Draw(r, "reason"), Job: maybeOf(drawJobID).Draw(r, "job"), Queue: maybeOf(drawText).Draw(r, "queue"),
		Type: maybeOf(drawText).Draw(r, "type"), Status: drawEnum(r, gq.StatusCancelled), Attempt: maybeOf(drawInt).Draw(r, "attempt"),
		Bound: maybeOf(drawInt).Draw(r, "bound"), Ahead: maybeOf(drawInt).Draw(r, "ahead"),
		Also:     maybeOf(rapid.SliceOfN(drawReason, 1, 3)).Draw(r, "also"),
		Timeline: maybeOf(rapid.SliceOfN(drawEvent, 1, 3)).Draw(r, "timeline"),
	}
})

var drawQueue = rapid.Custom(func(r *rapid.T) gq.Queue {
	return gq.Queue{
		Name: maybeOf(drawText).Draw(r, "name"), Policy: drawPolicy.Draw(r, "policy"), Paused: rapid.Bool().Draw(r, "paused"),
		MaxRunning: maybeOf(drawInt).Draw(r, "running"), MaxDepth: maybeOf(drawInt).Draw(r, "depth"),
		Rate: gq.Rate{
			Count: maybeOf(drawInt).Draw(r, "count"), Per: maybeOf(drawDuration).Draw(r, "per"), Burst: maybeOf(drawInt).Draw(r, "burst"),
		},
		KeyLimit: maybeOf(drawInt).Draw(r, "key limit"), Fair: rapid.Bool().Draw(r, "fair"), Pool: maybeOf(drawText).Draw(r, "pool"),
		UpdatedAt: maybeOf(drawTime).Draw(r, "updated"),
	}
})

var drawSchedule = rapid.Custom(func(r *rapid.T) gq.Schedule {
	return gq.Schedule{
		Name: maybeOf(drawText).Draw(r, "name"), Cron: maybeOf(drawText).Draw(r, "cron"), Every: maybeOf(drawDuration).Draw(r, "every"),
		TimeZone: maybeOf(drawText).Draw(r, "zone"), Start: maybeOf(drawTime).Draw(r, "start"), Missed: drawEnum(r, gq.MissedAll),
		MissedLimit: maybeOf(drawInt).Draw(r, "limit"), Paused: rapid.Bool().Draw(r, "paused"), Template: drawSpec.Draw(r, "template"),
		Next: maybeOf(drawTime).Draw(r, "next"), Last: maybeOf(drawTime).Draw(r, "last"), LastJob: maybeOf(drawJobID).Draw(r, "job"),
		Fired: maybeOf(drawInt).Draw(r, "fired"), CreatedAt: maybeOf(drawTime).Draw(r, "created"), UpdatedAt: maybeOf(drawTime).Draw(r, "updated"),
		Overlap: drawEnum(r, gq.OverlapCancelRunning), End: maybeOf(drawTime).Draw(r, "end"), Jitter: maybeOf(drawDuration).Draw(r, "jitter"),
		Skipped: maybeOf(drawInt).Draw(r, "skipped"), LastError: maybeOf(drawText).Draw(r, "error"),
	}
})

var drawFiring = rapid.Custom(func(r *rapid.T) gq.Firing {
	return gq.Firing{Slot: maybeOf(drawTime).Draw(r, "slot"), Job: maybeOf(drawJobID).Draw(r, "job"), Existing: rapid.Bool().Draw(r, "existing")}
})

var drawBackfill = rapid.Custom(func(r *rapid.T) gq.Backfill {
	return gq.Backfill{
		Schedule: maybeOf(drawText).Draw(r, "schedule"), From: maybeOf(drawTime).Draw(r, "from"), To: maybeOf(drawTime).Draw(r, "to"),
		Limit: maybeOf(drawInt).Draw(r, "limit"), DryRun: rapid.Bool().Draw(r, "dry run"),
	}
})

var drawBackfillReport = rapid.Custom(func(r *rapid.T) gq.BackfillReport {
	return gq.BackfillReport{
		Slots: maybeOf(drawInt).Draw(r, "slots"), Missing: maybeOf(drawInt).Draw(r, "missing"),
		Submitted: maybeOf(drawInt).Draw(r, "submitted"), Next: maybeOf(drawTime).Draw(r, "next"),
	}
})

var drawLeaseRef = rapid.Custom(func(r *rapid.T) gq.LeaseRef {
	return gq.LeaseRef{
		ID: maybeOf(drawLeaseID).Draw(r, "id"), Version: gq.LeaseVersion(maybeOf(rapid.Uint64()).Draw(r, "version")),
		Worker: maybeOf(drawText).Draw(r, "worker"),
	}
})

var drawSpawn = maybeOf(rapid.SliceOfN(drawSpec, 1, 2))

var drawBeat = rapid.Custom(func(r *rapid.T) gq.Heartbeat {
	b := gq.Heartbeat{
		Lease: drawLeaseRef.Draw(r, "lease"), Progress: -1, Note: maybeOf(drawText).Draw(r, "note"),
		Checkpoint: maybeOf(drawBytes).Draw(r, "checkpoint"), Spawn: drawSpawn.Draw(r, "spawn"),
	}
	if rapid.Bool().Draw(r, "progress") {
		b.Progress = rapid.Float64Range(0, math.MaxFloat64).Draw(r, "fraction")
	}
	return b
})

var drawOutcome = rapid.Custom(func(r *rapid.T) gq.Outcome {
	o := gq.Outcome{Lease: drawLeaseRef.Draw(r, "lease"), Verdict: drawEnum(r, gq.VerdictRelease), NoState: rapid.Bool().Draw(r, "no state")}
	switch o.Verdict {
	case gq.VerdictComplete:
		o.Result, o.Spawn = maybeOf(drawBytes).Draw(r, "result"), drawSpawn.Draw(r, "spawn")
	case gq.VerdictFail:
		o.Failure = drawFailure.Draw(r, "failure")
	case gq.VerdictRelease:
		o.Delay, o.Reason = maybeOf(drawDuration).Draw(r, "delay"), maybeOf(drawText).Draw(r, "reason")
	}
	return o
})

func drawDatabase(r *rapid.T) *gq.Database {
	d := &gq.Database{
		Bytes: maybeOf(rapid.Int64()).Draw(r, "bytes"), Autovacuum: rapid.Bool().Draw(r, "autovacuum"),
		Connections: maybeOf(drawInt).Draw(r, "connections"), MaxConnections: maybeOf(drawInt).Draw(r, "most"),
		TransactionAge: maybeOf(rapid.Int64()).Draw(r, "age"), OldestDatabase: maybeOf(drawText).Draw(r, "oldest"), Hidden: maybeOf(drawInt).Draw(r, "hidden"),
	}
	for range rapid.IntRange(0, 2).Draw(r, "tables") {
		d.Tables = append(d.Tables, gq.DatabaseTable{
			Name: drawText.Draw(r, "table"), Bytes: rapid.Int64().Draw(r, "bytes"), Rows: rapid.Int64().Draw(r, "rows"),
			DeadRows: rapid.Int64().Draw(r, "dead"), VacuumAfter: rapid.Int64().Draw(r, "after"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(r, "snapshots") {
		d.Snapshots = append(d.Snapshots, gq.DatabaseSnapshot{
			Holder: rapid.SampledFrom([]gq.SnapshotHolder{gq.HolderSession, gq.HolderPrepared, gq.HolderStandby, gq.HolderSlot}).Draw(r, "holder"),
			Name:   maybeOf(drawText).Draw(r, "name"), PID: maybeOf(drawInt).Draw(r, "pid"), Role: maybeOf(drawText).Draw(r, "role"),
			Database: maybeOf(drawText).Draw(r, "database"), State: maybeOf(drawText).Draw(r, "state"),
			Since: maybeOf(drawTime).Draw(r, "since"), Age: rapid.Int64().Draw(r, "age"),
		})
	}
	return d
}
