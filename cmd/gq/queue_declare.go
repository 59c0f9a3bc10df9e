package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

func newQueueDeclare(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "declare NAME",
		Short: "Configure a queue and keep what an operator has changed",
		Long: `Configure a queue, for scripts that run at every deployment. Settings that are not
given are the defaults. A setting changes only if it still has the value of the
last declaration: what somebody has changed since then, with gq queue set, pause
or otherwise, stays.

A declaration that is invalid together with what an operator has set is refused,
and so is one that has alternated with a different one within an hour.`,
		Example: `  gq queue declare mail --max-running 20 --preset resilient
  gq queue declare mail                       create it with the defaults`,
		Args: oneArgument("the name of a queue"),
	}
	r := newRemote(p, c)
	var f queueFlags
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		change, _, err := f.read(c)
		if err != nil {
			return err
		}
		if err := machine.CheckQueueName(args[0]); err != nil {
			return err
		}
		declared := gq.Queue{Name: args[0]}
		if change.Policy != nil {
			declared = machine.NewQueue(args[0])
		}
		change.Apply(&declared)
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			out, err := q.DeclareQueue(ctx, declared)
			if err != nil {
				return err
			}
			return r.showQueue(ctx, q, &out)
		})
	}
	return c
}
