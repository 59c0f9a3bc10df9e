package store

import (
	"context"

	"github.com/gopherqueue/gq"
)

// Examiner is an optional capability of stores in a database system that other programs
// share: what an operator of that system must know.
type Examiner interface {
	// Examine measures the database. The result may be some seconds old, so that frequent
	// callers cost little.
	Examine(ctx context.Context) (gq.Database, error)
}
