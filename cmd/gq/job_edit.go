package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/wire"
)

func newJobEdit(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "edit ID",
		Short: "Edit or move a waiting job",
		Long: `Replace a waiting job by a copy with another payload, queue or start, and print
the id of the copy. The copy keeps the job's key, and jobs that depend on the old
job wait for the copy. The old job is cancelled in the same commit; each names the
other. A job that a worker has started or holds cannot be edited, nor can a job of
a workflow or one with an order key.`,
		Example: `  gq job edit 0198… --payload '{"to":"ada@example.com"}'
  gq job edit 0198… --queue slow`,
		Args: oneArgument("the id of a job"),
	}
	r := newRemote(p, c)
	var f specFlags
	c.Flags().StringVar(&f.payload, "payload", "", "new payload: text, @FILE, or - for standard input")
	c.Flags().StringVar(&f.contentType, "content-type", "", "media type of the payload (default application/json if it is JSON, else text/plain or application/octet-stream)")
	c.Flags().StringVar(&f.queue, "queue", "", "queue to move the job to")
	c.Flags().StringVar(&f.at, "at", "", "earliest start, such as 2030-01-31T12:00:00Z")
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, err := jobArgs(args)
		if err != nil {
			return err
		}
		if f.contentType != "" && f.payload == "" {
			return cli.Invalid("content-type", "needs --payload")
		}
		change := gq.JobEdit{Queue: f.queue}
		if f.payload != "" {
			payload, err := f.read(p.stdin)
			if err != nil {
				return cli.Invalid("payload", err.Error())
			}
			change.Payload = &payload
		}
		if f.at != "" {
			if change.RunAt, err = time.Parse(time.RFC3339, f.at); err != nil {
				return cli.Invalid("at", fmt.Sprintf("%q is not an instant such as 2030-01-31T12:00:00Z", f.at))
			}
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			submitted, err := q.Edit(ctx, ids[0], change)
			if err != nil {
				return err
			}
			if !r.json {
				fmt.Fprintln(r.stdout, submitted.ID())
				return nil
			}
			return wire.EncodeJSON(r.stdout, madeJob(ctx, q, &submitted))
		})
	}
	return c
}
