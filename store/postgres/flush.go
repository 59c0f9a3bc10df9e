package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// flush writes what was recorded, so that the statements that follow see it.
func (tx *txn) flush(ctx context.Context) error {
	if len(tx.rows) == 0 && tx.more.Len() == 0 {
		return nil
	}
	if tx.book != nil {
		tx.book.write(&tx.more)
	}
	if err := errors.Join(tx.writeRows(), tx.writeEvents()); err != nil {
		return err
	}
	tx.writeLeases()
	tx.writeEnded()
	tx.writeMoves()
	tx.writeHead()
	batch := tx.more
	tx.rows, tx.leases, tx.ended, tx.events, tx.moves, tx.more = nil, nil, nil, nil, nil, pgx.Batch{}
	tx.written = true
	return tx.SendBatch(ctx, &batch).Close()
}

func (tx *txn) writeRows() error {
	n := len(tx.rows)
	var (
		jobs     = make([][16]byte, n)
		seqs     = make([]int64, n)
		queues   = make([]string, n)
		statuses = make([]int16, n)
		his, los = make([]int64, n), make([]int64, n)
		runs     = make([]int64, n)
		dues     = make([]*int64, n)
		ends     = make([]*int64, n)
		limits   = make([]string, n)
		fairs    = make([]string, n)
		datas    = make([][]byte, n)
	)
	for i, r := range tx.rows {
		r.changed = false
		s, order := &r.state, r.state.Order()
		data, err := s.AppendBinary(nil)
		if err != nil {
			return err
		}
		jobs[i], seqs[i], queues[i], statuses[i] = s.ID, int64(s.Sequence), r.queue, int16(s.Status)
		his[i], los[i] = signed(order.Hi), signed(order.Lo)
		limits[i], fairs[i] = r.limit, r.fair
		runs[i], dues[i], ends[i], datas[i] = nanoseconds(s.RunAt), optional(s.Due()), optional(s.CompletedAt), data
	}
	tx.more.Queue(`
		INSERT INTO gq.state (job, seq, queue, status, order_hi, order_lo, run_at, due, ended, limited, fair, data)
		SELECT n.job, n.seq, n.queue, n.status, n.hi, n.lo, n.run_at, n.due, n.ended, nullif(n.limited, ''), n.fair, n.data
		FROM unnest(
			$1::uuid[], $2::bigint[], $3::text[], $4::smallint[], $5::bigint[],
			$6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::bytea[]
		) AS n (job, seq, queue, status, hi, lo, run_at, due, ended, limited, fair, data)
		ON CONFLICT (job) DO UPDATE SET
			status = excluded.status, order_hi = excluded.order_hi, order_lo = excluded.order_lo,
			run_at = excluded.run_at, due = excluded.due, ended = excluded.ended, data = excluded.data`,
		jobs, seqs, queues, statuses, his, los, runs, dues, ends, limits, fairs, datas)
	return nil
}

func (tx *txn) writeLeases() {
	if len(tx.leases) == 0 {
		return
	}
	ids, jobs := make([]string, len(tx.leases)), make([][16]byte, len(tx.leases))
	for i, l := range tx.leases {
		ids[i], jobs[i] = string(l.id), l.job
	}
	tx.more.Queue("INSERT INTO gq.lease (id, job) SELECT * FROM unnest($1::text[], $2::uuid[])", ids, jobs)
}

// writeEnded leaves a marker for Release, where a child waits.
func (tx *txn) writeEnded() {
	for _, s := range tx.ended {
		tx.more.Queue(`
			INSERT INTO gq.ended (parent, seq, status, priority)
			SELECT $1, $2, $3, $4
			WHERE EXISTS (SELECT FROM gq.edge WHERE parent = $1)`,
			[16]byte(s.ID), int64(s.Sequence), int16(s.Status), int16(s.Priority()))
	}
}

func (tx *txn) writeEvents() error {
	n := len(tx.events)
	if n == 0 {
		return nil
	}
	var (
		seqs   = make([]int64, n)
		jobs   = make([][16]byte, n)
		queues = make([]string, n)
		datas  = make([][]byte, n)
	)
	for i, e := range tx.events {
		data, err := e.AppendBinary(nil)
		if err != nil {
			return err
		}
		seqs[i], jobs[i], queues[i], datas[i] = int64(e.Seq), e.Job, e.Queue, data
	}
	tx.more.Queue(`
		INSERT INTO gq.event (seq, job, queue, time, data)
		SELECT n.seq, n.job, n.queue, $5, n.data
		FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::bytea[]) AS n (seq, job, queue, data)`,
		seqs, jobs, queues, datas, nanoseconds(tx.now))
	return nil
}

func (tx *txn) writeMoves() {
	var (
		queues   []string
		statuses []int16
		counts   []int64
	)
	for at, n := range tx.moves {
		if n != 0 && at.status.Valid() {
			queues, statuses, counts = append(queues, at.queue), append(statuses, int16(at.status)), append(counts, n)
		}
	}
	if len(counts) == 0 {
		return
	}
	tx.more.Queue(`
		INSERT INTO gq.tally AS t (queue, status, jobs)
		SELECT * FROM unnest($1::text[], $2::smallint[], $3::bigint[])
		ON CONFLICT (queue, status) DO UPDATE SET jobs = t.jobs + excluded.jobs`,
		queues, statuses, counts)
}

func (tx *txn) writeHead() {
	tx.more.Queue("UPDATE gq.head SET event = $1, time = $2", tx.event, nanoseconds(tx.now))
}
