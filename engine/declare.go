package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// kindDeclared is the kind of the documents with the last declaration of each queue.
const kindDeclared = "queue.declared"

// DeclareQueue configures a queue at program start and returns the resulting configuration. It
// creates the queue if it does not exist. Otherwise it changes a setting only if that still has
// the value of the last declaration, so changes by an operator, such as a pause or a limit,
// stay. A zero policy is the default one.
func (e *Engine) DeclareQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	for {
		out, err := e.declareQueue(ctx, q)
		if err == nil || !errors.Is(err, gq.ErrConflict) {
			return out, err
		}
	}
}

func (e *Engine) declareQueue(ctx context.Context, q gq.Queue) (out gq.Queue, err error) {
	if q.Policy == (gq.Policy{}) {
		q.Policy = e.queues.standard
	}
	refused := func(err error) (gq.Queue, error) {
		return gq.Queue{}, fmt.Errorf("declare queue %.80q: %w", q.Name, err)
	}
	if err := machine.CheckQueue(q); err != nil {
		return refused(err)
	}
	before := machine.NewQueue(q.Name)
	e.fillQueue(&before)
	doc, err := e.store.Doc(ctx, kindDeclared, q.Name)
	switch {
	case errors.Is(err, gq.ErrNotFound):
		doc = store.Doc{Kind: kindDeclared, Name: q.Name}
	case err != nil:
		return refused(err)
	default:
		if err := json.Unmarshal(doc.Data, &before); err != nil {
			return refused(fmt.Errorf("the last declaration: %w: %w", gq.ErrCorrupt, err))
		}
	}
	out, found, err := e.findQueue(ctx, q.Name)
	if err != nil {
		return refused(err)
	}
	if out.UpdatedAt.IsZero() { // not configured, or deleted since its last declaration
		before = out
		before.Name = q.Name
	}
	if !found || declared(out, before, q) != out {
		if out, err = e.ChangeQueue(ctx, q.Name, func(now *gq.Queue) { *now = declared(*now, before, q) }); err != nil {
			return gq.Queue{}, err
		}
	}
	data, err := json.Marshal(q)
	if err != nil {
		return refused(err)
	}
	if string(data) != string(doc.Data) {
		doc.Data = data
		if _, err := e.store.PutDocs(ctx, []store.Doc{doc}); err != nil {
			return refused(err)
		}
	}
	return out, nil
}

// declared applies the settings of next that still have the value of before.
func declared(now, before, next gq.Queue) gq.Queue {
	declare(&now.Policy, before.Policy, next.Policy)
	declare(&now.Paused, before.Paused, next.Paused)
	declare(&now.MaxRunning, before.MaxRunning, next.MaxRunning)
	declare(&now.MaxDepth, before.MaxDepth, next.MaxDepth)
	declare(&now.Rate, before.Rate, next.Rate)
	declare(&now.KeyLimit, before.KeyLimit, next.KeyLimit)
	declare(&now.KeyRate, before.KeyRate, next.KeyRate)
	declare(&now.Fair, before.Fair, next.Fair)
	declare(&now.Pool, before.Pool, next.Pool)
	return now
}

func declare[T comparable](now *T, before, next T) {
	if *now == before {
		*now = next
	}
}
