package access

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
)

//go:generate go run ../../tools/guardgen

// Guard limits access to an engine to what the caller's identity allows. It checks the
// items of a batch one by one: a rejected item gets [gq.ErrDenied] as its result and
// never reaches the engine. Lists are filtered; calls that name something forbidden are
// rejected.
type Guard struct {
	engine      engine.API
	waiting     *Places
	subscribers *Places
	refused     func(error)
}

// NewGuard wraps an engine.
func NewGuard(e engine.API) *Guard {
	return &Guard{
		engine:      redacting{e},
		waiting:     NewPlaces("waiting calls", maxWaiting, maxWaitingEach),
		subscribers: NewPlaces("event subscriptions", maxSubscribed, maxSubscribeEach),
	}
}

// OnRefused sets what learns of each refusal: of whole calls, and of items of calls. Call it before
// the first call of the engine.
func (g *Guard) OnRefused(f func(error)) { g.refused = f }

// refuse returns a refusal and tells it.
func (g *Guard) refuse(err error) error {
	if g.refused != nil {
		g.refused(err)
	}
	return err
}

// missing refuses a caller without a scope.
func (c *caller) missing(s Scope, where string, args ...any) error {
	return c.guard.refuse(s.Missing(where, args...))
}

// caller is a caller who has the call's scope on at least one queue.
type caller struct {
	*Identity
	guard *Guard
}

// enter authenticates the caller and rejects one who lacks the scope on every queue.
func (g *Guard) enter(ctx context.Context, s Scope) (*caller, error) {
	i, err := Enter(ctx)
	if err != nil {
		return nil, g.refuse(err)
	}
	c := &caller{i, g}
	if !i.MaySomewhere(s) {
		return nil, c.missing(s, "")
	}
	return c, nil
}

// on rejects a caller without a scope on the named queue.
func (c *caller) on(s Scope, queue string) error {
	if queue == "" {
		queue = gq.DefaultQueue
	}
	if c.May(s, queue) {
		return nil
	}
	if machine.CheckQueueName(queue) != nil {
		return c.missing(s, " on queue %.80q", queue)
	}
	return c.missing(s, " on queue %s", queue)
}

// everywhere rejects a caller without a scope on all queues.
func (c *caller) everywhere(s Scope) error {
	if c.MayEverywhere(s) {
		return nil
	}
	return c.missing(s, " on all queues")
}

// asking makes the engine check the caller's scope on the queue of each job that a call
// names by id or lease. The engine has the job at that point, so nobody reads it twice,
// and the engine reports what does not exist.
func (c *caller) asking(ctx context.Context, s Scope) context.Context {
	if c.MayEverywhere(s) {
		return ctx
	}
	return engine.WithAuthorize(ctx, func(queue string) error {
		if c.May(s, queue) {
			return nil
		}
		return c.missing(s, " on the queue of this job")
	})
}

// asking combines enter and [caller.asking].
func (g *Guard) asking(ctx context.Context, s Scope) (context.Context, error) {
	c, err := g.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	return c.asking(ctx, s), nil
}

// foreign returns the jobs on whose queues the caller lacks a scope. It is for jobs that
// a call only refers to: dependencies, holders of idempotency keys, and the reasons in an
// explanation.
func (c *caller) foreign(ctx context.Context, s Scope, ids []gq.JobID) (map[gq.JobID]bool, error) {
	if c.MayEverywhere(s) || len(ids) == 0 {
		return nil, nil
	}
	foreign := map[gq.JobID]bool{}
	stands := map[gq.JobID][]gq.JobID{} // by job, the named ones in whose place it stands
	for _, id := range ids {
		stands[id] = []gq.JobID{id}
	}
	for n := 0; len(stands) > 0 && n <= gq.MaxReplacements; n++ { // the store refuses a longer chain
		jobs, err := c.guard.engine.Jobs(ctx, slices.Collect(maps.Keys(stands)), 0)
		if err != nil {
			return nil, fmt.Errorf("find the queues of jobs: %w", err)
		}
		next := map[gq.JobID][]gq.JobID{}
		for id, j := range jobs {
			if !c.May(s, j.Spec.Queue) {
				for _, named := range stands[id] {
					foreign[named] = true
				}
			}
			if by := j.State.ReplacedBy; !by.IsZero() {
				next[by] = append(next[by], stands[id]...)
			}
		}
		stands = next
	}
	return foreign, nil
}

// specs checks submissions: the caller needs access to their queues and to the jobs they
// depend on.
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
				out[i] = c.missing(Submit|Read, " on the queue of job %s, which the new job depends on", d.Job)
			}
		}
	}
	return out, nil
}

// Reader returns a function that says which queues' events a caller may read; nil means
// all. The caller must be allowed to read all named queues.
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

// Subscribe takes the caller's place among the subscribers to events, until free is called. It is
// refused with [gq.ErrTooMany].
func (g *Guard) Subscribe(ctx context.Context) (free func(), err error) {
	return g.subscribers.Take(ctx)
}

// StillValid calls the function [StillValid].
func (*Guard) StillValid(ctx context.Context) error { return StillValid(ctx) }

// WhileValid calls the function [WhileValid].
func (*Guard) WhileValid(ctx context.Context) (context.Context, context.CancelFunc) {
	return WhileValid(ctx)
}

// Allow authorizes what the engine has no method for: the caller needs one of the scopes
// on the queue. If work is among them, work on QUEUE/OWNER is enough. owner is called
// only if the caller has work on any queue; "" means no owner.
func (g *Guard) Allow(ctx context.Context, s Scope, queue string, owner func() (string, error)) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	if !c.May(s, cmp.Or(queue, gq.DefaultQueue)) && s&Work != 0 && c.MaySomewhere(Work) {
		name, err := owner()
		if err != nil {
			return err
		}
		if name != "" && c.May(Work, queue+"/"+name) {
			return nil
		}
	}
	return c.on(s, queue)
}

// Known rejects callers without any scope.
func (g *Guard) Known(ctx context.Context) error {
	_, err := g.enter(ctx, all)
	return err
}

// Submitter rejects callers without submit on a queue.
func (g *Guard) Submitter(ctx context.Context, queue string) error {
	i, err := From(ctx)
	if err != nil {
		return err
	}
	return (&caller{i, g}).on(Submit, queue)
}

// Administer rejects callers who may not administer the whole installation.
func (g *Guard) Administer(ctx context.Context) error { return g.onAll(ctx, Admin) }

// Oversee rejects callers who may not read the whole installation.
func (g *Guard) Oversee(ctx context.Context) error { return g.onAll(ctx, Read) }

// onAll rejects callers without a scope on all queues.
func (g *Guard) onAll(ctx context.Context, s Scope) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	return c.everywhere(s)
}

// onQueue rejects callers without a scope on a queue.
func (g *Guard) onQueue(ctx context.Context, s Scope, queue string) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	return c.on(s, queue)
}
