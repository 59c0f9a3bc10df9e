package engine

import (
	"sync/atomic"
	"time"
)

// clock estimates the store's time, so that timers here go off when something is
// due there. The store stamps every answer; nothing but the moment of looking
// depends on the estimate.
type clock struct {
	newest atomic.Int64 // the newest instant that the store stamped, in nanoseconds since 1970

	ahead atomic.Int64 // nanoseconds by which the store's clock is ahead of ours
	set   atomic.Int64 // when that was measured
}

const (
	clockSlack = 100 * time.Millisecond // less than this is the time the answer took
	clockTrust = 10 * time.Second       // how long the best measurement stands
)

// saw takes note of an instant that the store stamped just now. Answers are
// late, never early, so the largest difference is the best.
func (c *clock) saw(stamp time.Time) {
	if stamp.IsZero() { // a store that does not tell: its clock must be ours
		c.set.CompareAndSwap(0, 1)
		return
	}
	for n := stamp.UnixNano(); ; {
		newest := c.newest.Load()
		if n <= newest || c.newest.CompareAndSwap(newest, n) {
			break
		}
	}
	now := time.Now()
	ahead := stamp.Sub(now)
	if ahead.Abs() < clockSlack {
		ahead = 0
	}
	if int64(ahead) > c.ahead.Load() || now.UnixNano()-c.set.Load() > int64(clockTrust) {
		c.ahead.Store(int64(ahead))
		c.set.Store(now.UnixNano())
	}
}

// known reports whether the store's time was ever seen.
func (c *clock) known() bool { return c.set.Load() != 0 }

// surely is the store's time, and zero while nothing is known of it.
func (c *clock) surely() time.Time {
	if !c.known() {
		return time.Time{}
	}
	return c.now()
}

// now is the store's time, as far as we know.
func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
