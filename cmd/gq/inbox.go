package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/wire"
)

func newInboxCommand(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "inbox",
		Short: "Manage submissions that were refused after their transactions",
		Long: `Manage submissions that applications wrote to the database with SQL or a *sql.Tx.
A server takes them in after the commit. What it has to refuse then, such as an
invalid type or a job for a full queue, it keeps here with the reason.

` + cli.ExitHelp,
		Example: `  gq inbox list
  gq inbox retry --all
  gq inbox discard 0198…`,
	}
	c.AddCommand(newInboxList(p), newInboxRetry(p), newInboxDiscard(p))
	return c
}

func newInboxList(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List refused submissions, oldest first", Example: "  gq inbox list --limit 200 --json", Args: cli.NoArguments,
	}
	r := newRemote(p, c)
	limit := c.Flags().Int("limit", 50, "submissions on the page, up to 1000")
	cursor := c.Flags().String("cursor", "", "next_cursor of the previous page")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *limit < 1 || *limit > 1000 {
			return cli.Invalid("limit", fmt.Sprintf("%d is not between 1 and 1000", *limit))
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			inbox, err := q.Inbox(ctx, *cursor, *limit)
			if err != nil {
				return err
			}
			rows := make([][]cell, len(inbox.Submissions))
			for i, s := range inbox.Submissions {
				rows[i] = []cell{text(s.Job.String()), text(oneLine(s.Queue, 64)), text(oneLine(s.Type, 64)), text(ago(s.RefusedAt)), text(clean(s.Problem))}
			}
			return r.print(wire.InboxOf(&inbox), func(s screen) {
				s.table([]string{"JOB", "QUEUE", "TYPE", "REFUSED", "PROBLEM"}, rows)
				if inbox.Waiting > 0 {
					s.line("%d not taken in yet, the oldest written %s", inbox.Waiting, ago(inbox.Oldest))
				}
				if inbox.Next != "" {
					s.line("more with --cursor %s", inbox.Next)
				}
			})
		})
	}
	return c
}

func newInboxRetry(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "retry [ID...]", Short: "Decide again about refused submissions",
		Long: `Decide again about refused submissions, for example after a full queue has room
again. They come after those that wait already.`,
		Example: "  gq inbox retry 0198…\n  gq inbox retry --all",
	}
	changeRefused(newRemote(p, c), c, "retried", nil, queue.RetryRefused)
	return c
}

func newInboxDiscard(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "discard [ID...]", Short: "Delete refused submissions", Long: "Delete refused submissions for good.",
		Example: "  gq inbox discard 0198…\n  gq inbox discard --all --yes",
	}
	changeRefused(newRemote(p, c), c, "discarded", yesFlag(c), queue.DiscardRefused)
	return c
}

// changeRefused makes a command call change with the submissions that its arguments name. It asks
// first if there is a flag that says not to.
func changeRefused(r *remote, c *cobra.Command, done string, yes *bool, change func(queue, context.Context, gq.RefusedSelection) (int, error)) {
	all := c.Flags().Bool("all", false, "every refused submission")
	c.RunE = func(c *cobra.Command, args []string) error {
		which := gq.RefusedSelection{All: *all}
		for _, arg := range args {
			id, err := jobArg(arg)
			if err != nil {
				return err
			}
			which.Jobs = append(which.Jobs, id)
		}
		if *all == (len(args) > 0) {
			return cli.Invalid("ID", "name submissions by the ids of their jobs, or give --all")
		}
		if yes != nil {
			what := fmt.Sprintf("%d refused submissions", len(which.Jobs))
			if *all {
				what = "every refused submission"
			}
			if err := r.confirm(*yes, "Delete "+what+" for good?"); err != nil {
				return err
			}
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			n, err := change(q, ctx, which)
			if err != nil {
				return err
			}
			return r.print(wire.RefusedCount{Submissions: n}, func(s screen) { s.line("%s %d", done, n) })
		})
	}
}
