package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
)

// ppb is one in parts per billion.
const ppb = 1_000_000_000

// Draw has the random number and the custom functions for a delay.
type Draw struct {
	U      float64                       // uniform in [0,1)
	Custom func(name string) BackoffFunc // nil, or returns nil for an unknown name
}

// Delay returns how long to wait before retry n, which counts from 1. The delay is never
// negative, and no n overflows it.
//
// If a custom function is not registered or panics, Delay uses the exponential strategy,
// because a process without the function must still be able to settle the job.
func Delay(b gq.Backoff, n int, job gq.JobID, d Draw) time.Duration {
	n, b.Max = max(n, 1), min(b.Max, gq.MaxDuration) // a policy cannot exceed it, so nothing below overflows
	if b.Jitter == gq.JitterHash {
		return time.Duration(hashed(b, n, job, d)) * time.Second
	}
	bound := bound(b, n, d)
	u := unit(d.U)
	switch b.Jitter {
	case gq.JitterTenth:
		low, high := bound-bound/10, bound+bound/10
		return min(low+time.Duration(u*float64(high-low)), max(b.Max, 0))
	case gq.JitterFull:
		return max(0, min(time.Duration(u*float64(bound)), bound-1))
	default:
		return bound
	}
}

// tryBackoff calls a custom function and recovers from a panic, which must not stop the store.
func tryBackoff(f BackoffFunc, n int, initial, most time.Duration) (delay time.Duration, ok bool) {
	defer func() { _ = recover() }()
	return f(n, initial, most), true
}

// bound returns the delay before jitter.
func bound(b gq.Backoff, n int, d Draw) time.Duration {
	if b.Strategy == gq.StrategyCustom && d.Custom != nil {
		if f := d.Custom(b.Custom); f != nil {
			if delay, ok := tryBackoff(f, n, b.Initial, b.Max); ok {
				return max(0, min(delay, b.Max))
			}
		}
	}
	if b.Initial <= 0 || b.Max <= 0 {
		return 0
	}
	switch b.Strategy {
	case gq.StrategyConstant:
		return min(b.Initial, b.Max)
	case gq.StrategyLinear:
		if time.Duration(n) > b.Max/b.Initial {
			return b.Max
		}
		return b.Initial * time.Duration(n)
	default:
		grown := math.Round(float64(b.Initial) * math.Pow(b.Multiplier, float64(n-1)))
		if !(grown < float64(b.Max)) { // also if it is infinite or not a number
			return b.Max
		}
		return max(0, time.Duration(grown))
	}
}

// hashed returns the delay with JitterHash in seconds.
func hashed(b gq.Backoff, n int, job gq.JobID, d Draw) int64 {
	known := b.Strategy == gq.StrategyCustom && d.Custom != nil && d.Custom(b.Custom) != nil
	if b.Strategy == gq.StrategyConstant || b.Strategy == gq.StrategyLinear || known {
		return jittered(hashRange(bound(b, n, d)), hashJitter(job.String(), n-1))
	}
	return HashBackoff(b.Initial, b.Max, partsOf(b.Multiplier), job.String(), n-1)
}

// unit limits a random number to [0,1).
func unit(u float64) float64 {
	switch {
	case u >= 1:
		return math.Nextafter(1, 0)
	case u >= 0:
		return u
	default: // negative, or not a number
		return 0
	}
}

// The range in which JitterHash is exact. Arguments outside it are limited to it, so that no
// call can overflow; validation rejects them earlier.
const (
	hashLeast   = 1 * ppb  // multiplier 1.0
	hashMost    = 10 * ppb // multiplier 10.0
	hashSpread  = ppb / 10 // jitter is at most this far from zero
	hashPerUnit = ppb * ppb
)

// HashBackoff returns the deterministic exponential delay, in whole seconds, after a failed
// attempt, which counts from 0: base times factor to the power of attempt, limited to the
// longest delay, plus or minus up to a tenth that depends only on the job and the attempt. The
// jitter comes last, so a delay can exceed the longest by a tenth. Integer arithmetic that
// rounds halves to even gives every implementation the same result.
//
// The base and the longest delay are between 0 and 1,000,000 s, the factor between 1.0 and
// 10.0 in parts per billion. The delay stops growing at [gq.MaxAttemptsLimit].
func HashBackoff(base, longest time.Duration, factorPPB uint64, job string, attempt int) (seconds int64) {
	attempt = max(attempt, 0)
	limit := hashRange(longest)
	delay := min(hashRange(base), limit)
	factor := min(max(factorPPB, hashLeast), hashMost)
	for range min(attempt, gq.MaxAttemptsLimit) {
		hi, lo := bits.Mul64(delay, factor)
		next, _ := bits.Div64(hi, lo, ppb)
		next = min(next, limit)
		if next == delay { // at the limit, or the factor no longer changes it
			break
		}
		delay = next
	}
	return jittered(delay, hashJitter(job, attempt))
}

// hashRange returns d in nanoseconds, limited to the exact range.
func hashRange(d time.Duration) uint64 { return uint64(min(max(d, 0), gq.MaxHashedDelay)) }

// partsOf returns a multiplier in parts per billion, limited to the exact range.
func partsOf(multiplier float64) uint64 {
	parts := math.Round(multiplier * ppb)
	switch {
	case parts >= hashMost:
		return hashMost
	case parts >= hashLeast:
		return uint64(parts)
	default:
		return hashLeast
	}
}

// hashJitter returns the jitter of a job's delay after an attempt, in parts per billion. The
// top bit of the hash is only the sign, so longer and shorter delays are equally likely.
func hashJitter(job string, attempt int) int64 {
	sum := sha256.Sum256([]byte("AICF|retry|" + job + "|" + strconv.Itoa(attempt)))
	word := binary.BigEndian.Uint64(sum[:8])
	size := int64((word &^ (1 << 63)) % (hashSpread + 1))
	if word>>63 == 1 {
		return -size
	}
	return size
}

// jittered returns a delay in nanoseconds plus a share of it, in whole seconds with halves
// rounded to even.
func jittered(delay uint64, jitterPPB int64) int64 {
	hi, lo := bits.Mul64(delay, uint64(ppb+jitterPPB))
	whole, rest := bits.Div64(hi, lo, hashPerUnit)
	if rest > hashPerUnit/2 || rest == hashPerUnit/2 && whole%2 == 1 {
		whole++
	}
	return int64(whole)
}
