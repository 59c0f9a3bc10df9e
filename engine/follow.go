package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// LastEvent returns the sequence number of the newest event; 0 if there is none.
func (e *Engine) LastEvent(ctx context.Context) (uint64, error) {
	last, err := e.store.LastEvent(ctx)
	if err != nil {
		return 0, fmt.Errorf("newest event: %w", err)
	}
	return last, nil
}

const (
	followPage = 1000 // events per read

	// followPace is the pause after a page, in which further events collect. The first
	// event after an idle period is delivered at once, and bursts in large pages.
	followPace = 20 * time.Millisecond
)

// Follow calls f with every event after a sequence number, oldest first and one page at a
// time, and continues with new events. It returns nil when the context ends, or the error of
// f. It does not poll if the store is a [store.Notifier]. An event that follows another within
// 20 ms can be delayed by that time. If events after the number have already been deleted, the
// error is [gq.ErrGone].
//
// A follower at the end of the log also gets the newest progress of each job, every 200 ms or
// with the next event; the last report of an execution comes before the event that ends it.
func (e *Engine) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	reports := e.progress.join()
	defer e.progress.leave(reports)
	news := make(chan struct{}, 1)
	poll := e.options.Poll
	if n, ok := e.store.(store.Notifier); ok {
		defer n.Notify(true, func(n store.News) {
			if n.Relayed == nil {
				wake.Up(news)
			}
		})()
		poll = max(poll, time.Minute) // notifications can get lost
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		waiting := reports.take()
		events, err := e.store.Events(ctx, after, followPage)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("follow events after %d: %w", after, err)
		}
		kept := len(events)
		if kept == followPage { // there may be more, and with them the starts of these executions
			reports.add(waiting)
		} else {
			events = e.withProgress(ctx, after, events, waiting, reports)
		}
		if len(events) > 0 {
			after = events[len(events)-1].Seq
			if err := f(events); err != nil {
				return err
			}
		}
		switch {
		case kept == followPage:
			continue
		case kept > 0:
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
		case <-reports.news:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}
