// Package retry is how clients and workers wait before they try something again.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay is how long to wait after a number of failures in a row, counted from 1:
// twice as long each time, at most most, and never the same for two who wait.
func Delay(failures int, first, most time.Duration) time.Duration {
	d := most
	if failures < 10 {
		d = min(d, first<<(failures-1))
	}
	return d/2 + rand.N(d/2) //nolint:gosec // spreads load, guards nothing
}

// Pause waits, or until the context ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
