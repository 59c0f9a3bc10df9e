package local

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Keyed implements [store.Reader].
func (s *Store) Keyed(ctx context.Context, scopes, names []string) (ids []gq.JobID, err error) {
	err = s.view(ctx, oneByOne, func(time.Time) (then, error) {
		if len(scopes) == 0 {
			scopes = s.table.scopes()
		}
		if err := store.CheckKeyed(len(scopes), names); err != nil {
			return nil, err
		}
		return func() error {
			ids = nil
			for _, scope := range scopes {
				for _, name := range names {
					key := keyOf(&gq.IdempotencyKey{Scope: scope, Name: name})
					raw, err := s.read(key[:])
					if errors.Is(err, gq.ErrNotFound) {
						continue
					}
					if err != nil {
						return err
					}
					record, err := decodeKeyRecord(raw)
					if err != nil {
						return err
					}
					ids = append(ids, record.id)
				}
			}
			return nil
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// scopes lists the scopes that keys usually have: the types of jobs, and that of replays. Types without live jobs are
// forgotten once there are many, see dropBuckets.
func (t *table) scopes() []string {
	known := map[string]bool{machine.ReplayScope: true}
	for _, l := range t.buckets {
		known[l.typ] = true
	}
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
