package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var _ store.Purger = (*Store)(nil)

// Purge implements [store.Purger].
func (s *Store) Purge(ctx context.Context, ids []gq.JobID) ([]error, error) {
	if len(ids) == 0 {
		return nil, s.usable(ctx)
	}
	answers := make([]error, len(ids))
	var failed error
	err := s.do(ctx, len(ids), func(tx *txn) { failed = tx.purge(ids, answers) })
	if err != nil {
		return nil, err // the writer may still be at it
	}
	if failed != nil {
		return nil, fmt.Errorf("purge: %w", failed)
	}
	return answers, nil
}

// purge removes finished jobs. The log keeps its records: retention finds no job
// in them and lets them go in their time.
func (tx *txn) purge(ids []gq.JobID, answers []error) error {
	s := tx.s
	if err := s.disk.room(forCleaning, tx.batch.Len()); err != nil {
		return err
	}
	tx.settle()
	tx.forget()
	var gone []doneKey
	seen := make(map[gq.JobID]bool, len(ids))
	for i, id := range ids {
		k, err := tx.purgeable(id)
		switch {
		case err == nil && !seen[id]:
			gone = append(gone, k)
			seen[id] = true
		case err == nil || errors.Is(err, gq.ErrNotFound):
			answers[i] = gq.ErrNotFound.Errorf("job %s not found", id)
		case errors.Is(err, gq.ErrIllegalMove):
			answers[i] = err
		default:
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := tx.drop(gone); err != nil {
		return err
	}
	s.marks.lastJob, s.marks.lastEvent, s.marks.time = tx.t.lastJob, tx.t.lastEvent, tx.now.UnixNano()
	tx.set(metaCursors, s.marks.encode())
	return nil
}

// purgeable finds a job that ended in an earlier commit. One that ends in this
// one has not ended for anybody yet.
func (tx *txn) purgeable(id gq.JobID) (doneKey, error) {
	if j := tx.t.jobs.get(id); j != nil {
		return doneKey{}, gq.ErrIllegalMove.Errorf("job %s is still %s; only finished jobs can be purged", id, j.status)
	}
	k, _, err := tx.readDone(id)
	return k, err
}
