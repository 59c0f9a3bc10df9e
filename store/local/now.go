package local

import (
	"context"
	"time"

	"github.com/gopherqueue/gq/store"
)

var _ store.Timekeeper = (*Store)(nil)

// Now implements [store.Timekeeper].
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.view(ctx, oneByOne, func(at time.Time) (then, error) {
		now = at
		return nil, nil
	})
	return now, err
}
