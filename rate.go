package gq

import "time"

// Rate is how often something may happen: Count times in every Per, evenly
// spaced, with up to Burst of them at once after a pause. The zero value is no
// limit.
//
// It is the generic cell rate algorithm, whose whole memory is one instant: when
// the next one would be due if all came evenly. Whoever keeps that instant keeps
// the rate, also across restarts.
type Rate struct {
	Count int           // how many
	Per   time.Duration // in how long
	Burst int           // at once after a pause; 0 is 1
}

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r != Rate{} }
