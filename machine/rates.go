package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// interval is the distance between two, rounded up so that there are never more
// than Count in Per.
func interval(r gq.Rate) time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// intervals is so many of them.
func intervals(r gq.Rate, n int) time.Duration { return interval(r) * time.Duration(n) }

func burst(r gq.Rate) int { return max(r.Burst, 1) }

// TakeRate asks for one at an instant. due is what the last Take that was allowed
// returned, and zero for the first. If it is allowed, next is to be kept in its
// place; if not, next is due as it was, and At tells when to ask again.
func TakeRate(r gq.Rate, due, now time.Time) (next time.Time, ok bool) {
	if !r.Limited() {
		return due, true
	}
	from := rateFrom(r, due, now)
	if now.Before(from.Add(-slack(r))) {
		return due, false
	}
	return from.Add(interval(r)), true
}

// RateAt is the earliest instant, not before now, at which Take allows another.
func RateAt(r gq.Rate, due, now time.Time) time.Time {
	if !r.Limited() {
		return now
	}
	if at := rateFrom(r, due, now).Add(-slack(r)); at.After(now) {
		return at
	}
	return now
}

// slack is how early one may come.
func slack(r gq.Rate) time.Duration { return intervals(r, burst(r)-1) }

// rateFrom is when the next one is due at an instant.
func rateFrom(r gq.Rate, due, now time.Time) time.Time {
	switch {
	case due.Before(now):
		return now
	case due.After(now.Add(intervals(r, burst(r)))):
		// This rate never leaves so much behind: a slower one was in force
		// before, and nobody has to wait for that.
		return now.Add(slack(r))
	default:
		return due
	}
}
