// Command bench compares GopherQueue with other queues, one side after the other, with
// the same jobs:
//
//	bench [flags]               on PostgreSQL: River, graphile-worker and pg-boss
//	bench servers [flags]       embedded and as a server: Asynq, BullMQ, beanstalkd, NATS JetStream and Faktory
//	bench report DIR FILE…      a table and plots of what bench servers -json has saved
//
// README.md says what is measured and how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as in gq; River gets the same
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// sizes are the sizes of all measurements. Times are in seconds.
type sizes struct {
	Drain      int     `json:",omitempty"`
	Backlog    int     `json:",omitempty"`
	Bulk       int     `json:",omitempty"`
	Batch      int     `json:",omitempty"`
	Inserters  int     `json:",omitempty"` // concurrent calls of bulk
	Callers    int     `json:",omitempty"`
	Single     float64 `json:",omitempty"`
	Latency    int     `json:",omitempty"` // jobs
	Rest       float64 `json:",omitempty"` // until a side is idle
	Idle       float64 `json:",omitempty"` // for which its queries are counted
	Calm       float64 `json:",omitempty"` // that count
	Pinned     float64 `json:",omitempty"` // for which a snapshot is held open
	Rate       int     `json:",omitempty"` // jobs per second while it is
	Slots      int     `json:",omitempty"` // concurrent handlers of GopherQueue and River
	BulkFor    float64 `json:",omitempty"`
	Fill       float64 `json:",omitempty"` // the most for filling the queue of drain
	DrainFor   float64 `json:",omitempty"` // the most for drain
	Cycle      float64 `json:",omitempty"`
	CycleBatch int     `json:",omitempty"` // jobs of a call of cycle and half
	Feeders    int     `json:",omitempty"` // concurrent calls of cycle
	Window     int     `json:",omitempty"` // jobs of cycle that may wait
	Half       float64 `json:",omitempty"`
}

func (s sizes) task(row string) task {
	t := task{Row: row, Batch: s.Batch, Inserters: s.Inserters, Callers: s.Callers}
	switch row {
	case "bulk":
		t.Jobs, t.Seconds = s.Bulk, s.BulkFor
	case "single":
		t.Seconds = s.Single
	case "drain":
		t.Jobs, t.Fill, t.Seconds = s.Drain, s.Fill, s.DrainFor
	case "backlog":
		t.Jobs = s.Backlog
	case "latency":
		t.Jobs, t.Every = s.Latency, 10
	case "idle":
		t.Seconds = s.Rest + s.Idle + 2
	case "pinned":
		t.Seconds, t.Pinned, t.Rate = s.Calm, s.Pinned, s.Rate
	case "cycle":
		t.Seconds, t.Batch, t.Inserters, t.Window = s.Cycle, s.CycleBatch, s.Feeders, s.Window
	case "half":
		t.Seconds, t.Batch = s.Half, s.CycleBatch
	}
	t.Step = max(t.Jobs/10, 1)
	return t
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == "servers":
		return compare(ctx, servers, args[1:], stdout, stderr)
	case len(args) > 0 && args[0] == "report":
		return publish(args[1:], stdout)
	}
	return compare(ctx, onPostgreSQL, args, stdout, stderr)
}

// options are the flags that concern the run, not its sizes.
type options struct {
	quick, statements                bool
	rows, sides, profile, file, keep string
	repeat                           int
}

func (g group) parse(args []string, stderr io.Writer) (o options, size sizes, err error) {
	size = g.full
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.quick, "quick", false, "scale everything down: a check of the harness, not a measurement")
	flags.StringVar(&o.rows, "rows", strings.Join(g.rows, ","), "what to measure")
	flags.StringVar(&o.sides, "sides", strings.Join(g.sides, ","), "whom to measure")
	flags.IntVar(&o.repeat, "repeat", 1, "how often each row is measured, on PostgreSQL only bulk, single, drain and latency; the median counts")
	flags.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of this process, which is all sides in Go")
	flags.StringVar(&o.file, "json", "", "file for the results as JSON")
	flags.StringVar(&o.keep, "keep", "", "directory for the programs of the peers, kept for the next run")
	flags.IntVar(&size.Drain, "drain", size.Drain, "jobs of row drain")
	flags.IntVar(&size.Bulk, "bulk", size.Bulk, "jobs of row bulk")
	flags.IntVar(&size.Batch, "batch", size.Batch, "jobs of one bulk insert")
	flags.IntVar(&size.Callers, "callers", size.Callers, "callers of row single")
	flags.Float64Var(&size.Single, "single", size.Single, "seconds of row single")
	if g.name == onPostgreSQL.name {
		flags.BoolVar(&o.statements, "statements", false, "show the statements that took the server longest, of each measurement; this makes it slower")
		flags.IntVar(&size.Backlog, "backlog", size.Backlog, "jobs of row backlog")
		flags.IntVar(&size.Slots, "slots", size.Slots, "handlers of GopherQueue and River that run at once")
		flags.IntVar(&size.Rate, "rate", size.Rate, "jobs a second of row pinned")
		flags.Float64Var(&size.Pinned, "pinned", size.Pinned, "seconds for which row pinned holds a snapshot open")
		flags.Float64Var(&size.Calm, "calm", size.Calm, "seconds of row pinned that count, before and at the end")
	} else {
		flags.Float64Var(&size.BulkFor, "bulkfor", size.BulkFor, "the most seconds of row bulk")
		flags.Float64Var(&size.Fill, "fill", size.Fill, "the most seconds for filling the queue of row drain")
		flags.Float64Var(&size.DrainFor, "drainfor", size.DrainFor, "the most seconds of row drain")
		flags.Float64Var(&size.Cycle, "cycle", size.Cycle, "seconds of row cycle")
		flags.IntVar(&size.CycleBatch, "cyclebatch", size.CycleBatch, "jobs of one call of rows cycle and half")
		flags.IntVar(&size.Feeders, "feeders", size.Feeders, "concurrent calls of row cycle")
		flags.IntVar(&size.Window, "window", size.Window, "jobs of row cycle that may wait")
		flags.Float64Var(&size.Half, "half", size.Half, "seconds of row half")
	}
	if err := flags.Parse(args); err != nil {
		return o, size, err
	}
	if o.quick {
		size = g.quick
	}
	for _, row := range strings.Split(o.rows, ",") {
		if !slices.Contains(g.rows, row) {
			return o, size, fmt.Errorf("-rows: %q is none of %s", row, strings.Join(g.rows, ", "))
		}
	}
	return o, size, nil
}

// compare measures the sides of a group and reports what they reached.
func compare(ctx context.Context, g group, args []string, stdout, stderr io.Writer) error {
	o, size, err := g.parse(args, stderr)
	if err != nil {
		return err
	}
	p := programs{o.keep, stderr}
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "gq-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(p.dir) //nolint:errcheck // a temporary directory
	} else if err := os.MkdirAll(p.dir, 0o755); err != nil { //nolint:gosec // programs
		return err
	}
	chosen, without, err := g.choose(ctx, o.sides, size, p)
	if err != nil {
		return err
	}
	r := newReport(g, size, o.quick, without)
	var cluster *pgtest.Cluster
	if g.name == onPostgreSQL.name {
		fmt.Fprintln(stderr, "starting PostgreSQL")
		r.Settings = slices.Clone(serverSettings)
		if o.statements {
			r.Settings = append(r.Settings, "pg_stat_statements.track=all")
		}
		if cluster, err = pgtest.Run(r.Settings...); err != nil {
			return err
		}
		defer cluster.Stop()
		for i := range chosen {
			chosen[i].place = database{cluster}
		}
		if err := r.describeDatabase(ctx, cluster.TCP("postgres")); err != nil {
			return err
		}
	}
	if err := r.describe(p, chosen); err != nil {
		return err
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // a profile that is cut short says so
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, row := range strings.Split(o.rows, ",") {
		times := 1
		if g.name == servers.name || row == "bulk" || row == "single" || row == "drain" || row == "latency" {
			times = o.repeat
		}
		for range times {
			for _, c := range chosen {
				if !c.can(row) {
					continue
				}
				t := size.task(row)
				if row == "half" {
					if t.Rate = int(r.Results["cycle"][c.name()].rate() / 2); t.Rate == 0 {
						r.fail(stderr, row, c.name(), errors.New("the rate of row cycle is not known"))
						continue
					}
				}
				out, err := measure(ctx, c, cluster, t, size, stderr)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					r.fail(stderr, row, c.name(), err)
					continue
				}
				r.add(row, c.name(), out)
				if o.statements {
					if err := showStatements(ctx, cluster.TCP("postgres"), stderr); err != nil {
						return err
					}
				}
			}
		}
	}
	r.finish()
	if err := r.write(stdout); err != nil {
		return err
	}
	if o.file != "" {
		if err := r.save(o.file); err != nil {
			return err
		}
	}
	if len(r.Failures) > 0 {
		return fmt.Errorf("%d measurements failed", len(r.Failures))
	}
	return nil
}

// longest is how long one measurement may take before the run is aborted.
const longest = 10 * time.Minute

// measure runs a task in a new place.
func measure(ctx context.Context, c contender, cluster *pgtest.Cluster, t task, size sizes, progress io.Writer) (out outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	fmt.Fprintf(progress, "%s  %-8s %-30s", time.Now().Format("15:04:05"), t.Row, c.name())
	err = c.place.use(ctx, func(address string, server int) error {
		t.URL = address
		var queries chan error
		var counted float64
		if t.Row == "idle" {
			if err := execute(ctx, cluster.TCP("postgres"), "ALTER DATABASE "+databaseName+" SET pg_stat_statements.track = 'all'"); err != nil {
				return err
			}
			queries = make(chan error, 1)
			go func() {
				var err error
				counted, err = countQueries(ctx, cluster, databaseName, seconds(size.Rest), seconds(size.Idle))
				queries <- err
			}()
		}
		before, after := read(server), reading{}
		t.begin = func() { before = read(server) }
		t.end = sync.OnceFunc(func() { after = read(server) })
		var err error
		out, err = c.run(ctx, t)
		t.end()
		out.use(before, after)
		if err == nil && queries != nil {
			err = <-queries
			out.Queries = counted
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(progress, "failed")
		return out, err
	}
	fmt.Fprintf(progress, "%-22s", out.text(t.Row))
	if out.Jobs > 0 {
		fmt.Fprintf(progress, "%6.1f µs of CPU a job, %.1f of them the server's; %s bytes written a job",
			out.effort(), out.effort()*out.Server/max(out.CPU, tick), count(out.bytes()))
	}
	fmt.Fprintln(progress, busy(out))
	return out, nil
}

// use records what was used between two readings.
func (o *outcome) use(before, after reading) {
	o.Others, o.CPU = before.others(after), float64(after.own-before.own)*tick
	o.Server = float64(after.server-before.server) * tick
	o.Written = float64(after.written - before.written)
}

func busy(o outcome) string {
	if o.Others <= busyAbove {
		return ""
	}
	return fmt.Sprintf("   (others had %.0f %% of the CPU)", o.Others)
}
