package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
)

func newJobUpdate(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "update ID",
		Short: "Change the metadata of a live job",
		Long: `Change the tags, correlation id or callback of a job that has not ended, or the
priority of one that no worker holds: it counts from the next claim on.`,
		Example: `  gq job update 0198… --priority CRITICAL
  gq job update 0198… --tag customer=7 --untag draft`,
		Args: oneArgument("the id of a job"),
	}
	r := newRemote(p, c)
	var priority, correlation, callback string
	var tags, untag []string
	flags := c.Flags()
	flags.StringVar(&priority, "priority", "", "CRITICAL, HIGH, NORMAL, LOW, BULK or 0 to 4")
	flags.StringArrayVar(&tags, "tag", nil, "a label to add or replace, as name=value")
	flags.StringSliceVar(&untag, "untag", nil, "names of labels to remove")
	flags.StringVar(&correlation, "correlation-id", "", "for traces and logs; empty removes it")
	flags.StringVar(&callback, "callback", "", "URL to call when the job has ended; empty removes it")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := jobArg(args[0])
		if err != nil {
			return err
		}
		patch := gq.MetadataPatch{DropTags: untag}
		var faults []gq.Fault
		patch.SetTags, faults = readTags(tags)
		if priority != "" {
			patch.Priority, err = enum.Parse[gq.Priority](strings.ToUpper(priority))
			faults = append(faults, errs.FaultsOf(err)...)
		}
		if c.Flags().Changed("correlation-id") {
			patch.CorrelationID = &correlation
		}
		if c.Flags().Changed("callback") {
			patch.CallbackURL = &callback
		}
		switch {
		case len(faults) > 0:
			return &gq.InvalidError{Faults: faults}
		case patch.Empty():
			return cli.Invalid("flags", "say what to change; see gq job update --help")
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			job, err := q.UpdateMetadata(ctx, id, patch)
			if err != nil {
				return err
			}
			return r.print(wire.JobOf(&job), func(s screen) { s.line("%s updated%s", id, newPriority(&patch)) })
		})
	}
	return c
}

func newPriority(p *gq.MetadataPatch) string {
	if p.Priority == 0 {
		return ""
	}
	return ", priority " + p.Priority.String()
}

func newJobCancel(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel [ID...]",
		Short: "Cancel jobs",
		Long: `Cancel jobs by id, or all live jobs that a filter selects. A job that is not
running ends at once. The worker of a running job is told at once if it uses the Go
library or gq work, and over HTTP with its next heartbeat. If a filter selects more
than one job, the command says how many and asks; without a terminal, and with
--json, it requires --yes.`,
		Example: `  gq job cancel 0198… --reason "no longer needed"
  gq job cancel --queue mail --state SCHEDULED
  gq job cancel --type email.send --tag customer=7
  gq job cancel --all --yes`,
	}
	r := newRemote(p, c)
	var f filterFlags
	var reason string
	f.add(c.Flags())
	f.addAll(c.Flags(), "every live job")
	c.Flags().StringVar(&reason, "reason", "", "kept with the job")
	yes := yesFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, query, err := f.chosen(args)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return r.long(c.Context(), func(ctx context.Context, q queue) error { return r.cancelMany(ctx, q, query, reason, *yes) })
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			return each(ids, func(id gq.JobID) error {
				state, err := q.Cancel(ctx, id, reason)
				if err != nil {
					return err
				}
				return r.print(r.jobIn(ctx, q, &state), func(s screen) {
					if state.Live() {
						s.line("%s is running; its worker was asked to stop it", id)
						return
					}
					s.line("%s %s", id, s.status(state.Status, 0))
				})
			})
		})
	}
	return c
}

// jobIn returns a job in the state that a call left it in: the whole job, if it may be
// read, for JSON output.
func (r *remote) jobIn(ctx context.Context, q queue, s *gq.State) wire.Job {
	if r.json {
		if job, err := q.Get(ctx, s.ID, 0); err == nil {
			job.State = *s
			return wire.JobOf(&job)
		}
	}
	return wire.StateOf(s)
}

func (r *remote) cancelMany(ctx context.Context, q queue, query gq.Query, reason string, yes bool) error {
	if err := r.confirmCancel(ctx, q, query, yes); err != nil {
		return err
	}
	line := newProgress(r.stderr)
	line.show("cancelling …")
	report, err := q.CancelWhere(ctx, query, reason)
	line.clear()
	if err != nil && report == (gq.CancelReport{}) {
		return err
	}
	return errors.Join(err, r.print(wire.CancelReport(report), func(s screen) {
		s.line("%d cancelled, %d asked to stop, %d had ended", report.Cancelled, report.Requested, report.Finished)
	}))
}

// confirmCancel asks before more than one job is cancelled.
func (r *remote) confirmCancel(ctx context.Context, q queue, query gq.Query, yes bool) error {
	if yes {
		return nil
	}
	if len(query.Statuses) == 0 {
		query.Statuses = enum.All[gq.Status]()
	}
	query.Statuses = slices.DeleteFunc(slices.Clone(query.Statuses), gq.Status.Terminal)
	if len(query.Statuses) == 0 {
		return nil
	}
	n, err := r.count(ctx, q, query)
	if err != nil || n <= 1 {
		return err
	}
	err = r.confirm(false, fmt.Sprintf("Cancel %d jobs?", n))
	if _, nobody := errors.AsType[*gq.InvalidError](err); nobody {
		return cli.Invalid("yes", fmt.Sprintf("the flags select %d jobs; say --yes to cancel them", n))
	}
	return err
}

// replay replays a finished job, prints the result and returns the id of the new job.
func (r *remote) replay(ctx context.Context, q queue, id gq.JobID) (gq.JobID, error) {
	submitted, err := q.Replay(ctx, id)
	if err != nil {
		return gq.JobID{}, err
	}
	if !r.json {
		if submitted.Existing {
			fmt.Fprintf(r.stderr, "gq: job %s was replayed before: this is its replay, which is %s; to run it once more, replay that one when it has finished\n", id, submitted.State.Status)
		}
		fmt.Fprintln(r.stdout, submitted.ID())
		return submitted.ID(), nil
	}
	return submitted.ID(), wire.EncodeJSON(r.stdout, wire.Submitted{Job: madeJob(ctx, q, &submitted), Existing: submitted.Existing, Same: submitted.Existing})
}

// madeJob returns a submitted job, as far as it may be read: the job exists even if
// reading it fails.
func madeJob(ctx context.Context, q queue, s *gq.SubmitResult) wire.Job {
	job, err := q.Get(ctx, s.ID(), gq.WithPayload)
	if err != nil {
		return wire.StateOf(&s.State)
	}
	return wire.JobOf(&job)
}
