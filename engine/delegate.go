package engine

import (
	"context"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// Now is the store's time, as far as this engine knows it.
func (e *Engine) Now() time.Time {
	if e.config.Clock != nil { // a store's time never runs backwards, whatever its clock shows
		return later(e.config.Clock.Now(), time.Unix(0, e.clock.newest.Load()).UTC())
	}
	return e.clock.now()
}

// Explainer tells what keeps a waiting job of a queue that is not served by
// claims from being given to someone, what blocks first before the rest.
type Explainer func(ctx context.Context, job *gq.Job) ([]gq.Reason, error)

// delegates are the explainers by queue.
type delegates struct {
	mu sync.Mutex
	by map[string]Explainer // guarded by mu
}

// Delegate has waiting jobs of a queue explained by whoever gives them out.
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
