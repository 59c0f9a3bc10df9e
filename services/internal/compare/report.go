package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq/services/internal/load"
)

// Markdown returns the report. Every sentence with a number is computed from the rows.
func (r *Results) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Task queue: designs %s compared\n\n", listed(r.Plan.Designs))
	fmt.Fprintf(&b, "Made on %s by `%s` in %.0f s, %s.\nDesigns ran as %s; the load generator ran on the same machine.\n\n",
		r.StartedAt.Format(time.DateOnly), r.Command, r.Seconds, r.Version, r.How)
	fmt.Fprintf(&b, "## Environment\n\n| | |\n|---|---|\n%s\n\n", strings.Join(r.Environment.lines(), "\n"))
	b.WriteString("## Conclusions\n\n")
	for _, c := range r.conclusions() {
		fmt.Fprintf(&b, "- %s\n", c)
	}
	b.WriteString("\n## Analysis\n\nWhat each design pays for, and what it buys with that.\n\n")
	for _, a := range r.analysis() {
		fmt.Fprintf(&b, "- %s\n", a)
	}
	r.method(&b)
	r.tables(&b)
	b.WriteString("## Plots\n\nPoints are medians of the repetitions, bars reach from the lowest to the highest.\n\n")
	for _, c := range r.charts() {
		fmt.Fprintf(&b, "![%s](plots/%s.svg)\n\n", c.title, c.name)
	}
	b.WriteString("## Files\n\n`results.json` has every repetition, `table.csv` a line per repetition and method, `raw/` every request and every job of the measured time (gzip), `plots/` each plot as SVG and PNG.\n")
	return b.String()
}

// listed returns "A, B and C".
func listed(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return strings.Join(names, "")
}

// durable says what design C consists of, and when it answers a submit.
func (r *Results) durable() string {
	if r.How == Containers {
		return fmt.Sprintf("%d servers and PostgreSQL, answers a submit once PostgreSQL has the job on stable storage.", composeServers)
	}
	return "one server, answers a submit once the job is on stable storage."
}

// method describes how the numbers were measured.
func (r *Results) method(b *strings.Builder) {
	p := r.Plan
	b.WriteString("\n## Method\n\nThe settings are the same for every design; `settings.env` has the whole of them, and `gqlab compare --settings` reads it.\n\n")
	fmt.Fprintf(b, "| setting | value |\n|---|---|\n| worker slots in total | %d |\n| repetitions of each cell | %d |\n| warm-up, then measured | %v, %v |\n| wait for jobs to end after that | up to %v |\n| output of a job | %d bytes |\n| client connections in total | %d |\n| seed | %d |\n\n",
		p.Slots, p.Repetitions, p.Warmup, p.Duration, p.Drain, p.Payload, p.Connections, p.Seed)
	fresh := "Each measurement got a design that was started for it. The designs took turns: each cell was measured of all of them before the next one, and each time another one began."
	if !p.Relaunch {
		fresh = "In each repetition one start of a design served all its measurements. The designs took turns, and in each repetition another one began."
	}
	for _, line := range []string{
		fresh,
		"Submits go to the gateway (A), to the nodes in turn (B) or to the server (C); calls about a job go to the gateway, to the job's owner or to the server.",
		"Designs A and B keep everything in memory and lose it with the process. Design C, " + r.durable() + " An idle worker of A asks for work every 200 ms, since no call of the frozen set can wake it; a slot of B or C is woken.",
		"Cells show the median of the repetitions and, in brackets, the lowest and the highest. Where the ranges of two designs overlap, no difference is shown.",
		fmt.Sprintf("In a closed loop a client waits for its answer before it goes on. So that the backlog stays finite, at most as many jobs are open as the slots work off in %v, and at most %d; above that GetJobStatus replaces SubmitJob, and the table of jobs counts how often. Where that happens, submit to done is about the number of open jobs divided by jobs/s: it says how fast the backlog moves, and nothing beyond jobs/s. GetJobStatus and GetJobResult ask for the oldest open jobs; if there are none a SubmitJob replaces them.", p.Backlog, p.MaxBacklog),
		"In an open loop requests are due at a fixed rate, and latency counts from then, whether or not the request could be made.",
		fmt.Sprintf("A rate is kept if at least %.0f %% of it is answered without error within the measured time, and if the 99th percentiles of the three calls and of submit to done are at most %v. Rates double from %.0f requests/s until one is not kept, then the one between is tried; each is about 1.4 times the one before. Later repetitions begin at what the first one found.", 100*achieved, p.Limit, p.Rate),
		fmt.Sprintf("Rates per second count what was answered or done within the measured time. Latencies are of all requests due, and of all jobs submitted, in that time, whenever they ended. A job that has not ended %v after the load is censored: it counts with the time it had taken by then. Failed and lost jobs, and requests that failed or could not be sent, count as slower than all others. A figure that such a job or request decides is a lower bound and is marked ≥.", p.Drain),
		"Submit to done is by the service's own clock, in an open loop plus how late the submit was sent.",
		"`ListJobs` is not measured: in design B it answers for one node alone.",
	} {
		fmt.Fprintf(b, "- %s\n", line)
	}
	b.WriteString("\n")
}

func (r *Results) tables(b *strings.Builder) {
	closed, open := r.cells()
	all := slices.Concat(closed, open)
	r.table(b, "Throughput and completion", "Done is submit to done in milliseconds.", closed,
		requestsPerSecond, jobsPerSecond, named(doneP50, "done p50"), named(latency("", 0, doneOf, p95), "done p95"), named(doneP99, "done p99"))
	r.latencies(b, closed)
	r.openTables(b, open)
	r.jobs(b, all)
}

func named(m metric, name string) metric {
	m.name = name
	return m
}

func (r *Results) table(b *strings.Builder, title, note string, cells []Cell, metrics ...metric) {
	fmt.Fprintf(b, "## %s\n\n%s\n\n| loop | work | mix | design |", title, note)
	for _, m := range metrics {
		fmt.Fprintf(b, " %s |", m.name)
	}
	fmt.Fprintf(b, "\n|---|---|---|---|%s\n", strings.Repeat("---:|", len(metrics)))
	r.lines(b, cells, func(d string, cell Cell) (columns []string) {
		for _, m := range metrics {
			columns = append(columns, r.figure(d, cell, m).text(m.digits))
		}
		return columns
	})
}

// lines writes a line for every measured cell of every design.
func (r *Results) lines(b *strings.Builder, cells []Cell, columns func(design string, cell Cell) []string) {
	for _, cell := range cells {
		for _, d := range r.Plan.Designs {
			if len(r.repetitions(d, cell)) > 0 {
				fmt.Fprintf(b, "| %s | %v | %s | %s | %s |\n", cell.loop(), cell.Work, cell.mix(), d, strings.Join(columns(d, cell), " | "))
			}
		}
	}
	b.WriteString("\n")
}

func (r *Results) latencies(b *strings.Builder, cells []Cell) {
	fmt.Fprintf(b, "## Latency\n\nMilliseconds: p50 / p95 / p99.\n\n| loop | work | mix | design | %s |\n|---|---|---|---|---:|---:|---:|\n", strings.Join(load.MethodNames(), " | "))
	r.lines(b, cells, func(d string, cell Cell) (columns []string) {
		for _, method := range load.MethodNames() {
			var texts []string
			for _, at := range []func(load.Latency) float64{p50, p95, p99} {
				texts = append(texts, r.figure(d, cell, latency("", 2, methodOf(method), at)).text(2))
			}
			columns = append(columns, strings.Join(texts, " / "))
		}
		return columns
	})
}

func (r *Results) openTables(b *strings.Builder, cells []Cell) {
	if len(cells) == 0 {
		return
	}
	b.WriteString("## Open loop\n\nThe highest rate kept and the lowest not kept, of each search.\n\n| design | repetition | kept | not kept | why not |\n|---|---:|---:|---:|---|\n")
	for _, d := range r.Plan.Designs {
		for _, l := range r.Limits {
			if l.Design == d {
				fmt.Fprintf(b, "| %s | %d | %s | %s | %s |\n", d, l.Repetition, rateText(l.Kept, "none"), rateText(l.NotKept, "none offered"), l.Why)
			}
		}
	}
	b.WriteString("\n")
	r.table(b, "Rates offered", "What was answered within the measured time, and latencies in milliseconds.", cells,
		named(requestsPerSecond, "answered/s"), jobsPerSecond, named(latency("", 2, submitOf, p50), "SubmitJob p50"), named(submitP99, "SubmitJob p99"),
		named(latency("", 2, methodOf(load.Status.String()), p99), "GetJobStatus p99"), named(latency("", 2, methodOf(load.Result.String()), p99), "GetJobResult p99"), named(doneP50, "done p50"), named(doneP99, "done p99"))
}

func rateText(rate float64, zero string) string {
	if rate == 0 {
		return zero
	}
	return fmt.Sprintf("%.0f/s", rate)
}

func (r *Results) jobs(b *strings.Builder, cells []Cell) {
	b.WriteString("## What became of the jobs\n\nJobs submitted in the measured time, all repetitions together: accepted = done in time + done after + failed + lost + censored. Canceled are those of the censored ones that the generator canceled. Held back are submits that a GetJobStatus replaced since the backlog was full; unsent are requests of an open loop that were due and never made.\n\n")
	b.WriteString("| loop | work | mix | design | accepted | done in time | done after | failed | lost | censored | canceled | held back | errors | unsent | wrong answers |\n|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	r.lines(b, cells, func(d string, cell Cell) (columns []string) {
		a := accountOf(r.repetitions(d, cell))
		for _, n := range []int{a.accepted, a.inWindow, a.after, a.failed, a.lost, a.censored, a.cancel, a.heldBack, a.errors, a.unsent, a.wrong} {
			columns = append(columns, fmt.Sprint(n))
		}
		return columns
	})
}

func (c Cell) loop() string {
	if c.Rate > 0 {
		return fmt.Sprintf("open %g/s", c.Rate)
	}
	return fmt.Sprintf("closed %d", c.Concurrency)
}

func (c Cell) mix() string { return fmt.Sprintf("%d/%d/%d", c.Mix.Submit, c.Mix.Status, c.Mix.Result) }
