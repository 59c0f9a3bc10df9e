package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// spread is the median of several values, the lower one of an even number, and their range.
type spread struct{ low, mid, high float64 }

func spreadOf(all []outcome, value func(outcome) float64) (s spread) {
	if len(all) == 0 {
		return s
	}
	values := make([]float64, len(all))
	for i := range all {
		values[i] = value(all[i])
	}
	slices.Sort(values)
	return spread{values[0], values[(len(values)-1)/2], values[len(values)-1]}
}

// text formats the median with the range, if there is one.
func (s spread) text(format func(float64) string) string {
	mid, low, high := format(s.mid), format(s.low), format(s.high)
	if low == high {
		return mid
	}
	return fmt.Sprintf("%s (%s–%s)", mid, low, high)
}

func decimals(n int) func(float64) string {
	return func(v float64) string { return fmt.Sprintf("%.*f", n, v) }
}

// metric is a column of the table and a plot.
type metric struct {
	file, title string
	rows        []string
	value       func(outcome) float64
	format      func(float64) string
}

// sent are the rows that measure a rate.
var sent = []string{"single", "bulk", "drain", "cycle"}

var metrics = []metric{
	{"rate", "jobs/s", sent, outcome.rate, count},
	{"cpu", "CPU µs a job", sent, outcome.effort, decimals(1)},
	{"written", "bytes written a job", sent, outcome.bytes, count},
	{"p50", "p50 ms", []string{"half"}, func(o outcome) float64 { return o.P50 }, decimals(2)},
	{"p99", "p99 ms", []string{"half"}, func(o outcome) float64 { return o.P99 }, decimals(2)},
}

// table writes the results as a table in Markdown: the median of each value and its
// range.
func (r *report) table(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| row | side |")
	for _, m := range metrics {
		fmt.Fprintf(&b, " %s |", m.title)
	}
	b.WriteString(" others had |\n|---|---|" + strings.Repeat("---:|", len(metrics)+1) + "\n")
	for _, row := range servers.rows {
		for _, side := range r.names() {
			all := r.Runs[row][side]
			if len(all) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |", row, side)
			for _, m := range metrics {
				switch {
				case slices.Contains(m.rows, row) || row == "half" && m.file != "rate":
					fmt.Fprintf(&b, " %s |", spreadOf(all, m.value).text(m.format))
				case row == "half":
					fmt.Fprintf(&b, " %s offered |", spreadOf(all, m.value).text(m.format))
				default:
					b.WriteString(" |")
				}
			}
			fmt.Fprintf(&b, " %s |\n", spreadOf(all, func(o outcome) float64 { return o.Others }).text(func(v float64) string { return fmt.Sprintf("%.0f %%", v) }))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// charts returns the plots of a report. They leave out the sides that are measured only if
// named, which need another scale.
func (r *report) charts() []chart {
	plot := func(m metric, row, title string) panel {
		p := panel{Title: title}
		for _, key := range servers.sides {
			side := named(key, sizes{}, programs{}).name()
			if all := r.Runs[row][side]; len(all) > 0 {
				s := spreadOf(all, m.value)
				p.Bars = append(p.Bars, bar{side, s, s.text(m.format)})
			}
		}
		return p
	}
	latency := chart{File: "latency.svg", Title: "Submit to start at half of each side's own cycle rate, ms"}
	var all []chart
	for _, m := range metrics {
		if slices.Contains(m.rows, "half") {
			latency.Panels = append(latency.Panels, plot(m, "half", m.title))
			continue
		}
		c := chart{File: m.file + ".svg", Title: m.title}
		for _, row := range m.rows {
			c.Panels = append(c.Panels, plot(m, row, row))
		}
		all = append(all, c)
	}
	return append(all, latency)
}

// publish writes a table and plots of the results in files into a directory.
func publish(args []string, stdout io.Writer) error {
	if len(args) < 2 {
		return errors.New("usage: bench report DIR FILE…")
	}
	r, err := merge(args[1:])
	if err != nil {
		return err
	}
	r.finish()
	for _, c := range r.charts() {
		if err := os.WriteFile(filepath.Join(args[0], c.File), c.svg(), 0o644); err != nil { //nolint:gosec // for everyone to read
			return err
		}
	}
	return r.write(stdout)
}

// merge reads reports and returns one with the results of all of them.
func merge(files []string) (*report, error) {
	var whole *report
	var commits []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		part := new(report)
		if err := json.Unmarshal(text, part); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if part.Group != servers.name {
			return nil, fmt.Errorf("%s has no results of bench servers", file)
		}
		if whole == nil {
			whole = newReport(servers, part.Sizes, part.Quick, part.Without)
			whole.Time, whole.Commit, whole.Machine, whole.Versions = part.Time, part.Commit, part.Machine, part.Versions
		}
		if part.Machine != whole.Machine || part.Sizes != whole.Sizes {
			return nil, fmt.Errorf("%s is of another machine or size than %s", file, files[0])
		}
		if !slices.Contains(commits, part.Commit) {
			commits = append(commits, part.Commit)
		}
		whole.Commit = strings.Join(commits, ", ")
		maps.Copy(whole.Versions, part.Versions)
		whole.Failures = append(whole.Failures, part.Failures...)
		for row := range part.Runs {
			for side, all := range part.Runs[row] {
				for _, o := range all {
					whole.add(row, side, o)
				}
			}
		}
	}
	return whole, nil
}
