package dashboard

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var noTimes = [3]string{"a", "b", "c"}

// points returns all coordinates of a path that are absolute.
func points(t *testing.T, path string) (xs, ys []float64) {
	t.Helper()
	for _, pair := range regexp.MustCompile(`[ML]([-0-9.]+),([-0-9.]+)`).FindAllStringSubmatch(path, -1) {
		x, err := strconv.ParseFloat(pair[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		y, err := strconv.ParseFloat(pair[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		xs, ys = append(xs, x), append(ys, y)
	}
	for _, v := range regexp.MustCompile(`V([-0-9.]+)`).FindAllStringSubmatch(path, -1) {
		y, err := strconv.ParseFloat(v[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		ys = append(ys, y)
	}
	return xs, ys
}

func TestChartsStayInTheirFrame(t *testing.T) {
	gap := math.NaN()
	month := make([]float64, 31*24)
	for i := range month {
		month[i] = float64(i*i%977) / 10
	}
	for name, values := range map[string][]float64{
		"nothing": nil, "zeros": {0, 0, 0}, "one": {7}, "one of many": {gap, gap, 3, gap}, "gaps": {1, gap, 2, 3, gap, gap, 4},
		"huge": {1, 1e18, 9.2e18}, "tiny": {1e-9, 1e-6, 0}, "infinite": {1, math.Inf(1), 2}, "a month": month,
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []chart{
				drawCounts("c", "Jobs", noTimes, series{Shape: "fill", Values: values}, series{Shape: "hatch", Values: values}, series{Shape: "line", Values: values}),
				drawDurations("d", "Wait", noTimes, series{Shape: "line", Values: values}, series{Shape: "dash", Values: values}),
			} {
				for _, m := range c.Marks {
					if strings.Contains(m.Path, "NaN") || strings.Contains(m.Path, "Inf") || strings.Contains(m.Path, "e+") {
						t.Fatalf("the path is %s", m.Path)
					}
					xs, ys := points(t, m.Path)
					for i := range ys {
						if ys[i] < 0 || ys[i] > chartHeight {
							t.Errorf("%s: y is %v", m.Shape, ys[i])
						}
					}
					for i := range xs {
						if xs[i] < 0 || xs[i] > chartWidth {
							t.Errorf("%s: x is %v", m.Shape, xs[i])
						}
					}
				}
				for _, label := range c.Y {
					if label == "" || len(label) > 16 || strings.ContainsAny(label, "NI-") {
						t.Errorf("a label is %q", label)
					}
				}
				if want := !anyAbove(values, -1) || name == "zeros" && c.ID == "c"; c.Empty() != want {
					t.Errorf("%s is empty: %v", c.ID, c.Empty())
				}
			}
		})
	}
}

func TestALineIsBrokenWhereThereIsAGap(t *testing.T) {
	gap := math.NaN()
	y := func(v float64) float64 { return 10 * v }
	for _, test := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{gap, gap}, ""},
		{[]float64{1, 2, 3}, "M100,10L300,20L500,30"},
		{[]float64{1, 2, gap, 4, 5, 6}, "M50,10L150,20M350,40L450,50L550,60"},
		{[]float64{gap, 2, gap}, "M220,20h160"}, // a value alone is a short line
	} {
		if got := line(test.values, y); got != test.want {
			t.Errorf("%v is %s, want %s", test.values, got, test.want)
		}
	}
}

func TestBarsStandOnTopOfEachOther(t *testing.T) {
	c := drawCounts("c", "Jobs", noTimes, series{Shape: "fill", Values: []float64{6, 0}}, series{Shape: "hatch", Values: []float64{2, 4}}, series{Shape: "line", Values: []float64{10, 0}})
	if c.Y != [3]string{"10", "5", "0"} {
		t.Errorf("the axis is %v", c.Y)
	}
	for i, want := range []string{
		"M30,100h240V40h-240z",                     // 6 of 10
		"M30,40h240V20h-240zM330,100h240V60h-240z", // 2 on top of 6; 4 alone
		"M150,0L450,100",
	} {
		if got := c.Marks[i].Path; got != want {
			t.Errorf("mark %d is %s, want %s", i, got, want)
		}
	}
}

func TestOneFailureAmongThousandsIsVisible(t *testing.T) {
	c := drawCounts("c", "Jobs", noTimes, series{Shape: "fill", Values: []float64{5e6}}, series{Shape: "hatch", Values: []float64{1}})
	_, ys := points(t, c.Marks[1].Path)
	if len(ys) != 2 || ys[0]-ys[1] < 1 {
		t.Errorf("the failure is drawn as %s", c.Marks[1].Path)
	}
}

func TestAxisOfDurations(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   [3]string
	}{
		{nil, [3]string{"10 s", "100 ms", "1 ms"}},
		{[]float64{0.012}, [3]string{"1 s", "100 ms", "10 ms"}},
		{[]float64{0.0001, 0.02}, [3]string{"100 ms", "10 ms", "1 ms"}},
		{[]float64{0.004, 7200}, [3]string{"1 d 3 h", "10 s", "1 ms"}},
		{[]float64{math.NaN(), 30}, [3]string{"16 m 40 s", "1 m 40 s", "10 s"}},
	} {
		c := drawDurations("d", "Wait", noTimes, series{Shape: "line", Values: test.values})
		if c.Y != test.want {
			t.Errorf("%v has the axis %v, want %v", test.values, c.Y, test.want)
		}
	}
}

func TestRoundUp(t *testing.T) {
	for v, want := range map[float64]float64{0: 2, 1: 2, 2: 2, 3: 4, 5: 6, 9: 10, 10: 10, 11: 20, 41: 60, 99: 100, 1234: 2000, 1e18: 1e18} {
		if got := roundUp(v); got != want {
			t.Errorf("roundUp(%v) is %v, want %v", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 5: "5", 999: "999", 1000: "1k", 1500: "1.5k", 4e6: "4M", 1e18: "1E"} {
		if got := shortNumber(v); got != want {
			t.Errorf("shortNumber(%v) is %q, want %q", v, got, want)
		}
	}
}
