package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// queueCache remembers how queues are configured, for submissions that take
// their policy from there. What another engine changes is seen within a second.
type queueCache struct {
	mu      sync.Mutex
	known   map[string]gq.Policy // of queues that do not have the default one; guarded by mu; nil until the first look
	fresh   time.Time            // until when; guarded by mu
	looking bool                 // someone is reading anew; guarded by mu
	changes int                  // made through this engine; guarded by mu

	change sync.Mutex // held while a queue is read, changed and written
}

const queueMemory = time.Second

// policy is what a job of the queue starts from. One caller at a time looks; the
// others do with what is known, except at first.
func (c *queueCache) policy(ctx context.Context, s store.Store, name string) (gq.Policy, error) {
	began := time.Now()
	c.mu.Lock()
	known, changes := c.known, c.changes
	look := known == nil || !began.Before(c.fresh) && !c.looking
	if look {
		c.looking = true
	}
	if !look {
		defer c.mu.Unlock()
		return policyOf(known, name), nil
	}
	c.mu.Unlock()

	queues, err := s.Queues(ctx, store.QueueQuery{Own: true})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking = false
	if err != nil {
		return gq.Policy{}, fmt.Errorf("read queues: %w", err)
	}
	read := make(map[string]gq.Policy, len(queues))
	for i := range queues {
		read[queues[i].Name] = queues[i].Policy
	}
	if c.changes == changes { // else what was read may be older than what was learnt since
		// A hundred thousand queues are not read every second.
		took := time.Since(began)
		c.known, c.fresh = read, began.Add(took+max(queueMemory, 20*took))
	}
	return policyOf(read, name), nil
}

func policyOf(known map[string]gq.Policy, name string) gq.Policy {
	if p, ok := known[name]; ok {
		return p
	}
	return machine.DefaultPolicy()
}

// learn takes over what this engine has just written.
func (c *queueCache) learn(q gq.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.known == nil:
	case q.Policy == machine.DefaultPolicy():
		delete(c.known, q.Name)
	default:
		c.known[q.Name] = q.Policy
	}
	c.changes++
	c.fresh = time.Time{}
}

// Queues lists every queue that has been configured or ever had a job, by name.
func (e *Engine) Queues(ctx context.Context) ([]gq.Queue, error) {
	return e.QueuesAfter(ctx, "", 0)
}

// QueuesAfter lists up to limit queues whose names come after one, by name: a page of
// [Engine.Queues]. A limit of 0 is no limit.
func (e *Engine) QueuesAfter(ctx context.Context, name string, limit int) ([]gq.Queue, error) {
	queues, err := e.store.Queues(ctx, store.QueueQuery{After: name, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return queues, nil
}

// Queue reads how a queue is configured. The error is [gq.ErrNotFound] for one
// that nobody has configured and that never had a job.
func (e *Engine) Queue(ctx context.Context, name string) (gq.Queue, error) {
	q, found, err := e.findQueue(ctx, name)
	if err == nil && !found {
		return gq.Queue{}, gq.ErrNotFound.Errorf("queue %.80q not found", name)
	}
	if err != nil {
		return gq.Queue{}, fmt.Errorf("queue %.80q: %w", name, err)
	}
	return q, nil
}

// findQueue reads a queue; one that does not exist has the defaults.
func (e *Engine) findQueue(ctx context.Context, name string) (q gq.Queue, found bool, err error) {
	queues, err := e.store.Queues(ctx, store.QueueQuery{Names: []string{name}})
	if err != nil {
		return gq.Queue{}, false, err
	}
	if len(queues) > 0 {
		return queues[0], true, nil
	}
	return machine.NewQueue(name), false, nil
}

// PutQueue configures a queue, from the next claim or submission on, and replaces all
// that it was configured to, a pause included. A zero policy is the default one. Jobs that
// exist keep the policy they were submitted under.
//
// A program that sets up its queues when it starts calls [Engine.DeclareQueue], and one that
// changes some settings [Engine.ChangeQueue].
func (e *Engine) PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	e.queues.change.Lock()
	defer e.queues.change.Unlock()
	q.UpdatedAt = time.Time{} // whatever there is
	return e.putQueue(ctx, q)
}

// putQueue writes a queue and reads it back. The caller holds queues.change.
func (e *Engine) putQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	if q.Policy == (gq.Policy{}) {
		q.Policy = machine.DefaultPolicy()
	}
	if faults := e.unregistered("policy", &q.Policy); len(faults) > 0 {
		return gq.Queue{}, fmt.Errorf("configure queue %.80q: %w", q.Name, &gq.InvalidError{Faults: append(faults, errs.FaultsOf(machine.CheckQueue(q))...)})
	}
	if err := e.store.PutQueue(ctx, q); err != nil {
		return gq.Queue{}, fmt.Errorf("configure queue %.80q: %w", q.Name, err)
	}
	e.queues.learn(q)
	written, _, err := e.findQueue(ctx, q.Name)
	if err != nil {
		return gq.Queue{}, fmt.Errorf("configure queue %.80q: %w", q.Name, err)
	}
	return written, nil
}

// ChangeQueue reads a queue, lets change have it and writes what it made of it, again
// where another engine has changed it in between. A queue that does not exist yet begins
// with the defaults; of two engines that configure such a one in the same moment, the
// later one wins.
func (e *Engine) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	e.queues.change.Lock()
	defer e.queues.change.Unlock()
	for tries := 0; ; tries++ {
		q, _, err := e.findQueue(ctx, name)
		if err != nil {
			return gq.Queue{}, fmt.Errorf("configure queue %.80q: %w", name, err)
		}
		read := q.UpdatedAt
		change(&q)
		q.Name, q.UpdatedAt = name, read
		written, err := e.putQueue(ctx, q)
		if tries == maxChanges || !errors.Is(err, gq.ErrConflict) {
			return written, err
		}
	}
}

// maxChanges is how often a change of a queue begins again: each time somebody else's
// was made.
const maxChanges = 100

// Pause keeps jobs of a queue from being claimed. What runs goes on, and
// submissions are accepted. A queue can be paused before it has its first job: one
// that does not exist yet begins with the defaults.
func (e *Engine) Pause(ctx context.Context, queue string) (gq.Queue, error) {
	return e.ChangeQueue(ctx, queue, func(q *gq.Queue) { q.Paused = true })
}

// Resume ends a pause. The error is [gq.ErrNotFound] for a queue that does not
// exist: it cannot have been paused, and the name must be another's.
func (e *Engine) Resume(ctx context.Context, queue string) (gq.Queue, error) {
	if err := machine.CheckQueueName(queue); err != nil {
		return gq.Queue{}, fmt.Errorf("resume: %w", err)
	}
	if _, err := e.Queue(ctx, queue); err != nil {
		return gq.Queue{}, fmt.Errorf("resume: %w", err)
	}
	return e.ChangeQueue(ctx, queue, func(q *gq.Queue) { q.Paused = false })
}

// PutPool configures capacity that queues share, from the next claim on. A pool
// that is occupied AtStart stays so: whoever changes its capacity need not know.
func (e *Engine) PutPool(ctx context.Context, p gq.Pool) error {
	if !p.AtStart {
		pools, err := e.Pools(ctx)
		if err != nil {
			return fmt.Errorf("configure pool %.80q: %w", p.Name, err)
		}
		p.AtStart = slices.ContainsFunc(pools, func(q gq.Pool) bool { return q.Name == p.Name && q.AtStart })
	}
	if err := e.store.PutPool(ctx, p); err != nil {
		return fmt.Errorf("configure pool %.80q: %w", p.Name, err)
	}
	return nil
}

// Pools lists every pool by name.
func (e *Engine) Pools(ctx context.Context) ([]gq.Pool, error) {
	pools, err := e.store.Pools(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	return pools, nil
}

// Counts tells how many jobs stand in each status, for the named queues or for
// all.
func (e *Engine) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	counts, err := e.store.Counts(ctx, queues...)
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return counts, nil
}

// Stats tells how the queue stands.
func (e *Engine) Stats(ctx context.Context) (gq.Stats, error) {
	counts, err := e.Counts(ctx)
	if err != nil {
		return gq.Stats{}, err
	}
	stats := gq.Stats{Queues: counts, Workers: len(e.liveWorkers())}
	for _, c := range counts {
		stats.Total.Add(c)
	}
	if m, ok := e.store.(store.Meter); ok {
		metrics := m.Meter()
		stats.Commits, stats.Syncs, stats.DiskBytes = metrics.Commits, metrics.Syncs, metrics.DiskBytes
	}
	return stats, nil
}
