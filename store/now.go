package store

import (
	"context"
	"time"
)

// Timekeeper is an optional capability: the store's own time, for those who
// compare it with what it has stamped.
type Timekeeper interface {
	Now(ctx context.Context) (time.Time, error)
}
