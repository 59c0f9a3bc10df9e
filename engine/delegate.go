package engine

import (
	"context"
	"sync"
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

// delegates are the explainers by queue.
type delegates struct {
	mu sync.Mutex
	by map[string]Explainer // guarded by mu
}

// Delegate sets the explainer for waiting jobs of a queue.
func (e *Engine) Delegate(queue string, x Explainer) {
	e.delegates.mu.Lock()
	defer e.delegates.mu.Unlock()
	if e.delegates.by == nil {
		e.delegates.by = map[string]Explainer{}
	}
	e.delegates.by[queue] = x
}

func (d *delegates) of(queue string) Explainer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.by[queue]
}
