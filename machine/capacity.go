package machine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// CapacityError reports that a job does not fit into its pool. It wraps [gq.ErrNoCapacity].
type CapacityError struct {
	Pool      string
	Used      int64 // by running jobs
	Requested int64 // by the job
	Capacity  int64 // of the pool
}

func (e *CapacityError) Error() string {
	return fmt.Sprintf("pool %s has %d of %d units in use, and %d are requested", e.Pool, e.Used, e.Capacity, e.Requested)
}

func (e *CapacityError) Unwrap() error { return gq.ErrNoCapacity }

// AdmitToPool returns a [CapacityError] if the pool has too little free capacity for a job
// of this cost.
func AdmitToPool(p gq.Pool, cost int64) error {
	if cost == 0 || cost <= p.Capacity-p.Used {
		return nil
	}
	return &CapacityError{Pool: p.Name, Used: p.Used, Requested: cost, Capacity: p.Capacity}
}

// ConfigureQueue returns q after next replaces it. If next has UpdatedAt and q was modified
// since then, the error is [gq.ErrConflict].
func ConfigureQueue(q gq.Queue, next gq.Queue, now time.Time) (gq.Queue, error) {
	if !next.UpdatedAt.IsZero() && !next.UpdatedAt.Equal(q.UpdatedAt) {
		return q, gq.ErrConflict
	}
	next.OwnKeys = q.OwnKeys
	next.UpdatedAt = now
	if !now.After(q.UpdatedAt) {
		next.UpdatedAt = q.UpdatedAt.Add(1)
	}
	return next, nil
}

// CountsInPool reports whether a job in this status occupies capacity.
func CountsInPool(p gq.Pool, s gq.Status) bool {
	return s == gq.StatusRunning || s == gq.StatusClaimed && !p.AtStart
}
