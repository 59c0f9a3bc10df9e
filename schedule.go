package gq

import (
	"fmt"
	"time"
)

// MissedRule says what becomes of slots at which nobody was there to fire the
// schedule.
type MissedRule uint8

// The rules. A slot is missed when it is more than [MissedAfter] ago.
const (
	MissedOnce MissedRule = iota + 1 // the latest of them fires, the others do not; the default
	MissedSkip                       // none of them fires
	MissedAll                        // all of them fire, up to a limit
	missedEnd
)

var missedNames = [...]string{"", "once", "skip", "all"}

func (m MissedRule) String() string { return nameOf(missedNames[:], int(m)) }

// Valid reports whether m is a rule.
func (m MissedRule) Valid() bool { return m >= MissedOnce && m < missedEnd }

// MarshalText is the name.
func (m MissedRule) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a name.
func (m *MissedRule) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(missedNames[:], name); ok {
		*m = MissedRule(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"missed", fmt.Sprintf("%.64q is not one of %v", name, missedNames[1:])}}}
}

// Schedule submits a job at every slot of a calendar or an interval, once each
// however many processes look after it.
//
// A calendar is five fields: minute, hour, day of month, month, day of week, or
// six with the seconds first; or one of @hourly, @daily, @weekly, @monthly,
// @yearly. Where both days are restricted either of them will do, as in every
// cron. It is read in the schedule's time zone. On the day the clocks go
// forward, times that do not exist fire together, once, at the first instant
// that does; on the day they go back, a time that comes twice fires the first
// time. A schedule for every hour goes by real hours on both days.
type Schedule struct {
	Name     string
	Cron     string        // the calendar; or
	Every    time.Duration // the interval, counted from Start
	TimeZone string        // of the calendar, such as "Europe/Berlin"; empty is UTC
	Start    time.Time     // no slot before; zero is the instant the schedule was made

	Missed      MissedRule // zero is MissedOnce
	MissedLimit int        // MissedAll: at most this many, the latest; 0 is 100
	Paused      bool       // fires nothing; slots that pass meanwhile are not made up for
	Template    Spec       // without an id and a key; its policy may be the queue's

	// What the system knows of it.
	Next      time.Time // the next slot; zero if there is none
	Last      time.Time // the last slot that fired
	LastJob   JobID     // and the job it led to
	Fired     int       // slots so far
	CreatedAt time.Time
	UpdatedAt time.Time
}
