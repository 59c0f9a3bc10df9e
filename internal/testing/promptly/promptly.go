// Package promptly tests how long something takes on a machine that may be busy with other work.
//
// A busy machine is late in some rounds of measurements, and a program that waits where it should
// not is late in all of them. So one round on time is enough, and the limit can be the one that the
// documentation promises. Where every process waits for its turn, as on a machine with many more of
// them than processors, no round would be on time: each round also measures how long a process
// takes that has nothing to do, a millisecond or two on a quiet machine, and allows eight times
// that on top of the limit. Nothing may take more than ten seconds.
package promptly

import (
	"os/exec"
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
		took, turns := make([]time.Duration, n), make([]time.Duration, n)
		for i := range took {
			if took[i] = measure(); took[i] > never {
				t.Errorf("once it took %v", took[i])
			}
			if t.Failed() {
				return
			}
			turns[i] = turn()
		}
		slices.Sort(took)
		slices.Sort(turns)
		t.Logf("round %d: median %v, longest %v; a process that does nothing %v", round+1, took[n/2], took[n-1], turns[n/2])
		if took[n/2] <= limit+8*turns[n/2] {
			return
		}
	}
	t.Errorf("the median was over %v in each of %d rounds", limit, rounds)
}

// turn is how long a process takes that does nothing, 0 where there is no such program.
func turn() time.Duration {
	begun := time.Now()
	if err := exec.Command("true").Run(); err != nil { //nolint:noctx // ends by itself
		return 0
	}
	return time.Since(begun)
}

// Within fails a test unless one of several measurements is at most limit.
func Within(t testing.TB, limit time.Duration, measure func() time.Duration) {
	t.Helper()
	Median(t, limit, 1, measure)
}
