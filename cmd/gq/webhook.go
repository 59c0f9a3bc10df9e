package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/wire"
)

func newWebhook(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "webhook",
		Short: "Show and retry webhook deliveries",
		Long:  "Show deliveries to callback URLs, and retry those that were given up.\n\n" + cli.ExitHelp,
		Example: `  gq webhook list --state dead
  gq webhook retry msg_7c9e6679-7425-40de-944b-e07fc1f90ae7.1042
  gq webhook secret`,
	}
	c.AddCommand(newWebhookList(p), newWebhookRetry(p), newWebhookSecret(p))
	return c
}

// administer calls f with the admin API of the server.
func (r *remote) administer(ctx context.Context, f func(ctx context.Context, a pb.AdminServiceClient) error) error {
	return r.short(ctx, func(ctx context.Context, q queue) error {
		a, err := adminOf(q)
		if err != nil {
			return err
		}
		return f(ctx, a)
	})
}

var deliveryStates = map[string]pb.DeliveryState{
	"":          pb.DeliveryState_DELIVERY_STATE_UNSPECIFIED,
	"pending":   pb.DeliveryState_DELIVERY_STATE_PENDING,
	"delivered": pb.DeliveryState_DELIVERY_STATE_DELIVERED,
	"dead":      pb.DeliveryState_DELIVERY_STATE_DEAD,
}

func shownDelivery(d *pb.Delivery) wire.Delivery {
	id, _ := gq.ParseJobID(d.GetJobId()) // sent by the server, so valid
	out := wire.Delivery{
		ID: d.GetId(), Job: id, Queue: d.GetQueue(), Type: gq.EventType(d.GetType()), URL: d.GetUrl(), Attempts: int(d.GetAttempts()),
		CreatedAt: d.GetCreatedAt().AsTime(), LastStatus: int(d.GetLastStatus()), Reason: d.GetReason(),
	}
	for name, state := range deliveryStates {
		if state == d.GetState() {
			out.State = name
		}
	}
	if at := d.GetNextAt(); at != nil {
		out.NextAt = at.AsTime()
	}
	if at := d.GetLastAt(); at != nil {
		out.LastAt = at.AsTime()
	}
	return out
}

func newWebhookList(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List deliveries: pending ones, failed ones, and those of the last day",
		Example: "  gq webhook list --state dead --json", Args: cli.NoArguments,
	}
	r := newRemote(p, c)
	var state, cursor string
	var limit int
	c.Flags().StringVar(&state, "state", "", "pending, dead or delivered (default any)")
	c.Flags().IntVar(&limit, "limit", 50, "deliveries on the page, up to 1000")
	c.Flags().StringVar(&cursor, "cursor", "", "next_cursor of the previous page")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if limit < 1 || limit > 1000 {
			return cli.Invalid("limit", fmt.Sprintf("%d is not between 1 and 1000", limit))
		}
		wanted, ok := deliveryStates[strings.ToLower(state)]
		if !ok {
			return cli.Invalid("state", fmt.Sprintf("%.64q is not one of pending, dead, delivered", state))
		}
		return r.administer(c.Context(), func(ctx context.Context, a pb.AdminServiceClient) error {
			answer, err := a.ListDeliveries(ctx, &pb.ListDeliveriesRequest{State: wanted, Cursor: cursor, Limit: int64(limit)})
			if err != nil {
				return err
			}
			out := wire.Deliveries{Deliveries: make([]wire.Delivery, len(answer.GetDeliveries())), NextCursor: answer.GetNextCursor()}
			rows := make([][]cell, len(out.Deliveries))
			for i, d := range answer.GetDeliveries() {
				w := shownDelivery(d)
				out.Deliveries[i] = w
				rows[i] = []cell{text(w.ID), text(w.State), text(w.Type.String()), text(clean(w.URL)), number(w.Attempts), text(ago(w.NextAt)), text(clean(w.Reason))}
			}
			return r.print(out, func(s screen) {
				s.table([]string{"ID", "STATE", "TYPE", "URL", "ATTEMPTS", "NEXT", "REASON"}, rows)
				if out.NextCursor != "" {
					s.line("more with --cursor %s", out.NextCursor)
				}
			})
		})
	}
	return c
}

func newWebhookRetry(p process) *cobra.Command {
	c := &cobra.Command{Use: "retry ID", Short: "Retry a delivery that was given up", Example: "  gq webhook retry msg_….1042", Args: oneArgument("the id of a delivery")}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.administer(c.Context(), func(ctx context.Context, a pb.AdminServiceClient) error {
			d, err := a.RetryDelivery(ctx, &pb.RetryDeliveryRequest{Id: args[0]})
			if err != nil {
				return err
			}
			return r.print(shownDelivery(d), func(s screen) { s.line("%s will be delivered again", d.GetId()) })
		})
	}
	return c
}

func newWebhookSecret(p process) *cobra.Command {
	c := &cobra.Command{Use: "secret", Short: "Show the secret that signs deliveries", Example: "  gq webhook secret", Args: cli.NoArguments}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return r.administer(c.Context(), func(ctx context.Context, a pb.AdminServiceClient) error {
			answer, err := a.GetWebhookSecret(ctx, &pb.GetWebhookSecretRequest{})
			if err != nil {
				return err
			}
			return r.print(wire.WebhookSecret{Secret: answer.GetSecret()}, func(s screen) { s.line("%s", answer.GetSecret()) })
		})
	}
	return c
}
