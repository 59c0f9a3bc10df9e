package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// keptJob is a finished job that goes before the horizon of its status reaches it.
type keptJob struct{ until, seq int64 }

// keepOwn applies the job's own retention. If it is longer than that of its status, the job is
// put further back in the order in which retention comes past. Otherwise gq.kept lists it.
func (tx *txn) keepOwn(s *gq.State, ended *int64) {
	own, usual := s.Policy.Retention, tx.s.cfg.Retention.Of(s.Status)
	switch {
	case own > usual:
		*ended = nanoseconds(s.CompletedAt.Add(own - usual))
	case own < usual:
		until := nanoseconds(s.CompletedAt.Add(own))
		tx.kept = append(tx.kept, keptJob{until, int64(s.Sequence)})
		tx.changes.at(until)
	}
}

func (tx *txn) writeKept() {
	if len(tx.kept) == 0 {
		return
	}
	until, seqs := make([]int64, len(tx.kept)), make([]int64, len(tx.kept))
	for i, k := range tx.kept {
		until[i], seqs[i] = k.until, k.seq
	}
	tx.kept = nil
	tx.more.Queue("INSERT INTO gq.kept (until, seq) SELECT unnest($1::bigint[]), unnest($2::bigint[])", until, seqs)
}

// expireOwn removes up to limit jobs whose own retention is over. Rows of gq.kept whose job was
// purged or has expired go with them and do not count.
func (tx *txn) expireOwn(ctx context.Context, limit int) (n int, err error) {
	for n < limit {
		rows, err := tx.Query(ctx, `
			DELETE FROM gq.kept AS k
			USING (SELECT until, seq FROM gq.kept WHERE until <= $1 ORDER BY until, seq LIMIT $2) AS o
			WHERE k.until = o.until AND k.seq = o.seq
			RETURNING k.seq`, nanoseconds(tx.now), limit-n)
		if err != nil {
			return n, err
		}
		seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(seqs) == 0 {
			return n, err
		}
		slices.Sort(seqs)
		found, err := tx.lock(ctx, seqs, "UPDATE")
		if err != nil {
			return n, err
		}
		found = slices.DeleteFunc(found, func(r *row) bool { return r.home != inDone })
		tx.deleteDone(found)
		n += len(found)
	}
	return n, nil
}
