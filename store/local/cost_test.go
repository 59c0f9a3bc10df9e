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

var (
	cost = flag.Bool("cost", false, "measure what jobs with keys cost beside plain ones")
	keys = flag.Int("keys", 100_000, "live keys of other jobs while -cost measures")
)

// A unique job, one with an order key and one whose limit key has a rate cost at most half as much
// again as a plain one while 100,000 keys are live.
func TestCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for a minute; needs -cost and an idle machine")
	}
	open := func(t testing.TB) store.Store {
		s, err := local.Open(t.TempDir(), local.Options{Config: store.Config{}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	storetest.Cost{Open: open, CPU: ownTime, Keys: *keys, Jobs: 20_000, Batched: 60_000, Rounds: 5}.Run(t)
}

func ownTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
