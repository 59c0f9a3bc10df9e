// Command bench compares GopherQueue on PostgreSQL with River, graphile-worker and
// pg-boss: one server, one side after the other, the same jobs. It prints what each of
// them reached and how GopherQueue compares. README.md says what is measured and how.
package main

import (
	"context"
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

// sizes are the sizes of all measurements.
type sizes struct {
	Drain, Backlog, Step int
	Bulk, Batch          int
	Callers              int
	Single               float64 // seconds
	Latency              int     // jobs
	Rest, Idle           float64 // seconds until a side is idle, and seconds for which its queries are counted
	Calm, Pinned         float64 // seconds that count, and seconds for which a snapshot is held open
	Rate                 int     // jobs per second while it is
	Slots                int     // concurrent handlers of GopherQueue and River
}

var (
	full = sizes{
		Drain: 200_000, Backlog: 1_000_000, Step: 100_000, Bulk: 200_000, Batch: 5000, Callers: 64, Single: 8,
		Latency: 1000, Rest: 8, Idle: 20, Calm: 40, Pinned: 180, Rate: 2000, Slots: 2000,
	}
	quick = sizes{
		Drain: 10_000, Backlog: 20_000, Step: 2000, Bulk: 10_000, Batch: 1000, Callers: 64, Single: 1,
		Latency: 50, Rest: 3, Idle: 2, Calm: 1, Pinned: 2, Rate: 500, Slots: 2000,
	}
)

// rows are the measurements in their order.
var rows = []string{"bulk", "single", "drain", "backlog", "latency", "idle", "pinned"}

func (s sizes) task(row string) task {
	t := task{Row: row, Step: s.Step, Batch: s.Batch, Inserters: 2, Callers: s.Callers}
	switch row {
	case "bulk":
		t.Jobs = s.Bulk
	case "single":
		t.Seconds = s.Single
	case "drain":
		t.Jobs = s.Drain
	case "backlog":
		t.Jobs = s.Backlog
	case "latency":
		t.Jobs, t.Every = s.Latency, 10
	case "idle":
		t.Seconds = s.Rest + s.Idle + 2
	case "pinned":
		t.Seconds, t.Pinned, t.Rate = s.Calm, s.Pinned, s.Rate
	}
	return t
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	size := full
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	small := flags.Bool("quick", false, "scale everything down: a check of the harness, not a measurement")
	want := flags.String("rows", strings.Join(rows, ","), "what to measure")
	which := flags.String("sides", "gopherqueue,river,graphile,pgboss", "whom to measure")
	repeat := flags.Int("repeat", 1, "how often each of bulk, single and drain is measured; the median counts")
	statements := flags.Bool("statements", false, "show the statements that took the server longest, of each measurement; this makes it slower")
	profile := flags.String("cpuprofile", "", "file for a CPU profile of this process, which is GopherQueue and River")
	file := flags.String("json", "", "file for the results as JSON")
	flags.IntVar(&size.Drain, "drain", size.Drain, "jobs of row drain")
	flags.IntVar(&size.Backlog, "backlog", size.Backlog, "jobs of row backlog")
	flags.IntVar(&size.Bulk, "bulk", size.Bulk, "jobs of row bulk")
	flags.IntVar(&size.Batch, "batch", size.Batch, "jobs of one bulk insert")
	flags.IntVar(&size.Callers, "callers", size.Callers, "callers of row single")
	flags.IntVar(&size.Slots, "slots", size.Slots, "handlers of GopherQueue and River that run at once")
	flags.IntVar(&size.Rate, "rate", size.Rate, "jobs a second of row pinned")
	flags.Float64Var(&size.Single, "single", size.Single, "seconds of row single")
	flags.Float64Var(&size.Pinned, "pinned", size.Pinned, "seconds for which row pinned holds a snapshot open")
	flags.Float64Var(&size.Calm, "calm", size.Calm, "seconds of row pinned that count, before and at the end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *small {
		size = quick
	}
	for _, row := range strings.Split(*want, ",") {
		if !slices.Contains(rows, row) {
			return fmt.Errorf("-rows: %q is none of %s", row, strings.Join(rows, ", "))
		}
	}
	scratch, err := os.MkdirTemp("", "gq-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // a temporary directory
	chosen, err := sidesOf(ctx, *which, scratch, size, stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(stderr, "starting PostgreSQL")
	settings := slices.Clone(serverSettings)
	if *statements {
		settings = append(settings, "pg_stat_statements.track=all")
	}
	cluster, err := pgtest.Run(settings...)
	if err != nil {
		return err
	}
	defer cluster.Stop()

	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // a profile that is cut short says so
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r := &report{Sizes: size, Quick: *small, Settings: settings, Results: make(map[string]map[string]outcome)}
	if err := r.describe(ctx, cluster.TCP("postgres")); err != nil {
		return err
	}
	for _, row := range strings.Split(*want, ",") {
		for _, s := range chosen {
			if !s.can(row) {
				continue
			}
			times := 1
			if row == "bulk" || row == "single" || row == "drain" {
				times = *repeat
			}
			for range times {
				out, err := measure(ctx, cluster, s, size.task(row), size, stderr)
				if err != nil {
					return fmt.Errorf("%s of %s: %w", row, s.name(), err)
				}
				r.add(row, s.name(), out)
				if *statements {
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
	if *file != "" {
		return r.save(*file)
	}
	return nil
}

func sidesOf(ctx context.Context, which, scratch string, size sizes, progress io.Writer) (sides []side, err error) {
	all := map[string]side{
		"gopherqueue": gopherQueue{size.Slots},
		"river":       riverQueue{size.Slots},
		"graphile":    nodeQueue{"graphile-worker", "graphile.mjs", scratch, nodeRows},
		"pgboss":      nodeQueue{"pg-boss", "pgboss.mjs", scratch, nodeRows},
	}
	needsNode := false
	for _, name := range strings.Split(which, ",") {
		s, ok := all[name]
		if !ok {
			return nil, fmt.Errorf("-sides: %q is none of gopherqueue, river, graphile, pgboss", name)
		}
		_, onNode := s.(nodeQueue)
		needsNode = needsNode || onNode
		sides = append(sides, s)
	}
	if needsNode {
		fmt.Fprintln(progress, "installing Node, graphile-worker and pg-boss into a scratch directory")
		err = install(ctx, scratch, progress)
	}
	return sides, err
}

// nodeRows omits the claims under a pinned snapshot: neither of the two exposes its
// claims.
var nodeRows = map[string]bool{"bulk": true, "single": true, "drain": true, "backlog": true, "latency": true, "idle": true}

// longest is how long one measurement may take before the run is aborted.
const longest = 10 * time.Minute

// measure runs a task in a new database.
func measure(ctx context.Context, c *pgtest.Cluster, s side, t task, size sizes, progress io.Writer) (out outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	const name = "bench"
	fmt.Fprintf(progress, "%s  %-8s %-16s", time.Now().Format("15:04:05"), t.Row, s.name())
	err = withDatabase(ctx, c, name, func(url string) error {
		t.URL = url
		var queries chan error
		var counted float64
		if t.Row == "idle" {
			if err := execute(ctx, c.TCP("postgres"), "ALTER DATABASE "+name+" SET pg_stat_statements.track = 'all'"); err != nil {
				return err
			}
			queries = make(chan error, 1)
			go func() {
				var err error
				counted, err = countQueries(ctx, c, name, seconds(size.Rest), seconds(size.Idle))
				queries <- err
			}()
		}
		before, after := read(c.Process()), reading{}
		t.begin = func() { before = read(c.Process()) }
		t.end = sync.OnceFunc(func() { after = read(c.Process()) })
		var err error
		out, err = s.run(ctx, t)
		t.end()
		out.Others, out.CPU = before.others(after), float64(after.own-before.own)*tick
		out.Server = float64(after.server-before.server) * tick
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
		fmt.Fprintf(progress, "%6.1f µs of CPU a job, %.1f of them the server's", out.effort(), out.effort()*out.Server/max(out.CPU, tick))
	}
	fmt.Fprintln(progress, busy(out))
	return out, nil
}

func busy(o outcome) string {
	if o.Others <= busyAbove {
		return ""
	}
	return fmt.Sprintf("   (others had %.0f %% of the CPU)", o.Others)
}
