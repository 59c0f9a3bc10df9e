package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/services/internal/load"
)

const loadLong = `Put a task queue under load through its public gRPC service and measure it. The
design does not matter: submits go to the targets in turn, calls about a job to
the target its id hashes to.

Without --rate the loop is closed: each of --concurrency clients makes its next
request when it has the answer to the last one. With --rate it is open: requests
are due at that rate whatever the answers do, and latency counts from the moment
a request was due, so a service that stalls cannot hide it.

Every answer is checked and every accepted job followed until status and result
have told of its end. Jobs that have not ended --drain after the run are reported
as censored, and those that still wait are canceled. At most --max-tracked jobs
are open at a time: above it, GetJobStatus replaces SubmitJob. The command fails
if a request failed, an answer was wrong or a job is not accounted for, and shows
the first error of each kind.

Where the service asks for tokens, set GQ_TOKEN; GQ_TLS, GQ_TLS_CA, GQ_TLS_CERT and
GQ_TLS_KEY work as for the other clients.

Latencies are milliseconds, of all requests that were due in the measured time; a
request that failed counts as slower than every answer. End to end is submit to
done by the service's own clock, in an open loop from when the submit was due, of
all jobs submitted in the measured time, whenever they ended. A figure that a
censored job decides is a lower bound and begins with ">=". Rates count what was
answered or done within the measured time.`

const loadExample = `  gqlab load --target 127.0.0.1:7000
  gqlab load --target 127.0.0.1:7000 --concurrency 64 --duration 30s --work 10ms
  gqlab load --target a:7000,b:7000,c:7000 --rate 500 --mix submit=1,status=4,result=4
  gqlab load --target 127.0.0.1:7000 --json > run.json`

func newLoad(p process) *cobra.Command {
	s := load.DefaultSettings()
	var mix string
	var asJSON bool
	c := &cobra.Command{
		Use: "load", Short: "Measure a task queue under load", Long: loadLong, Example: loadExample, Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			err := fromEnvironment(c.Flags(), p.getenv)
			if err != nil {
				return err
			}
			if s.Mix, err = load.ParseMix(mix); err != nil {
				return fmt.Errorf("%w: %w", gq.ErrInvalid, err)
			}
			if err := s.Validate(); err != nil {
				return fmt.Errorf("%w: %w", gq.ErrInvalid, err)
			}
			if err := loadCredentials(p, &s); err != nil {
				return err
			}
			return runLoad(c.Context(), p, s, asJSON)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&s.Targets, "target", nil, "public addresses, in the order of their nodes")
	flags.Float64Var(&s.Rate, "rate", s.Rate, "requests per second of an open loop; 0 is a closed loop")
	flags.IntVar(&s.Concurrency, "concurrency", s.Concurrency, "clients; in an open loop the most requests at the same time")
	flags.IntVar(&s.Connections, "connections", s.Connections, "connections to all targets together")
	flags.DurationVar(&s.Warmup, "warmup", s.Warmup, "how long the load runs before it is measured")
	flags.DurationVar(&s.Duration, "duration", s.Duration, "how long it is measured")
	flags.DurationVar(&s.Work, "work", s.Work, "how long each job works")
	flags.Uint32Var(&s.Payload, "payload", s.Payload, "bytes of output of each job")
	flags.StringVar(&mix, "mix", s.Mix.String(), "how often each request is made, relative to the others")
	flags.Uint64Var(&s.Seed, "seed", s.Seed, "of the order of requests")
	flags.IntVar(&s.MaxTracked, "max-tracked", s.MaxTracked, "accepted jobs not yet followed to their end, at most; above it no job is submitted")
	flags.DurationVar(&s.Drain, "drain", s.Drain, "how long jobs may take to end after the run; those left are censored and canceled")
	flags.BoolVar(&asJSON, "json", false, "print everything as JSON")
	return c
}

func runLoad(ctx context.Context, p process, s load.Settings, asJSON bool) error {
	report, err := load.Run(ctx, s)
	if err != nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(p.stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = printLoad(p, report)
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return errors.Join(verdict(report), failures(report))
}

// failures returns an error if requests failed.
func failures(r *load.Report) error {
	if len(r.Errors) == 0 {
		return nil
	}
	n, lines := 0, []string{""}
	for _, code := range slices.Sorted(maps.Keys(r.Errors)) {
		n += r.Errors[code]
		lines = append(lines, fmt.Sprintf("%d %s, such as: %s", r.Errors[code], code, r.ErrorExamples[code]))
	}
	lines[0] = fmt.Sprintf("%d requests failed", n)
	return errors.New(strings.Join(lines, "\n  "))
}

// loadCredentials reads the credentials from the environment, as every client does.
// Without encryption it sends a token only to this machine.
func loadCredentials(p process, s *load.Settings) (err error) {
	if s.TLS, err = cli.ClientTLS(p.getenv); err != nil {
		return err
	}
	if s.Token = p.getenv("GQ_TOKEN"); s.Token == "" || s.TLS != nil {
		return nil
	}
	for _, target := range s.Targets {
		host, _, _ := net.SplitHostPort(target)
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return cli.Invalid("target", fmt.Sprintf("GQ_TOKEN would be sent in the clear to %.80q: set GQ_TLS_CA or GQ_TLS=1, or unset GQ_TOKEN", target))
		}
	}
	return nil
}

// verdict returns an error if an answer was wrong or a job is unaccounted for.
func verdict(r *load.Report) error {
	if r.Correct() {
		return nil
	}
	lines := []string{fmt.Sprintf("%d wrong answers, %d jobs lost, %d not finished", r.Violations, r.Jobs.Lost, r.Jobs.Unfinished)}
	return errors.New(strings.Join(append(lines, r.Examples...), "\n  "))
}

func printLoad(p process, r *load.Report) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "method\trequests\t/s\tp50 ms\tp95 ms\tp99 ms\tmax ms\terrors\t")
	line := func(name string, n int, rate float64, l load.Latency, failed int) {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t%s\t%s\t%d\t\n", name, n, rate, figure(l, l.P50), figure(l, l.P95), figure(l, l.P99), figure(l, l.Max), failed)
	}
	for _, name := range load.MethodNames() {
		m := r.Methods[name]
		failed := 0
		for _, n := range m.Errors {
			failed += n
		}
		line(name, m.Requests, m.PerSecond, m.Latency, failed)
	}
	line("end to end", r.Jobs.Measured, r.Jobs.PerSecond, r.Jobs.EndToEnd, r.Jobs.Failed)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "\n%.0f requests/s, %.0f jobs/s; %d jobs accepted: %d done, %d failed, %d canceled; %d wrong answers\n",
		r.PerSecond, r.Jobs.PerSecond, r.Jobs.Accepted, r.Jobs.Done, r.Jobs.Failed, r.Jobs.Canceled, r.Violations)
	v := r.Jobs.Window
	fmt.Fprintf(p.stdout, "of %d jobs submitted in the measured time %d were done within it, %d after it, %d censored (%d canceled by this command)\n",
		v.Accepted, v.EndedInWindow, v.EndedAfter, v.Censored, v.Canceled)
	return nil
}

// figure formats a latency and marks a lower bound.
func figure(l load.Latency, v float64) string {
	if l.Bound(v) {
		return fmt.Sprintf(">=%.2f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
