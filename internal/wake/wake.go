// Package wake wakes goroutines: at once, or at the earliest of several instants.
package wake

import "time"

// Up wakes the goroutine that receives from c. It never blocks: with a buffer of one, wakes that
// come while one is pending count as one.
func Up(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Earlier is the earlier of two instants; zero is none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
