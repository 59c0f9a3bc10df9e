package machine_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

func TestFreedKeyUnits(t *testing.T) {
	r := gq.Rate{Count: 1, Per: time.Second, Burst: 3}
	at := func(d time.Duration) time.Time { return rateStart.Add(d) }
	for _, test := range []struct {
		now   time.Duration
		n     int
		after time.Duration
	}{
		{-1, 0, 0},
		{0, 1, time.Second},
		{time.Second - 1, 1, time.Second},
		{time.Second, 2, 2 * time.Second},
		{2 * time.Second, 3, 3 * time.Second},
		{time.Hour, 3, time.Hour + time.Second}, // no more than the burst
	} {
		n, after := machine.FreedKeyUnits(r, rateStart, at(test.now))
		if n != test.n || !after.Equal(at(test.after)) {
			t.Errorf("at %v: %d units, the next after %v; want %d and %v", test.now, n, after.Sub(rateStart), test.n, test.after)
		}
	}
	if n, after := machine.FreedKeyUnits(gq.Rate{}, rateStart, at(0)); n < 1<<30 || after.After(at(0)) {
		t.Errorf("no rate frees %d units, the next after %v", n, after.Sub(rateStart))
	}
}

// A key never allows more claims than FreedKeyUnits has counted since it was used up.
func TestFreedKeyUnitsLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rate := gq.Rate{
			Count: rapid.IntRange(1, 5).Draw(r, "count"), Burst: rapid.IntRange(0, 5).Draw(r, "burst"),
			Per: time.Duration(rapid.Int64Range(10, 1000).Draw(r, "per")),
		}
		now, due := rateStart, time.Time{}
		take := func(weight int) bool {
			next, ok := machine.TakeKeyRate(rate, weight, due, now)
			if ok {
				due = next
			}
			return ok
		}
		for take(rapid.IntRange(1, 3).Draw(r, "weight")) {
		}
		counted, next := 0, machine.KeyRateAt(rate, due, now)
		for range rapid.IntRange(1, 50).Draw(r, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(rate.Per)).Draw(r, "pass")))
			var n int
			n, next = machine.FreedKeyUnits(rate, next, now)
			counted += n
			for range rapid.IntRange(0, 4).Draw(r, "claims") {
				if !take(rapid.IntRange(1, 3).Draw(r, "weight")) {
					break
				}
				if counted--; counted < 0 {
					r.Fatalf("a claim was allowed that nothing had counted")
				}
			}
		}
	})
}
