package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// report is the result of a run.
type report struct {
	Time     time.Time                       `json:"time"`
	Group    string                          `json:"group"`
	Quick    bool                            `json:"quick,omitempty"`
	Commit   string                          `json:"commit"`
	Machine  string                          `json:"machine"`
	Versions map[string]string               `json:"versions"`
	Settings []string                        `json:"settings,omitempty"` // of PostgreSQL
	Sizes    sizes                           `json:"sizes"`
	Results  map[string]map[string]outcome   `json:"results"`           // by row and side; of several the median
	Runs     map[string]map[string][]outcome `json:"runs"`              // all of them, in their order
	Without  map[string]string               `json:"without,omitempty"` // sides that were left out, and why
	Failures []string                        `json:"failures,omitempty"`
	Goals    []goal                          `json:"goals"`
	Busy     bool                            `json:"busy"`
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

func newReport(g group, size sizes, quick bool, without map[string]string) *report {
	return &report{
		Time: time.Now().UTC(), Group: g.name, Quick: quick, Sizes: size, Without: without,
		Versions: make(map[string]string), Results: make(map[string]map[string]outcome), Runs: make(map[string]map[string][]outcome),
	}
}

// describe records the environment of the run.
func (r *report) describe(p programs, chosen []contender) error {
	r.Machine = machine()
	r.Commit = commit()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if slices.Contains(modules[r.Group], m.Path) {
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
		if slices.Contains(modules[r.Group], name) {
			r.Versions[name] = version
		}
	}
	for _, c := range chosen {
		switch c.side.name() {
		case "Asynq, everysec", "Asynq, always", "BullMQ, everysec", "BullMQ, always", "Faktory":
			r.Versions["Redis"] = p.version("redis-server", "--version")
		case "beanstalkd, fsync":
			r.Versions["beanstalkd"] = p.version("beanstalkd", "-v")
		case "NATS JetStream, sync always":
			r.Versions["nats-server"] = p.version("nats-server", "--version")
		case "Temporal dev server":
			r.Versions["temporal"] = p.version("temporal", "--version")
		}
	}
	return nil
}

// modules are the Go modules and packages of Node that belong to a group.
var modules = map[string][]string{
	onPostgreSQL.name: {"github.com/riverqueue/river", "github.com/jackc/pgx/v5", "graphile-worker", "pg-boss", "pg", "node"},
	servers.name: {
		"github.com/hibiken/asynq", "github.com/redis/go-redis/v9", "github.com/nats-io/nats.go", "github.com/beanstalkd/go-beanstalk",
		"github.com/contribsys/faktory", "go.temporal.io/sdk", "bullmq", "ioredis", "node",
	},
}

// changed marks a commit from which files other than documentation differ.
const changed = " with changes"

// commit returns the commit of this checkout.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output() //nolint:noctx // returns at once
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	if changes, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)*.md").Output(); err != nil || len(changes) > 0 { //nolint:noctx // returns at once
		name += changed
	}
	return name
}

// describeDatabase records the version of PostgreSQL.
func (r *report) describeDatabase(ctx context.Context, url string) error {
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

// add records a measurement; of several the one with the median rate or, at a given rate, latency
// counts, the lower one of an even number.
func (r *report) add(row, side string, o outcome) {
	if r.Results[row] == nil {
		r.Results[row], r.Runs[row] = make(map[string]outcome), make(map[string][]outcome)
	}
	r.Runs[row][side] = append(r.Runs[row][side], o)
	all := slices.Clone(r.Runs[row][side])
	slices.SortStableFunc(all, func(a, b outcome) int { return cmp.Or(cmp.Compare(a.rate(), b.rate()), cmp.Compare(a.P50, b.P50)) })
	r.Results[row][side] = all[(len(all)-1)/2]
	r.Busy = r.Busy || o.Others > busyAbove
}

// fail records a measurement that gave no result.
func (r *report) fail(progress io.Writer, row, side string, err error) {
	fmt.Fprintf(progress, "%s of %s: %v\n", row, side, err)
	r.Failures = append(r.Failures, fmt.Sprintf("%s of %s: %v", row, side, err))
}

// finish evaluates the goals for which both numbers were measured.
func (r *report) finish() {
	us := "GopherQueue"
	ratio := func(text, row, peer string, aim float64) {
		a, b := r.Results[row][us], r.Results[row][peer]
		if a.rate() > 0 && b.rate() > 0 {
			r.judge(goal{Text: text, Aim: aim, Reached: a.rate() / b.rate(), Detail: fmt.Sprintf("%s / %s jobs/s", count(a.rate()), count(b.rate()))})
		}
	}
	rate := func(text, row string, aim float64) {
		if o := r.Results[row][us]; o.rate() > 0 {
			r.judge(goal{Text: text, Aim: aim, Reached: o.rate(), Detail: "jobs/s"})
		}
	}
	if r.Group == servers.name {
		us = "GopherQueue embedded, batched"
		rate("embedded cycle, batched", "cycle", 100_000)
		us = "GopherQueue server"
		rate("server cycle", "cycle", 50_000)
		ratio("server cycle, to beanstalkd with fsync", "cycle", "beanstalkd, fsync", 3)
		ratio("server cycle, to NATS JetStream with sync always", "cycle", "NATS JetStream, sync always", 5)
		rate("server drain", "drain", 50_000)
		ratio("server drain, to beanstalkd with fsync", "drain", "beanstalkd, fsync", 3)
		ratio("server drain, to NATS JetStream with sync always", "drain", "NATS JetStream, sync always", 5)
		return
	}
	ratio("drain, to River", "drain", "River", 3)
	ratio("drain, to graphile-worker batched, two processes", "drain", "graphile-worker", 1.2)
	ratio("drain, to pg-boss", "drain", "pg-boss", 0)
	ratio("single submits, to River", "single", "River", 10)
	ratio("bulk insert, to River", "bulk", "River", 1.5)
	r.latencies(us)
	if o := r.Results["backlog"][us]; o.First > 0 {
		r.judge(goal{
			Text: "backlog, last part to first", Aim: 0.8, Reached: o.Last / o.First,
			Detail: fmt.Sprintf("%s / %s jobs/s", count(o.Last), count(o.First)),
		})
	}
	if o := r.Results["pinned"][us]; o.Before > 0 {
		r.judge(goal{
			Text: "claim p99 with a snapshot held open, to undisturbed", Aim: 2, Most: true, Reached: o.Under / o.Before,
			Detail: fmt.Sprintf("%.2f / %.2f ms", o.Under, o.Before),
		})
	}
	if o, ok := r.Results["idle"][us]; ok {
		r.judge(goal{Text: "idle, queries a second", Aim: 2, Most: true, Reached: o.Queries})
	}
}

// latencies evaluates the goals of a job every 10 ms: to start sooner than with the best peer, for no more CPU
// time than River's.
func (r *report) latencies(us string) {
	runs := r.Runs["latency"]
	if len(runs[us]) == 0 {
		return
	}
	to := func(text, unit string, of func(outcome) float64, peers ...string) {
		best := 0.0
		for _, side := range peers {
			if len(runs[side]) > 0 {
				if n := spreadOf(runs[side], of).mid; best == 0 || n < best {
					best = n
				}
			}
		}
		if best > 0 {
			ours := spreadOf(runs[us], of).mid
			r.judge(goal{Text: text, Aim: 1, Most: true, Reached: ours / best, Detail: fmt.Sprintf("%.2f / %.2f %s", ours, best, unit)})
		}
	}
	peers := []string{"River", "graphile-worker", "pg-boss"}
	to("a job every 10 ms, p50 to the best peer", "ms", func(o outcome) float64 { return o.P50 }, peers...)
	to("a job every 10 ms, p99 to the best peer", "ms", func(o outcome) float64 { return o.P99 }, peers...)
	to("a job every 10 ms, CPU time to River", "µs", outcome.effort, "River")
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
	"cycle":   "submit and run, jobs/s",
	"half":    "submit to start at half that rate, p50 / p99 ms",
}

// text formats an outcome for its row.
func (o outcome) text(row string) string {
	switch row {
	case "backlog":
		return count(o.First) + " → " + count(o.Last)
	case "latency", "half":
		return fmt.Sprintf("%.2f / %.2f", o.P50, o.P99)
	case "idle":
		return fmt.Sprintf("%.2f", o.Queries)
	case "pinned":
		return fmt.Sprintf("%.2f → %.2f", o.Before, o.Under)
	}
	return count(o.rate())
}

// figure formats a ratio or, if it is large, a rate.
func figure(n float64) string {
	if n >= 1000 {
		return count(n)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", n), "0"), ".")
}

// count formats a rate with commas.
func count(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// names returns the sides that were measured, in their order.
func (r *report) names() (names []string) {
	g := onPostgreSQL
	if r.Group == servers.name {
		g = servers
	}
	for _, key := range g.all() {
		name := named(key, sizes{}, programs{}).name()
		for row := range r.Results {
			if _, ok := r.Results[row][name]; ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (r *report) write(w io.Writer) error {
	if r.Group == servers.name {
		fmt.Fprintf(w, "%s, commit %s\n\n", r.Machine, r.Commit)
		if err := r.table(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
		return r.verdicts(w)
	}
	sides := r.names()
	fmt.Fprintf(w, "%s, PostgreSQL %s\n\n", r.Machine, r.Versions["PostgreSQL"])
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\t%s\tothers had\n", strings.Join(sides, "\t"))
	for _, row := range onPostgreSQL.rows {
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
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return r.verdicts(w)
}

// verdicts writes the goals and what makes the results doubtful.
func (r *report) verdicts(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
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
		aim := strings.TrimSuffix(sign+" "+figure(g.Aim), " 0")
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", g.Text, figure(g.Reached), aim, verdict, g.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Busy {
		fmt.Fprintf(w, "\nWarning: others had more than %d %% of the CPU during some rows. Ratios within this run say more than rates.\n", busyAbove)
	}
	for _, text := range r.Failures {
		fmt.Fprintf(w, "\nFailed: %s\n", text)
	}
	for side, reason := range r.Without {
		fmt.Fprintf(w, "\nWithout %s: %s\n", side, reason)
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
