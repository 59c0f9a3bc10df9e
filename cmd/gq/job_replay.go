package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/wire"
)

func newJobReplay(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Submit finished jobs again",
		Long: `Submit finished jobs again as new jobs and print their ids. Name the jobs or select
them with --state and other flags. The old jobs stay as they are. A job is replayed
once: if it was replayed before, its replay is named instead of a new job. To run it
once more, replay the replay when it has finished. With flags the command counts the jobs
first and asks; without a terminal, and with --json, it requires --yes. --dry-run
only counts.`,
		Example: `  gq job replay 0198…
  gq job replay --state FAILED,DEAD_LETTER --queue mail --since 24h
  gq job replay --state FAILED --type email.send --dry-run`,
	}
	r := newRemote(p, c)
	var f filterFlags
	var yes, dry bool
	f.add(c.Flags())
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&dry, "dry-run", false, "only count the jobs")
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, query, err := f.chosen(args)
		if err != nil {
			return err
		}
		if len(ids) == 0 && len(query.Statuses) == 0 {
			return cli.Invalid("state", "say which: --state FAILED, DEAD_LETTER, CANCELLED or COMPLETED")
		}
		for _, s := range query.Statuses {
			if !s.Terminal() {
				return cli.Invalid("state", fmt.Sprintf("%s is not terminal; only finished jobs can be replayed", s))
			}
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			if len(ids) > 0 {
				return each(ids, func(id gq.JobID) error {
					_, err := r.replay(ctx, q, id)
					return err
				})
			}
			n, err := r.count(ctx, q, query)
			if err != nil {
				return err
			}
			if dry {
				return r.print(wire.CountReport{Jobs: n}, func(s screen) { s.line("%s", quantity.Of(n, "job")) })
			}
			if n == 0 {
				fmt.Fprintln(r.stderr, "gq: the flags select no job")
				return nil
			}
			if err := r.confirmReplay(yes, n); err != nil {
				return err
			}
			return r.replayMany(ctx, q, query)
		})
	}
	return c
}

// count counts the jobs that a query selects, over as many calls as that takes.
func (r *remote) count(ctx context.Context, q queue, query gq.Query) (n int64, err error) {
	line := newProgress(r.stderr)
	defer line.clear()
	for {
		report, err := q.CountWhere(ctx, query)
		if err != nil {
			return n, err
		}
		n += report.Jobs
		if query.Cursor = report.Next; report.Next == "" {
			return n, nil
		}
		line.show("%s so far …", quantity.Of(n, "job"))
	}
}

// confirmReplay asks before many jobs run again.
func (r *remote) confirmReplay(yes bool, n int64) error {
	err := r.confirm(yes, fmt.Sprintf("Submit %s again?", quantity.Of(n, "job")))
	var invalid *gq.InvalidError
	if errors.As(err, &invalid) {
		return cli.Invalid("yes", fmt.Sprintf("the flags select %s; say --yes to submit again", quantity.Of(n, "job")))
	}
	if err != nil {
		return &cli.StatusError{Status: cli.ExitFailure, Err: errors.New("nothing was submitted")}
	}
	return nil
}

// replayMany replays all jobs that a query selects and prints the ids of the new ones.
func (r *remote) replayMany(ctx context.Context, q queue, query gq.Query) error {
	line := newProgress(r.stderr)
	defer line.clear()
	done, before, refused, problem := 0, 0, 0, ""
	for {
		report, err := q.ReplayWhere(ctx, query)
		if err != nil {
			return err
		}
		for _, id := range report.Jobs {
			if !r.json {
				fmt.Fprintln(r.stdout, id)
				continue
			}
			if err := wire.EncodeJSON(r.stdout, madeJob(ctx, q, &gq.SubmitResult{State: gq.State{ID: id}})); err != nil {
				return err
			}
		}
		done, before, refused = done+len(report.Jobs), before+report.Existing, refused+report.Refused
		if problem == "" {
			problem = report.Problem
		}
		if query.Cursor = report.Next; report.Next == "" {
			break
		}
		line.show("%d submitted again …", done)
	}
	line.clear()
	if !r.json {
		fmt.Fprintf(r.stderr, "gq: %d submitted again\n", done)
		if before > 0 {
			fmt.Fprintf(r.stderr, "gq: %d already replayed and left out; to run one again, replay its replay\n", before)
		}
	}
	if refused > 0 {
		return &cli.StatusError{Status: cli.ExitFailure, Err: fmt.Errorf("%s refused, the first one: %s", quantity.Of(refused, "job"), problem)}
	}
	return nil
}
