package bench

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in a fixed amount of memory. All callers of a row share one,
// so that their number does not change the heap seen by the garbage collector.
//
// A bucket is at most 1/64 of its value wide, and a percentile is the middle of its
// bucket: the error is less than 1 %.
type histogram struct {
	counts [buckets]atomic.Uint64
	most   atomic.Int64 // exact
}

const (
	subBits = 6
	subs    = 1 << subBits
	buckets = 42 * subs // up to 39 hours
)

// bucketOf returns the bucket of a duration: one per nanosecond below subs, then subs for
// each power of two.
func bucketOf(ns uint64) int {
	if ns < subs {
		return int(ns)
	}
	exponent := bits.Len64(ns) - 1 - subBits
	return min(exponent*subs+int(ns>>exponent), buckets-1)
}

// middleOf returns the value that represents a bucket.
func middleOf(bucket int) float64 {
	if bucket < subs {
		return float64(bucket)
	}
	exponent := bucket/subs - 1
	low := uint64(bucket-exponent*subs) << exponent
	return float64(low) + float64(uint64(1)<<exponent-1)/2
}

func (h *histogram) add(d time.Duration) {
	ns := max(int64(d), 0)
	h.counts[bucketOf(uint64(ns))].Add(1)
	for {
		most := h.most.Load()
		if ns <= most || h.most.CompareAndSwap(most, ns) {
			return
		}
	}
}

// latency summarizes the recorded durations, nil if there are none.
func (h *histogram) latency() *Latency {
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	if total == 0 {
		return nil
	}
	const ms = float64(time.Millisecond)
	most := float64(h.most.Load())
	at := func(q float64) float64 {
		rank, seen := uint64(math.Ceil(q*float64(total))), uint64(0)
		for i := range h.counts {
			if seen += h.counts[i].Load(); seen >= rank {
				return min(middleOf(i), most) / ms
			}
		}
		return most / ms
	}
	return &Latency{Calls: total, P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: most / ms}
}
