package postgres

import (
	"context"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var _ store.Purger = (*Store)(nil)

// Purge implements [store.Purger]. It is the one thing that deletes from the
// tables of what has happened: retention does not, and drops whole partitions. The
// log keeps its segments, which go with theirs.
func (s *Store) Purge(ctx context.Context, ids []gq.JobID) ([]error, error) {
	var answers []error
	err := s.write(ctx, "purge", func(tx *txn) error {
		answers = make([]error, len(ids))
		if len(ids) == 0 {
			return nil
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockCollect); err != nil {
			return err
		}
		raw := make([][16]byte, len(ids))
		for i, id := range ids {
			raw[i] = id
		}
		numbers, err := tx.numbered(ctx, raw)
		if err != nil {
			return err
		}
		var seqs []int64
		for _, seq := range numbers {
			seqs = append(seqs, seq)
		}
		slices.Sort(seqs)
		rows, err := tx.lock(ctx, seqs, "UPDATE")
		if err != nil {
			return err
		}
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		known := make(map[gq.JobID]*row, len(rows))
		for _, r := range rows {
			known[r.state.ID] = r
		}
		var gone []int64
		var names [][16]byte
		for i, id := range ids {
			r, ok := known[id]
			switch {
			case !ok:
				answers[i] = gq.ErrNotFound.Errorf("job %s not found", id)
			case r.home != inDone:
				answers[i] = gq.ErrIllegalMove.Errorf("job %s is still %s; only finished jobs can be purged", id, r.state.Status)
			default:
				delete(known, id) // named again, it is not there
				gone, names = append(gone, int64(r.state.Sequence)), append(names, id)
				tx.count(place{r.queue, r.state.Status}, -1)
			}
		}
		if len(gone) == 0 {
			return nil
		}
		tx.more.Queue(headLock, lockHead)
		tx.more.Queue(reached, nanoseconds(tx.now))
		tx.more.Queue("DELETE FROM gq.name WHERE id = ANY ($1)", names)
		for _, table := range []string{"lease", "idempotency", "done", "job", "blob"} {
			tx.more.Queue("DELETE FROM gq."+table+" WHERE seq = ANY ($1)", gone)
		}
		return tx.flush(ctx)
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}
