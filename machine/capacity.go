package machine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// CapacityError refuses the start of a job that its pool has no room for. It is
// [ErrNoCapacity], and nothing has changed.
type CapacityError struct {
	Pool      string
	Used      int64 // by what runs at that moment
	Requested int64 // by the job
	Capacity  int64 // in all
}

func (e *CapacityError) Error() string {
	return fmt.Sprintf("pool %s has %d of %d units in use, and %d are requested", e.Pool, e.Used, e.Capacity, e.Requested)
}

func (e *CapacityError) Unwrap() error { return gq.ErrNoCapacity }

// AdmitToPool reports whether a job of that cost may start beside what runs.
func AdmitToPool(p gq.Pool, cost int64) error {
	if cost == 0 || cost <= p.Capacity-p.Used {
		return nil
	}
	return &CapacityError{Pool: p.Name, Used: p.Used, Requested: cost, Capacity: p.Capacity}
}

// ConfigureQueue is q as it is when next takes its place. With UpdatedAt next is a change of
// what was read, and [ErrConflict] if q is not that any more.
func ConfigureQueue(q gq.Queue, next gq.Queue, now time.Time) (gq.Queue, error) {
	if !next.UpdatedAt.IsZero() && !next.UpdatedAt.Equal(q.UpdatedAt) {
		return q, gq.ErrConflict
	}
	next.UpdatedAt = now
	if !now.After(q.UpdatedAt) {
		next.UpdatedAt = q.UpdatedAt.Add(1)
	}
	return next, nil
}

// CountsInPool reports whether a job in that status occupies capacity.
func CountsInPool(p gq.Pool, s gq.Status) bool {
	return s == gq.StatusRunning || s == gq.StatusClaimed && !p.AtStart
}
