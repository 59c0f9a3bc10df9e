package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/wire"
)

func newWorkflow(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "workflow",
		Short: "Submit, show, cancel, retry and signal workflows",
		Long: `Submit, show, cancel, retry and signal workflows: jobs with names that depend on each
other and have one id, one name and one status.

` + cli.ExitHelp,
		Example: `  gq workflow submit order.json
  gq workflow show 0199a5c0-7d1e-7c3a-9f00-2b6d1c5e8a01
  gq workflow signal 0199a5c0-7d1e-7c3a-9f00-2b6d1c5e8a01 approved --value '"by ada"'`,
	}
	c.AddCommand(newWorkflowSubmit(p), newWorkflowList(p), newWorkflowShow(p), newWorkflowCancel(p), newWorkflowRetry(p), newWorkflowSignal(p), newWorkflowAdd(p))
	return c
}

// readFlow reads a workflow from a file, or from standard input for "-".
func readFlow(ctx context.Context, p process, q queue, file string, into any, flow func() *wire.Flow) (*gq.Flow, error) {
	text, err := readInput(p, file)
	if err != nil {
		return nil, err
	}
	if err := wire.DecodeJSON(text, into); err != nil {
		return nil, err
	}
	return flow().Domain(func(name string) (gq.Policy, error) { return queuePolicy(ctx, q, name) }, true)
}

func newWorkflowSubmit(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Submit a workflow",
		Long: `Submit a workflow that a JSON file describes, as the request to POST /v1/workflows does;
"-" is standard input:

  {"name": "order 7", "jobs": [
    {"ref": "charge", "type": "order.charge", "payload": {"order": 7}},
    {"ref": "approved", "signal_within": "24h", "needs": [{"ref": "charge"}]},
    {"ref": "ship", "type": "order.ship", "needs": [{"ref": "approved"}]},
    {"ref": "notify", "type": "email.send", "final": "EITHER"}]}

` + cli.ExitHelp,
		Example: "  gq workflow submit order.json", Args: oneArgument("a file"),
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			var body wire.Flow
			f, err := readFlow(ctx, p, q, args[0], &body, func() *wire.Flow { return &body })
			if err != nil {
				return err
			}
			id, err := q.SubmitWorkflow(ctx, f)
			if err != nil {
				return err
			}
			return r.print(wire.WorkflowCreated{ID: id}, func(s screen) { s.line("%s", id) })
		})
	}
	return c
}

func newWorkflowList(p process) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List workflows, newest first", Example: "  gq workflow list --status failed", Args: cli.NoArguments}
	r := newRemote(p, c)
	var statuses []string
	var q gq.WorkflowQuery
	c.Flags().StringSliceVar(&statuses, "status", nil, "running, succeeded, failed or cancelled")
	c.Flags().StringVar(&q.Cursor, "cursor", "", "continue after an earlier page")
	c.Flags().IntVar(&q.Limit, "limit", 20, "workflows to look at, at most 100")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if q.Limit < 1 {
			return &gq.InvalidError{Faults: []gq.Fault{{Field: "limit", Problem: "must be between 1 and 100"}}}
		}
		for _, name := range statuses {
			var s gq.WorkflowStatus
			if err := s.UnmarshalText([]byte(strings.ToUpper(name))); err != nil {
				return err
			}
			q.Statuses = append(q.Statuses, s)
		}
		return r.short(c.Context(), func(ctx context.Context, on queue) error {
			page, err := on.Workflows(ctx, q)
			if err != nil {
				return err
			}
			out := wire.Workflows{Workflows: make([]wire.Workflow, len(page.Workflows)), NextCursor: page.Next}
			rows := make([][]cell, len(page.Workflows))
			for i := range page.Workflows {
				w := &page.Workflows[i]
				out.Workflows[i] = wire.WorkflowBrief(w)
				rows[i] = []cell{text(w.ID.String()), text(w.Status.String()), text(clean(w.Name)), number(len(w.Jobs)), text(ago(w.Created))}
			}
			return r.print(out, func(s screen) { s.table([]string{"WORKFLOW", "STATUS", "NAME", "JOBS", "CREATED"}, rows) })
		})
	}
	return c
}

// showWorkflow prints a workflow with its picture.
func (r *remote) showWorkflow(w *gq.Workflow, err error) error {
	if err != nil {
		return err
	}
	return r.print(wire.WorkflowOf(w), func(s screen) {
		s.pairs([2]string{"workflow", w.ID.String()}, [2]string{"name", clean(w.Name)}, [2]string{"status", w.Status.String()}, [2]string{"created", instant(w.Created)})
		for line := range strings.Lines(w.Text()) {
			s.line("%s", clean(strings.TrimSuffix(line, "\n")))
		}
	})
}

func newWorkflowShow(p process) *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: "Show a workflow and a picture of its jobs", Example: "  gq workflow show ID --svg > order.svg", Args: oneArgument("the id of a workflow")}
	r := newRemote(p, c)
	svg := c.Flags().Bool("svg", false, "print the picture as an SVG image")
	c.MarkFlagsMutuallyExclusive("svg", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := wire.ParseWorkflowID(args[0])
		if err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			w, err := q.Workflow(ctx, id)
			if err == nil && *svg {
				_, err = fmt.Fprint(p.stdout, w.SVG())
				return err
			}
			return r.showWorkflow(&w, err)
		})
	}
	return c
}

func newWorkflowCancel(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a workflow", Example: "  gq workflow cancel ID --reason 'customer left'", Args: oneArgument("the id of a workflow"),
		Long: "Cancel all live jobs of a workflow, except the final ones, which run if they are for this end.\n\n" + cli.ExitHelp,
	}
	r := newRemote(p, c)
	reason := c.Flags().String("reason", "", "kept with the jobs")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := wire.ParseWorkflowID(args[0])
		if err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			report, err := q.CancelWorkflow(ctx, id, *reason)
			if err != nil {
				return err
			}
			return r.print(wire.CancelReport(report), func(s screen) {
				s.line("%d cancelled, %d asked to stop", report.Cancelled, report.Requested)
			})
		})
	}
	return c
}

func newWorkflowRetry(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "retry ID", Short: "Retry a workflow from its failure", Example: "  gq workflow retry ID", Args: oneArgument("the id of a workflow"),
		Long: "Submit again what did not complete in a workflow that has ended, as new jobs with the same names.\n\n" + cli.ExitHelp,
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := wire.ParseWorkflowID(args[0])
		if err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			w, err := q.RetryWorkflow(ctx, id)
			return r.showWorkflow(&w, err)
		})
	}
	return c
}

func newWorkflowSignal(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "signal ID NAME", Short: "Send a signal to a job that waits for it", Example: `  gq workflow signal ID approved --value '{"by": "ada"}'`,
		Long: "Complete the job of a workflow that waits for a signal. The value becomes its result.\nThe same value again changes nothing.\n\n" + cli.ExitHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("needs the id of a workflow and the name of a signal")
			}
			return nil
		},
	}
	r := newRemote(p, c)
	value := c.Flags().String("value", "null", "any JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := wire.ParseWorkflowID(args[0])
		if err != nil {
			return err
		}
		if *value == "" {
			*value = "null"
		}
		if !json.Valid([]byte(*value)) {
			return &gq.InvalidError{Faults: []gq.Fault{{Field: "value", Problem: "is not JSON; quote text as '\"text\"'"}}}
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			state, err := q.Signal(ctx, id, args[1], json.RawMessage(*value))
			if err != nil {
				return err
			}
			return r.print(wire.StateOf(&state), func(s screen) { s.line("%s is %s", clean(args[1]), state.Status) })
		})
	}
	return c
}

func newWorkflowAdd(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "add ID FILE", Short: "Add jobs to a workflow that runs", Example: "  echo '{\"jobs\": [{\"ref\": \"gift\", \"type\": \"order.gift\", \"needs\": [{\"ref\": \"charge\"}]}]}' | gq workflow add ID -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("needs the id of a workflow and a file with jobs")
			}
			return nil
		},
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := wire.ParseWorkflowID(args[0])
		if err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			var body wire.FlowJobs
			f, err := readFlow(ctx, p, q, args[1], &body, func() *wire.Flow { return &wire.Flow{Jobs: body.Jobs} })
			if err != nil {
				return err
			}
			w, err := q.AddToWorkflow(ctx, id, f)
			return r.showWorkflow(&w, err)
		})
	}
	return c
}

// queuePolicy returns the policy of a queue, which fills the gaps in a job's policy. Only the
// server knows that of a queue that is not configured.
func queuePolicy(ctx context.Context, q queue, name string) (gq.Policy, error) {
	found, err := q.Queue(ctx, name)
	switch {
	case errors.Is(err, gq.ErrNotFound):
		return gq.Policy{}, cli.Invalid("policy", fmt.Sprintf("the queue %.80q is not configured, so name the preset that has the other settings (policy.preset); "+
			"without it only max_attempts and lease_ttl above 0, and execution_timeout, lifetime, start_within, idempotency_window and retention of at least 0 can be set", name))
	case err != nil:
		return gq.Policy{}, err
	}
	return found.Policy, nil
}
