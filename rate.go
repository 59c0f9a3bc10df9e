package gq

import "time"

// Rate is how often something may happen: Count times in every Per, evenly
// spaced, with up to Burst of them at once after a pause. The zero value is no
// limit.
//
// It is the generic cell rate algorithm, whose whole memory is one instant: when
// the next one would be due if all came evenly. Whoever keeps that instant keeps
// the rate, also across restarts.
type Rate struct {
	Count int           // how many
	Per   time.Duration // in how long
	Burst int           // at once after a pause; 0 is 1
}

// Limits of rates.
const (
	MaxRateCount = 1_000_000_000
	MaxRateBurst = 1_000_000
)

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r != Rate{} }

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

func (r Rate) validate(field string, f *faults) {
	if !r.Limited() {
		return
	}
	before := len(*f)
	if r.Per <= 0 || r.Per > MaxDuration {
		f.add(field+".per", "%v is not above 0 and at most %v", r.Per, MaxDuration)
	}
	if r.Count < 1 || r.Count > MaxRateCount {
		f.add(field+".count", "%d is not between 1 and %d", r.Count, MaxRateCount)
	} else if r.Per > 0 && time.Duration(r.Count) > r.Per {
		f.add(field+".count", "%d in %v are more than one a nanosecond", r.Count, r.Per)
	}
	if r.Burst < 0 || r.Burst > MaxRateBurst {
		f.add(field+".burst", "%d is not between 0 and %d", r.Burst, MaxRateBurst)
	}
	if len(*f) == before && time.Duration(r.burst()) > MaxDuration/r.interval() {
		f.add(field+".burst", "%d at once would use up more than %v", r.Burst, MaxDuration)
	}
}
