package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// insertedFast inserts jobs that may run at once, in one statement that also reads the
// clock and takes the sequence numbers. It is the whole transaction, apart from writing
// the minimums. States are encoded as of instant 0, and every other time in a state is
// relative to that one: the statement overwrites the 8 bytes at n.at with the present.
//
// The ids of the jobs depend on the numbers. The rows and events therefore contain the ids
// that the caller gave; a reader computes the final ids from them and the numbers, which
// gq.log keeps for the events.
//
// The segment was taken beforehand, because the states contain it. startDay expects it to
// be taken after the numbers, so its day must not be earlier than theirs.
//
// The final SELECT runs first: it sets lock_timeout, so that the inserts wait no longer
// for a lock than other shared transactions do, and gopherqueue.first for tellingFast. If it returns
// no row, nothing was written: a queue has limits, or a new day has begun.
//
// The first of the two statements is for jobs that differ in anything but what all jobs
// differ in; the second, for all others, takes a column that is equal in all of them as
// one value. unnest takes time for each column of each row. The third is the second for jobs with
// different limit keys.
const eachRow, allRows = "unnest(%s[])", "%s"

var insertedFast, insertedAlike, insertedLimited = insertedFastOf(eachRow, eachRow, ""), insertedFastOf(allRows, allRows, ""), insertedFastOf(allRows, eachRow, "")

// These also record keys for retries. A key that is there already makes the statement fail.
var insertedFastKeyed, insertedAlikeKeyed, insertedLimitedKeyed = insertedFastOf(eachRow, eachRow, insertedKeys), insertedFastOf(allRows, allRows, insertedKeys), insertedFastOf(allRows, eachRow, insertedKeys)

var insertedKeys = fmt.Sprintf(`, key AS (
		INSERT INTO gq.idempotency (scope, name, fingerprint, job, seq, expires, rule)
		SELECT '%s', k.name, 1, k.job, k.seq, k.now + %d, %d
		FROM (SELECT now, unnest(seqs) AS seq, unnest($23::bytea[]) AS name, unnest($24::uuid[]) AS job FROM stamp) AS k
		WHERE k.name IS NOT NULL
	)`, machine.RetryScope, machine.RetryWindow.Nanoseconds(), ruleUndated)

// ruleUndated marks a key of insertedKeys: like the rows, it contains the id that the caller gave,
// from which and the number a reader computes the final one.
const ruleUndated = -1

func insertedFastOf(column, limited, more string) string {
	of := func(parameter string) string { return fmt.Sprintf(column, parameter) }
	return `
	WITH stamp AS MATERIALIZED (
		SELECT s.now, s.seqs
		FROM (
			SELECT greatest(time, $2, coalesce($3, ` + clock + `)) AS now,
				ARRAY (SELECT nextval('gq.submission') FROM generate_series(1, $1::integer)) AS seqs
			FROM gq.head
			WHERE NOT EXISTS (
				SELECT FROM gq.queue
				WHERE name = ANY ($4) AND config IS NOT NULL AND (NOT config @> '` + unguarded + `' OR config @> '{"Pool": "` + schedulerPool + `"}')
			)
		) AS s
		WHERE s.seqs[$1] >> 32 <= $5::bigint >> 32
	), ready AS (
		INSERT INTO gq.ready (seq, order_hi, order_lo, run_at, due, far, created, cost, status, queue, limited, fair, type, body, data)
		SELECT n.seq, n.hi, ` + orderLo + `, n.now, n.now + n.due, coalesce(n.due >= ` + farOff + `, false), n.now, n.cost, n.status, n.queue, nullif(n.limited, ''), n.fair, n.type,
			n.body, overlay(n.data PLACING n.created FROM n.at FOR 8)
		FROM (
			SELECT now, int8send(now) AS created, unnest(seqs) AS seq, ` + of("$6::bigint") + ` AS hi, ` + of("$7::bigint") + ` AS due,
				` + of("$8::bigint") + ` AS cost, ` + of("$9::smallint") + ` AS status, ` + of("$10::text") + ` AS queue,
				` + fmt.Sprintf(limited, "$11::text") + ` AS limited, ` + of("$12::text") + ` AS fair, ` + of("$13::text") + ` AS type,
				unnest($14::bytea[]) AS body, unnest($15::bytea[]) AS data, unnest($16::smallint[]) AS at
			FROM stamp
		) AS n
	), segment AS (
		INSERT INTO gq.segment (id, time, events, token) SELECT $5, now, $17::integer, $18::uuid FROM stamp
	), log AS (
		INSERT INTO gq.log (id, jobs, data) SELECT $5, seqs, $19::bytea FROM stamp
	), delta AS (
		INSERT INTO gq.delta (queue, status, jobs, units)
		SELECT unnest($20::text[]), unnest($21::smallint[]), unnest($22::bigint[]), 0 FROM stamp
	)` + more + `
	SELECT now, seqs, nextval('gq.segment_id')
	FROM stamp
	WHERE set_config('lock_timeout', '` + lockWait + `', true) IS NOT NULL AND set_config('gopherqueue.first', now || ' ' || seqs[1], true) IS NOT NULL`
}

// unguarded is contained in the configuration of every queue that is not guarded.
const unguarded = `{"MaxDepth": 0, "Fair": false}`

// fastMost is the largest number of jobs that insertFast inserts. For more jobs, saving a
// round trip matters little.
const fastMost = 256

// canInsertFast reports whether insertFast may be tried. It is not tried through a pooler,
// where each transaction needs its own settings, nor when a transaction is retried.
func (tx *txn) canInsertFast(groups []store.Group, jobs []*gq.Spec) bool {
	t, ours := tx.Tx.(*connTx)
	return ours && t.pending() && tx.shared && !tx.careful &&
		len(jobs) <= fastMost && len(jobs) == len(groups) && !slices.ContainsFunc(jobs, tardy) &&
		!slices.ContainsFunc(groups, func(g store.Group) bool { return !g.Mint }) &&
		!neighboursShareID(jobs) &&
		!slices.ContainsFunc(jobs, func(spec *gq.Spec) bool {
			return spec.Queue == matchingQueue || tx.s.guarded.has(spec.Queue) || !tx.s.registry.admits(spec.Queue)
		})
}

// remember records which of the named queues rule out insertFast: those that are guarded
// or reported.
func (s *Store) remember(names []string, queues map[string]gq.Queue) {
	for _, name := range names {
		q, configured := queues[name]
		s.guarded.learn(name, configured && (guarded(q) || reported(q)))
	}
}

// tardy reports whether a job rules out insertFast: it has a key of its user or dependencies, requires
// something of its worker, may not run at once, has a place that depends on the time, or keeps its payload in gq.blob.
func tardy(spec *gq.Spec) bool {
	return locks(spec) || spec.Gate != 0 || spec.Policy.Aging != 0 || spec.Delay != 0 || !spec.RunAt.IsZero() || len(spec.Requires) > 0 || isApart(spec)
}

// insertFast inserts jobs in one round trip. If done is false it wrote nothing.
func (tx *txn) insertFast(ctx context.Context, groups []store.Group, jobs []*gq.Spec) (out []store.Inserted, done bool, err error) {
	conn := tx.Tx.(*connTx)
	if tx.segment, err = tx.spare(ctx); err != nil {
		return nil, false, err
	}
	var clock *int64 // nil means the database's clock
	if tx.s.cfg.Clock != nil {
		now := tx.s.cfg.Clock.Now().UnixNano()
		clock = &now
	}
	rows, places, err := tx.submitUndated(jobs)
	if err != nil {
		return nil, false, err
	}
	events, err := tx.encodeEvents()
	if err != nil {
		return nil, false, err
	}
	counts := tx.encodeMoves()
	tx.mark, tx.written = events.mark, true
	var batch pgx.Batch
	var now, spare int64
	var numbers []int64
	names, callers := retryKeys(jobs)
	sql, keyed, args := insertedFast, insertedFastKeyed, []any{len(jobs), tx.s.latest.Load(), clock, counts.queues, events.mark.id}
	if rows.alike() {
		limited := any(rows.limited)
		if sql, keyed = insertedLimited, insertedLimitedKeyed; rows.sameLimited() {
			sql, keyed, limited = insertedAlike, insertedAlikeKeyed, rows.limited[0]
		}
		args = append(args, rows.his[0], rows.dues[0], rows.costs[0], rows.statuses[0], rows.queues[0], limited, rows.fairs[0], rows.types[0])
	} else {
		args = append(args, rows.his, rows.dues, rows.costs, rows.statuses, rows.queues, rows.limited, rows.fairs, rows.types)
	}
	if names != nil {
		sql = keyed
	}
	args = append(args, rows.bodies, rows.datas, places, events.n, events.mark.token, events.data, counts.queues, counts.statuses, counts.jobs)
	if names != nil {
		args = append(args, names, callers)
	}
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&now, &numbers, &spare}, func() error { return nil })
		return err
	})
	tx.writeMinimumsFast(&batch, &numbers)
	failed := conn.sendAlone(ctx, &batch).Close()
	if err := tx.resolveCommit(ctx, failed); err != nil {
		return nil, false, err
	}
	if failed != nil { // it was committed, but the answer was lost
		if now, numbers, err = tx.s.recall(ctx, tx.mark); err != nil {
			return nil, false, fmt.Errorf("%w: %w", errUnknown, err) // must not be retried
		}
	}
	tx.events = eventLog{}
	tx.forgetCounts()
	if len(numbers) == 0 {
		tx.written, tx.mark = false, mark{}
		return nil, false, nil
	}
	tx.committed = true
	if failed == nil {
		tx.s.keepSpare(spare)
	}
	tx.now = instant(now)
	tx.s.time(now, 0) // later calls return no earlier time
	p := tx.work.plan(len(jobs), tx.s.ids)
	p.now, p.numbers, p.book, p.answers = tx.now, numbers, newBook(), make([]store.Placed, 0, len(jobs))
	out = make([]store.Inserted, len(groups))
	for i := range groups {
		out[i] = p.place(groups[i])
	}
	return out, true, nil
}

// retryKeys returns the names of keys for retries, NULL for jobs without one, and the ids that the
// callers gave; nil if no job has one.
func retryKeys(jobs []*gq.Spec) (names [][]byte, ids [][16]byte) {
	if !slices.ContainsFunc(jobs, func(spec *gq.Spec) bool { return machine.ForRetry(spec.Key) }) {
		return nil, nil
	}
	names, ids = make([][]byte, len(jobs)), make([][16]byte, len(jobs))
	for i, spec := range jobs {
		if ids[i] = spec.ID; machine.ForRetry(spec.Key) {
			names[i] = []byte(spec.Key.Name)
		}
	}
	return names, ids
}

// maxSpares is how many spare segments a node keeps: one for each insert transaction that
// may be in flight.
const maxSpares = 2

func (s *Store) keepSpare(segment int64) {
	select {
	case s.spares <- segment:
	default:
	}
}

// submitUndated records jobs as if they were submitted at instant 0, without sequence
// numbers. It returns their rows and the position of that instant in each state, counted
// from 1.
func (tx *txn) submitUndated(jobs []*gq.Spec) (rows *rowArrays, places []int16, err error) {
	p := tx.work.plan(len(jobs), tx.s.ids)
	p.now, p.book = instant(0), newBook()
	tx.events.data = tx.work.log
	tx.work.bodies = tx.work.bodies[:0]
	rows = tx.arrays(move{nowhere, inReady})
	places = make([]int16, len(jobs))
	segments := []int64{tx.segment}
	space := slices.Grow(tx.work.states[:0], len(jobs)*stateGuess)
	for i, spec := range jobs {
		p.submit(spec, member{id: spec.ID, native: true}, 1)
		b := &p.insertions[i]
		if b.row.body, err = tx.work.body(spec, len(jobs)-i); err != nil {
			return nil, nil, err
		}
		from := len(space)
		var created int
		if space, created, err = codec.AppendMovableState(&b.row.state, appendSegments(space, segments, b.row.flags())); err != nil {
			return nil, nil, err
		}
		places[i] = int16(created - from + 1)
		if err := rows.add(b.row, move{nowhere, inReady}, space[from:len(space):len(space)], len(jobs)); err != nil {
			return nil, nil, err
		}
		tx.minimums.note(b.row, inReady, p.now)
		if due := nanoseconds(machine.Due(&b.row.state)); due != 0 {
			tx.changes.at(tx.s.known() + due)
		}
		tx.countJob(b.row.queue, &b.row.state, 1)
		for k := range b.events {
			tx.events.add(b.row.queue, b.row.typ(tx.events.typ), &b.events[k])
		}
	}
	tx.work.states = space
	return rows, places, nil
}

// recall reads the time and the numbers that a committed transaction gave its jobs.
func (s *Store) recall(ctx context.Context, m mark) (now int64, numbers []int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveWithin)
	defer cancel()
	err = s.transact(ctx, s.begins.read, func(tx *txn) error {
		return tx.QueryRow(ctx, "SELECT s.time, l.jobs FROM gq.segment AS s JOIN gq.log AS l USING (id) WHERE s.id = $1", m.id).Scan(&now, &numbers)
	})
	return now, numbers, err
}

// neighboursShareID reports whether the ids of two consecutive jobs are equal. The log of a
// fast insert tells its jobs apart by a change of the id.
func neighboursShareID(jobs []*gq.Spec) bool {
	for i := 1; i < len(jobs); i++ {
		if jobs[i].ID == jobs[i-1].ID {
			return true
		}
	}
	return false
}
