package access

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
)

//go:generate go run ../guardgen

// Guard lets a caller through to an engine as far as its identity goes. Items of
// a batch are judged one by one: those that are refused have [gq.ErrDenied] as
// their answer and never reach the engine. What is listed is filtered; what is
// named is refused.
type Guard struct{ engine engine.API }

// NewGuard makes a guard in front of an engine.
func NewGuard(e engine.API) *Guard { return &Guard{e} }

// caller is one call by somebody who may do something of its kind somewhere.
type caller struct {
	*Identity
	guard *Guard
}

// enter finds out who calls and whether the call has any chance.
func (g *Guard) enter(ctx context.Context, s Scope) (*caller, error) {
	i, err := Enter(ctx)
	if err != nil {
		return nil, err
	}
	if !i.MaySomewhere(s) {
		return nil, s.Missing("")
	}
	return &caller{i, g}, nil
}

// on refuses what the caller may not do with a queue that it names.
func (c *caller) on(s Scope, queue string) error {
	if queue == "" {
		queue = gq.DefaultQueue
	}
	if c.May(s, queue) {
		return nil
	}
	if machine.CheckQueueName(queue) != nil {
		return s.Missing(" on queue %.80q", queue)
	}
	return s.Missing(" on queue %s", queue)
}

// everywhere refuses what concerns all queues.
func (c *caller) everywhere(s Scope) error {
	if c.MayEverywhere(s) {
		return nil
	}
	return s.Missing(" on all queues")
}

// asking lets the engine ask whether the caller has a scope on the queue of each job that a
// call names by id or lease. The engine asks with the job in hand, so nobody reads it
// twice, and says itself what does not exist.
func (c *caller) asking(ctx context.Context, s Scope) context.Context {
	if c.MayEverywhere(s) {
		return ctx
	}
	return engine.WithAuthorize(ctx, func(queue string) error {
		if c.May(s, queue) {
			return nil
		}
		return s.Missing(" on the queue of this job")
	})
}

// asking is enter and [caller.asking].
func (g *Guard) asking(ctx context.Context, s Scope) (context.Context, error) {
	c, err := g.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	return c.asking(ctx, s), nil
}

// foreign finds the jobs on whose queues the caller lacks a scope. These are jobs that a
// call refers to besides those it is about: dependencies, holders of idempotency keys, and
// the reasons in an explanation.
func (c *caller) foreign(ctx context.Context, s Scope, ids []gq.JobID) (map[gq.JobID]bool, error) {
	if c.MayEverywhere(s) || len(ids) == 0 {
		return nil, nil
	}
	jobs, err := c.guard.engine.Jobs(ctx, ids, 0)
	if err != nil {
		return nil, fmt.Errorf("find the queues of jobs: %w", err)
	}
	foreign := map[gq.JobID]bool{}
	for id, j := range jobs {
		if !c.May(s, j.Spec.Queue) {
			foreign[id] = true
		}
	}
	return foreign, nil
}

// specs judges submissions: their queues, and the jobs they depend on, of which
// a caller must be allowed to know.
func (c *caller) specs(ctx context.Context, specs []gq.Spec) ([]error, error) {
	out := make([]error, len(specs))
	if c.MayEverywhere(Submit) {
		return out, nil
	}
	named := map[gq.JobID]bool{}
	for i := range specs {
		out[i] = c.on(Submit, specs[i].Queue)
		for _, d := range specs[i].DependsOn {
			named[d.Job] = true
		}
	}
	foreign, err := c.foreign(ctx, Submit|Read, slices.Collect(maps.Keys(named)))
	if err != nil {
		return nil, err
	}
	for i := range specs {
		for _, d := range specs[i].DependsOn {
			if out[i] == nil && foreign[d.Job] {
				out[i] = (Submit | Read).Missing(" on the queue of job %s, which the new job depends on", d.Job)
			}
		}
	}
	return out, nil
}

// Reader tells which queues' events a caller may read, whatever way they come;
// nil is all. The named queues must all be readable.
func (g *Guard) Reader(ctx context.Context, queues []string) (allows func(queue string) bool, err error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		if err := c.on(Read, q); err != nil {
			return nil, err
		}
	}
	if c.MayEverywhere(Read) {
		return nil, nil
	}
	return func(queue string) bool { return c.May(Read, queue) }, nil
}

// StillValid is [StillValid].
func (*Guard) StillValid(ctx context.Context) error { return StillValid(ctx) }

// WhileValid is [WhileValid].
func (*Guard) WhileValid(ctx context.Context) (context.Context, context.CancelFunc) {
	return WhileValid(ctx)
}

// Allow is for what the engine has no method for: the caller needs one of the scopes
// for the queue, or work for QUEUE/OWNER where work is one of them. The owner is asked
// for only if the caller may work somewhere; "" is nobody.
func (g *Guard) Allow(ctx context.Context, s Scope, queue string, owner func() (string, error)) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	denied := c.on(s, queue)
	if denied == nil || s&Work == 0 || !c.MaySomewhere(Work) {
		return denied
	}
	name, err := owner()
	if err != nil {
		return err
	}
	if name != "" && c.May(Work, queue+"/"+name) {
		return nil
	}
	return denied
}

// Known refuses callers that have no scope at all.
func (g *Guard) Known(ctx context.Context) error {
	_, err := g.enter(ctx, all)
	return err
}

// Submitter is for what those may do with a queue who submit jobs to it.
func (g *Guard) Submitter(ctx context.Context, queue string) error {
	i, err := From(ctx)
	if err != nil {
		return err
	}
	return (&caller{i, g}).on(Submit, queue)
}

// Administer is for what concerns the whole installation.
func (g *Guard) Administer(ctx context.Context) error { return g.onAll(ctx, Admin) }

// Oversee is for seeing what concerns the whole installation.
func (g *Guard) Oversee(ctx context.Context) error { return g.onAll(ctx, Read) }

// onAll refuses callers without a scope on all queues.
func (g *Guard) onAll(ctx context.Context, s Scope) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	return c.everywhere(s)
}

// onQueue refuses callers without a scope on a queue.
func (g *Guard) onQueue(ctx context.Context, s Scope, queue string) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	return c.on(s, queue)
}
