package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// SetQueueKey gives one limit key of a queue other limits than the rest, from the next claim on.
// It replaces the limits that the key had. A queue that does not exist yet is created.
func (e *Engine) SetQueueKey(ctx context.Context, k gq.QueueKey) (gq.QueueKey, error) {
	refused := func(err error) (gq.QueueKey, error) {
		return gq.QueueKey{}, fmt.Errorf("set limits of key %.80q of queue %.80q: %w", k.Key, k.Queue, err)
	}
	if err := machine.CheckQueueKey(k); err != nil {
		return refused(err)
	}
	if k.Limit == 0 && !k.Rate.Limited() {
		return refused(&gq.InvalidError{Faults: []gq.Fault{{Field: "limit", Problem: "give a limit or a rate; to remove those of the key, unset it"}}})
	}
	err := e.store.PutKey(ctx, k)
	if errors.Is(err, gq.ErrNotFound) { // not configured yet
		if _, err := e.ChangeQueue(ctx, k.Queue, func(*gq.Queue) {}); err != nil {
			return gq.QueueKey{}, err
		}
		err = e.store.PutKey(ctx, k)
	}
	if err != nil {
		return refused(err)
	}
	keys, err := e.store.Keys(ctx, store.KeyQuery{Queue: k.Queue, Names: []string{k.Key}})
	if err != nil {
		return refused(err)
	}
	return keys[0], nil
}

// UnsetQueueKey gives a limit key the limits of its queue again. The error is [gq.ErrNotFound] if
// it has none of its own.
func (e *Engine) UnsetQueueKey(ctx context.Context, queue, key string) error {
	if err := e.store.PutKey(ctx, gq.QueueKey{Queue: queue, Key: key}); err != nil {
		return fmt.Errorf("unset limits of key %.80q of queue %.80q: %w", key, queue, err)
	}
	return nil
}

// QueueKeys lists up to limit keys of a queue that have limits of their own and names greater
// than after, sorted by name. A limit of 0 is 1000, which is also the most.
func (e *Engine) QueueKeys(ctx context.Context, queue, after string, limit int) ([]gq.QueueKey, error) {
	if limit == 0 {
		limit = store.MaxPage
	}
	err := checkAfter(after)
	if err == nil && queue != "" {
		err = machine.CheckName("queue", queue)
	}
	if err != nil {
		return nil, fmt.Errorf("list keys of queue %.80q: %w", queue, err)
	}
	keys, err := e.store.Keys(ctx, store.KeyQuery{Queue: queue, After: after, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("list keys of queue %.80q: %w", queue, err)
	}
	return keys, nil
}
