package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/gopherqueue/gq/internal/tracing"
)

// RunOne claims one job, runs its handler in this goroutine and waits until the queue has
// answered the outcome. It reports whether there was a job, and does not wait for one. It
// renews the lease while the handler runs.
//
// RunOne is for tests and simulations that decide when jobs run. A worker runs jobs either with
// RunOne, in one goroutine at a time, or with Run; it has nothing to stop between calls.
func (w *Worker) RunOne(ctx context.Context) (ran bool, err error) {
	if w.started.Load() {
		return false, errors.New("worker: RunOne was called after Run")
	}
	if w.slots == nil {
		if err := w.begin(); err != nil {
			return false, err
		}
	}
	w.launch, w.single = w.execute, true
	w.values = context.WithoutCancel(tracing.Without(ctx))
	w.life = w.values
	watching, unwatch := context.WithCancel(w.values)
	var loop sync.WaitGroup
	loop.Go(func() { w.keeper.loop(watching) })
	defer func() { // also if the handler exits the goroutine
		unwatch()
		loop.Wait()
		w.background.Wait()
	}()
	before := w.Stats().Claimed
	for _, f := range w.slots.fetchers {
		if n := w.slots.take(f, 1); n > 0 {
			_, _, err = w.claim(ctx, f, n, 0)
		}
		if ran = w.Stats().Claimed > before; ran || err != nil {
			break
		}
	}
	return ran, err
}
