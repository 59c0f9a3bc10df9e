package gq

import (
	"maps"
	"slices"
	"time"
)

// Option sets one property of all jobs of a [Kind] or of one submission. The queue's settings
// apply to everything that no option sets.
type Option func(*Spec)

// InQueue sets the queue.
func InQueue(name string) Option { return func(s *Spec) { s.Queue = name } }

// Delay postpones the first attempt by d.
func Delay(d time.Duration) Option { return func(s *Spec) { s.Delay = d } }

// RunAt postpones the first attempt until t.
func RunAt(t time.Time) Option { return func(s *Spec) { s.RunAt = t } }

// Key makes a submission idempotent: a second submission of the same kind with the same key
// returns the first job instead of creating another one.
func Key(name string) Option { return func(s *Spec) { s.Key.Name = name } }

// WithPriority sets the priority.
func WithPriority(p Priority) Option { return func(s *Spec) { s.Metadata.Priority = p } }

// Tag adds a tag. [Query] selects jobs by their tags.
func Tag(name, value string) Option {
	return func(s *Spec) {
		s.Metadata.Tags = maps.Clone(s.Metadata.Tags)
		if s.Metadata.Tags == nil {
			s.Metadata.Tags = make(map[string]string)
		}
		s.Metadata.Tags[name] = value
	}
}

// After makes a job wait until the given jobs have completed. If one ends otherwise, so does
// the job. In a workflow a [Ref] names another job of it.
func After[T JobID | Ref](jobs ...T) Option { return depend(DependencyAfter, jobs) }

// AfterEnd makes a job wait until the given jobs have ended, with or without success.
func AfterEnd[T JobID | Ref](jobs ...T) Option { return depend(DependencyFanIn, jobs) }

// AfterAny makes a job wait until at least one of the given jobs has ended, with or without
// success.
func AfterAny[T JobID | Ref](jobs ...T) Option { return depend(DependencyAfterAny, jobs) }

func depend[T JobID | Ref](kind DependencyKind, jobs []T) Option {
	return func(s *Spec) {
		s.DependsOn = slices.Clone(s.DependsOn)
		for _, j := range jobs {
			d := Dependency{Kind: kind}
			switch j := any(j).(type) {
			case JobID:
				d.Job = j
			case Ref:
				d.Ref = string(j)
			}
			s.DependsOn = append(s.DependsOn, d)
		}
	}
}

// LimitKey sets the key, such as a customer, to which the queue's limits per key apply.
func LimitKey(key string) Option { return func(s *Spec) { s.LimitKey = key } }

// Weight sets how much of the queue's rate per key each attempt of a job uses up: as much as n
// jobs without a weight. It needs a [LimitKey]. A job starts as soon as one unit is free and may
// use more than there is; the next job of the key waits for the rest too. So a job that is
// heavier than the burst also runs. The rate of the queue itself counts jobs, not weights.
func Weight(n int) Option { return func(s *Spec) { s.Weight = n } }

// OrderKey sets the key, such as an account, whose jobs run strictly one after another in the order
// of submission: the next one waits until this one has ended, however it ends and through all
// its retries. Jobs of different queues do not wait for each other.
func OrderKey(key string) Option { return func(s *Spec) { s.OrderKey = key } }

// FairKey sets the key, such as a tenant, by which a fair queue takes turns.
func FairKey(key string) Option { return func(s *Spec) { s.FairKey = key } }

// Resilient makes jobs survive an outage of what they depend on. It is [PresetResilient]: up to 20
// attempts, with exponential delays from a second to an hour, and every error is temporary
// unless the handler says otherwise. Later options change single settings of it.
func Resilient(s *Spec) { s.Overrides.Preset = PresetResilient }

// MaxAttempts limits the number of executions, including the first.
func MaxAttempts(n int) Option { return func(s *Spec) { s.Overrides.MaxAttempts = n } }

// RetryDelay sets the delays between attempts.
func RetryDelay(b Backoff) Option { return func(s *Spec) { s.Overrides.Backoff = b } }

// LeaseTime sets how long a worker may go without a heartbeat before another one gets its job.
func LeaseTime(d time.Duration) Option { return func(s *Spec) { s.Overrides.LeaseTTL = d } }

// Timeout limits the duration of one execution. [Unlimited] removes the queue's limit.
func Timeout(d time.Duration) Option { return func(s *Spec) { s.Overrides.ExecutionTimeout = d } }

// Lifetime limits the time from submission to the end. [Unlimited] removes the queue's limit.
func Lifetime(d time.Duration) Option { return func(s *Spec) { s.Overrides.Lifetime = d } }

// StartWithin limits the time from submission to the start of the first attempt: a job that no
// worker has started by then ends CANCELLED with the reason "start_deadline". Retries do not
// count, they may start at any later time. [Unlimited] removes the queue's limit.
func StartWithin(d time.Duration) Option { return func(s *Spec) { s.Overrides.StartWithin = d } }

// StartBefore is [StartWithin] with a time: a job that no worker has started by t ends CANCELLED
// with the reason "start_deadline". The time until t is counted by the clock of the process
// that submits the job. The submission is refused if t has passed.
func StartBefore(t time.Time) Option {
	return func(s *Spec) {
		// A negative time is invalid, except for Unlimited; zero leaves the queue's limit.
		if s.Overrides.StartWithin = time.Until(t); s.Overrides.StartWithin <= 0 {
			s.Overrides.StartWithin = min(s.Overrides.StartWithin, 2*Unlimited)
		}
	}
}

// KeepFor sets how long a job is kept after its end, however it ends, instead of the store's
// setting. [KeepNone] removes it at once, and [Unlimited] restores the store's setting in a queue that
// has its own.
//
// A job with an idempotency key is kept at least for the window of the key, and one that is unique for
// a period at least for the period. Jobs of a workflow are kept as the store's setting says.
func KeepFor(d time.Duration) Option { return func(s *Spec) { s.Overrides.Retention = d } }

// overrides are the parts of a policy that a submission sets. Zero fields keep the queue's
// value.
type overrides struct {
	Preset            Preset // replaces the queue's policy; the other fields override the preset
	MaxAttempts       int
	Backoff           Backoff
	LeaseTTL          time.Duration
	ExecutionTimeout  time.Duration // or Unlimited
	Lifetime          time.Duration // or Unlimited
	StartWithin       time.Duration // or Unlimited
	IdempotencyWindow time.Duration
	Retention         time.Duration // or Unlimited
}

// Over applies the overrides to a policy.
func (o overrides) Over(p Policy) Policy {
	if o.Preset != 0 {
		p = o.Preset.Policy()
	}
	if o.MaxAttempts != 0 {
		p.MaxAttempts = o.MaxAttempts
	}
	if o.Backoff != (Backoff{}) {
		p.Backoff = o.Backoff
	}
	set := func(to *time.Duration, from time.Duration) {
		switch from {
		case 0:
		case Unlimited:
			*to = 0
		default:
			*to = from
		}
	}
	set(&p.LeaseTTL, o.LeaseTTL)
	set(&p.ExecutionTimeout, o.ExecutionTimeout)
	set(&p.Lifetime, o.Lifetime)
	set(&p.StartWithin, o.StartWithin)
	set(&p.IdempotencyWindow, o.IdempotencyWindow)
	set(&p.Retention, o.Retention)
	return p
}

// IsZero reports whether nothing is overridden.
func (o overrides) IsZero() bool { return o == overrides{} }
