package gq

import (
	"fmt"
	"time"
)

// While says how long a unique job holds its key. The zero value is not a rule.
type While uint8

const (
	WhileWaiting While = iota + 1 // until a worker claims it or it ends
	WhileLive                     // until it ends: while it waits, runs or waits for a retry
	UntilDone                     // until it completed or was cancelled; a failed job holds it until it is replayed or removed
	ForPeriod                     // for UniqueRule.Period from its submission
	whileEnd
)

var whileNames = [...]string{"", "waiting", "live", "done", "period"}

func (w While) String() string { return nameOf(whileNames[:], int(w)) }

// Valid reports whether w is one of the four rules.
func (w While) Valid() bool { return w >= WhileWaiting && w < whileEnd }

// MarshalText returns the name.
func (w While) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText parses a name.
func (w *While) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(whileNames[:], name); ok {
		*w = While(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"unique.while", fmt.Sprintf("%.64q is not one of waiting, live, done, period", name)}}}
}

// OnCollision says what a submission does if another job holds its key. The zero value is
// [Existing].
type OnCollision uint8

const (
	Existing  OnCollision = iota + 1 // return the job that holds the key
	Refuse                           // fail with a UniqueError
	Replace                          // cancel that job if it still waits, and take its place
	Debounced                        // postpone that job, if it still waits, to now plus the submission's delay, and return it
	Throttled                        // run when that job's period ends; until then further submissions return the new job
	collisionEnd
)

var collisionNames = [...]string{"", "existing", "refuse", "replace", "debounce", "throttle"}

func (c OnCollision) String() string { return nameOf(collisionNames[:], int(c)) }

// Valid reports whether c is one of the five actions.
func (c OnCollision) Valid() bool { return c >= Existing && c < collisionEnd }

// MarshalText returns the name.
func (c OnCollision) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses a name.
func (c *OnCollision) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(collisionNames[:], name); ok {
		*c = OnCollision(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"unique.on_collision", fmt.Sprintf("%.64q is not one of existing, refuse, replace, debounce, throttle", name)}}}
}

// UniqueRule makes a job the only one with its key. The key is [Spec.Key], or the job's type
// with the values of Fields. The rule of the job that holds the key says for how long; the
// rule of a new submission says what happens on a collision. A job without a rule holds its
// key for the policy's IdempotencyWindow.
type UniqueRule struct {
	While       While         // zero is ForPeriod with a period, WhileWaiting with Debounced, otherwise WhileLive
	OnCollision OnCollision   // zero is Existing
	Period      time.Duration // of ForPeriod
	Fields      []string      // names of JSON fields of the payload, instead of a key; "customer.id" is a field of a field
}

// IsZero reports whether the job is not unique.
func (u *UniqueRule) IsZero() bool {
	return u.While == 0 && u.OnCollision == 0 && u.Period == 0 && len(u.Fields) == 0
}

func (u UniqueRule) withDefaults() UniqueRule {
	if u.IsZero() {
		return u
	}
	if u.OnCollision == 0 {
		u.OnCollision = Existing
	}
	switch {
	case u.While != 0:
	case u.Period != 0 || u.OnCollision == Throttled:
		u.While = ForPeriod
	case u.OnCollision == Debounced:
		u.While = WhileWaiting
	default:
		u.While = WhileLive
	}
	return u
}

// Unique makes a job unique by its [Key] or by the fields of [UniqueBy]. Without an action a
// collision returns the existing job.
func Unique(while While, onCollision ...OnCollision) Option {
	return func(s *Spec) {
		s.Unique.While = while
		for _, c := range onCollision {
			s.Unique.OnCollision = c
		}
	}
}

// UniqueFor makes a job unique for a period that begins with its submission.
func UniqueFor(period time.Duration, onCollision ...OnCollision) Option {
	return func(s *Spec) {
		Unique(ForPeriod, onCollision...)(s)
		s.Unique.Period = period
	}
}

// UniqueBy makes a job unique by its type and these fields of its arguments, named as in JSON.
func UniqueBy(fields ...string) Option {
	return func(s *Spec) {
		s.Unique.Fields = fields
	}
}

// Debounce runs a job d after the last submission with its [Key] or [UniqueBy] fields.
func Debounce(d time.Duration) Option {
	return func(s *Spec) {
		s.Delay = d
		Unique(WhileWaiting, Debounced)(s)
	}
}

// Throttle runs at most one job per period for each [Key] or each value of the [UniqueBy]
// fields. A submission within the period of another one waits until it ends, and those that
// follow meanwhile return the waiting job.
func Throttle(period time.Duration) Option { return UniqueFor(period, Throttled) }

// UniqueError refuses a submission because another job holds its key. It is [ErrNotUnique].
type UniqueError struct {
	Job    JobID  // the job that holds the key
	Status Status // of that job
	Reason string // why it could not be replaced or postponed; empty if the rule refuses collisions
}

func (e *UniqueError) Error() string {
	text := fmt.Sprintf("not unique: job %s (%s) holds the key", e.Job, e.Status)
	if e.Reason != "" {
		text += "; " + e.Reason
	}
	return text
}

func (e *UniqueError) Unwrap() error { return ErrNotUnique }
