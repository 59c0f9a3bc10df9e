package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

func newJob(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "job",
		Short: "Show and change jobs",
		Long:  "Show and change jobs.\n\n" + cli.ExitHelp,
		Example: `  gq job list --state FAILED,DEAD_LETTER
  gq job get 0198… --result > result.bin
  gq job explain 0198…
  gq job wait 0198… && echo done`,
	}
	c.AddCommand(newJobGet(p), newJobList(p), newJobUpdate(p), newJobCancel(p), newJobEdit(p), newJobRunNow(p), newJobReschedule(p), newJobReplay(p),
		newJobEvents(p), newJobWait(p), newJobExplain(p))
	return c
}

func newJobGet(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Show a job",
		Long: `Show the current state of a job.

With --payload, --result or --checkpoint only those bytes are written, unchanged,
for use in a pipe.

` + viewHelp,
		Example: `  gq job get 0198…
  gq job get 0198… --json
  gq job get 0198… --view semantics
  gq job get 0198… --payload | jq .`,
		Args: oneArgument("the id of a job"),
	}
	r := newRemote(p, c)
	var raw [3]bool
	var shown viewFlag
	shown.add(c.Flags())
	for i, name := range []string{"payload", "result", "checkpoint"} {
		c.Flags().BoolVar(&raw[i], name, false, "write the "+name+" and nothing else")
		c.MarkFlagsMutuallyExclusive(name, "view")
	}
	c.MarkFlagsMutuallyExclusive("payload", "result", "checkpoint", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := jobArg(args[0])
		v, unknown := shown.chosen()
		if err := errors.Join(err, unknown); err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			job, err := q.Get(ctx, id, gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
			if err != nil {
				return err
			}
			for i, data := range [][]byte{job.Spec.Payload.Data, job.Result, job.Checkpoint} {
				if raw[i] {
					_, err := r.stdout.Write(data)
					if err == nil && isTerminal(r.stdout) && !bytes.HasSuffix(data, []byte("\n")) {
						_, err = fmt.Fprintln(r.stdout)
					}
					return err
				}
			}
			if v != nil {
				return r.print(v.Job(&job), func(s screen) { s.pairs(members(v.Job(&job))...) })
			}
			return r.print(wire.JobOf(&job), func(s screen) { s.job(&job) })
		})
	}
	return c
}

// filterFlags select jobs.
type filterFlags struct {
	dead         bool // only jobs in DEAD_LETTER
	all          bool
	canAll       bool // the command has --all
	queue        string
	states       []string
	view         viewFlag // of lists; the states are those of the view
	since, until string
	types, tags  []string
}

func (f *filterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.queue, "queue", "", "only this queue")
	if !f.dead {
		flags.StringSliceVar(&f.states, "state", nil, "only in these states")
	}
	flags.StringVar(&f.since, "since", "", "submitted since: a time, or a duration before now, such as 2h")
	flags.StringVar(&f.until, "until", "", "submitted before: as --since")
	flags.StringArrayVar(&f.types, "type", nil, "only this type; may be repeated: any of them")
	flags.StringArrayVar(&f.tags, "tag", nil, "only with this label, as name=value; may be repeated: all of them")
}

// addAll adds the flag that selects all jobs, for commands that change jobs.
func (f *filterFlags) addAll(flags *pflag.FlagSet, usage string) {
	flags.BoolVar(&f.all, "all", false, usage)
	f.canAll = true
}

func (f *filterFlags) given() bool {
	return f.queue != "" || len(f.states) > 0 || f.since != "" || f.until != "" || len(f.types) > 0 || len(f.tags) > 0
}

func (f *filterFlags) query() (q gq.Query, err error) {
	var faults []gq.Fault
	q.Queue, q.Types = f.queue, f.types
	if f.dead {
		q.Statuses = []gq.Status{gq.StatusDeadLetter}
	}
	for _, name := range f.states {
		if f.view.name != "" {
			break
		}
		s, err := enum.Parse[gq.Status](strings.ToUpper(name))
		faults = append(faults, errs.FaultsOf(err)...)
		q.Statuses = append(q.Statuses, s)
	}
	for _, i := range []struct {
		field, text string
		to          *time.Time
	}{{"since", f.since, &q.CreatedAfter}, {"until", f.until, &q.CreatedBefore}} {
		if i.text == "" {
			continue
		}
		if *i.to, err = readInstant(i.text); err != nil {
			faults = append(faults, gq.Fault{Field: i.field, Problem: err.Error()})
		}
	}
	var more []gq.Fault
	q.Tags, more = readTags(f.tags)
	if len(more) == 0 && len(q.Tags) < len(f.tags) { // dropping a repeated tag would select more than was asked for
		more = []gq.Fault{{Field: "tag", Problem: "a label is asked for with two values"}}
	}
	if faults = append(faults, more...); len(faults) > 0 {
		return q, &gq.InvalidError{Faults: faults}
	}
	return q, nil
}

// chosen returns the jobs that a command changes: the named ones or, without names, those
// that the query selects.
func (f *filterFlags) chosen(args []string) (ids []gq.JobID, q gq.Query, err error) {
	if ids, err = jobArgs(args); err != nil {
		return nil, q, err
	}
	if q, err = f.query(); err != nil {
		return nil, q, err
	}
	if many := f.given() || f.all; many == (len(ids) > 0) {
		problem := "give ids, or a filter such as --queue"
		if f.canAll {
			problem += ", or --all"
		}
		return nil, q, cli.Invalid("arguments", problem)
	}
	return ids, q, nil
}

// readInstant parses a time, or a duration before now.
func readInstant(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%.64q is neither an instant such as 2030-01-31T12:00:00Z nor a duration such as 2h", text)
}

func newJobList(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Long:  "List jobs, newest first.\n\n" + listHelp + "\n\n" + viewHelp + "\n--state takes the states of the view.",
		Example: `  gq job list --queue mail --state SCHEDULED,RETRYING
  gq job list --type email.send --tag customer=7
  gq job list --since 1h --limit 200
  gq job list --view semantics --state InFlight
  gq job list --json --limit 1000 | jq -r '.jobs[].id'`,
		Args: cli.NoArguments,
	}
	listing(newRemote(p, c), c, &filterFlags{})
	return c
}

const listHelp = `Type and tag are not indexed: with --type or --tag the server scans the jobs that
the other flags select, 10,000 at a time, until the page is full or 20 seconds have
passed. The cursor continues from there. --key uses an index.`

// lookFor limits the search for jobs by type or tag.
const lookFor = 20 * time.Second

// listing makes a command that lists the jobs a filter selects.
func listing(r *remote, c *cobra.Command, f *filterFlags) {
	var limit int
	var cursor string
	var oldest bool
	var keys []string
	f.add(c.Flags())
	if !f.dead {
		f.view.add(c.Flags())
	}
	c.Flags().StringArrayVar(&keys, "key", nil, "only with this idempotency or unique key, or replays of the job with this id; may be repeated: any of them")
	c.Flags().IntVar(&limit, "limit", 50, "jobs on the page, at most 1000")
	c.Flags().StringVar(&cursor, "cursor", "", "next_cursor of the previous page")
	c.Flags().BoolVar(&oldest, "oldest-first", false, "oldest first")
	c.RunE = func(c *cobra.Command, _ []string) error {
		query, err := f.query()
		v, unknown := f.view.chosen()
		if err := errors.Join(err, unknown); err != nil {
			return err
		}
		if limit < 1 || limit > 1000 {
			return cli.Invalid("limit", fmt.Sprintf("%d is not between 1 and 1000", limit))
		}
		var states []string
		if v != nil {
			if states, err = viewStates(v, f.states); err != nil {
				return err
			}
		}
		query.Keys, query.Limit, query.Cursor, query.OldestFirst = keys, limit, cursor, oldest
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			list := lister(q.List)
			if v != nil {
				list = func(ctx context.Context, query gq.Query) (gq.Page, error) { return v.List(ctx, q, query, states) }
			}
			page, err := r.page(ctx, list, query, len(states) > 0)
			if err != nil {
				return err
			}
			return r.printPage(v, page)
		})
	}
}

// printPage prints a page of jobs, in a view unless that is nil.
func (r *remote) printPage(v *view.View, page gq.Page) error {
	var encoded any = wire.JobsOf(page)
	if v != nil {
		encoded = v.Page(page)
	}
	return r.print(encoded, func(s screen) {
		if v != nil {
			s.viewPage(v, page)
		} else {
			s.jobs(page.Jobs)
		}
		if page.Next != "" {
			fmt.Fprintf(r.stderr, "gq: there are more: --cursor %s\n", page.Next)
		}
	})
}

// page lists jobs. For a filter by type or tag, or by a state of a view, the server may return a
// partial page, so page asks again until it is full.
func (r *remote) page(ctx context.Context, list lister, query gq.Query, partial bool) (page gq.Page, err error) {
	began, limit := time.Now(), query.Limit
	line := newProgress(r.stderr)
	defer line.clear()
	for {
		some, err := list(ctx, query)
		if err != nil {
			return page, err
		}
		page.Jobs, page.Next = append(page.Jobs, some.Jobs...), some.Next
		if !partial && !query.Picks() || page.Next == "" || len(page.Jobs) == limit || time.Since(began) > lookFor {
			return page, nil
		}
		line.show("looking, %d found so far …", len(page.Jobs))
		query.Limit, query.Cursor = limit-len(page.Jobs), page.Next
	}
}

func newJobEvents(p process) *cobra.Command {
	c := &cobra.Command{
		Use:     "events ID",
		Aliases: []string{"history"},
		Short:   "Show what has happened to a job",
		Long:    "Show what has happened to a job, oldest first. With --json one event a line.\n\n" + viewHelp,
		Example: `  gq job events 0198…
  gq job events 0198… --view jobmodel
  gq job events 0198… --json | jq -r .type`,
		Args: oneArgument("the id of a job"),
	}
	r := newRemote(p, c)
	var shown viewFlag
	shown.add(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := jobArg(args[0])
		v, unknown := shown.chosen()
		if err := errors.Join(err, unknown); err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			events, err := q.History(ctx, id)
			if err != nil {
				return err
			}
			return r.printHistory(v, events)
		})
	}
	return c
}

func newJobWait(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a job has ended",
		Long:  "Wait until a job has ended and print its outcome. With --json the job and its\nresult are printed.\n\n" + viewHelp + "\n\n" + cli.ExitHelp,
		Example: `  gq job wait 0198…
  gq job wait 0198… --timeout 1m --json`,
		Args: oneArgument("the id of a job"),
	}
	r := newRemote(p, c)
	r.patience = patient
	var timeout time.Duration
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long (default never)")
	var shown viewFlag
	shown.add(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := jobArg(args[0])
		v, unknown := shown.chosen()
		if err := errors.Join(err, unknown); err != nil {
			return err
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			return r.waitFor(ctx, q, id, timeout, false, v)
		})
	}
	return c
}

func newJobExplain(p process) *cobra.Command {
	c := &cobra.Command{
		Use:     "explain ID",
		Short:   "Say why a job is not running",
		Long:    "Say why a job is not running, what would help, what else blocks it, and what has\nhappened to it so far.",
		Example: "  gq job explain 0198…",
		Args:    oneArgument("the id of a job"),
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := jobArg(args[0])
		if err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			x, err := q.Explain(ctx, id)
			if err != nil {
				return err
			}
			return r.print(wire.ExplanationOf(&x), func(s screen) { s.explanation(&x) })
		})
	}
	return c
}

// each calls f for all items and continues after errors. The first error decides the exit
// status.
func each[T any](all []T, f func(T) error) (err error) {
	for _, v := range all {
		err = errors.Join(err, f(v))
	}
	return err
}
