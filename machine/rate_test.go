package machine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

var rateStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRate(t *testing.T) {
	r := gq.Rate{Count: 2, Per: time.Second, Burst: 3}
	type ask struct {
		at   time.Duration
		ok   bool
		next time.Duration // when the next claim is allowed
	}
	var due time.Time
	for i, a := range []ask{
		{0, true, 0},
		{0, true, 0},
		{0, true, 500 * time.Millisecond}, // the burst is used up
		{0, false, 500 * time.Millisecond},
		{499 * time.Millisecond, false, 500 * time.Millisecond},
		{500 * time.Millisecond, true, time.Second},
		{time.Second - 1, false, time.Second},
		{10 * time.Second, true, 10 * time.Second}, // a pause allows no more than the burst
		{10 * time.Second, true, 10 * time.Second},
		{10 * time.Second, true, 10*time.Second + 500*time.Millisecond},
		{10 * time.Second, false, 10*time.Second + 500*time.Millisecond},
	} {
		now := rateStart.Add(a.at)
		before := due
		next, ok := machine.TakeRate(r, due, now)
		if ok != a.ok || !ok && !next.Equal(before) {
			t.Fatalf("ask %d at %v: %t, %v", i, a.at, ok, next)
		}
		due = next
		if at := machine.RateAt(r, due, now); !at.Equal(rateStart.Add(a.next)) {
			t.Errorf("ask %d at %v: the next is allowed at %v, want %v", i, a.at, at.Sub(rateStart), a.next)
		}
	}
}

func TestRateZero(t *testing.T) {
	var r gq.Rate
	for range 10 {
		if due, ok := machine.TakeRate(r, time.Time{}, rateStart); !ok || !due.IsZero() {
			t.Fatalf("no rate refuses: %v, %t", due, ok)
		}
	}
	if r.Limited() || !machine.RateAt(r, time.Time{}, rateStart).Equal(rateStart) {
		t.Error("no rate is a limit")
	}
}

// A faster rate does not wait for the due time that a slower rate left.
func TestRateChanged(t *testing.T) {
	slow, fast := gq.Rate{Count: 1, Per: 24 * time.Hour}, gq.Rate{Count: 10, Per: time.Second, Burst: 2}
	due, _ := machine.TakeRate(slow, time.Time{}, rateStart)
	if at := machine.RateAt(fast, due, rateStart); at.Sub(rateStart) > time.Second {
		t.Errorf("the next is allowed in %v", at.Sub(rateStart))
	}
	due, ok := machine.TakeRate(fast, due, rateStart.Add(time.Second))
	if !ok || due.Sub(rateStart) > 2*time.Second {
		t.Errorf("after a second: %t, due %v", ok, due.Sub(rateStart))
	}
}

// In any period there are at most as many claims as the rate and its burst allow, and a
// claim at the time that RateAt returns is allowed.
func TestRateLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rate := gq.Rate{
			Count: rapid.IntRange(1, 50).Draw(r, "count"), Burst: rapid.IntRange(0, 10).Draw(r, "burst"),
			Per: time.Duration(rapid.Int64Range(50, int64(time.Minute)).Draw(r, "per")),
		}
		now, due := rateStart, time.Time{}
		var taken []time.Time
		for range rapid.IntRange(1, 200).Draw(r, "asks") {
			if rapid.Bool().Draw(r, "wait") {
				now = machine.RateAt(rate, due, now)
				if _, ok := machine.TakeRate(rate, due, now); !ok {
					r.Fatalf("refused at the instant that was named")
				}
			} else {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(rate.Per)/4).Draw(r, "pass")))
			}
			next, ok := machine.TakeRate(rate, due, now)
			if !ok {
				if at := machine.RateAt(rate, due, now); !at.After(now) {
					r.Fatalf("refused at %v, though the next is allowed at %v", now, at)
				}
				continue
			}
			taken, due = append(taken, now), next
		}
		burst := max(rate.Burst, 1)
		for i := range taken {
			for k := i; k < len(taken); k++ {
				// At most the burst, plus one for each interval.
				most := burst + int(taken[k].Sub(taken[i])*time.Duration(rate.Count)/rate.Per)
				if n := k - i + 1; n > most {
					r.Fatalf("%d in %v under %+v, want at most %d", n, taken[k].Sub(taken[i]), rate, most)
				}
			}
		}
	})
}

func TestQueueValidate(t *testing.T) {
	good := machine.NewQueue("q")
	good.Rate, good.KeyLimit, good.Fair, good.Pool = gq.Rate{Count: 1, Per: time.Second}, 1, true, "gpus"
	if err := machine.CheckQueue(good); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		change func(*gq.Queue)
		fields []string
	}{
		{func(q *gq.Queue) { q.Name = "" }, []string{"name"}},
		{func(q *gq.Queue) { q.MaxRunning, q.MaxDepth, q.KeyLimit = -1, -1, -1 }, []string{"max_running", "max_depth", "key_limit"}},
		{func(q *gq.Queue) { q.Pool = "a b" }, []string{"pool"}},
		{func(q *gq.Queue) { q.Rate = gq.Rate{Count: 1} }, []string{"rate.per"}},
		{func(q *gq.Queue) { q.Rate = gq.Rate{Per: 1} }, []string{"rate.count"}},
		{func(q *gq.Queue) { q.Rate = gq.Rate{Burst: 1} }, []string{"rate.per", "rate.count"}},
		{func(q *gq.Queue) { q.Rate = gq.Rate{Count: -1, Per: -1, Burst: -1} }, []string{"rate.per", "rate.count", "rate.burst"}},
		{func(q *gq.Queue) { q.Rate = gq.Rate{Count: 2, Per: 1} }, []string{"rate.count"}},
		{func(q *gq.Queue) { q.Rate = gq.Rate{Count: 1, Per: gq.MaxDuration, Burst: 2} }, []string{"rate.burst"}},
	} {
		q := good
		test.change(&q)
		err := machine.CheckQueue(q)
		if !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%+v is valid: %v", q, err)
		}
		var fields []string
		for _, f := range errs.FaultsOf(err) {
			fields = append(fields, f.Field)
		}
		slices.Sort(fields)
		slices.Sort(test.fields)
		if !slices.Equal(fields, test.fields) {
			t.Errorf("%+v: faults of %q, want %q", q, fields, test.fields)
		}
	}
}

func TestPoolValidate(t *testing.T) {
	for _, p := range []gq.Pool{{Name: "gpus"}, {Name: "a/b", Capacity: gq.MaxCapacity}} {
		if err := machine.CheckPool(p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []gq.Pool{{}, {Name: "a b"}, {Name: "a", Capacity: -1}, {Name: "a", Capacity: gq.MaxCapacity + 1}} {
		if err := machine.CheckPool(p); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%+v is valid: %v", p, err)
		}
	}
	if n := len(errs.FaultsOf(machine.CheckPool(gq.Pool{Capacity: -1}))); n != 2 {
		t.Errorf("%d faults, want 2", n)
	}
}

// Keys that always have waiting jobs are served in turn, and a key with one job at a time
// gets no more than its share.
func TestFairTurn(t *testing.T) {
	type waiting struct {
		key  string
		turn uint64
	}
	var (
		now   uint64
		last  = map[string]uint64{}
		queue []waiting
	)
	join := func(key string) {
		last[key] = machine.FairTurn(now, last[key])
		queue = append(queue, waiting{key, last[key]})
	}
	serve := func() string {
		first := slices.MinFunc(queue, func(a, b waiting) int { return int(a.turn) - int(b.turn) })
		queue = slices.DeleteFunc(queue, func(w waiting) bool { return w == first })
		now = max(now, first.turn)
		return first.key
	}
	for range 50 {
		join("many")
	}
	join("few")
	join("few")
	var served []string
	for range 6 {
		served = append(served, serve())
	}
	if want := []string{"many", "few", "many", "few", "many", "many"}; !slices.Equal(served, want) {
		t.Errorf("served %q, want %q", served, want)
	}
	count := map[string]int{}
	for range 20 { // "one" submits its next job after its last was taken
		if !slices.ContainsFunc(queue, func(w waiting) bool { return w.key == "one" }) {
			join("one")
		}
		count[serve()]++
	}
	if count["one"] != 10 || count["many"] != 10 {
		t.Errorf("served %v, want both in turn", count)
	}
}

func TestOrderOfTurns(t *testing.T) {
	state := func(level gq.Priority, turn, sequence uint64) machine.OrderKey {
		return machine.Order((&gq.State{Own: level, Turn: turn, Sequence: sequence}))
	}
	order := []machine.OrderKey{
		state(gq.PriorityCritical, 9, 9), state(gq.PriorityHigh, 0, 1<<60), state(gq.PriorityHigh, 1, 5), state(gq.PriorityHigh, 1, 6),
		state(gq.PriorityHigh, 2, 1), state(gq.PriorityHigh, machine.MaxTurn, 1), state(gq.PriorityNormal, 0, 1),
	}
	for i := range order[1:] {
		if !order[i].Less(order[i+1]) || order[i+1].Less(order[i]) {
			t.Errorf("%+v is not before %+v", order[i], order[i+1])
		}
	}
}
