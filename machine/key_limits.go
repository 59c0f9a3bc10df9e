package machine

import (
	"math"
	"math/bits"
	"time"

	"github.com/gopherqueue/gq"
)

// KeyLimits returns the limits of one limit key: those of its own, and the queue's for the rest.
func KeyLimits(q *gq.Queue, own *gq.QueueKey) (limit int, rate gq.Rate) {
	limit, rate = q.KeyLimit, q.KeyRate
	if own != nil && own.Limit > 0 {
		limit = own.Limit
	}
	if own != nil && own.Rate.Limited() {
		rate = own.Rate
	}
	return limit, rate
}

// LimitsKeys reports whether any key of a queue has a limit.
func LimitsKeys(q *gq.Queue) bool {
	return q.KeyLimit > 0 || q.KeyRate.Limited() || q.OwnKeys > 0
}

// TakeKeyRate asks whether the rate of a key allows a claim now. due is the result of the last
// allowed claim of the key, zero for the first. If the claim is allowed, store next in place of
// due; it has no meaning once it is no longer in the future. One free unit is enough, whatever
// the weight: the key then owes the rest.
func TakeKeyRate(r gq.Rate, weight int, due, now time.Time) (next time.Time, ok bool) {
	if !r.Limited() {
		return time.Time{}, true
	}
	if due.Before(now) {
		due = now
	}
	if now.Before(due.Add(-slack(r))) {
		return due, false
	}
	most := max(farthest.Sub(due), 0)
	if step := interval(r); time.Duration(weight) <= most/step {
		most = step * time.Duration(weight)
	}
	return due.Add(most), true
}

// farthest is the latest time until which a key can owe. Nanoseconds since 1970 can hold it.
var farthest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// KeyRateAt returns the earliest time, not before now, at which TakeKeyRate allows a claim.
func KeyRateAt(r gq.Rate, due, now time.Time) time.Time {
	if !r.Limited() {
		return now
	}
	if at := due.Add(-slack(r)); at.After(now) {
		return at
	}
	return now
}

// FreedKeyUnits returns how many units of a key's rate have become free from next, when the first of
// them did, until now, and when the one after them does. No claims can take more units than that
// from a key that had none before next.
func FreedKeyUnits(r gq.Rate, next, now time.Time) (n int, after time.Time) {
	if !r.Limited() {
		return math.MaxInt32, now
	}
	if now.Before(next) {
		return 0, next
	}
	step := interval(r)
	free := now.Sub(next)/step + 1
	if free >= time.Duration(burst(r)) {
		return burst(r), now.Add(step) // all of them: the next comes after one is used
	}
	return int(free), next.Add(free * step)
}

// ChangeKeyRate returns what to store in place of due when a key gets another rate. The units
// that it owes stay, so that a faster rate counts at once and a slower one gives no burst away.
func ChangeKeyRate(from, to gq.Rate, due, now time.Time) time.Time {
	owed := due.Sub(now)
	if due.IsZero() || owed <= 0 || !from.Limited() || !to.Limited() {
		return time.Time{}
	}
	most := max(farthest.Sub(now), 0)
	if hi, lo := bits.Mul64(uint64(owed), uint64(interval(to))); hi < uint64(interval(from)) {
		if scaled, _ := bits.Div64(hi, lo, uint64(interval(from))); scaled <= math.MaxInt64 {
			most = min(most, time.Duration(scaled))
		}
	}
	return now.Add(most)
}

// Weight returns how many units of its key's rate a claim of a job uses up.
func Weight(s *gq.Spec) int { return max(s.Weight, 1) }

func checkWeight(s *gq.Spec, f *faults) {
	if s.Weight < 0 || s.Weight > gq.MaxWeight {
		f.add("weight", "%d is not between 0, which is 1, and %d", s.Weight, gq.MaxWeight)
	}
	if s.Weight > 1 && s.LimitKey == "" {
		f.add("weight", "counts for the rate of a limit key; give a limit_key too, or leave out the weight")
	}
}

// CheckQueueKey reports all faults of the limits of a key.
func CheckQueueKey(k gq.QueueKey) error {
	var f faults
	checkQueueName("queue", k.Queue, &f)
	checkName("key", k.Key, true, &f)
	if k.Limit < 0 {
		f.add("limit", "%d is negative; 0 is that of the queue", k.Limit)
	}
	checkRate(k.Rate, "rate", &f)
	return f.err()
}
