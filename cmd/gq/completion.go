package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

// completeWithin limits how long shell completion may ask the server for values. A shell
// that offers nothing is better than one that hangs or prints errors.
const completeWithin = time.Second

// completeMost is the most jobs that are offered.
const completeMost = 50

// values lists completions, each optionally followed by a tab and a description.
type values func(ctx context.Context, q queue) ([]string, error)

// flagValues has the completions of flags that commands for servers share.
var flagValues = map[string]values{
	"queue":    queueNames,
	"pool":     poolNames,
	"state":    fixed(texts(enum.All[gq.Status]())),
	"priority": fixed(texts(enum.All[gq.Priority]())),
	"preset":   fixed(texts(enum.All[gq.Preset]())),
	"view":     fixed(view.Names()),
	"missed":   fixed(wire.Names(gq.MissedRule.String)),
	"overlap":  fixed(wire.Names(gq.OverlapRule.String)),
	"after":    jobIDs(),
}

// argumentValues has the completions of arguments, by the command's name below gq.
var argumentValues = map[string]values{
	"queue show": queueNames, "queue set": queueNames, "queue pause": queueNames, "queue resume": queueNames, "queue delete": queueNames,
	"queue key list": queueNames, "queue key set": queueNames, "queue key unset": queueNames,
	"pool set":      poolNames,
	"schedule show": scheduleNames, "schedule set": scheduleNames, "schedule pause": scheduleNames, "schedule resume": scheduleNames, "schedule delete": scheduleNames,
	"schedule trigger": scheduleNames, "schedule backfill": scheduleNames,

	"job get": jobIDs(), "job events": jobIDs(), "job explain": jobIDs(), "job wait": jobIDs(live()...),
	"job update": jobIDs(live()...), "job cancel": jobIDs(live()...), "job replay": jobIDs(ended()...),
	"job run-now": jobIDs(gq.StatusDelayed, gq.StatusRetrying), "job reschedule": jobIDs(gq.StatusScheduled, gq.StatusDelayed, gq.StatusRetrying),
	"dlq replay": jobIDs(gq.StatusDeadLetter), "dlq purge": jobIDs(gq.StatusDeadLetter),
}

// complete adds completions to a command and its subcommands.
func complete(p process, c *cobra.Command) {
	for _, child := range c.Commands() {
		complete(p, child)
	}
	if c.Flags().Lookup("addr") == nil {
		return
	}
	for name, v := range flagValues {
		if f := c.Flags().Lookup(name); f != nil {
			_ = c.RegisterFlagCompletionFunc(name, p.offer(v, f)) // cannot fail: the flag exists and is registered once
		}
	}
	name := strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
	if v := argumentValues[name]; v != nil {
		c.ValidArgsFunction = p.offer(v, nil)
	}
}

// offer returns the completion function of an argument or a flag.
func (p process) offer(v values, f *pflag.Flag) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		one := f == nil && !strings.HasSuffix(c.Use, "...]") && !strings.HasSuffix(c.Use, "...")
		if one && len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp // it takes one argument
		}
		prefix := ""
		if f != nil && f.Value.Type() == "stringSlice" {
			prefix = typed[:strings.LastIndexByte(typed, ',')+1]
		}
		var out []cobra.Completion
		for _, text := range p.ask(c, v) {
			if name, _, _ := strings.Cut(text, "\t"); !slices.Contains(args, name) && strings.HasPrefix(strings.ToUpper(prefix+name), strings.ToUpper(typed)) {
				out = append(out, prefix+text)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// ask gets completions, or none if that fails.
func (p process) ask(c *cobra.Command, v values) []string {
	addr, _ := c.Flags().GetString("addr")
	q, closing, err := p.dial(cmp.Or(addr, p.getenv("GQ_ADDR"), defaultAddr), -1, nil)
	if err != nil {
		return nil
	}
	defer closing() //nolint:errcheck // there is nobody to tell
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	all, err := v(ctx, q)
	if err != nil {
		return nil
	}
	return all
}

func fixed(all []string) values {
	return func(context.Context, queue) ([]string, error) { return all, nil }
}

func texts[T interface{ String() string }](all []T) (out []string) {
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}

func queueNames(ctx context.Context, q queue) (names []string, err error) {
	all, err := q.Queues(ctx)
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, err
}

func poolNames(ctx context.Context, q queue) (names []string, err error) {
	all, err := q.Pools(ctx)
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, err
}

func scheduleNames(ctx context.Context, q queue) (names []string, err error) {
	all, err := q.Schedules(ctx)
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, err
}

// jobIDs lists the newest jobs in these states, or in any.
func jobIDs(in ...gq.Status) values {
	return func(ctx context.Context, q queue) (ids []string, err error) {
		page, err := q.List(ctx, gq.Query{Statuses: in, Limit: completeMost})
		for i := range page.Jobs {
			j := &page.Jobs[i]
			ids = append(ids, j.State.ID.String()+"\t"+oneLine(j.Spec.Type, 40)+" "+j.State.Status.String())
		}
		return ids, err
	}
}

func live() []gq.Status {
	return slices.DeleteFunc(enum.All[gq.Status](), gq.Status.Terminal)
}

func ended() []gq.Status {
	return slices.DeleteFunc(enum.All[gq.Status](), func(s gq.Status) bool { return !s.Terminal() })
}
