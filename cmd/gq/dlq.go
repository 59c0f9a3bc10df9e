package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/wire"
)

func newDLQ(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "dlq",
		Short: "Manage dead-lettered jobs",
		Long: `Manage jobs in DEAD_LETTER: they used up their attempts or their lifetime, and
somebody should find out why.

` + cli.ExitHelp,
		Example: `  gq dlq list --queue mail
  gq dlq replay 0198…
  gq dlq replay --queue mail
  gq dlq purge --queue mail --until 168h`,
	}
	c.AddCommand(newDLQList(p), newDLQReplay(p), newDLQPurge(p))
	return c
}

func newDLQList(p process) *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "List dead-lettered jobs",
		Long:    "List dead-lettered jobs, newest first.\n\n" + listHelp,
		Example: "  gq dlq list --since 24h\n  gq dlq list --type email.send",
		Args:    cli.NoArguments,
	}
	listing(newRemote(p, c), c, &filterFlags{dead: true})
	return c
}

// deadFlags selects jobs in DEAD_LETTER for a command that changes them.
func deadFlags(c *cobra.Command) *filterFlags {
	f := &filterFlags{dead: true}
	f.add(c.Flags())
	f.addAll(c.Flags(), "every job in DEAD_LETTER")
	return f
}

func newDLQReplay(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Submit dead-lettered jobs again",
		Long: `Submit dead-lettered jobs again as new jobs, oldest first, and print their ids.
Name the jobs or select them with flags. The old jobs stay as they are, and those
that were replayed before are not replayed again. With flags the command counts
the jobs and asks first, if it is used on a terminal and without --yes. --dry-run
only counts.`,
		Example: `  gq dlq replay 0198…
  gq dlq replay --queue mail --since 24h
  gq dlq replay --all`,
	}
	r := newRemote(p, c)
	f := deadFlags(c)
	var yes, dry bool
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&dry, "dry-run", false, "only count the jobs")
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, query, err := f.chosen(args)
		if err != nil {
			return err
		}
		ask := !yes && !r.json && isTerminal(p.stdin)
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			if len(ids) == 0 && (dry || ask) {
				n, err := r.count(ctx, q, query)
				if err == nil && dry {
					return r.print(wire.CountReport{Jobs: n}, func(s screen) { s.line("%s", quantity.Of(n, "job")) })
				}
				if err == nil {
					err = r.confirmReplay(false, n)
				}
				if err != nil {
					return err
				}
			}
			if len(ids) == 0 {
				return r.replayMany(ctx, q, query)
			}
			return each(ids, func(id gq.JobID) error {
				if err := checkDead(ctx, q, id, "; gq job replay takes any"); err != nil {
					return err
				}
				_, err := r.replay(ctx, q, id)
				return err
			})
		})
	}
	return c
}

// checkDead rejects jobs that are not in DEAD_LETTER.
func checkDead(ctx context.Context, q queue, id gq.JobID, hint string) error {
	job, err := q.Get(ctx, id, 0)
	if err == nil && job.State.Status != gq.StatusDeadLetter {
		err = fmt.Errorf("job %s is %s, not DEAD_LETTER%s: %w", id, job.State.Status, hint, gq.ErrIllegalMove)
	}
	return err
}

func newDLQPurge(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "purge [ID...]",
		Short: "Delete dead-lettered jobs",
		Long: `Delete dead-lettered jobs before their retention ends, with their payloads and
histories. Name the jobs or select them with flags. This cannot be undone. On a
terminal the command asks first; otherwise, and with --json, it requires --yes.`,
		Example: `  gq dlq purge 0198…
  gq dlq purge --queue mail --until 168h
  gq dlq purge --all --yes --json`,
	}
	r := newRemote(p, c)
	f := deadFlags(c)
	yes := yesFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, query, err := f.chosen(args)
		if err != nil {
			return err
		}
		what := "all jobs in DEAD_LETTER that the flags select"
		if len(ids) > 0 {
			what = fmt.Sprintf("%d of the jobs in DEAD_LETTER", len(ids))
		}
		if err := r.confirm(*yes, "Remove "+what+" for good?"); err != nil {
			return err
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			var purged int
			var err error
			if len(ids) == 0 {
				purged, err = r.purgeDead(ctx, q, query)
			} else {
				err = each(ids, func(id gq.JobID) error {
					if err := checkDead(ctx, q, id, ""); err != nil {
						return err
					}
					err := q.Purge(ctx, id)
					if err == nil {
						purged++
					}
					return err
				})
			}
			if err != nil && purged == 0 {
				return err
			}
			return errors.Join(err, r.print(wire.PurgeReport{Purged: purged}, func(s screen) { s.line("%d purged", purged) }))
		})
	}
	return c
}

func (r *remote) purgeDead(ctx context.Context, q queue, query gq.Query) (int, error) {
	line := newProgress(r.stderr)
	line.show("purging …")
	defer line.clear()
	return q.PurgeWhere(ctx, query)
}

// yesFlag adds --yes to a command that asks for confirmation.
func yesFlag(c *cobra.Command) *bool { return c.Flags().Bool("yes", false, "do not ask") }

// confirm asks for confirmation on a terminal; elsewhere nobody could answer.
func (r *remote) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	nobody := cli.Invalid("yes", "this cannot be undone; say --yes")
	if r.json || !isTerminal(r.stdin) {
		return nobody
	}
	fmt.Fprintf(r.stderr, "%s [y/N] ", question)
	var answer string
	if _, err := fmt.Fscanln(r.stdin, &answer); errors.Is(err, io.EOF) { // /dev/null looks like a terminal
		return nobody
	}
	if answer = strings.ToLower(answer); answer != "y" && answer != "yes" {
		return &cli.StatusError{Status: cli.ExitFailure, Err: errors.New("nothing was changed")}
	}
	return nil
}
