package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/feed"
)

// EventLimits are how subscribers are treated. The zero value is the default.
type EventLimits struct {
	Beat  time.Duration // between signs of life while nothing happens; 0 is 15 s
	Slow  time.Duration // a subscriber that takes so long for one batch is cut off; 0 is 5 s
	Stuck time.Duration // one that takes nothing for so long is not even told; 0 is 15 s
}

func (l EventLimits) withDefaults() EventLimits {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&l.Beat, 15 * time.Second}, {&l.Slow, 5 * time.Second}, {&l.Stuck, 15 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	return l
}

// errSlow ends a subscription whose subscriber cannot keep up.
var errSlow = errors.New("slow consumer")

// errLate is errSlow where the batch has arrived all the same.
var errLate = fmt.Errorf("%w: %w", errSlow, feed.ErrEnough)

// timely lets send have its time: what is slower than it may be is the last that
// is sent.
func (l EventLimits) timely(send func() error) error {
	began := time.Now()
	if err := send(); err != nil {
		return err
	}
	if time.Since(began) > l.Slow {
		return errLate
	}
	return nil
}

// subscribe begins a subscription. One that would resume after an event that has not
// happened is refused: its subscriber was told of events by another store, or by this
// one before it was restored from a backup, and would silently miss what comes until
// the numbers meet again.
func subscribe(ctx context.Context, e engine.API, f *feed.Feed, after *uint64, filter feed.Filter) (*feed.Subscription, error) {
	s, err := f.Open(ctx, after, filter)
	if err != nil || after == nil || *after == 0 {
		return s, err
	}
	last, err := e.LastEvent(ctx)
	if err == nil && *after > last {
		var p parameters
		p.fault("after", "%d is beyond the newest event, which is %d; this is not the log that it was in", *after, last)
		err = p.err()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return s, nil
}

// farewell says why a subscription ends and where another one goes on.
func farewell(err error, draining bool, after uint64) string {
	reason := "the feed has ended"
	switch {
	case errors.Is(err, errSlow):
		reason = errSlow.Error()
	case errors.Is(err, gq.ErrUnauthenticated):
		reason = "the token is no longer valid"
	case errors.Is(err, gq.ErrGone):
		reason = "the events that follow are no longer kept"
	case draining:
		reason = "the server is about to stop"
	}
	return fmt.Sprintf("%s; resume with after=%d", reason, after)
}

// whileServing is a context that ends with ctx or when the server drains.
func whileServing(ctx, draining context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(draining, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
