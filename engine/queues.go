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

// queueCache caches the policies of queues for submissions. It sees changes by other engines
// within a second.
type queueCache struct {
	mu       sync.Mutex
	standard gq.Policy            // of queues that are not configured
	known    map[string]gq.Policy // of the configured queues that have another one; nil until the first read; guarded by mu
	fresh    time.Time            // known is valid until then; guarded by mu
	looking  bool                 // a caller is reading the queues; guarded by mu
	changes  int                  // made through this engine; guarded by mu

	change sync.Mutex // held while a queue is read, changed and written
}

const queueMemory = time.Second

// policy returns the policy of a queue. One caller at a time reads the queues; the others use
// the cache, if it was ever filled.
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
		return c.policyOf(known, name), nil
	}
	c.mu.Unlock()

	queues, err := s.Queues(ctx, store.QueueQuery{Unlike: c.standard})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking = false
	if err != nil {
		return gq.Policy{}, err // the caller says what it was about to do
	}
	read := make(map[string]gq.Policy, len(queues))
	for i := range queues {
		read[queues[i].Name] = queues[i].Policy
	}
	if c.changes == changes { // otherwise a later change may be missing
		// Do not read a hundred thousand queues every second.
		took := time.Since(began)
		c.known, c.fresh = read, began.Add(took+max(queueMemory, 20*took))
	}
	return c.policyOf(read, name), nil
}

func (c *queueCache) policyOf(known map[string]gq.Policy, name string) gq.Policy {
	if p, ok := known[name]; ok {
		return p
	}
	return c.standard
}

// learn updates the cache after this engine has written a queue.
func (c *queueCache) learn(q gq.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.known == nil:
	case q.Policy == c.standard:
		delete(c.known, q.Name)
	default:
		c.known[q.Name] = q.Policy
	}
	c.changes++
	c.fresh = time.Time{}
}

// Queues lists every queue that is configured or ever had a job, sorted by name.
func (e *Engine) Queues(ctx context.Context) ([]gq.Queue, error) {
	return e.QueuesAfter(ctx, "", 0)
}

// QueuesAfter lists up to limit queues with names greater than name, sorted by name. A limit of
// 0 is no limit.
func (e *Engine) QueuesAfter(ctx context.Context, name string, limit int) ([]gq.Queue, error) {
	if err := checkAfter(name); err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	queues, err := e.store.Queues(ctx, store.QueueQuery{After: name, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	for i := range queues {
		e.fillQueue(&queues[i])
	}
	return queues, nil
}

// checkAfter checks the name after which a list begins. Not every store can compare text that no name has.
func checkAfter(name string) error {
	if name == "" {
		return nil
	}
	return machine.CheckName("after", name)
}

// Queue returns the configuration of a queue. If the queue is not configured and never had a
// job, the error is [gq.ErrNotFound].
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

// findQueue returns a queue, with defaults if it does not exist.
func (e *Engine) findQueue(ctx context.Context, name string) (q gq.Queue, found bool, err error) {
	queues, err := e.store.Queues(ctx, store.QueueQuery{Names: []string{name}})
	if err != nil {
		return gq.Queue{}, false, err
	}
	if len(queues) > 0 {
		e.fillQueue(&queues[0])
		return queues[0], true, nil
	}
	q = machine.NewQueue(name)
	e.fillQueue(&q)
	return q, false, nil
}

// fillQueue gives a queue that is not configured the engine's default policy.
func (e *Engine) fillQueue(q *gq.Queue) {
	if q.UpdatedAt.IsZero() {
		q.Policy = e.queues.standard
	}
}

// PutQueue replaces the whole configuration of a queue, including a pause. It takes effect with
// the next claim or submission. A zero policy is the default one. Existing jobs keep the policy
// of their submission.
//
// Use [Engine.DeclareQueue] to configure queues at program start, and [Engine.ChangeQueue] to
// change single settings.
func (e *Engine) PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	ctx = hold(ctx, &e.queues.change)
	defer e.queues.change.Unlock()
	q.UpdatedAt = time.Time{} // replace any version
	return e.putQueue(ctx, q)
}

// putQueue writes a queue and reads it back. The caller holds queues.change.
func (e *Engine) putQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	if q.Policy == (gq.Policy{}) {
		q.Policy = e.queues.standard
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

// ChangeQueue applies change to the queue's configuration and retries if another engine
// modified it concurrently. A queue that does not exist yet starts with the defaults; if two
// engines create it at the same moment, the later one wins.
func (e *Engine) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	ctx = hold(ctx, &e.queues.change)
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

// maxChanges is the maximum number of retries after concurrent modifications.
const maxChanges = 100

// Pause stops claims from a queue. Running jobs continue, and submissions are accepted. It
// creates a queue that does not exist yet.
func (e *Engine) Pause(ctx context.Context, queue string) (gq.Queue, error) {
	return e.ChangeQueue(ctx, queue, func(q *gq.Queue) { q.Paused = true })
}

// Resume ends a pause. If the queue does not exist, the error is [gq.ErrNotFound]: the name is
// probably misspelled.
func (e *Engine) Resume(ctx context.Context, queue string) (gq.Queue, error) {
	if err := machine.CheckQueueName(queue); err != nil {
		return gq.Queue{}, fmt.Errorf("resume queue %.80q: %w", queue, err)
	}
	if _, err := e.Queue(ctx, queue); err != nil {
		return gq.Queue{}, err // names the queue
	}
	return e.ChangeQueue(ctx, queue, func(q *gq.Queue) { q.Paused = false })
}

// PutPool creates or replaces a pool. It takes effect with the next claim. It never resets
// AtStart, so callers that change the capacity need not know it.
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

// Pools lists all pools, sorted by name.
func (e *Engine) Pools(ctx context.Context) ([]gq.Pool, error) {
	pools, err := e.store.Pools(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	return pools, nil
}

// Counts returns the number of jobs in each status, of the named queues or of all.
func (e *Engine) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	counts, err := e.store.Counts(ctx, queues...)
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return counts, nil
}

// Stats returns the counts of all queues, the number of live workers and the store's metrics.
func (e *Engine) Stats(ctx context.Context) (gq.Stats, error) {
	counts, err := e.Counts(ctx)
	if err != nil {
		return gq.Stats{}, err
	}
	nodes, workers, err := e.cluster(ctx)
	if err != nil {
		return gq.Stats{}, fmt.Errorf("list nodes: %w", err)
	}
	stats := gq.Stats{Queues: counts, Workers: len(e.withDelegated(ctx, workers)), Nodes: nodes}
	for _, c := range counts {
		stats.Total.Add(c)
	}
	if m, ok := e.store.(store.Meter); ok {
		metrics := m.Meter()
		stats.Commits, stats.Syncs, stats.DiskBytes = metrics.Commits, metrics.Syncs, metrics.DiskBytes
		stats.DiskFree, stats.DiskReserve, stats.DiskRefuses = metrics.DiskFree, metrics.DiskReserve, metrics.DiskRefuses
	}
	if x, ok := e.store.(store.Examiner); ok {
		d, err := x.Examine(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return gq.Stats{}, err
		case err != nil: // the counts are worth more than that
			e.log.Warn("examine the database", "error", err)
		default:
			for i := range d.Tables {
				stats.DiskBytes += uint64(d.Tables[i].Bytes)
			}
			stats.Database = &d
		}
	}
	return stats, nil
}
