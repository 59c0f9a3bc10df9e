package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/storeurl"
)

const benchScaleLong = `Measure how the cost of a job changes as a store grows, embedded or on
PostgreSQL. One number grows at a time, tenfold from step to step, each step in
a new store. Once it has been reached, a few callers submit jobs in batches,
claim and complete them, and the store's counts must then be right.

Axes (--axis), with the largest size unless --max says otherwise:
  backlog  jobs queued in the queue that is measured          1,000,000
  history  jobs completed before; measuring adds more         1,000,000
  workers  workers that wait for single jobs, on one engine      10,000
  queues   queues, each with a job; a call is about one         100,000
  keys     limit keys, each with a queued job                   100,000
  graph    jobs that another one waits for                        1,000

All of it takes about five minutes on two cores. Larger sizes only run if asked
for: --max backlog=10000000,history=100000000,keys=1000000. On PostgreSQL the
jobs of a history beyond a million are copies, made by the database, without
their events; an embedded store completes every one of them.

Columns:
  size          how far the number has grown
  load s        the time that took
  jobs/s        jobs per second that passed through the store then
  CPU µs/job    CPU time of this process, that of the callers included
  server µs/job CPU time of the database server, if it is on this machine
  WAL B/job     bytes of write-ahead log that the database server wrote
  claim ms      latency of the claiming calls, median, 95th and 99th percentile
  heap MiB      live Go heap that the growth has added
  B each        the same in bytes, for each unit of the size
  RSS MiB       largest resident memory seen while jobs passed through
  disk MiB      bytes on disk once the size was reached
  others        CPU time of the machine that other processes used, in percent

A dash stands for what cannot be measured on this system. --svg draws a file for
each axis. On PostgreSQL each step has a database of its own, made for it and
dropped after it.`

const benchScaleExample = `  gq bench scale                                    a fresh temporary directory, about five minutes
  gq bench scale --axis backlog,history --svg plots
  gq bench scale --store postgres://localhost/postgres --json > scale.json
  gq bench scale --axis history --max history=100000000`

type benchScaleFlags struct {
	bench.ScaleSettings
	store string
	axes  []string
	max   map[string]int
	json  bool
	svg   string
}

func newBenchScale(p process) *cobra.Command {
	f := benchScaleFlags{ScaleSettings: bench.DefaultScale()}
	var all []string
	for _, a := range bench.Axes() {
		all = append(all, string(a))
	}
	c := &cobra.Command{
		Use:     "scale",
		Short:   "Measure the cost of a job as a store grows",
		Long:    benchScaleLong,
		Example: benchScaleExample,
		Args:    cli.NoArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), p) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.store, "store", "", "store to measure: "+storeurl.Forms+" (default a temporary directory)")
	flags.StringSliceVar(&f.axes, "axis", all, "what grows")
	flags.StringToIntVar(&f.max, "max", nil, "largest size of an axis, as axis=N, several with commas")
	flags.DurationVar(&f.Duration, "duration", f.Duration, "how long jobs pass through the store at each step")
	flags.IntVar(&f.Callers, "callers", f.Callers, "concurrent callers")
	flags.IntVar(&f.Batch, "batch", f.Batch, "jobs per call")
	flags.IntVar(&f.Payload, "payload", f.Payload, "bytes of payload per job")
	flags.BoolVar(&f.json, "json", false, "print one JSON object instead of tables")
	flags.StringVar(&f.svg, "svg", "", "draw the curves into this directory, one file for each axis")
	return c
}

// check checks the flags and reports every fault.
func (f *benchScaleFlags) check() (u storeurl.URL, err error) {
	f.Axes, f.Max = nil, make(map[bench.Axis]int)
	for _, a := range f.axes {
		f.Axes = append(f.Axes, bench.Axis(a))
	}
	for a, n := range f.max {
		f.Max[bench.Axis(a)] = n
	}
	if f.store != "" {
		u, err = storeurl.Parse(f.store)
	}
	if faults := append(errs.FaultsOf(err), errs.FaultsOf(f.Validate())...); len(faults) > 0 {
		return u, &gq.InvalidError{Faults: faults}
	}
	return u, nil
}

func (f *benchScaleFlags) run(ctx context.Context, p process) (err error) {
	u, err := f.check()
	if err != nil {
		return err
	}
	if f.svg != "" {
		if err := os.MkdirAll(f.svg, 0o750); err != nil {
			return err
		}
	}
	place, err := openBenchPlace(u, p.getenv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	line := newProgress(p.stderr)
	start := time.Now()
	f.Progress = func(done, total int, what string) {
		line.show("%d/%d  %s  (%s so far)", done+1, total, what, time.Since(start).Round(time.Second))
	}
	report, err := bench.Scale(ctx, place, f.ScaleSettings)
	line.clear()
	if err != nil {
		return err
	}
	report.Version, report.Store = version(), place.String()
	for _, a := range report.Axes {
		if f.svg == "" {
			break
		}
		if err := os.WriteFile(filepath.Join(f.svg, string(a.Axis)+".svg"), a.SVG(), 0o600); err != nil {
			return err
		}
	}
	if f.json {
		encoder := json.NewEncoder(p.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return writeScale(p.stdout, &report)
}

// writeScale prints a report for people.
func writeScale(w io.Writer, r *bench.ScaleReport) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s, %s\n", r.Version, quantity.Of(r.Cores, "core"), r.Store)
	fmt.Fprintf(&b, "%s, batches of %d, payload %s bytes\n", quantity.Of(r.Callers, "caller"), r.Batch, grouped(float64(r.Payload)))
	for _, a := range r.Axes {
		fmt.Fprintf(&b, "\n%s\n", a.Axis)
		writeRows(&b, a.Steps, scaleColumns())
	}
	_, err := w.Write(b.Bytes())
	return err
}

func scaleColumns() []column[bench.ScaleStep] {
	type step = bench.ScaleStep
	return []column[step]{
		{"size", "", func(s step) string { return grouped(float64(s.Size)) }},
		{"load", "s", func(s step) string { return brief(s.LoadSeconds) }},
		{"jobs/s", "", func(s step) string { return grouped(s.JobsPerSecond) }},
		{"CPU", "µs/job", func(s step) string { return known(s.CPU, brief) }},
		{"server", "µs/job", func(s step) string { return known(s.ServerCPU, brief) }},
		{"WAL", "B/job", func(s step) string { return known(s.WALBytes, grouped) }},
		{"claim ms", "p50/p95/p99", func(s step) string { return percentiles(s.Claim) }},
		{"heap", "MiB", func(s step) string { return mebibytes(s.LiveHeap) }},
		{"B", "each", func(s step) string { return grouped(s.HeapPerUnit) }},
		{"RSS", "MiB", func(s step) string { return known(s.RSS, mebibytes) }},
		{"disk", "MiB", func(s step) string { return known(s.DiskBytes, mebibytes) }},
		{"others", "CPU %", func(s step) string { return known(s.OthersCPU, grouped) }},
	}
}
