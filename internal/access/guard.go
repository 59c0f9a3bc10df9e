package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Guard lets a caller through to an engine as far as its identity goes. Items of
// a batch are judged one by one: those that are refused have [gq.ErrDenied] as
// their answer and never reach the engine. What is listed is filtered; what is
// named is refused.
type Guard struct {
	engine     engine.API
	finder     Finder
	queueCache queueCache
}

// NewGuard makes a guard in front of an engine and its store.
func NewGuard(e engine.API, f Finder) *Guard { return &Guard{engine: e, finder: f} }

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

// about judges jobs and leases by the queues they belong to. What does not exist
// is left to the engine to say so.
func (c *caller) about(ctx context.Context, s Scope, refs []store.Ref) ([]error, error) {
	out := make([]error, len(refs))
	if c.MayEverywhere(s) {
		return out, nil
	}
	queues, err := c.guard.queuesOf(ctx, refs)
	if err != nil {
		return nil, err
	}
	for i, queue := range queues {
		if queue != "" && !c.May(s, queue) {
			out[i] = s.Missing(" on the queue of this job")
		}
	}
	return out, nil
}

// job judges a single job.
func (g *Guard) job(ctx context.Context, s Scope, id gq.JobID) error {
	return g.one(ctx, s, store.Ref{Job: id})
}

func (g *Guard) one(ctx context.Context, s Scope, ref store.Ref) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	judged, err := c.about(ctx, s, []store.Ref{ref})
	if err != nil {
		return err
	}
	return judged[0]
}

// queueCache remembers which queue a job or lease belongs to, which never changes.
type queueCache struct {
	mu    sync.Mutex
	known map[store.Ref]string // guarded by mu
}

const maxQueueCache = 50_000

func (p *queueCache) find(refs []store.Ref, queues []string) (missing []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range refs {
		if queue, ok := p.known[r]; ok {
			queues[i] = queue
		} else {
			missing = append(missing, i)
		}
	}
	return missing
}

func (p *queueCache) learn(r store.Ref, queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxQueueCache {
		p.known = make(map[store.Ref]string) // those in use come back
	}
	p.known[r] = queue
}

// queuesOf are the queues of jobs and leases, "" where there is none.
func (g *Guard) queuesOf(ctx context.Context, refs []store.Ref) ([]string, error) {
	queues := make([]string, len(refs))
	missing := g.queueCache.find(refs, queues)
	if len(missing) == 0 {
		return queues, nil
	}
	asked := make([]store.Ref, len(missing))
	for k, i := range missing {
		asked[k] = refs[i]
	}
	found, err := g.finder.Get(ctx, asked, 0)
	if err != nil {
		return nil, fmt.Errorf("find the queues of jobs: %w", err)
	}
	for k, i := range missing {
		if found[k].Err == nil {
			queues[i] = found[k].Spec.Queue
			g.queueCache.learn(refs[i], queues[i])
		}
	}
	return queues, nil
}

// specs judges submissions: their queues, and the jobs they depend on, of which
// a caller must be allowed to know.
func (c *caller) specs(ctx context.Context, specs []gq.Spec) ([]error, error) {
	out := make([]error, len(specs))
	if c.MayEverywhere(Submit) {
		return out, nil
	}
	named := map[store.Ref]bool{}
	for i := range specs {
		out[i] = c.on(Submit, specs[i].Queue)
		for _, d := range specs[i].DependsOn {
			named[store.Ref{Job: d.Job}] = true
		}
	}
	if len(named) == 0 {
		return out, nil
	}
	refs := slices.Collect(maps.Keys(named))
	judged, err := c.about(ctx, Submit|Read, refs)
	if err != nil {
		return nil, err
	}
	foreign := map[gq.JobID]bool{}
	for i, err := range judged {
		if err != nil {
			foreign[refs[i].Job] = true
		}
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
func (g *Guard) Administer(ctx context.Context) error {
	c, err := g.enter(ctx, Admin)
	if err != nil {
		return err
	}
	return c.everywhere(Admin)
}

// Oversee is for seeing what concerns the whole installation.
func (g *Guard) Oversee(ctx context.Context) error {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return err
	}
	return c.everywhere(Read)
}
