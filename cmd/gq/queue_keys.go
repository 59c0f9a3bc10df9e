package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/wire"
)

func newQueueKey(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "key", Short: "Show and set limits of single keys",
		Long: `A queue has the same limits for all its limit keys, such as customers: --key-limit
and --key-rate of gq queue set. These commands give single keys other limits.`,
		Example: `  gq queue key set mail acme --limit 5 --rate 10/s
  gq queue key list mail`,
	}
	c.AddCommand(newQueueKeyList(p), newQueueKeySet(p), newQueueKeyUnset(p))
	return c
}

func newQueueKeyList(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "list QUEUE", Short: "List the keys that have limits of their own", Example: "  gq queue key list mail", Args: oneArgument("the name of a queue"),
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			if _, err := q.Queue(ctx, args[0]); err != nil {
				return err
			}
			const page = 1000
			var keys []gq.QueueKey
			for after, more := "", true; more; {
				some, err := q.QueueKeys(ctx, args[0], after, page)
				if err != nil {
					return err
				}
				if more = len(some) == page; more {
					after = some[page-1].Key
				}
				keys = append(keys, some...)
			}
			return r.print(wire.QueueKeysOf(keys, ""), func(s screen) {
				rows := make([][]cell, len(keys))
				for i := range keys {
					rows[i] = []cell{text(clean(keys[i].Key)), text(keyLimitText(keys[i].Limit)), text(keyRateText(keys[i].Rate)), text(instant(keys[i].FreeAt))}
				}
				s.table([]string{"KEY", "LIMIT", "RATE", "FREE"}, rows)
			})
		})
	}
	return c
}

func newQueueKeySet(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "set QUEUE KEY",
		Short: "Give one key limits of its own",
		Long: `Give one limit key of a queue other limits than the rest. They replace those that the
key had; what is not given is the queue's. They count from the next claim on.`,
		Example: `  gq queue key set mail acme --limit 5
  gq queue key set mail acme --limit 5 --rate 10/s --burst 20`,
		Args: queueAndKey,
	}
	r := newRemote(p, c)
	var limit, burst int
	var rate string
	c.Flags().IntVar(&limit, "limit", 0, "jobs held at once (default the queue's key limit)")
	c.Flags().StringVar(&rate, "rate", "", "claims, as COUNT/DURATION such as 100/1m (default the queue's key rate)")
	c.Flags().IntVar(&burst, "burst", 0, "with --rate: claims at once after a pause")
	c.RunE = func(c *cobra.Command, args []string) error {
		k := gq.QueueKey{Queue: args[0], Key: args[1], Limit: limit}
		if c.Flags().Changed("limit") && limit == 0 {
			return cli.Invalid("limit", "0 is no limit of a key's own; leave it out for that of the queue, or give a number that is never reached")
		}
		if rate == "0" { // which removes the limit of a queue
			return cli.Invalid("rate", "0 is no rate of a key's own; leave it out for that of the queue, or give one that is never reached, such as 1000000/s")
		}
		if rate != "" {
			given, err := readRate(rate, burst)
			if err != nil {
				return err
			}
			k.Rate = given.Domain()
		} else if c.Flags().Changed("burst") {
			return cli.Invalid("burst", "goes together with --rate")
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			set, err := q.SetQueueKey(ctx, k)
			if err != nil {
				return err
			}
			return r.print(wire.QueueKeyOf(&set), func(s screen) {
				s.pairs([2]string{"queue", set.Queue}, [2]string{"key", clean(set.Key)},
					[2]string{"limit", keyLimitText(set.Limit)}, [2]string{"rate", keyRateText(set.Rate)})
			})
		})
	}
	return c
}

func newQueueKeyUnset(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "unset QUEUE KEY", Short: "Give one key the limits of its queue again", Example: "  gq queue key unset mail acme", Args: queueAndKey,
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			if err := q.UnsetQueueKey(ctx, args[0], args[1]); err != nil {
				return err
			}
			return r.print(struct {
				Queue string `json:"queue"`
				Unset string `json:"unset"`
			}{args[0], args[1]}, func(s screen) { s.line("%s has the limits of %s again", clean(args[1]), args[0]) })
		})
	}
	return c
}

func keyLimitText(limit int) string {
	if limit == 0 {
		return "of the queue"
	}
	return strconv.Itoa(limit)
}

func keyRateText(rate gq.Rate) string {
	if !rate.Limited() {
		return "of the queue"
	}
	return rateText(rate)
}

// queueAndKey requires two arguments.
func queueAndKey(c *cobra.Command, args []string) error {
	switch {
	case len(args) < 2:
		return fmt.Errorf("%s needs the name of a queue and a limit key", c.CommandPath())
	case len(args) > 2:
		return fmt.Errorf("%s takes two arguments; unexpected %q", c.CommandPath(), args[2])
	}
	return nil
}

// weightText shows a weight other than that of most jobs.
func weightText(weight int) string {
	if weight < 2 {
		return ""
	}
	return strconv.Itoa(weight)
}
