package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/internal/quantity"
)

// writeBench prints a report for people.
func writeBench(w io.Writer, r *bench.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s, %s\n", r.Version, quantity.Of(r.Cores, "core"), r.Store)
	fmt.Fprintf(&b, "payload %s bytes, audit events on, every answer after its commit was synced", grouped(float64(r.Settings.Payload)))
	if r.Settings.Repeat > 1 {
		fmt.Fprintf(&b, ", median of %d runs", r.Settings.Repeat)
	}
	b.WriteString("\n")
	if len(r.Cycle) > 0 {
		b.WriteString("\ncycle: submit, claim, complete\n")
		writeRows(&b, r.Cycle, rowColumns(true))
	}
	if len(r.Enqueue) > 0 {
		b.WriteString("\nenqueue: submit alone\n")
		writeRows(&b, r.Enqueue, rowColumns(false))
	}
	if r.Backlog != nil {
		writeBacklog(&b, r.Backlog)
	}
	if len(r.Filter) > 0 {
		writeFilter(&b, r.Filter)
	}
	if r.Idle != nil {
		writeIdle(&b, r.Idle)
	}
	if r.Worker != nil {
		writeWorker(&b, r.Worker)
	}
	if r.Server != nil {
		writeServer(&b, r.Server)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// column is one column of a table: two heading lines and the values.
type column[T any] struct {
	head, unit string
	cell       func(T) string
}

func rowColumns(whole bool) []column[bench.Row] {
	type row = bench.Row
	columns := []column[row]{
		{"callers", "", func(r row) string { return strconv.Itoa(r.Callers) }},
		{"batch", "", func(r row) string { return strconv.Itoa(r.Batch) }},
		{"jobs", "", func(r row) string { return grouped(float64(r.Jobs)) }},
		{"jobs/s", "", func(r row) string { return grouped(r.JobsPerSecond) }},
		{"floor", "jobs/s", func(r row) string { return known(r.FloorJobsPerSecond, grouped) }},
		{"ratio", "", func(r row) string { return known(r.Ratio, ratio) }},
		{"enqueue ms", "p50/p95/p99", func(r row) string { return percentiles(r.Enqueue) }},
	}
	if whole {
		columns = append(columns,
			column[row]{"claim ms", "p50/p95/p99", func(r row) string { return percentiles(r.Claim) }},
			column[row]{"complete ms", "p50/p95/p99", func(r row) string { return percentiles(r.Complete) }})
	}
	return append(columns,
		column[row]{"commits", "/job", func(r row) string { return known(r.Commits, brief) }},
		column[row]{"fsyncs", "/job", func(r row) string { return known(r.Syncs, brief) }},
		column[row]{"events", "/job", func(r row) string { return brief(r.Events) }},
		column[row]{"disk B", "/job", func(r row) string { return known(r.DiskBytes, grouped) }},
		column[row]{"CPU µs", "/job", func(r row) string { return known(r.CPU, brief) }},
		column[row]{"floor µs", "/job", func(r row) string { return known(r.FloorCPU, brief) }},
		column[row]{"RSS", "MiB", func(r row) string { return known(r.RSS, mebibytes) }},
		column[row]{"heap", "MiB", func(r row) string { return mebibytes(r.LiveHeap) }},
		column[row]{"others", "CPU %", func(r row) string { return known(r.OthersCPU, grouped) }},
	)
}

// writeRows prints a table with all columns right-aligned.
func writeRows[T any](w io.Writer, rows []T, columns []column[T]) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cell func(column[T]) string) {
		for _, c := range columns {
			fmt.Fprint(t, cell(c), "\t")
		}
		fmt.Fprintln(t)
	}
	line(func(c column[T]) string { return c.head })
	line(func(c column[T]) string { return c.unit })
	for _, r := range rows {
		line(func(c column[T]) string { return c.cell(r) })
	}
	_ = t.Flush() // writing to memory
}

func writeBacklog(w io.Writer, r *bench.BacklogResult) {
	type row = bench.BacklogCycle
	fmt.Fprintf(w, "\nbacklog: the cycle with %s jobs queued and with none\n", grouped(float64(r.Jobs)))
	writeRows(w, r.Cycles, []column[row]{
		{"callers", "", func(c row) string { return strconv.Itoa(c.Callers) }},
		{"batch", "", func(c row) string { return strconv.Itoa(c.Batch) }},
		{"without", "jobs/s", func(c row) string { return grouped(c.Without) }},
		{"with", "jobs/s", func(c row) string { return grouped(c.With) }},
		{"ratio", "", func(c row) string { return ratio(c.Ratio) }},
		{"without", "CPU µs/job", func(c row) string { return known(c.CPUWithout, brief) }},
		{"with", "CPU µs/job", func(c row) string { return known(c.CPUWith, brief) }},
	})
	seconds := func(s float64) string { return fmt.Sprintf("%.2f s", s) }
	fmt.Fprintf(w, "  live heap per queued job  %s bytes\n", grouped(r.HeapPerJob))
	fmt.Fprintf(w, "  disk per queued job       %s bytes\n", known(r.DiskPerJob, grouped))
	fmt.Fprintf(w, "  fill                      %s jobs/s\n", grouped(r.FillJobsPerSecond))
	fmt.Fprintf(w, "  close, open again         %s, %s\n", known(r.CloseSeconds, seconds), known(r.ReopenSeconds, seconds))
	fmt.Fprintf(w, "  drain                     %s jobs/s with %s and batches of %d; first tenth %s, last tenth %s, ratio %s\n",
		grouped(r.DrainJobsPerSecond), quantity.Of(r.DrainCallers, "caller"), r.DrainBatch,
		grouped(r.DrainFirstPerSecond), grouped(r.DrainLastPerSecond), ratio(r.DrainLastPerSecond/r.DrainFirstPerSecond))
	fmt.Fprintf(w, "  CPU used by others        %s %%\n", known(r.OthersCPU, grouped))
}

func writeFilter(w io.Writer, rows []bench.FilterRow) {
	type row = bench.FilterRow
	fmt.Fprintf(w, "\nfilter: single claims that pass over %s jobs that do not match, and over none\n", grouped(float64(rows[0].Ahead)))
	writeRows(w, rows, []column[row]{
		{"filter by", "", func(r row) string { return r.Filter }},
		{"callers", "", func(r row) string { return strconv.Itoa(r.Callers) }},
		{"without", "claims/s", func(r row) string { return grouped(r.Without) }},
		{"with", "claims/s", func(r row) string { return grouped(r.With) }},
		{"ratio", "", func(r row) string { return ratio(r.Ratio) }},
		{"without", "CPU µs/claim", func(r row) string { return known(r.CPUWithout, brief) }},
		{"with", "CPU µs/claim", func(r row) string { return known(r.CPUWith, brief) }},
		{"without ms", "p50/p95/p99", func(r row) string { return percentiles(r.ClaimWithout) }},
		{"with ms", "p50/p95/p99", func(r row) string { return percentiles(r.ClaimWith) }},
	})
}

func writeIdle(w io.Writer, r *bench.IdleResult) {
	percent := func(p float64) string { return fmt.Sprintf("%.2f %%", p) }
	fmt.Fprintf(w, "\nidle: CPU time in percent of one core, over %.1f s\n", r.Seconds)
	fmt.Fprintf(w, "  store                     %s with %s queued and %s delayed jobs\n",
		known(r.CPU, percent), grouped(float64(r.Queued)), grouped(float64(r.Delayed)))
	fmt.Fprintf(w, "  no store                  %s\n", known(r.Baseline, percent))
}

func writeWorker(w io.Writer, r *bench.WorkerResult) {
	fmt.Fprintf(w, "\nworker: submit, handler, complete through engine and worker\n")
	fmt.Fprintf(w, "  bare store cycle          %s jobs/s (%s, single calls, %s CPU µs/job)\n", grouped(r.BareJobsPerSecond), quantity.Of(r.Callers, "caller"), known(r.BareCPU, brief))
	fmt.Fprintf(w, "  with a worker             %s jobs/s (%s, %s, %s CPU µs/job), ratio %s\n", grouped(r.JobsPerSecond), quantity.Of(r.Callers, "caller submits", "callers submit"), quantity.Of(r.Callers, "slot"), known(r.CPU, brief), ratio(r.Ratio))
	fmt.Fprintf(w, "  submit to handler, idle   %s ms p50/p95/p99, of which the submission %s\n", percentiles(r.ToStart), percentiles(r.Commit))
	fmt.Fprintf(w, "  heartbeats                %s commits/s for %s running jobs with leases of %s s\n", known(r.HeartbeatCommits, brief), grouped(float64(r.HeartbeatJobs)), brief(r.HeartbeatTTL))
	for _, g := range r.Graphs {
		fmt.Fprintf(w, "  %-25s %s µs a job (%s jobs in %.3f s)\n", g.Shape, grouped(g.PerJob), grouped(float64(g.Jobs)), g.Seconds)
	}
}

func writeServer(w io.Writer, r *bench.ServerResult) {
	fmt.Fprintf(w, "\nserver: over the network, beside what it is compared with\n")
	fmt.Fprintf(w, "  worker in this process    %s jobs/s (submitted in batches of %d, %s)\n", grouped(r.NearJobsPerSecond), r.Batch, quantity.Of(r.Slots, "slot"))
	fmt.Fprintf(w, "  on the Work stream        %s jobs/s, ratio %s\n", grouped(r.JobsPerSecond), ratio(r.Ratio))
	fmt.Fprintf(w, "  bare gRPC echo            %s calls/s (%s), %s ms p50/p95/p99\n", grouped(r.EchoCallsPerSecond), quantity.Of(r.Callers, "caller"), percentiles(r.Echo))
	fmt.Fprintf(w, "  unary submit              %s calls/s, %s ms, ratio %s\n", grouped(r.SubmitCallsPerSecond), percentiles(r.Submit), ratio(r.SubmitRatio))
	fmt.Fprintf(w, "  submit to handler, idle   %s ms p50/p95/p99, of which the submission %s\n", percentiles(r.ToStart), percentiles(r.ToStartSubmit))
}

// known formats a measurement, or a dash if there is none.
func known[T any](value *T, format func(T) string) string {
	if value == nil {
		return "-"
	}
	return format(*value)
}

// grouped formats a whole number with thousands separators.
func grouped(value float64) string {
	digits := strconv.FormatFloat(value, 'f', 0, 64)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// brief formats a number with three significant digits, or all before the point.
func brief(value float64) string {
	switch {
	case value >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	case value >= 1:
		return strconv.FormatFloat(value, 'f', 2, 64)
	case value >= 0.01 || value == 0:
		return strconv.FormatFloat(value, 'f', 3, 64)
	default:
		return strconv.FormatFloat(value, 'f', 5, 64)
	}
}

func ratio(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) }

func mebibytes(value int64) string { return strconv.FormatInt(value>>20, 10) }

func percentiles(l *bench.Latency) string {
	if l == nil {
		return "-"
	}
	return brief(l.P50) + "/" + brief(l.P95) + "/" + brief(l.P99)
}
