package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// interval returns the time between two claims, rounded up so that there are never more
// than Count in Per.
func interval(r gq.Rate) time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

func intervals(r gq.Rate, n int) time.Duration { return interval(r) * time.Duration(n) }

func burst(r gq.Rate) int { return max(r.Burst, 1) }

// TakeRate asks whether the rate allows a claim now. due is the result of the last allowed
// claim, zero for the first. If the claim is allowed, store next in place of due. If not,
// next equals due, and [RateAt] returns when to ask again.
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

// RateAt returns the earliest time, not before now, at which TakeRate allows a claim.
func RateAt(r gq.Rate, due, now time.Time) time.Time {
	if !r.Limited() {
		return now
	}
	if at := rateFrom(r, due, now).Add(-slack(r)); at.After(now) {
		return at
	}
	return now
}

// slack returns how long before it is due a claim is allowed, because of the burst.
func slack(r gq.Rate) time.Duration { return intervals(r, burst(r)-1) }

// rateFrom returns when the next claim is due.
func rateFrom(r gq.Rate, due, now time.Time) time.Time {
	switch {
	case due.Before(now):
		return now
	case due.After(now.Add(intervals(r, burst(r)))):
		// Only a slower rate, since replaced, can have left so late a time. Ignore the
		// excess.
		return now.Add(slack(r))
	default:
		return due
	}
}
