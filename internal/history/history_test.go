package history

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

var noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// drawEvent draws an event of the hour at noon.
var drawEvent = rapid.Custom(func(t *rapid.T) gq.Event {
	e := gq.Event{
		Type:    gq.EventType(rapid.IntRange(int(gq.EventSubmitted), int(gq.EventUpdated)).Draw(t, "type")),
		Time:    noon.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)-1).Draw(t, "time"))),
		Elapsed: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "elapsed")) * time.Microsecond,
	}
	e.LeaseState = gq.LeaseState(rapid.IntRange(0, int(gq.LeaseCancelled)).Draw(t, "lease"))
	if rapid.Bool().Draw(t, "failed") {
		e.Failure = &gq.Failure{Code: rapid.SampledFrom([]string{"boom", "ack_timeout"}).Draw(t, "code")}
	}
	return e
})

func hourOf(events []gq.Event) *Hour {
	h := new(Hour)
	for i := range events {
		h.Add(&events[i])
	}
	return h
}

// However the log is cut into parts, and whether or not the parts are encoded in between, the
// parts together count what the whole log counts.
func TestFoldInParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(drawEvent, 0, 60).Draw(t, "events")
		want := hourOf(events).Append(nil)
		sum := new(Hour)
		for rest := events; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			part := hourOf(rest[:n])
			rest = rest[n:]
			if rapid.Bool().Draw(t, "stored") {
				stored := sum.Append(nil)
				sum = new(Hour)
				if err := sum.Decode(stored); err != nil {
					t.Fatal(err)
				}
			}
			sum.Merge(part)
		}
		if got := sum.Append(nil); !bytes.Equal(got, want) {
			t.Fatalf("in parts:\n%x\nat once:\n%x", got, want)
		}
		var one, two Point
		sum.Sum(&one, 0, Minutes)
		var day, stored Day
		day.Add(HourOf(noon), sum)
		if err := stored.Decode(day.Append(nil)); err != nil {
			t.Fatal(err)
		}
		two.Merge(stored.Hour(HourOf(noon)))
		if !reflect.DeepEqual(one, two) || stored.Hour(HourOf(noon)+1) != nil {
			t.Fatalf("without minutes:\n%+v\nwith:\n%+v", two, one)
		}
	})
}

// Each count is the number of events of its type.
func TestPointCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(drawEvent, 0, 40).Draw(t, "events")
		by := map[gq.EventType]int64{}
		runs, lost := int64(0), int64(0)
		for i := range events {
			e := &events[i]
			by[e.Type]++
			if machine.EndsRun(e) {
				runs++
				if e.LeaseState == gq.LeaseExpired {
					lost++
				}
			}
		}
		var p Point
		hourOf(events).Sum(&p, 0, Minutes)
		var got gq.HistoryPoint
		p.Fill(&got)
		if got.Submitted != by[gq.EventSubmitted] || got.Started != by[gq.EventStarted] || got.Completed != by[gq.EventCompleted] ||
			got.Failed != by[gq.EventFailed] || got.Retried != by[gq.EventRetrying] || got.DeadLettered != by[gq.EventDeadLettered] ||
			got.Cancelled != by[gq.EventCancelled] || got.Wait.Count != by[gq.EventStarted] {
			t.Fatalf("%+v of %v", got, by)
		}
		if got.Run.Count != runs || got.Lost != lost {
			t.Fatalf("%+v of %d runs, of which %d lost their leases", got, runs, lost)
		}
	})
}

// A quantile is at most a fifth away from the exact one, or in the first bucket.
func TestQuantileError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64Range(0, 1<<42), 1, 200).Draw(t, "microseconds")
		var s Sketch
		for _, us := range list {
			s.Add(time.Duration(us) * time.Microsecond)
		}
		slices.Sort(list)
		for _, share := range []float64{0.5, 0.9, 0.99, 1} {
			exact := list[max(int(math.Ceil(share*float64(len(list))))-1, 0)]
			got := s.Quantile(share)
			if off := math.Abs(float64(got/time.Microsecond) - float64(exact)); off > 0.2*float64(exact)+16 {
				t.Fatalf("quantile %v is %v, want about %dµs", share, got, exact)
			}
		}
		if s.Count() != int64(len(list)) {
			t.Fatalf("%d durations of %d", s.Count(), len(list))
		}
	})
	for b := 1; b < buckets-1; b++ {
		if bucket(start(b)) != b || bucket(start(b+1)-1) != b {
			t.Errorf("bucket %d begins at %v", b, start(b))
		}
	}
}

func TestSumOfMinutes(t *testing.T) {
	h := new(Hour)
	for m := range Minutes {
		for range m {
			h.Add(&gq.Event{Type: gq.EventSubmitted, Time: noon.Add(time.Duration(m)*time.Minute + 59*time.Second)})
		}
	}
	var p Point
	h.Sum(&p, 10, 13)
	if p.counts[submitted] != 10+11+12 {
		t.Errorf("minutes 10 to 12 have %d", p.counts[submitted])
	}
}

func FuzzDecode(f *testing.F) {
	h := new(Hour)
	h.Add(&gq.Event{Type: gq.EventStarted, Time: noon.Add(time.Minute), Elapsed: time.Second})
	f.Add(h.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		one, two := new(Hour), new(Hour)
		if one.Decode(b) != nil {
			return
		}
		if err := two.Decode(one.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one.Append(nil), two.Append(nil)) {
			t.Fatalf("%x changed", b)
		}
	})
}
