package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// endings are the statuses that have a horizon.
var endings = []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}

// kept is the condition that a row of gq.done, with the alias s, is a job that still
// exists: the horizon has not passed it.
const kept = `
	NOT EXISTS (
		SELECT FROM gq.horizon AS h
		WHERE h.status = s.status AND (h.ended, h.seq) >= (s.ended, s.seq)
	)`

// Collect implements [store.Store]. It moves the horizons on, which hides jobs from all
// nodes at once, and deletes their ids, leases and keys. Their rows are dropped with their
// partition: see maintain. Collectors take turns. A call that waits for longer than
// collectWait leaves the work for the next one.
func (s *Store) Collect(ctx context.Context, limit int) (removed int, next time.Time, err error) {
	over, next, err := s.expired(ctx)
	if err != nil {
		return 0, next, err
	}
	if !over {
		return 0, next, s.maintain(ctx)
	}
	err = s.write(ctx, func(tx *txn) (err error) {
		removed = 0
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+collectWait+"'"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockCollect); err != nil {
			return err
		}
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		if removed, err = tx.expireOwn(ctx, max(limit, 1)); err != nil {
			return err
		}
		if removed > 0 {
			return tx.flush(ctx) // the horizons must not come past rows that are about to go
		}
		for _, status := range endings {
			n, err := tx.expire(ctx, status, max(limit, 1)-removed)
			if err != nil {
				return err
			}
			removed += n
		}
		return tx.flush(ctx)
	})
	if held(err) {
		return 0, next.Add(collectAgain), nil
	}
	if err != nil {
		return 0, time.Time{}, err
	}
	if removed > 0 {
		s.stale.Store(true)
	}
	if _, next, err = s.expired(ctx); err == nil && removed == 0 {
		err = s.maintain(ctx)
	}
	return removed, next, err
}

// collectWait is how long Collect waits for another call that collects or purges, and for
// keys that a submission is reusing.
const collectWait = "2s"

// collectAgain is when Collect is called again after it has waited in vain.
const collectAgain = time.Second

// expired reports whether there is anything to collect, and when there is.
func (s *Store) expired(ctx context.Context) (over bool, next time.Time, err error) {
	err = s.readOnce(ctx, func(tx *txn) error {
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		var statuses []int16
		var kept []int64
		for _, status := range endings {
			statuses, kept = append(statuses, int16(status)), append(kept, int64(s.cfg.Retention.Of(status)))
		}
		var first *int64
		if err := tx.QueryRow(ctx, firstOver, statuses, kept).Scan(&first); err != nil || first == nil {
			return err
		}
		next = instant(*first)
		over = !next.After(tx.now)
		return nil
	})
	return over, next, err
}

// firstOver selects when the first retention of a job after the horizon of its status is over.
// It uses the index done_ended. The rest is for jobs with a retention of their own.
const firstOver = `
	SELECT least(
		(
			SELECT min(d.ended + r.kept)
			FROM unnest($1::smallint[], $2::bigint[]) AS r (status, kept)
			CROSS JOIN LATERAL (
				SELECT coalesce(max(ended), -9223372036854775808) AS ended, coalesce(max(seq), 0) AS seq
				FROM gq.horizon
				WHERE status = r.status
			) AS h
			CROSS JOIN LATERAL (
				SELECT ended
				FROM gq.done
				WHERE status = r.status AND (ended, seq + 0) > (h.ended, h.seq)
				ORDER BY ended, seq + 0
				LIMIT 1
			) AS d
		),
		(SELECT min(until) FROM gq.kept)
	)`

// ended selects the jobs of a status after its horizon that ended up to an instant, in the
// order in which they ended. It uses the index done_ended.
const ended = `
	SELECT seq, members, ended, queue
	FROM gq.done
	WHERE status = $1 AND (ended, seq + 0) > ($2, $3) AND ended <= $4
	ORDER BY ended, seq + 0
	LIMIT $5`

// expire moves the horizon of a status past up to limit jobs. A job with dependents that
// do not know of its end may go: gq.ended has what they need.
func (tx *txn) expire(ctx context.Context, status gq.Status, limit int) (int, error) {
	if limit < 1 {
		return 0, nil
	}
	h, err := tx.horizon(ctx, status)
	if err != nil {
		return 0, err
	}
	until := nanoseconds(tx.now.Add(-tx.s.cfg.Retention.Of(status)))
	rows, err := tx.Query(ctx, ended, int16(status), h.ended, h.seq, until, limit)
	if err != nil {
		return 0, err
	}
	var (
		seqs       []int64
		queue      string
		seq, ended int64
		members    *int64
		moved      bool
		split      []*pack // the last row, if the limit is reached within it
	)
	_, err = pgx.ForEachRow(rows, []any{&seq, &members, &ended, &queue}, func() error {
		jobs := numbersOfRow(seq, members)
		if room := limit - len(seqs); room <= 0 {
			return nil
		} else if len(jobs) > room {
			p := &pack{seq: seq, members: uint64(*members)}
			jobs = jobs[:room]
			for _, job := range jobs {
				p.left |= bitOf(job)
			}
			split = append(split, p)
		} else {
			h, moved = horizon{ended, seq}, true
		}
		seqs = append(seqs, jobs...)
		tx.count(place{queue, status}, -int64(len(jobs)), 0)
		return nil
	})
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	tx.writePacks("done", split)
	if moved {
		tx.more.Queue(`
			INSERT INTO gq.horizon (status, ended, seq) VALUES ($1, $2, $3)
			ON CONFLICT (status) DO UPDATE SET ended = excluded.ended, seq = excluded.seq`,
			int16(status), h.ended, h.seq)
	}
	tx.more.Queue("DELETE FROM gq.foreign_id WHERE seq = ANY ($1)", seqs)
	tx.more.Queue("DELETE FROM gq.duplicate WHERE seq = ANY ($1)", seqs)
	tx.more.Queue("DELETE FROM gq.lease WHERE seq = ANY ($1)", seqs)
	tx.more.Queue("DELETE FROM gq.idempotency WHERE seq = ANY ($1)", seqs)
	return len(seqs), nil
}

// horizon is the last of the jobs that ended in a status and have expired.
type horizon struct{ ended, seq int64 }

func (tx *txn) horizon(ctx context.Context, status gq.Status) (h horizon, err error) {
	err = tx.QueryRow(ctx, `
		SELECT coalesce(max(ended), -9223372036854775808), coalesce(max(seq), 0)
		FROM gq.horizon
		WHERE status = $1`,
		int16(status)).Scan(&h.ended, &h.seq)
	return h, err
}

var _ store.Purger = (*Store)(nil)

// Purge implements [store.Purger]. Only Purge deletes rows of finished jobs one by one;
// retention drops whole partitions. The events stay in the log until their partition is
// dropped.
func (s *Store) Purge(ctx context.Context, ids []gq.JobID) ([]error, error) {
	var answers []error
	err := s.write(ctx, func(tx *txn) error {
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
		var gone []*row
		for i, id := range ids {
			r, ok := known[id]
			switch {
			case !ok:
				answers[i] = gq.ErrNotFound.Errorf("job %s not found", id)
			case r.home != inDone:
				answers[i] = gq.ErrIllegalMove.Errorf("job %s is still %s; only finished jobs can be purged", id, r.state.Status)
			default:
				delete(known, id) // a second mention is not found
				gone = append(gone, r)
			}
		}
		if len(gone) == 0 {
			return nil
		}
		tx.deleteDone(gone)
		return tx.flush(ctx)
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// deleteDone queues statements that delete the rows of finished jobs, which are locked.
func (tx *txn) deleteDone(rows []*row) {
	if len(rows) == 0 {
		return
	}
	var gone, single []int64
	var shared []*pack
	for _, r := range rows {
		seq := int64(r.state.Sequence)
		gone = append(gone, seq)
		tx.countJob(r.queue, &r.state, -1)
		switch {
		case r.pack == nil:
			single = append(single, seq)
		case r.pack.left == 0:
			shared = append(shared, r.pack)
			fallthrough
		default:
			r.pack.left |= bitOf(seq)
		}
	}
	tx.more.Queue(headLock, lockHead)
	tx.more.Queue(reached, nanoseconds(tx.now))
	for _, table := range []string{"foreign_id", "duplicate", "lease", "idempotency", "blob", "report"} {
		tx.more.Queue("DELETE FROM gq."+table+" WHERE seq = ANY ($1)", gone)
	}
	tx.more.Queue("DELETE FROM gq.done WHERE seq = ANY ($1)", single)
	tx.writePacks("done", shared)
}
