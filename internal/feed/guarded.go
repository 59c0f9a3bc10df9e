package feed

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// Guard decides which queues' events a caller may see, nil for all, whether there is a place for
// another subscription, and whether the caller's token is still valid.
type Guard interface {
	Reader(ctx context.Context, queues []string) (may func(queue string) bool, err error)
	Subscribe(ctx context.Context) (free func(), err error)
	StillValid(ctx context.Context) error
	WhileValid(ctx context.Context) (context.Context, context.CancelFunc)
}

// redactor is a [Guard] that hides the content of jobs from some callers.
type redactor interface {
	Content(ctx context.Context) func(queue string) bool
	RedactEvent(e gq.Event) gq.Event
}

// Feed is a hub with access control: callers see only what they may read, while their
// token is valid, and their number is limited.
type Feed struct {
	hub   *Hub
	guard Guard
}

// NewFeed puts a guard in front of a hub.
func NewFeed(h *Hub, g Guard) *Feed { return &Feed{hub: h, guard: g} }

// Open opens a subscription. A nil after means new events only. Nothing is sent yet, so
// the caller can still be rejected: with [gq.ErrTooMany] at the limit, or [gq.ErrGone] if
// the log no longer reaches back that far. The caller must Close it.
func (f *Feed) Open(ctx context.Context, after *uint64, filter Filter) (*Subscription, error) {
	return f.open(ctx, after, filter, f.guard.Subscribe)
}

// OpenPlaced is Open for a caller who has a place already.
func (f *Feed) OpenPlaced(ctx context.Context, after *uint64, filter Filter) (*Subscription, error) {
	return f.open(ctx, after, filter, func(context.Context) (func(), error) { return func() {}, nil })
}

func (f *Feed) open(ctx context.Context, after *uint64, filter Filter, place func(context.Context) (func(), error)) (*Subscription, error) {
	may, err := f.guard.Reader(ctx, filter.Queues)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	filter.May = may
	if g, ok := f.guard.(redactor); ok {
		filter.Content, filter.Redact = g.Content(ctx), g.RedactEvent
	}
	free, err := place(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	s := &Subscription{feed: f, filter: filter, free: free}
	if after == nil {
		s.After, err = f.hub.source.LastEvent(ctx)
	} else {
		s.After = *after
		_, err = f.hub.source.Events(ctx, s.After, 1)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return s, nil
}

// Subscription is one subscriber's subscription.
type Subscription struct {
	After uint64 // everything up to here was sent
	feed  *Feed

	filter Filter
	free   func() // gives the place back
}

// Run sends events until the context or the hub ends, send returns an error or the
// caller's token becomes invalid. Another subscription can then continue from After.
func (s *Subscription) Run(ctx context.Context, beat time.Duration, send Send) (err error) {
	valid, cancel := s.feed.guard.WhileValid(ctx)
	defer cancel()
	s.After, err = s.feed.hub.Subscribe(valid, s.After, s.filter, beat, func(b Batch, upTo uint64) error {
		if err := s.feed.guard.StillValid(ctx); err != nil {
			return err
		}
		return send(b, upTo)
	})
	if err == nil && valid.Err() != nil && ctx.Err() == nil {
		err = s.feed.guard.StillValid(ctx)
	}
	return err
}

// Close frees the subscriber's slot.
func (s *Subscription) Close() { s.free() }
