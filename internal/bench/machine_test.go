package bench

import (
	"math"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const line = "cpu  100 20 30 400 5 6 7 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	got, ok := parseStat([]byte(line))
	want := reading{total: 648 * tick, used: 150 * tick, stolen: 80 * tick}
	if !ok || got != want {
		t.Errorf("parseStat(%q) = %+v, %v, want %+v", line, got, ok, want)
	}
	for _, bad := range []string{
		"", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x", "cpu 0 0 0 0 0 0 0 0",
	} {
		if _, ok := parseStat([]byte(bad)); ok {
			t.Errorf("parseStat(%q) understood it", bad)
		}
	}
}

func TestParseProcessStat(t *testing.T) {
	const line = "123 (a (b) c) S 1 123 123 0 -1 4194304 1 2 3 4 150 30 0 0 20 0 9 0 100\n"
	if got, ok := parseProcessStat([]byte(line)); !ok || got != 180*tick {
		t.Errorf("parseProcessStat(%q) = %v, %v, want %v", line, got, ok, 180*tick)
	}
	for _, bad := range []string{"", "1 (a) S", "1 (a) S 1 1 1 0 -1 0 1 2 3 4 x 30"} {
		if _, ok := parseProcessStat([]byte(bad)); ok {
			t.Errorf("parseProcessStat(%q) understood it", bad)
		}
	}
}

func TestOthers(t *testing.T) {
	const s = time.Second
	begin := reading{own: 1 * s, ownKnown: true, total: 100 * s, used: 50 * s, stolen: 5 * s, known: true}
	for _, test := range []struct {
		name string
		end  reading
		want float64 // percent; below 0 is unknown
		busy bool
	}{
		{"Alone", reading{own: 7 * s, ownKnown: true, total: 110 * s, used: 56 * s, stolen: 5 * s, known: true}, 0, false},
		{"ALittle", reading{own: 7 * s, ownKnown: true, total: 110 * s, used: 57 * s, stolen: 5 * s, known: true}, 10, false},
		{"OthersRan", reading{own: 3 * s, ownKnown: true, total: 110 * s, used: 56 * s, stolen: 5 * s, known: true}, 40, true},
		{"Stolen", reading{own: 7 * s, ownKnown: true, total: 110 * s, used: 56 * s, stolen: 8 * s, known: true}, 30, true},
		{"RoundedDown", reading{own: 8 * s, ownKnown: true, total: 110 * s, used: 56 * s, stolen: 5 * s, known: true}, 0, false},
		{"TooShort", reading{own: 1 * s, ownKnown: true, total: 100*s + 5*tick, used: 51 * s, stolen: 5 * s, known: true}, -1, false},
		{"NoProc", reading{own: 7 * s, ownKnown: true}, -1, false},
		{"NoUsage", reading{total: 110 * s, used: 57 * s, stolen: 5 * s, known: true}, -1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := begin.until(test.end)
			var r Report
			r.judge(got)
			if test.want < 0 {
				if got.others != nil || r.Busy != nil || len(r.Warnings) != 1 {
					t.Errorf("others %v, busy %v, warnings %q; want it unknown, and said so", got.others, r.Busy, r.Warnings)
				}
				return
			}
			if got.others == nil || math.Abs(*got.others-test.want) > 1e-9 {
				t.Fatalf("others %v, want %v %%", got.others, test.want)
			}
			if r.Busy == nil || *r.Busy != test.busy || (len(r.Warnings) > 0) != test.busy {
				t.Errorf("busy %v with warnings %q, want %v", *r.Busy, r.Warnings, test.busy)
			}
		})
	}
}

func TestMedians(t *testing.T) {
	var r rounds[FilterRow]
	r.reserve(1)
	second := r.reserve(2)
	for place, ratios := range [][]float64{{0.5}, {3, 1, 2}, {4, 1, 3, 2}} {
		for _, ratio := range ratios {
			r.add(place, FilterRow{Ratio: ratio, With: ratio * 10})
		}
	}
	if second != 1 {
		t.Errorf("the second reservation begins at %d, want 1", second)
	}
	got := r.medians(func(f FilterRow) float64 { return f.Ratio }, func(f *FilterRow) *Spread { return &f.Repeats })
	want := []FilterRow{
		{Ratio: 0.5, With: 5, Repeats: Spread{1, 0.5, 0.5}},
		{Ratio: 2, With: 20, Repeats: Spread{3, 1, 3}},
		{Ratio: 2, With: 20, Repeats: Spread{4, 1, 4}},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("place %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}
