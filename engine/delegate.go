package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
)

// Now returns the estimated time of the store.
func (e *Engine) Now() time.Time {
	if e.config.Clock != nil { // a store's time never runs backwards, even if its clock does
		return later(e.config.Clock.Now(), time.Unix(0, e.clock.newest.Load()).UTC())
	}
	return e.clock.now()
}

// Explainer returns the reasons why a job waits in a queue that is not served by claims, the
// first blocking one first.
type Explainer func(ctx context.Context, job *gq.Job) ([]gq.Reason, error)

// Delegate decides about a queue that is not served by claims.
type Delegate struct {
	Explain Explainer
	Workers func(context.Context) []gq.LiveWorker // those that serve the queue and call elsewhere
}

// delegates are the delegates by queue. The map is replaced, never changed.
type delegates struct {
	mu sync.Mutex // held while the map is replaced
	by atomic.Pointer[map[string]Delegate]
}

// Delegate sets who decides about a queue.
func (e *Engine) Delegate(queue string, d Delegate) {
	e.delegates.mu.Lock()
	defer e.delegates.mu.Unlock()
	next := map[string]Delegate{queue: d}
	if old := e.delegates.by.Load(); old != nil {
		maps.Copy(next, *old)
		next[queue] = d
	}
	e.delegates.by.Store(&next)
}

func (d *delegates) of(queue string) Delegate {
	if by := d.by.Load(); by != nil {
		return (*by)[queue]
	}
	return Delegate{}
}

// workers lists the workers that serve queues of delegates, if any does.
func (d *delegates) workers(ctx context.Context) (list []gq.LiveWorker) {
	if by := d.by.Load(); by != nil {
		for _, queue := range slices.Sorted(maps.Keys(*by)) {
			if serving := (*by)[queue].Workers; serving != nil {
				list = append(list, serving(ctx)...)
			}
		}
	}
	return list
}

// Delegated reports whether a queue is not served by claims.
func (e *Engine) Delegated(queue string) bool {
	all := e.delegates.by.Load()
	if all == nil {
		return false
	}
	_, ok := (*all)[queue]
	return ok
}
