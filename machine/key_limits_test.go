package machine_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

func TestKeyRate(t *testing.T) {
	r := gq.Rate{Count: 2, Per: time.Second, Burst: 3}
	var due time.Time
	for i, a := range []struct {
		at     time.Duration
		weight int
		ok     bool
		next   time.Duration // when the next claim is allowed
	}{
		{0, 1, true, 0},
		{0, 1, true, 0},
		{0, 1, true, 500 * time.Millisecond}, // the burst is used up
		{0, 1, false, 500 * time.Millisecond},
		{500 * time.Millisecond, 4, true, 2500 * time.Millisecond}, // owes three units
		{2499 * time.Millisecond, 1, false, 2500 * time.Millisecond},
		{10 * time.Second, 10, true, 14 * time.Second}, // heavier than the burst
		{14 * time.Second, 1, true, 14500 * time.Millisecond},
	} {
		now := rateStart.Add(a.at)
		next, ok := machine.TakeKeyRate(r, a.weight, due, now)
		if ok != a.ok || !ok && !next.Equal(due) {
			t.Fatalf("ask %d at %v: %t, %v", i, a.at, ok, next)
		}
		due = next
		if at := machine.KeyRateAt(r, due, now); !at.Equal(rateStart.Add(a.next)) {
			t.Errorf("ask %d at %v: the next is allowed at %v, want %v", i, a.at, at.Sub(rateStart), a.next)
		}
	}
	if next, ok := machine.TakeKeyRate(gq.Rate{}, 5, due, rateStart); !ok || !next.IsZero() {
		t.Errorf("without a rate: %v, %t", next, ok)
	}
}

func TestKeyRateBounds(t *testing.T) {
	slow := gq.Rate{Count: 1, Per: gq.MaxDuration}
	due, ok := machine.TakeKeyRate(slow, gq.MaxWeight, time.Time{}, rateStart)
	if !ok || due.Year() != 2200 {
		t.Fatalf("the heaviest job at the slowest rate: due %v, %t", due, ok)
	}
	if got := machine.ChangeKeyRate(gq.Rate{Count: gq.MaxRateCount, Per: time.Second}, slow, due, rateStart); got.Year() != 2200 {
		t.Errorf("owed after the slowest rate replaced the fastest: until %v", got)
	}
	if got := machine.ChangeKeyRate(slow, gq.Rate{Count: 1000, Per: time.Second}, due, rateStart); got.After(rateStart.Add(time.Second)) {
		t.Errorf("owed after a fast rate replaced the slowest: until %v", got)
	}
}

func TestChangeKeyRate(t *testing.T) {
	second, minute := gq.Rate{Count: 1, Per: time.Second}, gq.Rate{Count: 1, Per: time.Minute, Burst: 5}
	at := func(d time.Duration) time.Time { return rateStart.Add(d) }
	for _, c := range []struct {
		name     string
		from, to gq.Rate
		due      time.Time
		want     time.Time
	}{
		{"faster", minute, second, at(3 * time.Minute), at(3 * time.Second)},
		{"slower", second, minute, at(3 * time.Second), at(3 * time.Minute)},
		{"none any more", second, gq.Rate{}, at(3 * time.Second), time.Time{}},
		{"none before", gq.Rate{}, second, time.Time{}, time.Time{}},
		{"nothing owed", second, minute, at(-time.Second), time.Time{}},
	} {
		if got := machine.ChangeKeyRate(c.from, c.to, c.due, rateStart); !got.Equal(c.want) {
			t.Errorf("%s: due %v, want %v", c.name, got, c.want)
		}
	}
}

// Over any time no more than the burst, the units of that time and the excess of one job start.
func TestKeyRateLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rate := gq.Rate{
			Count: rapid.IntRange(1, 5).Draw(r, "count"), Per: time.Duration(rapid.IntRange(5, 100).Draw(r, "per")),
			Burst: rapid.IntRange(0, 4).Draw(r, "burst"),
		}
		var due time.Time
		units, heaviest := 0, 0
		now := rateStart
		for range 50 {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(r, "later")))
			weight := rapid.IntRange(1, 6).Draw(r, "weight")
			next, ok := machine.TakeKeyRate(rate, weight, due, now)
			if !ok {
				if at := machine.KeyRateAt(rate, due, now); !at.After(now) {
					r.Fatalf("refused at %v, but allowed at %v", now, at)
				}
				continue
			}
			due = next
			units, heaviest = units+weight, max(heaviest, weight)
			most := max(rate.Burst, 1) + int(now.Sub(rateStart))*rate.Count/int(rate.Per) + heaviest - 1
			if units > most {
				r.Fatalf("%d units after %v, want at most %d", units, now.Sub(rateStart), most)
			}
		}
	})
}

func TestKeyLimits(t *testing.T) {
	q := gq.Queue{KeyLimit: 2, KeyRate: gq.Rate{Count: 1, Per: time.Second}}
	fast := gq.Rate{Count: 9, Per: time.Second}
	for _, c := range []struct {
		own   *gq.QueueKey
		limit int
		rate  gq.Rate
	}{
		{nil, 2, q.KeyRate},
		{&gq.QueueKey{Limit: 5}, 5, q.KeyRate},
		{&gq.QueueKey{Rate: fast}, 2, fast},
		{&gq.QueueKey{Limit: 1, Rate: fast}, 1, fast},
	} {
		if limit, rate := machine.KeyLimits(&q, c.own); limit != c.limit || rate != c.rate {
			t.Errorf("%+v: %d and %+v, want %d and %+v", c.own, limit, rate, c.limit, c.rate)
		}
	}
}

func TestCheckWeight(t *testing.T) {
	for _, c := range []struct {
		weight int
		key    string
		faults int
	}{{0, "", 0}, {1, "", 0}, {2, "k", 0}, {gq.MaxWeight, "k", 0}, {2, "", 1}, {-1, "k", 1}, {gq.MaxWeight + 1, "k", 1}, {gq.MaxWeight + 1, "", 2}} {
		s := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "t", Weight: c.weight, LimitKey: c.key}.WithDefaults()
		if got := errs.FaultsOf(machine.CheckSpec(&s, gq.Limits{PayloadBytes: 10})); len(got) != c.faults || c.faults > 0 && got[0].Field != "weight" {
			t.Errorf("weight %d with limit key %q: %+v, want %d faults", c.weight, c.key, got, c.faults)
		}
	}
}

func TestCheckQueueKey(t *testing.T) {
	good := gq.QueueKey{Queue: "q", Key: "customer 7", Limit: 3}
	if err := machine.CheckQueueKey(good); err != nil {
		t.Error(err)
	}
	bad := gq.QueueKey{Queue: "q q", Limit: -1, Rate: gq.Rate{Count: -1, Per: time.Second}}
	if got := errs.FaultsOf(machine.CheckQueueKey(bad)); len(got) != 4 {
		t.Errorf("faults of %+v: %+v, want 4", bad, got)
	}
}
