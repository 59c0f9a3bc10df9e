package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq/internal/load"
)

// Markdown is the report for people. Every sentence with a number in it is
// computed from the rows.
func (r *Results) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Task queue: designs %s compared\n\n", listed(r.Plan.Designs))
	fmt.Fprintf(&b, "Made on %s by `%s` in %.0f s, %s.\n%d cores, %s/%s, %s. Designs ran as %s; the load generator ran on the same machine.\n",
		r.StartedAt.Format(time.DateOnly), r.Command, r.Seconds, r.Version, r.Cores, r.OS, r.Arch, r.GoVersion, r.How)
	if r.Load != "" {
		fmt.Fprintf(&b, "Load average before the run: %s. Above a half, others were using the machine, and small differences mean nothing.\n", r.Load)
	}
	b.WriteString("\n")
	b.WriteString("## Conclusions\n\n")
	for _, c := range r.conclusions() {
		fmt.Fprintf(&b, "- %s\n", c)
	}
	b.WriteString("\n## Settings\n\nThe same for every design; the whole of them is in `settings.json`.\n\n")
	fmt.Fprintf(&b, "| setting | value |\n|---|---|\n| worker slots in total | %d |\n| warm-up, then measured | %v, %v |\n| output of a job | %d bytes |\n| client connections in total | %d |\n| seed | %d |\n\n",
		r.Plan.Slots, r.Plan.Warmup, r.Plan.Duration, r.Plan.Payload, r.Plan.Connections, r.Plan.Seed)
	b.WriteString("Submits go to the gateway (A), to the nodes in turn (B) or to the server (C); calls about a job go to the gateway, to the job's owner or to the server.\nDesigns A and B keep everything in memory and lose it with the process. Design C, one server, answers a submit once the job is on stable storage.\nIn a closed loop a client waits for its answer before it goes on. In an open loop requests are due at a fixed rate and latency counts from then, whether or not the request could be made.\n`ListJobs` is not measured: in design B it answers for one node alone.\n\n")
	r.tables(&b)
	b.WriteString("## Plots\n\n")
	for _, c := range r.charts() {
		fmt.Fprintf(&b, "![%s](plots/%s.svg)\n\n", c.title, c.name)
	}
	b.WriteString("## Files\n\n`results.json` has everything above, `table.csv` a line per measurement and method, `raw/` every request and every job that ended (gzip), `plots/` each plot as SVG and PNG.\n")
	return b.String()
}

// listed is "A, B and C".
func listed(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return strings.Join(names, "")
}

func (r *Results) tables(b *strings.Builder) {
	b.WriteString("## Throughput and completion\n\nDONE within the measured time, submit to done by the service's own clock.\n\n")
	b.WriteString("| design | loop | work | mix | req/s | jobs/s | done p50 ms | p95 | p99 | jobs accepted | errors |\n|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, row := range r.Rows {
		e, failed := row.Jobs.EndToEnd, 0
		for _, m := range row.Methods {
			for _, n := range m.Errors {
				failed += n
			}
		}
		fmt.Fprintf(b, "| %s | %s | %v | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %d | %d |\n", row.Design, row.Cell.loop(), row.Cell.Work, row.Cell.mix(),
			row.PerSecond, row.Jobs.PerSecond, e.P50, e.P95, e.P99, row.Jobs.Accepted, failed)
	}
	b.WriteString("\n## Latency\n\nMilliseconds of answers without error: p50 / p95 / p99.\n\n| design | loop | work | mix |")
	for _, m := range load.MethodNames() {
		fmt.Fprintf(b, " %s |", m)
	}
	b.WriteString("\n|---|---|---|---|---:|---:|---:|\n")
	for _, row := range r.Rows {
		fmt.Fprintf(b, "| %s | %s | %v | %s |", row.Design, row.Cell.loop(), row.Cell.Work, row.Cell.mix())
		for _, m := range load.MethodNames() {
			l := row.Methods[m].Latency
			fmt.Fprintf(b, " %.2f / %.2f / %.2f |", l.P50, l.P95, l.P99)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (c Cell) loop() string {
	if c.Rate > 0 {
		return fmt.Sprintf("open %g/s", c.Rate)
	}
	return fmt.Sprintf("closed %d", c.Concurrency)
}

func (c Cell) mix() string { return fmt.Sprintf("%d/%d/%d", c.Mix.Submit, c.Mix.Status, c.Mix.Result) }

// conclusions are sentences that the rows support.
func (r *Results) conclusions() (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	found = append(found, r.correctness())
	first, last := r.Plan.Concurrency[0], slices.Max(r.Plan.Concurrency)
	base := Cell{Work: r.Plan.Work[0], Mix: r.Plan.Mixes[0]}
	for _, d := range r.Plan.Designs {
		low, best := r.row(d, base.with(first)), r.best(d, base)
		say("Design %s answers %.0f requests/s to %d client(s) and at most %.0f, to %d: %.1f times as many.",
			d, low.PerSecond, first, best.PerSecond, best.Cell.Concurrency, best.PerSecond/max(low.PerSecond, 1))
	}
	for i := 1; i < len(r.Plan.Designs); i++ {
		r.pair(r.Plan.Designs[i-1], r.Plan.Designs[i], base, first, last, say)
	}
	for _, work := range r.Plan.Work {
		if work > 0 {
			r.saturation(work, say)
		}
	}
	r.open(say)
	if f := r.Floor; f != nil {
		say("One monolith takes %.0f submits/s from %d clients, a bare gRPC server that does nothing %.0f: %.0f %% (the aim is 70 %%).", f.Node, f.Clients, f.Echo, 100*f.Ratio)
	}
	say("Everything shares %d cores, so these numbers compare CPU time per request. They say nothing about networks or about more machines.", r.Cores)
	return found
}

func (r *Results) correctness() string {
	answers, violations, accepted, ended, lost := 0, 0, 0, 0, 0
	for _, row := range r.Rows {
		for _, m := range row.Methods {
			answers += m.Requests
		}
		violations += row.Violations
		accepted += row.Jobs.Accepted
		ended += row.Jobs.Done + row.Jobs.Failed + row.Jobs.Canceled
		lost += row.Jobs.Lost + row.Jobs.Unfinished
	}
	return fmt.Sprintf("%d answers were measured and every one checked: %d were wrong. Of %d accepted jobs %d were followed to their end and result, %d were not accounted for.",
		answers, violations, accepted, ended, lost)
}

// pair compares two designs in the base cells.
func (r *Results) pair(a, b string, base Cell, first, last int, say func(string, ...any)) {
	for _, n := range []int{first, last} {
		x, y := r.row(a, base.with(n)), r.row(b, base.with(n))
		say("With %d client(s) %s answers %.2f times as many requests/s as %s; the 99th percentile of SubmitJob is %.2f ms on %s and %.2f ms on %s.",
			n, b, y.PerSecond/max(x.PerSecond, 1), a, submitOf(x).P99, a, submitOf(y).P99, b)
	}
	x, y := r.row(a, base.with(first)), r.row(b, base.with(first))
	if a == "A" && b == "B" {
		say("An unloaded SubmitJob takes %.2f ms on A and %.2f ms on B in the median. A's gateway makes two calls to other processes, one after the other, that B makes as function calls: %.2f ms per hop. Running a job costs A eight more (fetch, dequeue, start, read; report, read, store, end), B none.",
			submitOf(x).P50, submitOf(y).P50, max(0, submitOf(x).P50-submitOf(y).P50)/2)
		say("Submit to done takes %.0f ms on %s and %.0f ms on %s in the median with %d client(s): an idle worker of A asks again every 200 ms, since no call of the frozen set can wake it, and a slot of B is woken in its own process.",
			x.Jobs.EndToEnd.P50, a, y.Jobs.EndToEnd.P50, b, first)
	}
	if b == "C" {
		many := r.row(b, base.with(last))
		say("An unloaded SubmitJob takes %.2f ms on C and %.2f ms on %s in the median: C answers once the job is on stable storage. Clients share such waits: %d of them get %.0f submits/s from C, %d get %.0f.",
			submitOf(y).P50, submitOf(x).P50, a, last, submits(many), first, submits(y))
	}
}

func submits(row Row) float64 { return row.Methods[load.Submit.String()].PerSecond }

// saturation tells how much of the slots the designs use.
func (r *Results) saturation(work time.Duration, say func(string, ...any)) {
	limit := float64(r.Plan.Slots) / work.Seconds()
	for _, d := range r.Plan.Designs {
		most := 0.0
		for _, row := range r.Rows {
			if row.Design == d && row.Cell.Work == work {
				most = max(most, row.Jobs.PerSecond)
			}
		}
		say("With jobs of %v, %d slots allow %.0f jobs/s; design %s reaches %.0f, %.0f %%.", work, r.Plan.Slots, limit, d, most, 100*most/limit)
	}
}

// keptUp is the share of the offered requests that must be answered in time.
const keptUp = 0.97

// open tells up to which offered load the designs keep up.
func (r *Results) open(say func(string, ...any)) {
	if len(r.Plan.Rates) == 0 {
		return
	}
	for _, d := range r.Plan.Designs {
		most, at := 0.0, load.Latency{}
		for _, row := range r.Rows {
			if row.Design == d && row.Cell.Rate > most && row.PerSecond >= keptUp*row.Cell.Rate {
				most, at = row.Cell.Rate, submitOf(row)
			}
		}
		say("In the open loop design %s keeps up with %.0f requests/s of those offered (%v), with a 99th percentile of SubmitJob of %.1f ms from when it was due.", d, most, r.Plan.Rates, at.P99)
	}
}

func submitOf(row Row) load.Latency { return row.Methods[load.Submit.String()].Latency }

func (c Cell) with(clients int) Cell {
	c.Concurrency = clients
	return c
}

// row returns the row of a cell. The plan says that there is one.
func (r *Results) row(design string, cell Cell) Row {
	for _, row := range r.Rows {
		if row.Design == design && row.Cell == cell {
			return row
		}
	}
	return Row{Report: &load.Report{}}
}

// best is the row of most requests among those that differ in clients only.
func (r *Results) best(design string, base Cell) Row {
	best := Row{Report: &load.Report{}}
	for _, n := range r.Plan.Concurrency {
		if row := r.row(design, base.with(n)); row.PerSecond > best.PerSecond {
			best = row
		}
	}
	return best
}
