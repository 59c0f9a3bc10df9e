package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

func newQueueDeclare(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "declare NAME",
		Short: "Configure a queue and keep what an operator has changed",
		Long: `Configure a queue, for scripts that run at every deployment. Settings that are not
given are the defaults of the server (gq serve --default-preset). A setting changes only if it still has the value of the
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
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			out, err := declareQueue(ctx, q, args[0], change)
			if err != nil {
				return err
			}
			return r.showQueue(ctx, q, &out)
		})
	}
	return c
}

// declareQueue declares what change names. A server completes the policy itself: it has a default
// of its own.
func declareQueue(ctx context.Context, q queue, name string, change *wire.QueueChange) (gq.Queue, error) {
	if remote, ok := q.(interface {
		DeclareQueueSettings(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error)
	}); ok {
		return remote.DeclareQueueSettings(ctx, name, change.Apply)
	}
	declared := gq.Queue{Name: name}
	if change.Policy != nil {
		declared = machine.NewQueue(name)
	}
	change.Apply(&declared)
	return q.DeclareQueue(ctx, declared)
}
