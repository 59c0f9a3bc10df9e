package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size of the drawing of a chart. The page stretches it; labels stand beside it, as text.
const (
	chartWidth  = 600.0
	chartHeight = 100.0
)

// chart is a picture of figures over time, ready for the template.
type chart struct {
	ID     string // prefix of the ids of its elements
	Title  string
	Text   string // the picture in words
	Marks  []mark // in the order in which they are drawn
	Y      [3]string
	X      [3]string
	Width  float64
	Height float64
}

// mark is one series of a chart. Shape tells series apart where colours do not: bars filled,
// bars hatched, a solid line or a dashed line.
type mark struct {
	Name  string
	Shape string // a class of the style sheet: fill, hatch, line or dash
	Tone  string // colour; see statusLook
	Total string // what the legend says about the whole series
	Path  string // "" if there is nothing to draw
}

// Empty reports whether the chart shows nothing.
func (c chart) Empty() bool {
	for _, m := range c.Marks {
		if m.Path != "" {
			return false
		}
	}
	return true
}

// series has one value for each step of a chart. NaN is a gap.
type series struct {
	Name, Shape, Tone, Total string
	Values                   []float64
}

// drawCounts draws numbers of jobs: bars on top of each other for those with a filled shape and
// lines for the others. The axis begins at zero.
func drawCounts(id, title string, times [3]string, list ...series) chart {
	c := newChart(id, title, times)
	stacked := make([]float64, steps(list))
	most := 0.0
	for _, s := range list {
		for i, v := range s.Values {
			if !visible(v) {
				continue
			}
			if s.bars() {
				stacked[i] += v
				v = stacked[i]
			}
			most = max(most, v)
		}
	}
	top := roundUp(most)
	c.Y = [3]string{shortNumber(top), shortNumber(top / 2), "0"}
	base := make([]float64, len(stacked))
	y := func(v float64) float64 { return chartHeight * (1 - v/top) }
	for _, s := range list {
		m := mark{Name: s.Name, Shape: s.Shape, Tone: s.Tone, Total: s.Total}
		if s.bars() {
			m.Path = bars(s.Values, base, y)
		} else if anyAbove(s.Values, 0) {
			m.Path = line(s.Values, y)
		}
		c.Marks = append(c.Marks, m)
	}
	return c
}

// drawDurations draws durations in seconds as lines. The axis is logarithmic, because a slow
// minute among fast ones must not flatten the rest.
func drawDurations(id, title string, times [3]string, list ...series) chart {
	const shortest = 0.001 // a millisecond; the axis does not show less
	c := newChart(id, title, times)
	least, most := math.Inf(1), 0.0
	for _, s := range list {
		for _, v := range s.Values {
			if v >= 0 && !math.IsInf(v, 0) {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	low := math.Floor(math.Log10(max(shortest, min(least, most))))
	high := max(low+2, math.Ceil(math.Log10(max(shortest, most))))
	if int(high-low)%2 == 1 {
		high++ // so that the middle is a power of ten too
	}
	if math.IsInf(least, 1) { // nothing to draw
		low, high = -3, 1
	}
	text := func(power float64) string {
		return duration(time.Duration(min(math.Pow(10, power), maxSeconds) * float64(time.Second)))
	}
	c.Y = [3]string{text(high), text((low + high) / 2), text(low)}
	y := func(v float64) float64 {
		return chartHeight * (1 - (math.Log10(max(v, shortest))-low)/(high-low))
	}
	for _, s := range list {
		c.Marks = append(c.Marks, mark{s.Name, s.Shape, s.Tone, s.Total, line(s.Values, y)})
	}
	return c
}

// maxSeconds is the longest duration of a label.
const maxSeconds = float64(math.MaxInt64 / int64(time.Second))

func newChart(id, title string, times [3]string) chart {
	return chart{ID: id, Title: title, X: times, Width: chartWidth, Height: chartHeight}
}

func (s series) bars() bool { return s.Shape == "fill" || s.Shape == "hatch" }

func steps(list []series) (n int) {
	for _, s := range list {
		n = max(n, len(s.Values))
	}
	return n
}

// visible reports whether a number has a height: it is larger than zero, no gap and finite.
func visible(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

func anyAbove(values []float64, limit float64) bool {
	for _, v := range values {
		if v > limit {
			return true
		}
	}
	return false
}

// bars returns the outline of one bar for each value, on top of base, and raises base.
func bars(values, base []float64, y func(float64) float64) string {
	var out strings.Builder
	step := chartWidth / float64(max(1, len(values)))
	for i, v := range values {
		if !visible(v) {
			continue
		}
		from, to := y(base[i]), y(base[i]+v)
		base[i] += v
		// A single failure among thousands of jobs stays visible.
		to = max(0, min(to, from-1.5))
		fmt.Fprintf(&out, "M%s,%sh%sV%sh-%sz", coordinate(float64(i)*step+step*0.1), coordinate(from), coordinate(step*0.8), coordinate(to), coordinate(step*0.8))
	}
	return out.String()
}

// alone is half the width of a value between two gaps, if steps are narrower.
const alone = 5

// line returns a line through the middle of each step, broken where there is a gap. A value
// between two gaps is a short line.
func line(values []float64, y func(float64) float64) string {
	var out strings.Builder
	step := chartWidth / float64(max(1, len(values)))
	drawn := func(i int) bool {
		return i >= 0 && i < len(values) && !math.IsNaN(values[i]) && !math.IsInf(values[i], 0)
	}
	for i, v := range values {
		if !drawn(i) {
			continue
		}
		x, at := (float64(i)+0.5)*step, min(chartHeight, max(0, y(v)))
		switch {
		case drawn(i - 1):
			fmt.Fprintf(&out, "L%s,%s", coordinate(x), coordinate(at))
		case drawn(i + 1):
			fmt.Fprintf(&out, "M%s,%s", coordinate(x), coordinate(at))
		default:
			from, to := max(0, x-max(step*0.4, alone)), min(chartWidth, x+max(step*0.4, alone))
			fmt.Fprintf(&out, "M%s,%sh%s", coordinate(from), coordinate(at), coordinate(to-from))
		}
	}
	return out.String()
}

func coordinate(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// roundUp returns a number at least as large whose half is a round number too.
func roundUp(v float64) float64 {
	if !(v > 2) || math.IsInf(v, 0) {
		return 2
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, k := range []float64{1, 2, 4, 6, 8, 10} {
		if k*unit >= v {
			if unit == 1 && k == 1 {
				continue // its half is no number of jobs
			}
			return k * unit
		}
	}
	return 20 * unit
}

// shortNumber writes a number in a few characters.
func shortNumber(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 3, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
