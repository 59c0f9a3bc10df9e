package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
)

func newQueueDelete(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a queue without live jobs",
		Long: `Delete the configuration and the declaration of a queue. A queue with live jobs is
refused: cancel them first, or wait. Finished jobs stay until their retention ends,
and the queue is listed until then; --purge removes them too. A later submission
makes the queue anew, with the defaults.`,
		Example: `  gq queue delete mail
  gq queue delete mail --purge --yes`,
		Args: oneArgument("the name of a queue"),
	}
	r := newRemote(p, c)
	var purge, yes bool
	c.Flags().BoolVar(&purge, "purge", false, "remove its finished jobs too, for good")
	c.Flags().BoolVar(&yes, "yes", false, "with --purge: do not ask")
	c.RunE = func(c *cobra.Command, args []string) error {
		if purge {
			if err := r.confirm(yes, "Remove the finished jobs of "+args[0]+" for good?"); err != nil {
				return err
			}
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			if err := q.DeleteQueue(ctx, args[0]); err != nil {
				return err
			}
			purged := 0
			if purge {
				finished := gq.Query{Queue: args[0], Statuses: []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}}
				var err error
				if purged, err = q.PurgeWhere(ctx, finished); err != nil {
					return err
				}
			}
			return r.print(struct {
				Deleted string `json:"deleted"`
				Purged  int    `json:"purged,omitzero"`
			}{args[0], purged}, func(to screen) {
				to.line("%s deleted", args[0])
				if purge {
					to.line("%s purged", quantity.Of(purged, "job"))
				}
			})
		})
	}
	return c
}
