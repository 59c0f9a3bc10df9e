package gq

import "time"

// Names and hard limits. Configuration can lower the limits but not raise them.
const (
	DefaultQueue = "default" // queue of jobs that name none

	JSON        = "application/json"         // content type of a JSON payload
	OctetStream = "application/octet-stream" // content type of a binary payload

	Unlimited time.Duration = -1 // removes a limit of the queue's policy
	KeepNone  time.Duration = 1  // as [Policy].Retention: the job is removed as soon as it has ended

	MaxNameBytes        = 256       // queue, pool, type, worker, requester, tier, capability names; limit, fair and order keys
	MaxKeyRunes         = 256       // idempotency key, in characters
	MaxPayloadBytes     = 16 << 20  // largest Limits.PayloadBytes
	MaxDependencies     = 1000      // dependencies of one job; a final job of a workflow waits for all others
	MaxRefBytes         = 64        // name of a job within its workflow
	MaxDepth            = 100       // jobs of the longest dependency chain
	MaxGroupJobs        = 10_000    // jobs of one graph
	MaxGroupBytes       = 64 << 20  // total payload of one graph
	MaxQueues           = 100_000   // queues of one store
	MaxTags             = 64        // tags of one job
	MaxTagBytes         = 1024      // a tag's key and value together
	MaxAttributes       = 64        // attributes of one job
	MaxCapabilities     = 16        // capabilities one job requires
	MaxUniqueFields     = 16        // UniqueRule.Fields
	MaxFollowers        = 1000      // jobs that wait for a job which is replaced
	MaxReplacements     = 100       // how often a job was replaced that a dependency names
	MaxCorrelationBytes = 256       // correlation id
	MaxURLBytes         = 2048      // callback URL
	MaxMessageBytes     = 4096      // a failure's message; longer ones are truncated
	MaxReasonBytes      = 1024      // reasons and progress notes; longer ones are truncated
	MaxCostUnits        = 1 << 40   // cost of one job
	MaxCapacity         = 1 << 50   // capacity of one pool
	MaxPools            = 10_000    // pools of one store
	MaxAttemptsLimit    = 1_000_000 // largest Policy.MaxAttempts
	MaxDuration         = 10 * 365 * 24 * time.Hour
	MaxHashedDelay      = 1_000_000 * time.Second // Backoff.Max with JitterHash
	MaxQueryTypes       = 100                     // types of one query
	MaxQueryKeys        = 1000                    // keys of one query
	MaxRateCount        = 1_000_000_000           // Rate.Count
	MaxRateBurst        = 1_000_000               // Rate.Burst
	MaxWeight           = 1000                    // Spec.Weight
	MaxQueueKeys        = 100_000                 // keys of one queue with limits of their own
	MissedAfter         = time.Minute             // delay after which a firing counts as missed
	MaxMissedFirings    = 1000                    // largest Schedule.MissedLimit
	MaxBackfill         = 1000                    // jobs of one BackfillSchedule
	MaxBackfillSlots    = 100_000                 // slots in the range of a backfill
	MaxScheduleBytes    = 120                     // a schedule's name, which is part of its jobs' keys
	MinInterval         = time.Second             // shortest Schedule.Every
)

// Limits are the largest sizes that a queue accepts.
type Limits struct {
	PayloadBytes    int // largest payload; default 1 MiB, at most MaxPayloadBytes
	ResultBytes     int // largest result; default 1 MiB, at most MaxPayloadBytes
	CheckpointBytes int // largest checkpoint; default 1 MiB, at most MaxPayloadBytes
}
