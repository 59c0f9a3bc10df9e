// Package promptly tests how long something takes on a machine that may be busy with other work.
//
// A busy machine is late in some rounds of measurements, and a program that waits where it should
// not is late in all of them. So one round on time is enough, and the limit can be the one that the
// documentation promises. Nothing may take more than ten seconds.
package promptly

import (
	"slices"
	"testing"
	"time"
)

const (
	rounds = 8
	never  = 10 * time.Second // longer than a busy machine takes, and shorter than a wait for something else
)

// Median fails a test unless, in one of several rounds, the median of n measurements is at most limit.
func Median(t testing.TB, limit time.Duration, n int, measure func() time.Duration) {
	t.Helper()
	for round := range rounds {
		took := make([]time.Duration, n)
		for i := range took {
			if took[i] = measure(); took[i] > never {
				t.Errorf("once it took %v", took[i])
			}
			if t.Failed() {
				return
			}
		}
		slices.Sort(took)
		t.Logf("round %d: median %v, longest %v", round+1, took[n/2], took[n-1])
		if took[n/2] <= limit {
			return
		}
	}
	t.Errorf("the median was over %v in each of %d rounds", limit, rounds)
}

// Within fails a test unless one of several measurements is at most limit.
func Within(t testing.TB, limit time.Duration, measure func() time.Duration) {
	t.Helper()
	Median(t, limit, 1, measure)
}
