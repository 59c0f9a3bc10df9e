package server

import "time"

// WithClock sets the clock that tells how old the tokens are that a server knows.
func WithClock(o Options, now func() time.Time) Options {
	o.clock = now
	return o
}
