//go:build unix

package local_test

import (
	"flag"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/storetest"
)

var cost = flag.Bool("cost", false, "measure what special jobs cost beside plain ones")

// A unique job costs at most half as much again as a plain one while 100,000 keys are live.
func TestUniqueCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for a minute; needs -cost and an idle machine")
	}
	s, err := local.Open(t.TempDir(), local.Options{Config: store.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a measurement
	for _, shape := range []struct{ callers, batch, jobs int }{{64, 1, 20_000}, {64, 100, 60_000}} {
		c := storetest.Cost{Store: s, CPU: ownTime, Callers: shape.callers, Batch: shape.batch, Jobs: shape.jobs, Rounds: 5}
		plain, unique := c.Unique(t, 100_000)
		ratio := float64(unique) / float64(plain)
		t.Logf("%d callers, batches of %d: plain %v, unique %v a job, ratio %.2f", shape.callers, shape.batch, plain, unique, ratio)
		if ratio > 1.5 {
			t.Errorf("a unique job costs %.2f times a plain one, want at most 1.5", ratio)
		}
	}
}

// A job with an order key costs at most half as much again as a plain one while 100,000 keys are
// live.
func TestOrderedCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for a minute; needs -cost and an idle machine")
	}
	s, err := local.Open(t.TempDir(), local.Options{Config: store.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a measurement
	c := storetest.Cost{Store: s, CPU: ownTime, Callers: 64, Batch: 1, Jobs: 20_000, Rounds: 5}
	plain, ordered := c.Ordered(t, 100_000)
	ratio := float64(ordered) / float64(plain)
	t.Logf("plain %v, with an order key %v a job, ratio %.2f", plain, ordered, ratio)
	if ratio > 1.5 {
		t.Errorf("a job with an order key costs %.2f times a plain one, want at most 1.5", ratio)
	}
}

// A job whose limit key has a rate costs at most half as much again as a plain one while 100,000
// keys are live.
func TestRatedCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for a minute; needs -cost and an idle machine")
	}
	s, err := local.Open(t.TempDir(), local.Options{Config: store.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a measurement
	for _, shape := range []struct{ callers, batch, jobs int }{{64, 1, 20_000}, {64, 100, 60_000}} {
		c := storetest.Cost{Store: s, CPU: ownTime, Callers: shape.callers, Batch: shape.batch, Jobs: shape.jobs, Rounds: 3}
		plain, rated := c.Rated(t, 100_000)
		ratio := float64(rated) / float64(plain)
		t.Logf("%d callers, batches of %d: plain %v, rated %v a job, ratio %.2f", shape.callers, shape.batch, plain, rated, ratio)
		if ratio > 1.5 {
			t.Errorf("a job whose key has a rate costs %.2f times a plain one, want at most 1.5", ratio)
		}
	}
}

func ownTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
