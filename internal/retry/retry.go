// Package retry waits before something is tried again.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay is how long to wait after a number of failures in a row, counted from 1: first, then twice
// as long each time, up to most. Jitter makes it shorter by up to half.
func Delay(failures int, first, most time.Duration) time.Duration {
	d := most
	if failures < 10 {
		d = min(d, first<<(failures-1))
	}
	return d/2 + rand.N(d/2) //nolint:gosec // spreads load, guards nothing
}

// Pause waits. It returns false if the context ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
