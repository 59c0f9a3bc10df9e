package gq

import "time"

// What a face or a service needs beside the policy of its jobs stands here,
// once, as data. Numbers that govern a single job are in [Preset.Policy], sizes
// in [DefaultLimits].

// SchedulerSettings are the numbers of the scheduler API.
type SchedulerSettings struct {
	Capacity     int64         // cost units that running jobs may occupy together
	DenialRetry  time.Duration // after a denied lease, ask again in this long
	Idempotency  bool          // a repeated client request id is refused
	ListLimit    int           // jobs on a page that names no limit
	ListLimitMax int           // jobs on a page at most
}

// SchedulerDefaults are the settings of a scheduler that is told nothing else.
func SchedulerDefaults() SchedulerSettings {
	return SchedulerSettings{
		Capacity:     70,
		DenialRetry:  10 * time.Second,
		Idempotency:  true,
		ListLimit:    50,
		ListLimitMax: 200,
	}
}

// MatchingSettings are the numbers of a matching queue. Shares and weights are
// in parts per billion: 1,000,000,000 is 1.0.
type MatchingSettings struct {
	BatchSize        int           // jobs considered in one round at most
	DispatchInterval time.Duration // between rounds while jobs wait
	DepthMax         int           // live jobs in the queue; one more is refused
	GCHorizon        time.Duration // how long ended jobs are kept for audit

	Score       ScoreSettings
	Eligibility EligibilitySettings
	Quotas      QuotaSettings
	Starvation  StarvationSettings
	Health      HealthSettings
	Cooldown    CooldownSettings
	Seed        SeedSettings
}

// ScoreSettings weigh what makes a job urgent.
type ScoreSettings struct {
	FeePPB  int64 // weight of the fee
	AgePPB  int64 // weight of the age
	SizePPB int64 // weight of the size; smaller is better
	TierPPB int64 // weight of the requester's tier

	FeeRef  int64         // fee that counts in full
	AgeRef  time.Duration // age that counts in full; no job may live longer
	SizeRef int64         // bytes that count half

	TierFreePPB    int64 // addend of tier FREE
	TierProPPB     int64 // addend of tier PRO
	TierPremiumPPB int64 // addend of tier PREMIUM
}

// EligibilitySettings say which providers may get jobs.
type EligibilitySettings struct {
	MinHealthPPB     int64         // health below this gets nothing
	HeartbeatTimeout time.Duration // silence beyond this gets nothing
	MinStakeAI       int64         // stake for AI jobs
	MinStakeQuantum  int64         // stake for QUANTUM jobs
}

// QuotaSettings bound what one provider or requester gets.
type QuotaSettings struct {
	LeasesPerProvider    int64         // live leases of one provider
	AIUnitsPerEpoch      int64         // AI units of one provider in an epoch
	QuantumUnitsPerEpoch int64         // QUANTUM units of one provider in an epoch
	RequesterMax         int64         // leases of one requester in the window; 0 is no limit
	RequesterWindow      time.Duration // the rolling window of RequesterMax
}

// StarvationSettings reserve matches for jobs that pay little.
type StarvationSettings struct {
	Every     int64 // each match of this number is theirs; 0 is none
	LowFeeMax int64 // fee up to which a job belongs to them
}

// HealthSettings move a provider's health, which starts at 1.0.
type HealthSettings struct {
	DecayAckTimeoutPPB   int64 // lost by not acknowledging in time
	DecayLeaseExpiredPPB int64 // lost by letting a lease run out
	RecoverPPBPerSecond  int64 // regained with time
}

// CooldownSettings keep jobs away from a provider for a while.
type CooldownSettings struct {
	Decline      time.Duration // after declining: no job of that kind; 0 is off
	LeaseExpired time.Duration // after an expired lease: no job at all; 0 is off
	FailsInARow  int           // counted failures without a completion between them; 0 is off
	Fails        time.Duration // after that many: no job at all
}

// SeedSettings derive the seed of a round from the clock until a beacon comes.
type SeedSettings struct {
	ChainID string        // name of the installation
	Epoch   time.Duration // length of an epoch, over which units are counted
	Height  time.Duration // length of a block height, under which the seed stays
}

// MatchingDefaults are the settings of a matching queue that is told nothing
// else. An age of 625,000 s, a little above seven days, makes the age term
// exactly 400 parts per billion a second.
func MatchingDefaults() MatchingSettings {
	return MatchingSettings{
		BatchSize:        256,
		DispatchInterval: 250 * time.Millisecond,
		DepthMax:         100_000,
		GCHorizon:        7 * 24 * time.Hour,
		Score: ScoreSettings{
			FeePPB:         550_000_000,
			AgePPB:         250_000_000,
			SizePPB:        100_000_000,
			TierPPB:        100_000_000,
			FeeRef:         1_000_000,
			AgeRef:         625_000 * time.Second,
			SizeRef:        1 << 20,
			TierFreePPB:    0,
			TierProPPB:     300_000_000,
			TierPremiumPPB: 600_000_000,
		},
		Eligibility: EligibilitySettings{
			MinHealthPPB:     500_000_000,
			HeartbeatTimeout: 30 * time.Second,
			MinStakeAI:       1000,
			MinStakeQuantum:  5000,
		},
		Quotas: QuotaSettings{
			LeasesPerProvider:    16,
			AIUnitsPerEpoch:      100_000,
			QuantumUnitsPerEpoch: 10_000,
			RequesterMax:         0,
			RequesterWindow:      time.Minute,
		},
		Starvation: StarvationSettings{
			Every:     20,
			LowFeeMax: 100_000,
		},
		Health: HealthSettings{
			DecayAckTimeoutPPB:   20_000_000,
			DecayLeaseExpiredPPB: 100_000_000,
			RecoverPPBPerSecond:  100_000,
		},
		Cooldown: CooldownSettings{
			Decline:      5 * time.Second,
			LeaseExpired: 0,
			FailsInARow:  3,
			Fails:        time.Minute,
		},
		Seed: SeedSettings{
			ChainID: "gq",
			Epoch:   time.Hour,
			Height:  10 * time.Second,
		},
	}
}

// TaskQueueSettings are the numbers of the task queue service.
type TaskQueueSettings struct {
	WorkerSlots       int           // executions at a time, over all workers
	HeartbeatInterval time.Duration // between heartbeats of a worker
	WorkerTimeout     time.Duration // silence after which a worker counts as gone

	IdleHint    time.Duration // a worker that got nothing asks again in this long
	IdleHintMin time.Duration // least hint the server gives
	IdleHintMax time.Duration // greatest hint the server gives

	OutputBytesMax int // largest output of a job
	DedupKeysMax   int // submission keys that the in-memory designs remember
	PageSize       int // jobs on a page that names no size
	PageSizeMax    int // jobs on a page at most

	DeadlineSubmit    time.Duration // a client's SubmitJob
	DeadlineCancel    time.Duration // a client's CancelJob
	DeadlineRead      time.Duration // a client's GetJobStatus, GetJobResult and ListJobs
	DeadlineInternal  time.Duration // calls between services
	DeadlineHeartbeat time.Duration // a worker's heartbeat
	DeadlineFetch     time.Duration // a worker's FetchWork

	Retry         Backoff // of calls that may be repeated
	RetryAttempts int     // calls in all, the first included
}

// TaskQueueDefaults are the settings of a task queue service that is told
// nothing else. A worker is gone when its jobs' leases are: that number has one
// source.
func TaskQueueDefaults() TaskQueueSettings {
	return TaskQueueSettings{
		WorkerSlots:       6,
		HeartbeatInterval: time.Second,
		WorkerTimeout:     PresetTaskQueue.Policy().LeaseTTL,

		IdleHint:    200 * time.Millisecond,
		IdleHintMin: 50 * time.Millisecond,
		IdleHintMax: time.Second,

		OutputBytesMax: 256 << 10,
		DedupKeysMax:   10_000,
		PageSize:       50,
		PageSizeMax:    200,

		DeadlineSubmit:    3 * time.Second,
		DeadlineCancel:    3 * time.Second,
		DeadlineRead:      time.Second,
		DeadlineInternal:  time.Second,
		DeadlineHeartbeat: time.Second,
		DeadlineFetch:     1500 * time.Millisecond,

		Retry: Backoff{
			Strategy: Exponential, Initial: 100 * time.Millisecond, Max: time.Second, Multiplier: 2,
			Jitter: JitterFull,
		},
		RetryAttempts: 4,
	}
}

// SubmissionSettings bound how long a submission may take.
type SubmissionSettings struct {
	Timeout time.Duration // until a submission is acknowledged or reported as timed out
}

// SubmissionDefaults are the settings of an engine that is told nothing else.
func SubmissionDefaults() SubmissionSettings {
	return SubmissionSettings{Timeout: 30 * time.Second}
}

// RetentionSettings say how long a job is kept after it has ended. Its events
// are kept as long as the job.
type RetentionSettings struct {
	Completed  time.Duration
	Cancelled  time.Duration
	Failed     time.Duration
	DeadLetter time.Duration
}

// RetentionDefaults are the settings of an installation that is told nothing
// else. What went wrong is kept longer, for whoever must look into it.
func RetentionDefaults() RetentionSettings {
	return RetentionSettings{
		Completed:  7 * 24 * time.Hour,
		Cancelled:  7 * 24 * time.Hour,
		Failed:     30 * 24 * time.Hour,
		DeadLetter: 30 * 24 * time.Hour,
	}
}

// For is how long a job that ended in s is kept. A live job has no end yet: it
// is kept, and the answer is 0 and false.
func (r RetentionSettings) For(s Status) (time.Duration, bool) {
	switch s {
	case Completed:
		return r.Completed, true
	case Cancelled:
		return r.Cancelled, true
	case Failed:
		return r.Failed, true
	case DeadLetter:
		return r.DeadLetter, true
	default:
		return 0, false
	}
}
