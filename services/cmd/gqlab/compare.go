package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/services/internal/compare"
)

const compareLong = `Compare the designs of the task queue: start each, as processes on this machine,
put it under the same load, check every answer, end it, and write what was found.

  A  six services that talk gRPC: gateway, job, queue, coordinator, worker, result
  B  six identical nodes, each with all of that in one process
  C  gq serve with an embedded store: nothing that was accepted gets lost

Each has six worker slots in all. Closed loops vary client concurrency, how long
jobs work and the mix of requests. Open loops offer higher and higher rates until
a design does not keep one. Every cell is measured in several repetitions in which
the designs take turns, and all jobs are followed to their end. Beside it stands a
floor: submits to one node of design B against submits to a bare gRPC server.
The whole takes about 35 minutes on two cores that do nothing else; the expected
time is printed first, then how far it has come. --quick measures a small part
once, in about a minute: it shows that everything works, and no differences.

Into --out go settings.env, results.json, table.csv, report.md with conclusions
computed from the data, plots/ as SVG and PNG, and raw/ with every request. Logs
of the nodes go to a temporary directory that is kept if something fails.

--settings reads slots, concurrency, durations, mixes, payload, seed and the rest from
a file of lines NAME=VALUE, as every run writes one: docker/settings.env is the full
plan. The other flags win over it.

With --compose the designs run from docker/compose.*.yaml instead, whose images
must have been built (scripts/docker-build); the floor is left out then, and one
start of a design serves all its measurements of a repetition.`

type compareFlags struct {
	quick    bool
	settings string
	out      string
	designs  []string
	duration time.Duration
	warmup   time.Duration
	compose  string
	repeat   int
}

func newCompare(p process) *cobra.Command {
	f := compareFlags{}
	c := &cobra.Command{
		Use: "compare", Short: "Compare the designs of the task queue", Long: compareLong, Args: cli.NoArguments,
		Example: `  gqlab compare --quick
  gqlab compare --out results/full
  gqlab compare --settings docker/settings.env --compose docker
  gqlab compare up A --base-port 7000     start one design and leave it running`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), p, c) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.quick, "quick", false, "measure a small part once, in about a minute")
	flags.StringVar(&f.settings, "settings", "", "file with the settings (default: those of docker/settings.env)")
	flags.StringVar(&f.out, "out", "", "directory for the results (default results/NAME of the time)")
	flags.StringSliceVar(&f.designs, "design", designNames(), "designs to compare")
	flags.DurationVar(&f.duration, "duration", 0, "how long each measurement takes (default: what the plan says)")
	flags.DurationVar(&f.warmup, "warmup", 0, "how long the load runs before each (default: what the plan says)")
	flags.IntVar(&f.repeat, "repetitions", 0, "how often each cell is measured (default: what the plan says)")
	flags.StringVar(&f.compose, "compose", "", "directory of Compose files to run the designs from")
	c.AddCommand(newCompareUp(p), newCompareEcho(p))
	return c
}

func designNames() (names []string) {
	for _, d := range compare.Designs() {
		names = append(names, d.Name)
	}
	return names
}

func (f *compareFlags) run(ctx context.Context, p process, c *cobra.Command) error {
	plan, kind, err := f.plan(c)
	if err != nil {
		return err
	}
	if f.duration > 0 {
		plan.Duration = f.duration
	}
	if f.warmup > 0 {
		plan.Warmup = f.warmup
	}
	if f.repeat < 0 {
		return cli.Invalid("repetitions", fmt.Sprintf("%d is negative", f.repeat))
	}
	if f.repeat > 0 {
		plan.Repetitions = f.repeat
	}
	var designs []compare.Design
	for _, name := range plan.Designs {
		d, err := compare.Find(name)
		if err != nil {
			return fmt.Errorf("%w: %w", gq.ErrInvalid, err)
		}
		designs = append(designs, d)
	}
	out := f.out
	if out == "" {
		out = filepath.Join("results", time.Now().UTC().Format("20060102-150405")+"-"+kind)
	}
	launch, how, clean, err := f.launcher(&plan)
	if err != nil {
		return err
	}
	watch := compare.Watch{
		Say: func(format string, args ...any) { fmt.Fprintf(p.stderr, format+"\n", args...) },
		Raw: filepath.Join(out, "raw"),
	}
	results, err := compare.Run(ctx, plan, designs, launch, watch)
	if err != nil {
		return err
	}
	results.Command, results.Version, results.How = commandLine(c), cli.Version("gqlab"), how
	if err := results.Write(out); err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, filepath.Join(out, "report.md"))
	var faults []error
	for _, row := range results.Rows {
		if err := verdict(row.Report); err != nil {
			faults = append(faults, fmt.Errorf("design %s, %s, repetition %d: %w", row.Design, row.Cell.Name(), row.Repetition, err))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return clean()
}

// plan returns what is to be measured, but for single flags, and a name for it.
func (f *compareFlags) plan(c *cobra.Command) (plan compare.Plan, kind string, err error) {
	switch {
	case f.quick && f.settings != "":
		return plan, "", cli.Invalid("settings", "--quick has settings of its own; leave one of the two out")
	case f.quick:
		plan, kind = compare.QuickPlan(), "quick"
	case f.settings != "":
		if plan, err = compare.ReadSettings(f.settings); err != nil {
			return plan, "", fmt.Errorf("%w: %w", gq.ErrInvalid, err)
		}
		kind = strings.TrimSuffix(filepath.Base(f.settings), filepath.Ext(f.settings))
	default:
		plan, kind = compare.FullPlan(), "full"
	}
	if c.Flags().Changed("design") {
		plan.Designs = f.designs
	}
	return plan, kind, nil
}

// launcher returns how to start designs, a description of that, and a function that
// cleans up.
func (f *compareFlags) launcher(plan *compare.Plan) (launch compare.Launcher, how string, clean func() error, err error) {
	if f.compose != "" {
		plan.Floor, plan.Relaunch = 0, false // starting containers takes long
		return compare.Compose(composeCommand(), f.compose), compare.Containers, func() error { return nil }, nil
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, "", nil, fmt.Errorf("find the program: %w", err)
	}
	logs, err := os.MkdirTemp("", "gq-compare-")
	if err != nil {
		return nil, "", nil, fmt.Errorf("make room for logs: %w", err)
	}
	place := compare.Place{Binary: binary, Dir: logs, Env: []string{"GQ_LOG_LEVEL=warn"}}
	return compare.Processes(place), "processes of one machine", func() error { return os.RemoveAll(logs) }, nil
}

// composeCommand returns the command that runs Compose, GQ_COMPOSE if it is set.
func composeCommand() []string {
	if words := strings.Fields(os.Getenv("GQ_COMPOSE")); len(words) > 0 {
		return words
	}
	return []string{"docker", "compose"}
}

// commandLine returns the command that repeats the run.
func commandLine(c *cobra.Command) string {
	line := c.CommandPath()
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" {
			line += " --" + f.Name
		} else {
			line += " --" + f.Name + " " + strings.Trim(f.Value.String(), "[]")
		}
	})
	return line
}

func newCompareUp(p process) *cobra.Command {
	var port int
	c := &cobra.Command{
		Use: "up DESIGN", Short: "Start one design on this machine until interrupted",
		Long: `Start a design of the task queue on loopback. When it serves, one line on
standard output has its public addresses, separated by spaces, in the order of
their nodes. It stays up until interrupted. The logs of its nodes go to standard
error, JSON lines.`,
		Example: "  gqlab compare up A --base-port 7000",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one design: %s", strings.Join(designNames(), " or "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			d, err := compare.Find(args[0])
			if err != nil {
				return fmt.Errorf("%w: %w", gq.ErrInvalid, err)
			}
			if port < 0 || port+d.Addresses > 65535 {
				return cli.Invalid("base-port", fmt.Sprintf("%d is not a port with enough others after it", port))
			}
			return compareUp(c.Context(), p, d, port)
		},
	}
	c.Flags().IntVar(&port, "base-port", 0, "first of the ports to use; 0 takes any that are free")
	return c
}

func compareUp(ctx context.Context, p process, d compare.Design, port int) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	cluster, err := compare.Up(ctx, d, compare.Place{Binary: binary, Log: p.stderr, BasePort: port})
	if err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, strings.Join(cluster.Public, " "))
	<-ctx.Done()
	return cluster.Stop()
}

func newCompareEcho(process) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: "echo", Short: "Serve the floor of the comparison", Hidden: true, Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			listener, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			return compare.Echo(c.Context(), listener)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to serve gRPC on")
	return c
}
