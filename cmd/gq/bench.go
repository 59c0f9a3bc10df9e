package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/storeurl"
)

const benchLong = `Measure a store, embedded or on PostgreSQL, in this process: callers submit,
claim and complete jobs, every answer comes after its commit was synced, audit
events are on.

A row of the table is a number of concurrent callers and a number of jobs per
call. Each caller repeats: submit a batch of jobs, claim as many from the queue
that all callers share, complete what it got. At the end the store's counts must
say that every job was completed exactly once; if not, the command fails.

Beside each row stands its floor: the commits of that very run, recorded byte by
byte, written again to an empty Pebble database with the store's settings, one
after the other, each synced, by a loop that does nothing else. The floor is
what the disk and the database allow; the ratio is how much of it the store
delivers. A store can come out above 1, since it prepares a commit while the
last one syncs and the floor does not.

Columns:
  callers       goroutines that call the store at the same time
  batch         jobs in each call; 1 is a single call
  jobs          jobs that went through the whole cycle in this row
  jobs/s        those jobs divided by the time from first call to last answer
  floor         the same jobs divided by the time that the floor took
  ratio         jobs/s divided by floor
  enqueue ms    latency of the submitting calls, median, 95th and 99th
                percentile
  claim ms      of the claiming calls, payloads included
  complete ms   of the completing calls; all three in milliseconds, waiting
                included, from all calls of the row, off by less than 1 %
  commits/job   commits written; callers that come together share one
  fsyncs/job    times the disk was waited for, background work included
  events/job    audit events written: submitted, scheduled, started, completed
  disk B/job    bytes on disk at the end, log and finished jobs included;
                payloads are random, so compression does not help
  CPU µs/job    CPU time of the process, that of the callers included
  floor µs/job  CPU time of the process while it wrote the floor
  RSS MiB       largest resident memory seen, without the recorded commits
  heap MiB      live Go heap after a collection at the end, the store still
                open; memory: keeps its files there
  others        CPU time of the machine that other processes used or a
                hypervisor took while the row ran, in percent; above 10
                distrust the row, and compare CPU times rather than rates

A dash stands for what cannot be measured on this system.

Scenarios (--scenario, several with commas, or all):
  cycle    the table above
  enqueue  the same for submitting alone
  backlog  with --backlog jobs queued, and once the work that filling leaves
           behind is done (for at most 5 minutes): the cycle of the most callers
           compared with an empty queue in the same run, live heap and disk per
           queued job, the time to close and to open the store again, and the
           rate of draining it, first tenth against last
  filter   single claims by type, by capability and by cost that have to pass
           over --backlog jobs that do not match, compared with none, with the
           fewest and with the most callers; each is measured for a quarter of
           --duration
  worker   submit, handler, complete through engine and worker with the most
           callers, compared with the bare cycle in the same run; the time from
           submission to handler on an idle queue; commits for the heartbeats of
           10,000 running jobs; chains and fan-ins of two sizes
  server   the same jobs through a server as with engine and worker in this
           process: on the Work stream, and single submits against bare gRPC
           calls; the time from submission to handler on an idle queue. The
           server is this program in another process, or the one at --addr. It
           is not among all
  idle     CPU time of a store with jobs that nobody calls, in percent of one
           core, and the same without a store

With --repeat N everything is measured N times in turn and each row shown is the
run with the median ratio, so that its numbers belong together; --json has the
least and the most too.

The commits of a row are kept in memory for the floor. A row ends early, with a
warning, when --record MiB of them have come together.

The machine should be otherwise idle. If it was not there is a warning on
standard error and in the JSON, where "busy" is true, false, or null if that
cannot be told.

On PostgreSQL each row has a database of its own, made for it and dropped after
it, and no floor.

A given directory must be empty or missing and is left so. Nothing is sent
anywhere but to the server that --addr names. There, jobs of type and queue
"bench" are submitted and run, and kept like any others that have completed.
Give it a --store on the server's disk, or the two sides of the ratio differ in
that.`

const benchExample = `  gq bench                                 a fresh temporary directory, about a minute
  gq bench --store file:/mnt/disk/bench    the disk that counts
  gq bench --store memory:                 no disk: the cost of the code alone
  gq bench --scenario all --json > run.json
  gq bench --server                        through a server, started for that
  gq bench --addr 127.0.0.1:8790           through the one that runs there
  gq bench --callers 512 --duration 20s --repeat 5
  gq bench --callers 512 --cpuprofile cpu.out && go tool pprof -tagfocus part=store cpu.out`

// benchFlags are the flags of a run that package bench does not know.
type benchFlags struct {
	bench.Settings
	store      string
	scenarios  []string
	worker     bool
	server     bool
	addr       string
	recordMiB  int64
	json       bool
	cpuProfile string
}

func newBench(p process) *cobra.Command {
	f := benchFlags{Settings: bench.DefaultSettings()}
	c := &cobra.Command{
		Use:     "bench",
		Short:   "Measure a store on this machine",
		Long:    benchLong,
		Example: benchExample,
		Args:    cli.NoArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), p) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.store, "store", "", "store to measure: "+storeurl.Forms+" (default a temporary directory)")
	flags.StringSliceVar(&f.scenarios, "scenario", []string{string(bench.Cycle)}, "what to measure: cycle, enqueue, backlog, filter, idle, worker, server, or all")
	flags.BoolVar(&f.worker, "worker", false, "short for --scenario worker")
	flags.BoolVar(&f.server, "server", false, "short for --scenario server")
	flags.StringVar(&f.addr, "addr", "", "gRPC address of a running server to measure, with scenario server")
	flags.IntSliceVar(&f.Callers, "callers", f.Callers, "numbers of concurrent callers")
	flags.IntVar(&f.Batch, "batch", f.Batch, "jobs per call in the batched rows")
	flags.IntVar(&f.Payload, "payload", f.Payload, "bytes of payload per job")
	flags.DurationVar(&f.Duration, "duration", f.Duration, "how long each row runs")
	flags.IntVar(&f.Jobs, "jobs", f.Jobs, "jobs per row, instead of a duration, and at most so many in each part of scenario worker")
	flags.IntVar(&f.Backlog, "backlog", f.Backlog, "jobs queued in scenarios backlog and filter")
	flags.DurationVar(&f.Idle, "idle", f.Idle, "how long scenario idle watches")
	flags.IntVar(&f.Repeat, "repeat", f.Repeat, "measure so many times and show the median")
	flags.Int64Var(&f.recordMiB, "record", f.Record>>20, "most MiB of commits to keep in memory for the floor")
	flags.BoolVar(&f.json, "json", false, "print one JSON object instead of tables")
	flags.StringVar(&f.cpuProfile, "cpuprofile", "", "write a CPU profile to this file; its samples carry the tags scenario, row and part (store or floor)")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("jobs") && c.Flags().Changed("duration") {
			return errors.New("--jobs and --duration cannot be combined")
		}
		if c.Flags().Changed("addr") && c.Flags().Changed("server") {
			return errors.New("--addr and --server cannot be combined")
		}
		return nil
	}
	c.AddCommand(newBenchScale(p))
	return c
}

// settle checks the flags and reports every fault.
func (f *benchFlags) settle() (u storeurl.URL, err error) {
	f.Scenarios = nil
	if f.worker {
		f.scenarios = []string{string(bench.Worker)}
	}
	if f.server || f.addr != "" {
		f.scenarios = []string{string(bench.Server)}
	}
	for _, name := range f.scenarios {
		if name == "all" {
			f.Scenarios = append(f.Scenarios, bench.Scenarios()...)
			continue
		}
		f.Scenarios = append(f.Scenarios, bench.Scenario(name))
	}
	slices.Sort(f.Scenarios)
	f.Scenarios = slices.Compact(f.Scenarios)
	f.Record = f.recordMiB << 20
	if f.store != "" {
		u, err = storeurl.Parse(f.store)
	}
	if faults := append(errs.FaultsOf(err), errs.FaultsOf(f.unconnected().Validate())...); len(faults) > 0 {
		return u, &gq.InvalidError{Faults: faults}
	}
	return u, nil
}

// unconnected returns the settings before there is a server to measure.
func (f *benchFlags) unconnected() bench.Settings {
	s := f.Settings
	s.Scenarios = slices.DeleteFunc(slices.Clone(s.Scenarios), func(name bench.Scenario) bool { return name == bench.Server })
	if len(s.Scenarios) == 0 && len(f.Scenarios) > 0 {
		s.Scenarios = []bench.Scenario{bench.Cycle}
	}
	return s
}

func (f *benchFlags) run(ctx context.Context, p process) (err error) {
	u, err := f.settle()
	if err != nil {
		return err
	}
	place, err := openBenchPlace(u, p.getenv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	if slices.Contains(f.Scenarios, bench.Server) {
		closing, err := f.connect(ctx, place)
		if err != nil {
			return err
		}
		defer closing()
	}
	report, err := f.measure(ctx, place, p)
	if err != nil {
		return err
	}
	for _, warning := range report.Warnings {
		fmt.Fprintf(p.stderr, "gq: warning: %s\n", warning)
	}
	if f.json {
		encoder := json.NewEncoder(p.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return writeBench(p.stdout, &report)
}

func (f *benchFlags) measure(ctx context.Context, place benchPlace, p process) (report bench.Report, err error) {
	if f.cpuProfile != "" {
		file, err := os.Create(f.cpuProfile)
		if err != nil {
			return report, err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return report, errors.Join(fmt.Errorf("profile: %w", err), file.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, file.Close())
		}()
	}
	line := newProgress(p.stderr)
	defer line.clear()
	start := time.Now()
	f.Progress = func(done, total int, what string) {
		line.show("%d/%d  %s  (%s so far)", done+1, total, what, time.Since(start).Round(time.Second))
	}
	report, err = bench.Run(ctx, place, f.Settings)
	report.Version, report.Store = version(), place.String()
	return report, err
}
