package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
)

func newJobRunNow(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "run-now ID...",
		Short: "Let waiting jobs run at once",
		Long: `Let delayed or retrying jobs run at once, in the order of their queue. Jobs that
wait for dependencies, that a worker holds or that have ended are refused.`,
		Example: "  gq job run-now 0198…",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs the id of a job", c.CommandPath())
			}
			return nil
		},
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, err := jobArgs(args)
		if err != nil {
			return err
		}
		return r.reschedule(c.Context(), ids, time.Time{})
	}
	return c
}

func newJobReschedule(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "reschedule ID...",
		Short: "Set the run time of waiting jobs",
		Long: `Set the run time of jobs that wait: delayed, retrying or claimable ones. A claimable
job that is to run later is replaced by a copy, whose id is printed. Jobs that wait for
dependencies, that a worker holds or that have ended are refused.`,
		Example: `  gq job reschedule 0198… --in 2h
  gq job reschedule 0198… --at 2030-01-31T12:00:00Z`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs the id of a job", c.CommandPath())
			}
			return nil
		},
	}
	r := newRemote(p, c)
	var at string
	var in time.Duration
	c.Flags().StringVar(&at, "at", "", "run time, such as 2030-01-31T12:00:00Z")
	c.Flags().DurationVar(&in, "in", 0, "run time as a duration from now, such as 2h")
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, err := jobArgs(args)
		if err != nil {
			return err
		}
		var when time.Time
		switch given := c.Flags().Changed("in"); {
		case given == (at != ""):
			return cli.Invalid("at", "give either --at or --in; gq job run-now runs a job at once")
		case in < 0:
			return cli.Invalid("in", fmt.Sprintf("%v is negative", in))
		case given:
			when = time.Now().Add(in)
		default:
			if when, err = time.Parse(time.RFC3339, at); err != nil {
				return cli.Invalid("at", fmt.Sprintf("%.64q is not an instant such as 2030-01-31T12:00:00Z", at))
			}
		}
		return r.reschedule(c.Context(), ids, when)
	}
	return c
}

func (r *remote) reschedule(ctx context.Context, ids []gq.JobID, at time.Time) error {
	return r.short(ctx, func(ctx context.Context, q queue) error {
		return each(ids, func(id gq.JobID) error {
			state, err := q.Reschedule(ctx, id, at)
			if err != nil {
				return err
			}
			return r.print(r.jobIn(ctx, q, &state), func(s screen) {
				if state.ID != id {
					s.line("%s replaced by %s, %s until %s", id, state.ID, s.status(state.Status, 0), state.RunAt.Local().Format(time.RFC3339))
					return
				}
				if state.Status == gq.StatusScheduled {
					s.line("%s %s", id, s.status(state.Status, 0))
					return
				}
				s.line("%s %s until %s", id, s.status(state.Status, 0), state.RunAt.Local().Format(time.RFC3339))
			})
		})
	})
}
