package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/wire"
)

// instantFlag parses the value of a flag; empty is zero.
func instantFlag(name, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, cli.Invalid(name, fmt.Sprintf("%.64q is not an instant such as 2030-01-31T12:00:00Z", value))
	}
	return at, nil
}

func newScheduleTrigger(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "trigger NAME", Short: "Submit a job of a schedule now",
		Long: `Submit a job of a schedule now, even if the schedule is paused or has ended.

The slot of the job is the current second; the next slot of the schedule stays.
If the overlap rule would skip the job, the command fails.`,
		Example: "  gq schedule trigger nightly", Args: oneArgument("the name of a schedule"),
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			f, err := q.TriggerSchedule(ctx, args[0])
			if err != nil {
				return err
			}
			return r.print(wire.FiringOf(&f), func(to screen) {
				if f.Existing {
					to.line("%s (the job of this second already existed)", f.Job)
					return
				}
				to.line("%s", f.Job)
			})
		})
	}
	return c
}

func newScheduleBackfill(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "backfill NAME --from INSTANT --to INSTANT", Short: "Submit the jobs of past slots that have none",
		Long: `Submit the jobs of the slots of a time range that have none, oldest first.

The schedule remembers the slots that have a job, so repeating the command is safe.
The jobs ignore the overlap rule and the jitter. If the queue cannot hold all of
them (max_depth), none is submitted. --dry-run shows how many there are.`,
		Example: "  gq schedule backfill nightly --from 2030-01-01T00:00:00Z --to 2030-01-31T23:59:59Z --dry-run",
		Args:    oneArgument("the name of a schedule"),
	}
	r := newRemote(p, c)
	var from, to string
	var limit int
	var dry bool
	flags := c.Flags()
	flags.StringVar(&from, "from", "", "first slot, inclusive")
	flags.StringVar(&to, "to", "", "last slot, inclusive")
	flags.IntVar(&limit, "limit", 0, "submit at most this many jobs (default all)")
	flags.BoolVar(&dry, "dry-run", false, "only count the slots")
	flags.SortFlags = false
	c.RunE = func(c *cobra.Command, args []string) error {
		b := gq.Backfill{Schedule: args[0], DryRun: dry}
		var err error
		if b.From, err = instantFlag("from", from); err != nil {
			return err
		}
		if b.To, err = instantFlag("to", to); err != nil {
			return err
		}
		if limit < 0 {
			return cli.Invalid("limit", fmt.Sprintf("%d is negative", limit))
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			total, err := backfill(ctx, q, b, limit)
			if err != nil {
				return err
			}
			return r.print(wire.BackfillReportOf(&total), func(to screen) {
				switch {
				case dry:
					to.line("%d of %s without a job", total.Missing, quantity.Of(total.Slots, "slot"))
				case total.Next.IsZero():
					to.line("%s submitted; all %s have a job", quantity.Of(total.Submitted, "job"), quantity.Of(total.Slots, "slot"))
				default:
					to.line("%s submitted; continue with --from %s", quantity.Of(total.Submitted, "job"), total.Next.Format(time.RFC3339))
				}
			})
		})
	}
	return c
}

// backfill calls the server until the range is complete or limit jobs are submitted; 0 is no
// limit.
func backfill(ctx context.Context, q queue, b gq.Backfill, limit int) (total gq.BackfillReport, err error) {
	for first := true; ; first = false {
		b.Limit = gq.MaxBackfill
		if limit > 0 {
			b.Limit = min(b.Limit, limit-total.Submitted)
		}
		out, err := q.BackfillSchedule(ctx, b)
		if err != nil {
			return total, err
		}
		if first {
			total.Slots, total.Missing = out.Slots, out.Missing
		}
		total.Submitted += out.Submitted
		total.Next, b.From = out.Next, out.Next
		if out.Next.IsZero() || limit > 0 && total.Submitted >= limit {
			return total, nil
		}
	}
}
