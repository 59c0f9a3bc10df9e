package gq

import "time"

// Rate limits how often jobs are claimed: Count times per Per, evenly spaced, and up to Burst
// at once after a pause. The zero value is no limit.
//
// The store applies the generic cell rate algorithm. Its only state is one time, which the
// store persists, so the limit survives restarts.
type Rate struct {
	Count int
	Per   time.Duration
	Burst int // claims at once after a pause; 0 is 1
}

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r != Rate{} }
