package postgres

import (
	"context"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// registry is the set of queues that this node knows, to enforce the limit on their
// number. It is read at the start and follows the notifications of other nodes. When it
// seems full it is read again, because a submission that added a queue may have failed.
// Concurrent nodes may exceed the limit slightly.
type registry struct {
	mu    sync.RWMutex
	most  int             // [gq.MaxQueues]
	names map[string]bool // guarded by mu
}

// everyQueue selects the queues that were configured or had jobs.
const everyQueue = "SELECT name FROM gq.queue WHERE config IS NOT NULL UNION SELECT queue FROM " + tally + " WHERE " + otherwiseListed

func (c *registry) read(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = make(map[string]bool, len(names))
	c.addLocked(names)
}

// hear adds queues that other nodes have announced.
func (c *registry) hear(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(names)
}

func (c *registry) addLocked(names []string) {
	for _, name := range names {
		c.names[name] = true
	}
}

// admits reports whether a queue is known or there is room for it, and then adds it.
func (c *registry) admits(name string) bool {
	c.mu.RLock()
	known := c.names[name]
	c.mu.RUnlock()
	if known {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) < c.most {
		c.names[name] = true
	}
	return c.names[name]
}

// countQueues returns the queues of new jobs that would exceed the limit.
func (tx *txn) countQueues(ctx context.Context, jobs []*gq.Spec) (crowded map[string]bool, err error) {
	for _, spec := range jobs {
		if crowded, err = tx.countQueue(ctx, spec.Queue, crowded); err != nil {
			return nil, err
		}
	}
	return crowded, nil
}

// countQueue adds a queue to crowded if it would exceed the limit.
func (tx *txn) countQueue(ctx context.Context, name string, crowded map[string]bool) (map[string]bool, error) {
	c := &tx.s.registry
	if c.admits(name) || crowded[name] {
		return crowded, nil
	}
	if crowded == nil { // the registry seems full: read it again, once
		names, err := collect[string](tx.Query(ctx, everyQueue))
		if err != nil {
			return nil, err
		}
		c.read(names)
		crowded = make(map[string]bool)
	}
	if !c.admits(name) {
		crowded[name] = true
	}
	return crowded, nil
}

// guardQueues refuses a group with a queue that would exceed the limit.
func (p *plan) guardQueues(g store.Group) error {
	for i := range g.Jobs {
		if name := g.Jobs[i].Queue; p.crowded[name] {
			return store.TooManyQueues(name)
		}
	}
	return nil
}
