package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// report is the result of a run.
type report struct {
	Time     time.Time                     `json:"time"`
	Quick    bool                          `json:"quick,omitempty"`
	Machine  string                        `json:"machine"`
	Versions map[string]string             `json:"versions"`
	Settings []string                      `json:"settings"`
	Sizes    sizes                         `json:"sizes"`
	Results  map[string]map[string]outcome `json:"results"` // by row and side
	Goals    []goal                        `json:"goals"`
	Busy     bool                          `json:"busy"`

	runs map[string][]outcome // repetitions, by row and side
}

// goal is a target number.
type goal struct {
	Text    string  `json:"text"`
	Aim     float64 `json:"aim"`
	Most    bool    `json:"most,omitempty"` // the target is an upper bound
	Reached float64 `json:"reached"`
	Met     bool    `json:"met"`
	Detail  string  `json:"detail"` // the two numbers of a ratio
}

// describe records the environment of the run.
func (r *report) describe(ctx context.Context, url string) error {
	r.Time = time.Now().UTC()
	r.Machine = fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	r.Versions = make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/riverqueue/river" || m.Path == "github.com/jackc/pgx/v5" {
				r.Versions[m.Path] = m.Version
			}
		}
	}
	var packages struct{ Dependencies map[string]string }
	text, err := scripts.ReadFile("peers/package.json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &packages); err != nil {
		return err
	}
	for name, version := range packages.Dependencies {
		r.Versions[name] = version
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // read only
	var version string
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	r.Versions["PostgreSQL"] = version
	return err
}

// add records a measurement; of several the one with the median rate counts.
func (r *report) add(row, side string, o outcome) {
	if r.runs == nil {
		r.runs = make(map[string][]outcome)
	}
	key := row + " " + side
	r.runs[key] = append(r.runs[key], o)
	all := slices.Clone(r.runs[key])
	slices.SortFunc(all, func(a, b outcome) int { return int(a.rate() - b.rate()) })
	if r.Results[row] == nil {
		r.Results[row] = make(map[string]outcome)
	}
	r.Results[row][side] = all[len(all)/2]
	r.Busy = r.Busy || o.Others > busyAbove
}

// finish evaluates the goals for which both numbers were measured.
func (r *report) finish() {
	const us = "GopherQueue"
	ratio := func(text, row, peer string, aim float64) {
		a, b := r.Results[row][us], r.Results[row][peer]
		if a.rate() > 0 && b.rate() > 0 {
			r.judge(goal{Text: text, Aim: aim, Reached: a.rate() / b.rate(), Detail: fmt.Sprintf("%s / %s jobs/s", count(a.rate()), count(b.rate()))})
		}
	}
	ratio("drain, to River", "drain", "River", 3)
	ratio("drain, to graphile-worker batched, two processes", "drain", "graphile-worker", 1)
	ratio("drain, to pg-boss", "drain", "pg-boss", 0)
	ratio("single submits, to River", "single", "River", 10)
	ratio("bulk insert, to River", "bulk", "River", 1.5)
	if o := r.Results["backlog"][us]; o.First > 0 {
		r.judge(goal{
			Text: "backlog, last part to first", Aim: 0.7, Reached: o.Last / o.First,
			Detail: fmt.Sprintf("%s / %s jobs/s", count(o.Last), count(o.First)),
		})
	}
	if o := r.Results["pinned"][us]; o.Before > 0 {
		r.judge(goal{
			Text: "claim p99 with a snapshot held open, to undisturbed", Aim: 3, Most: true, Reached: o.Under / o.Before,
			Detail: fmt.Sprintf("%.2f / %.2f ms", o.Under, o.Before),
		})
	}
	if o, ok := r.Results["idle"][us]; ok {
		r.judge(goal{Text: "idle, queries a second", Aim: 2, Most: true, Reached: o.Queries})
	}
}

func (r *report) judge(g goal) {
	g.Met = g.Reached >= g.Aim
	if g.Most {
		g.Met = g.Reached <= g.Aim
	}
	r.Goals = append(r.Goals, g)
}

var titles = map[string]string{
	"bulk":    "bulk insert, jobs/s",
	"single":  "single submits, jobs/s",
	"drain":   "drain, jobs/s",
	"backlog": "backlog, first → last part, jobs/s",
	"latency": "submit to start, p50 / p99 ms",
	"idle":    "idle, queries/s",
	"pinned":  "claim p99, calm → snapshot held, ms",
}

// text formats an outcome for its row.
func (o outcome) text(row string) string {
	switch row {
	case "backlog":
		return count(o.First) + " → " + count(o.Last)
	case "latency":
		return fmt.Sprintf("%.2f / %.2f", o.P50, o.P99)
	case "idle":
		return fmt.Sprintf("%.2f", o.Queries)
	case "pinned":
		return fmt.Sprintf("%.2f → %.2f", o.Before, o.Under)
	}
	return count(o.rate())
}

// count formats a rate with commas.
func count(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func (r *report) write(w io.Writer) error {
	var sides []string
	for _, s := range []string{"GopherQueue", "River", "graphile-worker", "pg-boss"} {
		if slices.ContainsFunc(rows, func(row string) bool { _, ok := r.Results[row][s]; return ok }) {
			sides = append(sides, s)
		}
	}
	fmt.Fprintf(w, "%s, PostgreSQL %s\n\n", r.Machine, r.Versions["PostgreSQL"])
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\t%s\tothers had\n", strings.Join(sides, "\t"))
	for _, row := range rows {
		if len(r.Results[row]) == 0 {
			continue
		}
		fmt.Fprintf(t, "%s", titles[row])
		most := 0.0
		for _, s := range sides {
			if o, ok := r.Results[row][s]; ok {
				fmt.Fprintf(t, "\t%s", o.text(row))
				most = max(most, o.Others)
			} else {
				fmt.Fprint(t, "\t–")
			}
		}
		fmt.Fprintf(t, "\t%.0f %%\n", most)
	}
	for _, row := range []string{"bulk", "single", "drain", "backlog"} {
		if len(r.Results[row]) == 0 {
			continue
		}
		fmt.Fprintf(t, "%s, CPU µs a job", row)
		for _, s := range sides {
			fmt.Fprintf(t, "\t%.1f", r.Results[row][s].effort())
		}
		fmt.Fprintln(t, "\t")
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, "GopherQueue\treached\tgoal\t\t")
	for _, g := range r.Goals {
		sign, verdict := "≥", "met"
		if g.Most {
			sign = "≤"
		}
		if !g.Met {
			verdict = "NOT MET"
		}
		if g.Aim == 0 {
			sign, verdict = "", ""
		}
		aim := strings.TrimSuffix(fmt.Sprintf("%s %.2g", sign, g.Aim), " 0")
		fmt.Fprintf(t, "%s\t%.2f\t%s\t%s\t%s\n", g.Text, g.Reached, aim, verdict, g.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Busy {
		fmt.Fprintf(w, "\nWarning: others had more than %d %% of the CPU during some rows. Ratios within this run say more than rates.\n", busyAbove)
	}
	if r.Quick {
		fmt.Fprintln(w, "\nThis was a check of the harness with small sizes. Its numbers mean nothing.")
	}
	return nil
}

func (r *report) save(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // for everyone to read
}
