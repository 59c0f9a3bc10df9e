package store

import (
	"context"

	"github.com/gopherqueue/gq"
)

// Skimmer is an optional capability of stores that can read the log of events faster than
// Events for a reader that only counts.
type Skimmer interface {
	// Skim calls f with up to limit events after a sequence number, oldest first, and
	// returns the number of the last one, or after if there is none. The events have only
	// Seq, Time, Queue, Type, Status, LeaseState, Elapsed, and of Failure the category and
	// the code. f must not keep the event, which the next call overwrites, nor call the
	// store. The errors are those of [EventLog.Events].
	Skim(ctx context.Context, after uint64, limit int, f func(*gq.Event)) (last uint64, err error)
}

// Skim reads events for a reader that only counts: see [Skimmer].
func Skim(ctx context.Context, s EventLog, after uint64, limit int, f func(*gq.Event)) (last uint64, err error) {
	if fast, ok := s.(Skimmer); ok {
		return fast.Skim(ctx, after, limit, f)
	}
	events, err := s.Events(ctx, after, limit)
	for i := range events {
		f(&events[i])
		after = events[i].Seq
	}
	return after, err
}
