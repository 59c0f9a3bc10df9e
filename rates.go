package gq

import "time"

// interval is the distance between two, rounded up so that there are never more
// than Count in Per.
func (r Rate) interval() time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// intervals is so many of them.
func (r Rate) intervals(n int) time.Duration { return r.interval() * time.Duration(n) }

func (r Rate) burst() int { return max(r.Burst, 1) }

// Take asks for one at an instant. due is what the last Take that was allowed
// returned, and zero for the first. If it is allowed, next is to be kept in its
// place; if not, next is due as it was, and At tells when to ask again.
func (r Rate) Take(due, now time.Time) (next time.Time, ok bool) {
	if !r.Limited() {
		return due, true
	}
	from := r.from(due, now)
	if now.Before(from.Add(-r.slack())) {
		return due, false
	}
	return from.Add(r.interval()), true
}

// At is the earliest instant, not before now, at which Take allows another.
func (r Rate) At(due, now time.Time) time.Time {
	if !r.Limited() {
		return now
	}
	if at := r.from(due, now).Add(-r.slack()); at.After(now) {
		return at
	}
	return now
}

// slack is how early one may come.
func (r Rate) slack() time.Duration { return r.intervals(r.burst() - 1) }

// from is when the next one is due at an instant.
func (r Rate) from(due, now time.Time) time.Time {
	switch {
	case due.Before(now):
		return now
	case due.After(now.Add(r.intervals(r.burst()))):
		// This rate never leaves so much behind: a slower one was in force
		// before, and nobody has to wait for that.
		return now.Add(r.slack())
	default:
		return due
	}
}
