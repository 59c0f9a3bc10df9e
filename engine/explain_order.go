package engine

import (
	"context"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// maxSkipped limits how many jobs that ended before their turn Explain looks past.
const maxSkipped = 100

// ahead returns the job with the same order key that this one waits for, nil if it waits for
// none. Jobs that ended before it was their turn are passed over.
func (x *inquiry) ahead(ctx context.Context) (*gq.Related, error) {
	id := x.state.OrderedAfter
	for range maxSkipped {
		if id.IsZero() {
			return nil, nil
		}
		found, err := x.engine.store.Get(ctx, []store.Ref{{Job: id}}, 0)
		if err != nil || found[0].Err != nil {
			return nil, err
		}
		s := &found[0].State
		if s.Live() {
			return &gq.Related{Job: id, Status: s.Status}, nil
		}
		if s.Version > 0 {
			return nil, nil // it was its turn
		}
		id = s.OrderedAfter
	}
	return nil, nil
}
