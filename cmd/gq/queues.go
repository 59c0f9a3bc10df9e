package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/spelling"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

func newQueue(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "Show and configure queues",
		Long:  "Show and configure queues.\n\n" + cli.ExitHelp,
		Example: `  gq queue list
  gq queue set mail --max-running 20 --rate 100/1m
  gq queue pause mail`,
	}
	c.AddCommand(newQueueList(p), newQueueShow(p), newQueueSet(p), newQueueDeclare(p), newQueueDelete(p), newQueueKey(p), newQueueHistory(p),
		newQueuePause(p, "pause", "Let nothing be claimed from a queue; submissions go on", `What runs goes on. A queue can be paused before it has its first job: one that does
not exist is made, and the command says so.`, queue.Pause),
		newQueuePause(p, "resume", "End the pause of a queue", "A queue that does not exist is not found.", queue.Resume))
	return c
}

func newQueueList(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List queues with their job counts", Example: "  gq queue list --json", Args: cli.NoArguments,
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			queues, counts, err := countedQueues(ctx, q)
			if err != nil {
				return err
			}
			return r.print(wire.QueuesOf(queues, counts), func(s screen) { s.queues(queues, counts) })
		})
	}
	return c
}

// countedQueues reads all queues with their counts, page by page.
func countedQueues(ctx context.Context, q queue) (queues []gq.Queue, counts []gq.Count, err error) {
	const page = 1000
	for after, more := "", true; more; {
		some, err := q.QueuesAfter(ctx, after, page)
		if err != nil {
			return nil, nil, err
		}
		more = len(some) == page
		if len(some) == 0 {
			break // no names would count all queues
		}
		names := make([]string, len(some))
		for i := range some {
			names[i] = some[i].Name
		}
		after = names[len(names)-1]
		numbers, err := q.Counts(ctx, names...)
		if err != nil {
			return nil, nil, err
		}
		queues, counts = append(queues, some...), append(counts, numbers...)
	}
	return queues, counts, nil
}

func (s screen) queues(queues []gq.Queue, counts []gq.Count) {
	by := map[string]gq.Count{}
	for _, c := range counts {
		by[c.Queue] = c
	}
	rows := make([][]cell, len(queues))
	for i := range queues {
		queue, c := &queues[i], by[queues[i].Name]
		rows[i] = []cell{
			text(queue.Name),
			{yes(queue.Paused), yellow},
			number(c.By[gq.StatusScheduled] + c.By[gq.StatusPending] + c.By[gq.StatusDelayed] + c.By[gq.StatusRetrying]), number(c.Held()),
			number(c.By[gq.StatusCompleted]), number(c.By[gq.StatusFailed]), number(c.By[gq.StatusDeadLetter]), number(c.By[gq.StatusCancelled]),
			text(limitsText(queue)),
		}
	}
	s.table([]string{"QUEUE", "PAUSED", "WAITING", "HELD", "COMPLETED", "FAILED", "DEAD", "CANCELLED", "LIMITS"}, rows)
}

// limitsText lists the limits of a queue on one line.
func limitsText(q *gq.Queue) string {
	var parts []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(q.MaxRunning > 0, "%d held", q.MaxRunning)
	add(q.MaxDepth > 0, "%d live", q.MaxDepth)
	add(q.KeyLimit > 0, "%d per key", q.KeyLimit)
	add(q.KeyRate.Limited(), "%s per key", rateText(q.KeyRate))
	add(q.OwnKeys > 0, "%s with limits of their own", quantity.Of(q.OwnKeys, "key"))
	add(q.Rate.Limited(), "%s", rateText(q.Rate))
	add(q.Pool != "", "pool %s", q.Pool)
	add(q.Fair, "fair")
	return strings.Join(parts, ", ")
}

func rateText(r gq.Rate) string {
	if !r.Limited() {
		return ""
	}
	text := fmt.Sprintf("%d/%v", r.Count, r.Per)
	if r.Burst > 1 {
		text += fmt.Sprintf(" burst %d", r.Burst)
	}
	return text
}

func newQueueShow(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show a queue with its policy", Example: "  gq queue show mail", Args: oneArgument("the name of a queue"),
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			found, err := q.Queue(ctx, args[0])
			if err != nil {
				return err
			}
			return r.showQueue(ctx, q, &found)
		})
	}
	return c
}

func (r *remote) showQueue(ctx context.Context, q queue, found *gq.Queue) error {
	counts, err := q.Counts(ctx, found.Name)
	if err != nil {
		return err
	}
	var count gq.Count
	for _, c := range counts {
		count.Add(c)
	}
	return r.print(wire.QueueOf(found, &count), func(s screen) {
		pairs := [][2]string{
			{"queue", found.Name},
			{"paused", yes(found.Paused)},
			{"limits", limitsText(found)},
			{"policy", found.Policy.Preset.String()},
			{"attempts", strconv.Itoa(found.Policy.MaxAttempts)},
			{"lease", found.Policy.LeaseTTL.String()},
			{"timeout", durationText(found.Policy.ExecutionTimeout)},
			{"lifetime", durationText(found.Policy.Lifetime)},
			{"start within", durationText(found.Policy.StartWithin)},
			{"aging", durationText(found.Policy.Aging)},
			{"keep", keepText(found.Policy.Retention)},
		}
		for _, st := range enum.All[gq.Status]() {
			if n := count.By[st]; n > 0 {
				pairs = append(pairs, [2]string{strings.ToLower(st.String()), strconv.FormatInt(n, 10)})
			}
		}
		s.pairs(pairs...)
	})
}

// keepText says how long finished jobs of a queue are kept.
func keepText(d time.Duration) string {
	switch d {
	case 0:
		return "as the store is configured"
	case gq.KeepNone:
		return "none"
	}
	return d.String()
}

func durationText(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return d.String()
}

func newQueuePause(p process, verb, short, more string, change func(queue, context.Context, string) (gq.Queue, error)) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " NAME", Short: short, Long: short + ".\n\n" + more, Example: "  gq queue " + verb + " mail", Args: oneArgument("the name of a queue"),
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			near, unknown := unknownQueue(ctx, q, args[0])
			changed, err := change(q, ctx, args[0])
			if err != nil {
				if near != "" && errs.KindOf(err) == gq.KindNotFound {
					err = fmt.Errorf("%w; did you mean %s?", err, near)
				}
				return err
			}
			if r.json {
				return r.showQueue(ctx, q, &changed)
			}
			return r.print(nil, func(s screen) {
				s.line("%s %sd", changed.Name, verb)
				if !unknown {
					return
				}
				fmt.Fprintf(r.stderr, "gq: there was no queue %s before", changed.Name)
				if near != "" {
					fmt.Fprintf(r.stderr, "; did you mean %s?", near)
				}
				fmt.Fprintln(r.stderr)
			})
		})
	}
	return c
}

// unknownQueue reports whether no queue has this name, and suggests a similar one.
func unknownQueue(ctx context.Context, q queue, name string) (near string, unknown bool) {
	names, err := queueNames(ctx, q)
	if err != nil || slices.Contains(names, name) {
		return "", false // known, or the caller may not list queues
	}
	return spelling.Nearest(name, names), true
}

func newQueueSet(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Configure a queue",
		Long: `Configure a queue. Settings that are not given stay as they are, even if somebody
else changes them at the same time; a new queue starts with the defaults. Changes
apply from the next claim or submission on. Existing jobs keep their policy.`,
		Example: `  gq queue set mail --max-running 20
  gq queue set mail --rate 100/1m --burst 10
  gq queue set mail --key-limit 2 --key-rate 10/s      for each limit key
  gq queue set render --pool gpu --fair
  gq queue set mail --rate 0                  remove the limit`,
		Args: oneArgument("the name of a queue"),
	}
	r := newRemote(p, c)
	var f queueFlags
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		change, err := f.change(c)
		if err != nil {
			return err
		}
		if err := machine.CheckQueueName(args[0]); err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			changed, err := q.ChangeQueue(ctx, args[0], change.Apply)
			if err != nil {
				return err
			}
			return r.showQueue(ctx, q, &changed)
		})
	}
	return c
}

// queueFlags are the settings of a queue.
type queueFlags struct {
	maxRunning, maxDepth, keyLimit, burst, keyBurst, maxAttempts int
	rate, keyRate, pool, preset, keep                            string
	fair                                                         bool
	ttl, timeout, lifetime, startWithin, aging                   time.Duration
}

func (f *queueFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.IntVar(&f.maxRunning, "max-running", 0, "jobs held at once; 0 is no limit")
	flags.IntVar(&f.maxDepth, "max-depth", 0, "live jobs; 0 is no limit")
	flags.IntVar(&f.keyLimit, "key-limit", 0, "jobs held at once with the same limit key; 0 is no limit")
	flags.StringVar(&f.keyRate, "key-rate", "", "claims of jobs with the same limit key, as COUNT/DURATION; 0 is no limit")
	flags.IntVar(&f.keyBurst, "key-burst", 0, "with --key-rate: claims at once after a pause")
	flags.StringVar(&f.rate, "rate", "", "claims, as COUNT/DURATION such as 100/1m; 0 is no limit")
	flags.IntVar(&f.burst, "burst", 0, "with --rate: claims at once after a pause")
	flags.BoolVar(&f.fair, "fair", false, "serve each fair key in turn")
	flags.StringVar(&f.pool, "pool", "", "capacity pool; empty is none")
	flags.StringVar(&f.preset, "preset", "", "replace the policy by a preset's")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "executions of a job, the first included")
	flags.DurationVar(&f.ttl, "lease-ttl", 0, "how long a silent worker keeps a job")
	flags.DurationVar(&f.timeout, "execution-timeout", 0, "limit of one execution; 0 is none")
	flags.DurationVar(&f.lifetime, "lifetime", 0, "from submission to the end; 0 is no limit")
	flags.DurationVar(&f.aging, "aging", 0, "a waiting job moves up by one priority for each; 0 is never")
	flags.StringVar(&f.keep, "keep", "", "how long finished jobs are kept: none, a duration such as 24h, or 0 for the store's setting")
	flags.DurationVar(&f.startWithin, "start-within", 0, "from submission to the start of the first attempt; 0 is no limit")
}

// change returns the settings of the command line, at least one.
func (f *queueFlags) change(c *cobra.Command) (*wire.QueueChange, error) {
	out, given, err := f.read(c)
	if err == nil && !given {
		return nil, cli.Invalid("flags", "say what to set; see gq queue set --help")
	}
	return out, err
}

// read returns the settings of the command line.
func (f *queueFlags) read(c *cobra.Command) (out *wire.QueueChange, given bool, err error) {
	out = &wire.QueueChange{}
	policy := &wire.Policy{}
	has := func(name string) bool {
		changed := c.Flags().Changed(name)
		given = given || changed
		return changed
	}
	if has("max-running") {
		out.MaxRunning = &f.maxRunning
	}
	if has("max-depth") {
		out.MaxDepth = &f.maxDepth
	}
	if has("key-limit") {
		out.KeyLimit = &f.keyLimit
	}
	if has("fair") {
		out.Fair = &f.fair
	}
	if has("pool") {
		out.Pool = &f.pool
	}
	if has("rate") {
		rate, err := readRate(f.rate, f.burst)
		if err != nil {
			return nil, given, err
		}
		out.Rate = rate
	} else if has("burst") {
		return nil, given, cli.Invalid("burst", "goes together with --rate")
	}
	if has("key-rate") {
		rate, err := readRate(f.keyRate, f.keyBurst)
		if err != nil {
			return nil, given, err
		}
		out.KeyRate = rate
	} else if has("key-burst") {
		return nil, given, cli.Invalid("key-burst", "goes together with --key-rate")
	}
	if has("preset") {
		preset, err := enum.Parse[gq.Preset](f.preset)
		if err != nil {
			return nil, given, err
		}
		policy.Preset = &preset
	}
	if has("max-attempts") {
		policy.MaxAttempts = &f.maxAttempts
	}
	if has("lease-ttl") {
		policy.LeaseTTL = (*wire.Duration)(&f.ttl)
	}
	if has("execution-timeout") {
		policy.ExecutionTimeout = (*wire.Duration)(&f.timeout)
	}
	if has("lifetime") {
		policy.Lifetime = (*wire.Duration)(&f.lifetime)
	}
	if has("aging") {
		policy.Aging = (*wire.Duration)(&f.aging)
	}
	if has("keep") {
		var keep wire.Retention
		if err := keep.UnmarshalText([]byte(f.keep)); err != nil {
			return nil, given, cli.Invalid("keep", fmt.Sprintf("%.64q is neither none nor a duration such as 24h", f.keep))
		}
		policy.Retention = &keep
	}
	if has("start-within") {
		policy.StartWithin = (*wire.Duration)(&f.startWithin)
	}
	if *policy != (wire.Policy{}) {
		out.Policy = policy
	}
	return out, given, nil
}

func readRate(text string, burst int) (*wire.Rate, error) {
	if text == "0" {
		return &wire.Rate{}, nil
	}
	count, per, ok := strings.Cut(text, "/")
	n, err := strconv.Atoi(count)
	var d time.Duration
	if ok && err == nil {
		if strings.Trim(per, "0123456789.") == per { // 100/s
			per = "1" + per
		}
		d, err = time.ParseDuration(per)
	}
	if !ok || err != nil || n < 1 {
		return nil, cli.Invalid("rate", fmt.Sprintf("%.64q is not COUNT/DURATION such as 100/1m, or 0", text))
	}
	return &wire.Rate{Count: n, Per: wire.Duration(d), Burst: burst}, nil
}

func newPool(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "pool", Short: "Show and configure capacity pools",
		Long: "A pool is capacity that queues share: their held jobs together never cost more.",
		Example: `  gq pool list
  gq pool set gpu --capacity 8 && gq queue set render --pool gpu`,
	}
	c.AddCommand(newPoolList(p), newPoolSet(p))
	return c
}

func newPoolList(p process) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List capacity pools", Example: "  gq pool list", Args: cli.NoArguments}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			pools, err := q.Pools(ctx)
			if err != nil {
				return err
			}
			out := wire.Pools{Pools: make([]wire.Pool, len(pools))}
			rows := make([][]cell, len(pools))
			for i, pool := range pools {
				out.Pools[i] = wire.PoolOf(pool)
				rows[i] = []cell{text(pool.Name), number(pool.Capacity), number(pool.Used)}
			}
			return r.print(out, func(s screen) { s.table([]string{"POOL", "CAPACITY", "USED"}, rows) })
		})
	}
	return c
}

func newPoolSet(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "set NAME", Short: "Create or change a capacity pool", Example: "  gq pool set gpu --capacity 8", Args: oneArgument("the name of a pool"),
	}
	r := newRemote(p, c)
	var capacity int64
	c.Flags().Int64Var(&capacity, "capacity", 0, "cost units that held jobs may occupy together")
	_ = c.MarkFlagRequired("capacity")
	c.RunE = func(c *cobra.Command, args []string) error {
		pool := gq.Pool{Name: args[0], Capacity: capacity}
		if err := machine.CheckPool(pool); err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			if err := q.PutPool(ctx, pool); err != nil {
				return err
			}
			return r.print(wire.PoolOf(pool), func(s screen) { s.line("%s has a capacity of %d", pool.Name, capacity) })
		})
	}
	return c
}
