package compare

import (
	"fmt"
	"slices"

	"github.com/gopherqueue/gq/services/internal/load"
)

// A figure summarises the repetitions of a measurement.
type figure struct {
	median, low, high float64
	bound             bool // at least one value is a lower bound, so the true values may be higher
	n                 int  // repetitions
}

// figureOf uses the lower of two middle values as the median.
func figureOf(values []float64) (f figure) {
	if len(values) == 0 {
		return f
	}
	sorted := slices.Sorted(slices.Values(values))
	return figure{median: sorted[(len(sorted)-1)/2], low: sorted[0], high: sorted[len(sorted)-1], n: len(sorted)}
}

// text returns "median (low–high)"; lower bounds begin with ≥.
func (f figure) text(digits int) string {
	if f.n == 0 {
		return "–"
	}
	mark := ""
	if f.bound {
		mark = "≥ "
	}
	if f.n == 1 {
		return fmt.Sprintf("%s%.*f", mark, digits, f.median)
	}
	return fmt.Sprintf("%s%.*f (%.*f–%.*f)", mark, digits, f.median, digits, f.low, digits, f.high)
}

// above reports whether every repetition of f is above every one of g. A single
// repetition has no range and shows no difference.
func (f figure) above(g figure) bool {
	return f.n > 1 && g.n > 1 && f.low > g.high && !g.bound
}

// bounded formats a latency, marked if it is a lower bound.
func bounded(l load.Latency, v float64) string {
	if l.Bound(v) {
		return fmt.Sprintf("≥ %.1f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// A metric selects a value of a report.
type metric struct {
	name   string
	digits int
	of     func(*load.Report) (v float64, bound bool)
}

func latency(name string, digits int, of func(*load.Report) load.Latency, at func(load.Latency) float64) metric {
	return metric{name, digits, func(r *load.Report) (float64, bool) {
		l := of(r)
		return at(l), l.Bound(at(l))
	}}
}

func methodOf(method string) func(*load.Report) load.Latency {
	return func(r *load.Report) load.Latency { return r.Methods[method].Latency }
}

func submitOf(r *load.Report) load.Latency { return r.Methods[load.Submit.String()].Latency }
func doneOf(r *load.Report) load.Latency   { return r.Jobs.EndToEnd }

func p50(l load.Latency) float64 { return l.P50 }
func p95(l load.Latency) float64 { return l.P95 }
func p99(l load.Latency) float64 { return l.P99 }

var (
	requestsPerSecond = metric{"requests/s", 0, func(r *load.Report) (float64, bool) { return r.PerSecond, false }}
	jobsPerSecond     = metric{"jobs/s", 0, func(r *load.Report) (float64, bool) { return r.Jobs.PerSecond, false }}
	submitP99         = latency("99th percentile of SubmitJob", 2, submitOf, p99)
	doneP50           = latency("median of submit to done", 0, doneOf, p50)
	doneP99           = latency("99th percentile of submit to done", 0, doneOf, p99)
)

// repetitions returns the rows of a design's cell.
func (r *Results) repetitions(design string, cell Cell) (rows []Row) {
	for _, row := range r.Rows {
		if row.Design == design && row.Cell == cell {
			rows = append(rows, row)
		}
	}
	return rows
}

// figure returns a metric of a design's cell.
func (r *Results) figure(design string, cell Cell, m metric) figure {
	var values []float64
	bound := false
	for _, row := range r.repetitions(design, cell) {
		v, b := m.of(row.Report)
		values, bound = append(values, v), bound || b
	}
	f := figureOf(values)
	f.bound = bound
	return f
}

// cells returns the measured cells: the closed loops of the plan, then the open ones by
// rate.
func (r *Results) cells() (closed, open []Cell) {
	closed = r.Plan.Cells()
	for _, row := range r.Rows {
		if row.Cell.Rate > 0 && !slices.Contains(open, row.Cell) {
			open = append(open, row.Cell)
		}
	}
	slices.SortFunc(open, func(a, b Cell) int { return int(a.Rate - b.Rate) })
	return closed, open
}
