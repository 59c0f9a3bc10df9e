package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// LastEvent is the number of the newest event, 0 before there was any.
func (e *Engine) LastEvent(ctx context.Context) (uint64, error) {
	last, err := e.store.LastEvent(ctx)
	if err != nil {
		return 0, fmt.Errorf("newest event: %w", err)
	}
	return last, nil
}

const (
	followPage = 1000 // events that are read at a time

	// followPace is how long what comes after a page is left to gather: the first
	// event after a pause is handed on at once, and a flood in large pages.
	followPace = 20 * time.Millisecond
)

// Follow hands every event after a sequence number to f, oldest first and a page
// at a time, and goes on as new ones come until the context ends, which is no
// error, or f returns one. It does not poll where the store tells of its
// commits. An event that comes within 20 ms of another may be handed on so much
// later. Where events after that number are no longer kept the error is
// [gq.ErrGone].
func (e *Engine) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	news := make(chan struct{}, 1)
	poll := e.options.Poll
	if n, ok := e.store.(store.Notifier); ok {
		defer n.Notify(func(store.News) {
			select {
			case news <- struct{}{}:
			default:
			}
		})()
		poll = max(poll, time.Minute) // news are hints
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		events, err := e.store.Events(ctx, after, followPage)
		switch {
		case ctx.Err() != nil:
			return nil // the end of the context is the end of the following
		case err != nil:
			return fmt.Errorf("follow events after %d: %w", after, err)
		case len(events) > 0:
			after = events[len(events)-1].Seq
			if err := f(events); err != nil {
				return err
			}
			if len(events) == followPage {
				continue // there may be more already
			}
			timer.Reset(followPace)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		timer.Reset(poll)
		select {
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}
