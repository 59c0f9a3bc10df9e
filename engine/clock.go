package engine

import (
	"sync/atomic"
	"time"
)

// clock estimates the store's time, so that timers here fire when a job is due there. The
// estimate only decides when the engine calls the store; the store judges by its own time.
type clock struct {
	newest atomic.Int64 // latest time from the store, in nanoseconds since 1970

	ahead atomic.Int64 // nanoseconds by which the store's clock is ahead of ours
	set   atomic.Int64 // when ahead was measured
}

const (
	clockSlack = 100 * time.Millisecond // smaller differences are latency
	clockTrust = 10 * time.Second       // how long the best measurement is valid
)

// observe records a current time from the store. Answers arrive late, never early, so the
// largest difference is the most accurate.
func (c *clock) observe(stamp time.Time) {
	if stamp.IsZero() { // the store does not report its time and uses our clock
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

// known reports whether the store's time was ever observed.
func (c *clock) known() bool { return c.set.Load() != 0 }

// nowIfKnown returns the estimated store time, or zero if it was never observed.
func (c *clock) nowIfKnown() time.Time {
	if !c.known() {
		return time.Time{}
	}
	return c.now()
}

// at returns the estimated store time of a moment by our clock.
func (c *clock) at(t time.Time) time.Time { return t.Add(time.Duration(c.ahead.Load())).Round(0) }

// now returns the estimated store time.
func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
