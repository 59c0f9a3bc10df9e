package access

import (
	"context"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Finder finds out which queues jobs and leases belong to; every store is one.
type Finder interface {
	Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error)
}
