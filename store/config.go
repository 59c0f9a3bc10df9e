package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// Config is what every backend is opened with. The zero value is the default.
type Config struct {
	Clock     Clock     // nil is the backend's own: wall time, or the database's
	Limits    gq.Limits // zero is machine.DefaultLimits
	Retention Retention // zero is DefaultRetention

	// Backoffs are the application's own strategies by name, for the store and for the
	// engine over it. The map is not written to.
	Backoffs map[string]machine.BackoffFunc

	// Unfinished also opens a store that holds an unfinished copy, so that it can
	// be finished; otherwise that is [gq.ErrUnfinished]. A store that is created with
	// it is unfinished from the beginning, until an import has finished.
	Unfinished bool
}

// Draw is what a verb needs of a store: a number in [0,1) and the strategies.
func (c *Config) Draw(u float64) machine.Draw {
	if len(c.Backoffs) == 0 {
		return machine.Draw{U: u}
	}
	return machine.Draw{U: u, Custom: func(name string) machine.BackoffFunc { return c.Backoffs[name] }}
}

// Retention is how long finished jobs are kept, by how they ended. Their events
// are kept at least as long.
type Retention struct {
	Completed, Cancelled, Failed, DeadLetter time.Duration
}

// DefaultRetention keeps what went well for a week and what did not for a month.
func DefaultRetention() Retention {
	const day = 24 * time.Hour
	return Retention{Completed: 7 * day, Cancelled: 7 * day, Failed: 30 * day, DeadLetter: 30 * day}
}

// Of is how long a job that ended in a status is kept.
func (r Retention) Of(s gq.Status) time.Duration {
	switch s {
	case gq.StatusCompleted:
		return r.Completed
	case gq.StatusCancelled:
		return r.Cancelled
	case gq.StatusFailed:
		return r.Failed
	default:
		return r.DeadLetter
	}
}

// For is how long a finished job is kept: as its policy says, or else by how it ended.
func (r Retention) For(s *gq.State) time.Duration {
	if own := s.Policy.Retention; own > 0 {
		return own
	}
	return r.Of(s.Status)
}

// Shortest is the shortest time any finished job is kept. No idempotency window
// may be longer, or a key could outlive its job.
func (r Retention) Shortest() time.Duration {
	return min(r.Completed, r.Cancelled, r.Failed, r.DeadLetter)
}

// WithDefaults fills in what was left open, and reports every value that cannot
// be.
func (c Config) WithDefaults() (Config, error) {
	standard := machine.DefaultLimits()
	c.Limits.PayloadBytes = cmp.Or(c.Limits.PayloadBytes, standard.PayloadBytes)
	c.Limits.ResultBytes = cmp.Or(c.Limits.ResultBytes, standard.ResultBytes)
	c.Limits.CheckpointBytes = cmp.Or(c.Limits.CheckpointBytes, standard.CheckpointBytes)
	if c.Retention == (Retention{}) {
		c.Retention = DefaultRetention()
	}
	faults := errs.FaultsOf(machine.CheckLimits(c.Limits))
	for _, s := range []gq.Status{gq.StatusCompleted, gq.StatusCancelled, gq.StatusFailed, gq.StatusDeadLetter} {
		if d := c.Retention.Of(s); d <= 0 || d > gq.MaxDuration {
			faults = append(faults, gq.Fault{
				Field: "retention." + s.String(), Problem: d.String() + " is not above 0 and at most " + gq.MaxDuration.String(),
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Backoffs)) {
		if name == "" || c.Backoffs[name] == nil {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("backoffs[%q]", name), Problem: "needs a name and a function"})
		}
	}
	if len(faults) > 0 {
		return c, &gq.InvalidError{Faults: faults}
	}
	return c, nil
}
