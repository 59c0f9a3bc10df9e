package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// DeleteQueue removes the configuration of a queue and its last declaration. Finished jobs stay
// until their retention is over, and the queue is listed until then. A later submission makes
// the queue anew, with the defaults. Errors: [gq.ErrNotFound] for an unknown queue, and
// [gq.ErrQueueInUse] with the counts while the queue has live jobs.
func (e *Engine) DeleteQueue(ctx context.Context, name string) error {
	refused := func(err error) error { return fmt.Errorf("delete queue %.80q: %w", name, err) }
	if err := machine.CheckQueueName(name); err != nil {
		return refused(err)
	}
	e.queues.change.Lock()
	defer e.queues.change.Unlock()
	if err := e.store.DeleteQueue(ctx, name); err != nil {
		if errors.Is(err, gq.ErrQueueInUse) || errors.Is(err, gq.ErrNotFound) {
			return err // names the queue
		}
		return refused(err)
	}
	unconfigured := machine.NewQueue(name)
	e.fillQueue(&unconfigured)
	e.queues.learn(unconfigured)
	for {
		doc, err := e.store.Doc(ctx, kindDeclared, name)
		if err == nil {
			_, err = e.store.PutDocs(ctx, []store.Doc{{Kind: doc.Kind, Name: doc.Name, Version: doc.Version}})
		}
		switch {
		case err == nil || errors.Is(err, gq.ErrNotFound):
			return nil
		case !errors.Is(err, gq.ErrConflict):
			return refused(err)
		}
	}
}
