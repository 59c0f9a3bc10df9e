package store

import (
	"context"

	"github.com/gopherqueue/gq"
)

// Purger is an optional capability: finished jobs go before their retention is
// over.
type Purger interface {
	// Purge removes finished jobs with all that belongs to them, as Collect does,
	// each by itself. Their histories go with them. What the log of events tells
	// of them stays there as long as it would have otherwise, so that whoever
	// follows it misses nothing, and dependents that are yet to be told learn how
	// they ended.
	//
	// Item errors: [gq.ErrNotFound], and [gq.ErrIllegalMove] for a job that has
	// not ended.
	Purge(ctx context.Context, ids []gq.JobID) ([]error, error)
}
