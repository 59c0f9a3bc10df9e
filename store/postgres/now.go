package postgres

import (
	"context"
	"time"

	"github.com/gopherqueue/gq/store"
)

var _ store.Timekeeper = (*Store)(nil)

// Now implements [store.Timekeeper].
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, "read the clock", func(tx *txn) error {
		now = tx.now
		return nil
	})
	return now, err
}
