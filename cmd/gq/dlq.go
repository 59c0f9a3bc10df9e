package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
)

func newDLQ(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "dlq",
		Short: "Look after jobs that were given up",
		Long: `Look after jobs in DEAD_LETTER: their attempts are used up or their lifetime was
over, and someone should look why.

` + exitHelp,
		Example: `  gq dlq list --queue mail
  gq dlq replay 0198…
  gq dlq replay --queue mail`,
	}
	c.AddCommand(newDLQList(p), newDLQReplay(p))
	return c
}

// deadFlags select jobs in DEAD_LETTER.
func deadFlags(c *cobra.Command) *filterFlags {
	f := &filterFlags{}
	c.Flags().StringVar(&f.queue, "queue", "", "only of this queue")
	c.Flags().StringVar(&f.since, "since", "", "submitted since: an instant, or so long ago, such as 2h")
	c.Flags().StringVar(&f.until, "until", "", "submitted before: likewise")
	return f
}

func (f *filterFlags) dead() (gq.Query, error) {
	q, err := f.query()
	q.Statuses = []gq.Status{gq.DeadLetter}
	return q, err
}

func newDLQList(p process) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List jobs that were given up", Example: "  gq dlq list --since 24h", Args: noArguments}
	r := newRemote(p, c)
	f := deadFlags(c)
	var limit int
	var cursor string
	c.Flags().IntVar(&limit, "limit", 50, "jobs on the page, at most 1000")
	c.Flags().StringVar(&cursor, "cursor", "", "next_cursor of the page before")
	c.RunE = func(c *cobra.Command, _ []string) error {
		query, err := f.dead()
		if err != nil {
			return err
		}
		if limit < 1 || limit > 1000 {
			return usage("limit", fmt.Sprintf("%d is not between 1 and 1000", limit))
		}
		query.Limit, query.Cursor = limit, cursor
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			page, err := q.List(ctx, query)
			if err != nil {
				return err
			}
			return r.print(wire.JobsOf(page), func(s screen) {
				s.jobs(page.Jobs)
				if page.Next != "" {
					fmt.Fprintf(r.stderr, "gq: there are more: --cursor %s\n", page.Next)
				}
			})
		})
	}
	return c
}

func newDLQReplay(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Submit jobs that were given up again",
		Long: `Submit jobs that were given up again, as new ones, and print their ids: those
named, or all that the flags select, oldest first. The old ones stay as they are.`,
		Example: `  gq dlq replay 0198…
  gq dlq replay --queue mail --since 24h
  gq dlq replay --all`,
	}
	r := newRemote(p, c)
	f := deadFlags(c)
	var all bool
	c.Flags().BoolVar(&all, "all", false, "every job in DEAD_LETTER")
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, err := jobArgs(args)
		if err != nil {
			return err
		}
		query, err := f.dead()
		if err != nil {
			return err
		}
		if many := f.given() || all; many == (len(ids) > 0) {
			return usage("arguments", "give ids, or a filter such as --queue, or --all")
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			if len(ids) == 0 {
				return r.replayDead(ctx, q, query)
			}
			return each(ids, func(id gq.JobID) error {
				job, err := q.Get(ctx, id, 0)
				if err == nil && job.State.Status != gq.DeadLetter {
					err = fmt.Errorf("job %s is %s, not DEAD_LETTER; gq job replay takes any: %w", id, job.State.Status, gq.ErrIllegalMove)
				}
				if err != nil {
					return err
				}
				return r.replay(ctx, q, id)
			})
		})
	}
	return c
}

// replayDead submits all jobs again that a query selects.
func (r *remote) replayDead(ctx context.Context, q queue, query gq.Query) error {
	query.OldestFirst, query.Limit = true, 500
	line := newProgress(r.stderr)
	defer line.clear()
	done, failed := 0, error(nil)
	for {
		page, err := q.List(ctx, query)
		if err != nil {
			return errors.Join(failed, err)
		}
		for i := range page.Jobs {
			if err := r.replay(ctx, q, page.Jobs[i].State.ID); err != nil {
				if ctx.Err() != nil {
					return err
				}
				failed = errors.Join(failed, err)
				continue
			}
			if done++; done%50 == 0 {
				line.show("%d submitted again …", done)
			}
		}
		if page.Next == "" {
			break
		}
		query.Cursor = page.Next
	}
	line.clear()
	fmt.Fprintf(r.stderr, "gq: %d submitted again\n", done)
	return failed
}
