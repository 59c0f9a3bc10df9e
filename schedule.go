package gq

import (
	"fmt"
	"time"
)

// MissedRule says how a schedule handles missed firings: those that are late by more than
// [MissedAfter], for example because no process was running.
type MissedRule uint8

const (
	MissedOnce MissedRule = iota + 1 // fire only for the latest of them; the default
	MissedSkip                       // skip them
	MissedAll                        // fire for each of them, up to Schedule.MissedLimit
	missedEnd
)

var missedNames = [...]string{"", "once", "skip", "all"}

func (m MissedRule) String() string { return nameOf(missedNames[:], int(m)) }

// Valid reports whether m is a rule.
func (m MissedRule) Valid() bool { return m >= MissedOnce && m < missedEnd }

// MarshalText returns the name.
func (m MissedRule) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses a name.
func (m *MissedRule) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(missedNames[:], name); ok {
		*m = MissedRule(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"missed", fmt.Sprintf("%.64q is not one of %v", name, missedNames[1:])}}}
}

// OverlapRule says what a schedule does if the job of its last firing is still live, that is,
// waiting or running.
type OverlapRule uint8

const (
	OverlapAllow         OverlapRule = iota + 1 // submit the next job regardless; the default
	OverlapSkip                                 // skip the firing
	OverlapQueueOne                             // submit a job that waits until the running one has ended; skip the firing if one already waits
	OverlapCancelRunning                        // cancel the live job and submit the next one, in one commit
	overlapEnd
)

var overlapNames = [...]string{"", "allow", "skip", "queue-one", "cancel-running"}

func (o OverlapRule) String() string { return nameOf(overlapNames[:], int(o)) }

// Valid reports whether o is a rule.
func (o OverlapRule) Valid() bool { return o >= OverlapAllow && o < overlapEnd }

// MarshalText returns the name.
func (o OverlapRule) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses a name.
func (o *OverlapRule) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(overlapNames[:], name); ok {
		*o = OverlapRule(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"overlap", fmt.Sprintf("%.64q is not one of %v", name, overlapNames[1:])}}}
}

// The attributes of a scheduled job. [Spec.Slot] reads the second one.
const (
	AttributeSchedule = "gq.schedule" // name of the schedule
	AttributeSlot     = "gq.slot"     // RFC 3339, UTC
)

// Slot returns the firing time that a scheduled job belongs to. It is zero for other jobs.
func (s Spec) Slot() time.Time {
	slot, err := time.Parse(time.RFC3339, s.Attributes[AttributeSlot])
	if err != nil {
		return time.Time{}
	}
	return slot
}

// Schedule submits a job at every time of a cron expression or an interval. It submits one
// job per firing time, no matter how many processes run the queue.
//
// A cron expression has five fields (minute, hour, day of month, month, day of week) or six
// with seconds first, or is one of @hourly, @daily, @weekly, @monthly, @yearly. If both day
// fields are restricted, either of them matches, as in cron. The times are in the schedule's
// time zone. When clocks go forward, the times that do not exist fire once, at the first
// instant after the gap. When clocks go back, a repeated time fires only the first time.
// Hourly expressions fire every real hour on both days.
//
// A firing time is also called a slot. A job knows its slot: [Spec.Slot] returns it, and in a
// JSON payload of the template the queue replaces {{slot}} by the slot in UTC, such as
// 2030-01-31T02:30:00Z, and {{slot_date}} by its date in the schedule's time zone. A text payload
// with one of them is refused.
type Schedule struct {
	Name     string
	Cron     string        // cron expression; or
	Every    time.Duration // interval, counted from Start
	TimeZone string        // of Cron, such as "Europe/Berlin"; empty is UTC
	Start    time.Time     // first possible firing; zero is the time of creation
	End      time.Time     // last possible firing; zero is none
	// Jitter delays each job by a part of it that is computed from the name and the slot, so
	// that schedules with the same slots do not start all at once. It must be shorter than
	// the time between two slots.
	Jitter time.Duration

	Overlap     OverlapRule // zero is OverlapAllow
	Missed      MissedRule  // zero is MissedOnce
	MissedLimit int         // MissedAll: maximum number of firings, the latest ones; 0 is 100
	Paused      bool        // does not fire; firings during the pause are skipped
	Template    Spec        // of the jobs, without id and key; or
	Job         Draft       // of the jobs, as [Kind.With] returns it; the queue returns it as Template

	// Set by the queue.
	Next      time.Time // next firing time; zero if there is none
	Last      time.Time // last firing time
	LastJob   JobID     // job of the last firing
	Fired     int       // number of jobs
	Skipped   int       // number of slots without a job because of the overlap rule or an error
	LastError string    // why the last slot has no job, such as a full queue; empty after a success
	CreatedAt time.Time
	UpdatedAt time.Time
}

// useDraft moves Job to Template.
func (s *Schedule) useDraft() error {
	d := s.Job
	s.Job = Draft{}
	switch {
	case d.Err != nil:
		return &InvalidError{Faults: []Fault{{"job", d.Err.Error()}}}
	case d.Spec.Type == "":
		return nil
	case s.Template.Type != "":
		return &InvalidError{Faults: []Fault{{"job", "cannot be combined with a template"}}}
	}
	s.Template = d.Spec
	return nil
}

// Firing is the result of [Driver.TriggerSchedule].
type Firing struct {
	Slot     time.Time // the current second
	Job      JobID
	Existing bool // the slot already had this job
}

// Backfill selects slots of a schedule for [Driver.BackfillSchedule].
type Backfill struct {
	Schedule string
	From, To time.Time // both inclusive; slots after now are left to the schedule
	Limit    int       // maximum number of jobs of this call; 0 is MaxBackfill
	DryRun   bool      // only count
}

// BackfillReport is the result of [Driver.BackfillSchedule].
type BackfillReport struct {
	Slots     int       // number of slots in the range
	Missing   int       // number of them that had no job before the call
	Submitted int       // number of jobs that the call submitted
	Next      time.Time // From of the next call; zero if the range is complete
}
