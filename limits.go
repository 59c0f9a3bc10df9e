package gq

import "time"

// Names, and hard limits: a configuration may ask for less, never for more.
const (
	DefaultQueue = "default" // where a job goes that names no queue

	JSON        = "application/json"         // the content type of a JSON payload
	OctetStream = "application/octet-stream" // the content type of a payload that is mere bytes

	Unlimited time.Duration = -1 // takes a limit of the queue's policy away

	MaxNameBytes        = 256       // queue, pool, type, worker, requester, tier, capability names; limit and fair keys
	MaxKeyRunes         = 256       // idempotency key, in characters
	MaxPayloadBytes     = 16 << 20  // what Limits.PayloadBytes may be set to
	MaxDependencies     = 1000      // dependencies of one job
	MaxDepth            = 100       // jobs on the longest chain of dependencies
	MaxGroupJobs        = 10_000    // jobs submitted as one atomic group
	MaxGroupBytes       = 64 << 20  // their payloads together
	MaxQueues           = 100_000   // queues of one store
	MaxTags             = 64        // tags of one job
	MaxTagBytes         = 1024      // a tag's key and value together
	MaxAttributes       = 64        // attributes of one job
	MaxCapabilities     = 16        // capabilities one job requires
	MaxCorrelationBytes = 256       // correlation id
	MaxURLBytes         = 2048      // callback URL
	MaxMessageBytes     = 4096      // a failure's message; longer ones are cut
	MaxReasonBytes      = 1024      // reasons and progress notes; longer ones are cut
	MaxCostUnits        = 1 << 40   // cost of one job
	MaxCapacity         = 1 << 50   // capacity of one pool
	MaxPools            = 10_000    // pools of one store
	MaxAttemptsLimit    = 1_000_000 // what Policy.MaxAttempts may be set to
	MaxDuration         = 10 * 365 * 24 * time.Hour
	MaxHashedDelay      = 1_000_000 * time.Second // Backoff.Max with JitterHash
	MaxQueryTypes       = 100                     // types that one query may name
	MaxRateCount        = 1_000_000_000           // Rate.Count
	MaxRateBurst        = 1_000_000               // Rate.Burst
	MissedAfter         = time.Minute             // lateness from which a slot counts as missed
	MaxMissedSlots      = 1000                    // what Schedule.MissedLimit may be set to
	MaxScheduleBytes    = 120                     // a schedule's name, which is part of its jobs' keys
	MinInterval         = time.Second             // between two slots of an interval schedule
)

// Limits are the sizes an installation accepts.
type Limits struct {
	PayloadBytes    int // largest payload; default 1 MiB, at most MaxPayloadBytes
	ResultBytes     int // largest result; default 1 MiB, at most MaxPayloadBytes
	CheckpointBytes int // largest checkpoint; default 1 MiB, at most MaxPayloadBytes
}
