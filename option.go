package gq

import (
	"maps"
	"slices"
	"time"
)

// Option sets something about a job: for all jobs of a [Kind], or for one submission. What
// no option sets comes from the queue.
type Option func(*Spec)

// InQueue names the queue.
func InQueue(name string) Option { return func(s *Spec) { s.Queue = name } }

// Delay holds a job back for so long.
func Delay(d time.Duration) Option { return func(s *Spec) { s.Delay = d } }

// RunAt holds a job back until then.
func RunAt(t time.Time) Option { return func(s *Spec) { s.RunAt = t } }

// Key makes a submission idempotent: a second one of the same kind with the same key finds
// the first job instead of making another.
func Key(name string) Option { return func(s *Spec) { s.Key.Name = name } }

// WithPriority sets the priority.
func WithPriority(p Priority) Option { return func(s *Spec) { s.Metadata.Priority = p } }

// Tag adds a tag, by which jobs can be listed.
func Tag(name, value string) Option {
	return func(s *Spec) {
		s.Metadata.Tags = maps.Clone(s.Metadata.Tags)
		if s.Metadata.Tags == nil {
			s.Metadata.Tags = make(map[string]string)
		}
		s.Metadata.Tags[name] = value
	}
}

// After has a job wait until these have completed.
func After(jobs ...JobID) Option {
	return func(s *Spec) {
		s.DependsOn = slices.Clone(s.DependsOn)
		for _, id := range jobs {
			s.DependsOn = append(s.DependsOn, Dependency{Kind: DependencyAfter, Job: id})
		}
	}
}

// LimitKey names what a job shares its queue's limit per key with, such as a customer.
func LimitKey(key string) Option { return func(s *Spec) { s.LimitKey = key } }

// FairKey names whose turn a job takes in a fair queue, such as a tenant.
func FairKey(key string) Option { return func(s *Spec) { s.FairKey = key } }

// MaxAttempts bounds how often a job is executed, the first time included.
func MaxAttempts(n int) Option { return func(s *Spec) { s.Overrides.MaxAttempts = n } }

// RetryDelay sets the delays between attempts.
func RetryDelay(b Backoff) Option { return func(s *Spec) { s.Overrides.Backoff = b } }

// LeaseTime is how long a worker may be silent before another one gets its job.
func LeaseTime(d time.Duration) Option { return func(s *Spec) { s.Overrides.LeaseTTL = d } }

// Timeout bounds one execution. [Unlimited] takes the queue's limit away.
func Timeout(d time.Duration) Option { return func(s *Spec) { s.Overrides.ExecutionTimeout = d } }

// Lifetime bounds the time from submission to the end. [Unlimited] takes the queue's limit
// away.
func Lifetime(d time.Duration) Option { return func(s *Spec) { s.Overrides.Lifetime = d } }

// overrides are the parts of a policy that a submission sets; what is zero comes from the
// queue.
type overrides struct {
	Preset            Preset // starts from it instead of the queue's policy
	MaxAttempts       int
	Backoff           Backoff
	LeaseTTL          time.Duration
	ExecutionTimeout  time.Duration // or Unlimited
	Lifetime          time.Duration // or Unlimited
	IdempotencyWindow time.Duration
}

// Over is a policy with the overrides.
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
	set(&p.IdempotencyWindow, o.IdempotencyWindow)
	return p
}

// IsZero reports whether nothing is overridden.
func (o overrides) IsZero() bool { return o == overrides{} }
