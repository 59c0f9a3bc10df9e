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

// Schedule submits a job at every time of a cron expression or an interval. It submits one
// job per firing time, no matter how many processes run the queue.
//
// A cron expression has five fields (minute, hour, day of month, month, day of week) or six
// with seconds first, or is one of @hourly, @daily, @weekly, @monthly, @yearly. If both day
// fields are restricted, either of them matches, as in cron. The times are in the schedule's
// time zone. When clocks go forward, the times that do not exist fire once, at the first
// instant after the gap. When clocks go back, a repeated time fires only the first time.
// Hourly expressions fire every real hour on both days.
type Schedule struct {
	Name     string
	Cron     string        // cron expression; or
	Every    time.Duration // interval, counted from Start
	TimeZone string        // of Cron, such as "Europe/Berlin"; empty is UTC
	Start    time.Time     // first possible firing; zero is the time of creation

	Missed      MissedRule // zero is MissedOnce
	MissedLimit int        // MissedAll: maximum number of firings, the latest ones; 0 is 100
	Paused      bool       // does not fire; firings during the pause are skipped
	Template    Spec       // of the jobs, without id and key

	// Set by the queue.
	Next      time.Time // next firing time; zero if there is none
	Last      time.Time // last firing time
	LastJob   JobID     // job of the last firing
	Fired     int       // number of firings
	CreatedAt time.Time
	UpdatedAt time.Time
}
