package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// mostError is the documented maximum error of a percentile.
const mostError = 0.01

func TestHistogramBuckets(t *testing.T) {
	last := -1
	for ns := uint64(0); ns < 1<<46; ns = max(ns+1, ns+ns/1000) {
		bucket := bucketOf(ns)
		if bucket < last || bucket >= buckets {
			t.Fatalf("%d ns is in bucket %d, after bucket %d of %d", ns, bucket, last, buckets)
		}
		last = bucket
		if off := math.Abs(middleOf(bucket) - float64(ns)); off > mostError*float64(ns) {
			t.Fatalf("%d ns is in bucket %d, which stands for %.0f ns", ns, bucket, middleOf(bucket))
		}
	}
	if got := bucketOf(math.MaxUint64); got != buckets-1 {
		t.Errorf("the longest duration is in bucket %d, want the last one, %d", got, buckets-1)
	}
}

func TestHistogramPercentiles(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	for _, n := range []int{1, 2, 3, 99, 100, 101, 5000} {
		var h histogram
		exact := make([]float64, n)
		for i := range exact {
			d := time.Duration(math.Exp(random.NormFloat64()*3 + 12))
			h.add(d)
			exact[i] = float64(d) / 1e6
		}
		slices.Sort(exact)
		got := h.latency()
		if got.Calls != uint64(n) || got.Max != exact[n-1] {
			t.Errorf("%d values: %d calls with a maximum of %v, want %v", n, got.Calls, got.Max, exact[n-1])
		}
		for _, p := range []struct{ q, got float64 }{{0.50, got.P50}, {0.95, got.P95}, {0.99, got.P99}} {
			want := exact[int(math.Ceil(p.q*float64(n)))-1]
			if math.Abs(p.got-want) > mostError*want {
				t.Errorf("%d values, percentile %v: %v, want %v (seed %d)", n, p.q, p.got, want, seed)
			}
		}
	}
}

func TestHistogramEmpty(t *testing.T) {
	if got := new(histogram).latency(); got != nil {
		t.Errorf("latency of no calls is %+v, want none", *got)
	}
}
