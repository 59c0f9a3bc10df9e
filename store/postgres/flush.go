package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gopherqueue/gq/machine"
)

// flush writes what was recorded, in one batch, so that later statements see it.
func (tx *txn) flush(ctx context.Context) error { return tx.send(ctx, false) }

// finish is flush for the last write: it sends the commit in the same batch, unless the
// application commits or the outcome of the commit could not be determined.
func (tx *txn) finish(ctx context.Context) error { return tx.send(ctx, true) }

func (tx *txn) send(ctx context.Context, last bool) error {
	if len(tx.rows) == 0 && len(tx.moves) == 0 && tx.events.n == 0 && tx.more.Len() == 0 {
		return nil
	}
	if tx.segment == 0 && tx.events.n > 0 {
		if err := tx.QueryRow(ctx, "SELECT nextval('gq.segment_id')").Scan(&tx.segment); err != nil {
			return err
		}
	}
	if tx.book != nil {
		tx.book.write(&tx.more)
	}
	rows, err := tx.encodeRows()
	if err == nil && last {
		err = tx.whole()
	}
	if err != nil {
		return err
	}
	events, err := tx.encodeEvents()
	if err != nil {
		return err
	}
	if events.mark.id != 0 {
		tx.mark = events.mark
	}
	last = last && tx.ours && tx.mark.id != 0
	if err := tx.copy(ctx, rows); err != nil {
		return err
	}
	tx.write(rows, events, tx.encodeMoves())
	tx.report.write(&tx.more, events.mark.id)
	batch := tx.more
	if last {
		batch.Queue("COMMIT")
	}
	tx.rows, tx.leases, tx.ended, tx.events, tx.report, tx.more = nil, nil, nil, eventLog{}, reports{}, pgx.Batch{}
	tx.forgetCounts()
	tx.written = true
	failed := tx.SendBatch(ctx, &batch).Close()
	if tx.known != nil && divided(failed) {
		return errMoved
	}
	if !last {
		return failed
	}
	if err := tx.resolveCommit(ctx, failed); err != nil {
		return err
	}
	tx.committed, tx.unheard = true, failed != nil
	return nil
}

// copy writes new jobs, if they are many, and removes them from rows.
func (tx *txn) copy(ctx context.Context, rows map[move]*rowArrays) error {
	created := move{nowhere, inReady}
	a := rows[created]
	conn, ok := tx.Tx.(*connTx)
	if !ok || a == nil || !a.canCopy() {
		return nil
	}
	delete(rows, created)
	return conn.copyReady(ctx, func() (rows *rowArrays, err error) {
		rows, a = a, nil
		return rows, nil
	})
}

// write queues all statements. One group of new, claimed or ended jobs, usually the only
// group, shares a statement with events and counts: a statement costs as much as a few
// rows.
func (tx *txn) write(rows map[move]*rowArrays, events segment, counts countArrays) {
	tx.writePacks("held", tx.packs)
	tx.packs = nil
	for m, a := range rows {
		if (m.from == nowhere || m.from == inHand) && m.to != inReady && !tx.apart {
			a.packRows(m.to)
		}
	}
	told := false
	for _, m := range []move{{nowhere, inReady}, {nowhere, inHeld}, {inHand, inHeld}, {inHand, inDone}} {
		if a := rows[m]; a != nil && !told && events.mark.id != 0 && len(counts.jobs) > 0 {
			tx.writeAll(a, m, events, counts)
			delete(rows, m)
			told = true
		}
	}
	if !told {
		events.write(&tx.more)
		counts.write(&tx.more)
	}
	for m, a := range rows {
		a.write(&tx.more, m)
	}
	tx.writeMinimums()
	tx.writeLeases()
	tx.writeEnded()
	tx.writeKept()
}

// rowArrays are rows of gq.ready, gq.held or gq.done, column by column.
type rowArrays struct {
	seqs, his, los, runs   []int64
	dues                   []*int64
	instants               []int64 // the values that dues points to
	ends                   []int64
	statuses               []int16
	queues, limited, fairs []string
	datas, bodies          [][]byte
	created                []int64
	shares                 []bool   // see row
	members                []*int64 // only for rows that move to gq.held or gq.done; nil if each has one job
	scratch                []byte   // for packItems
	far                    int64    // see farFrom

	// Only for rows that move to gq.ready; costs also for rows that move to gq.held.
	costs           []int64
	types, requires []string
	demanding       bool // a row has requirements
}

// add appends a row. The first one allocates room for n rows.
func (a *rowArrays) add(r *row, m move, data []byte, n int) error {
	if a.seqs == nil || cap(a.seqs) < n && len(a.seqs) == 0 {
		a.grow(n)
	}
	s, order := &r.state, machine.Order(&r.state)
	a.seqs = append(a.seqs, int64(s.Sequence))
	a.his, a.los = append(a.his, signed(order.Hi)), append(a.los, signed(order.Lo))
	a.runs, a.dues = append(a.runs, nanoseconds(s.RunAt)), append(a.dues, nil)
	if due := machine.Due(s); !due.IsZero() {
		a.instants = append(a.instants, due.UnixNano())
		a.dues[len(a.dues)-1] = &a.instants[len(a.instants)-1]
	}
	a.ends = append(a.ends, nanoseconds(s.CompletedAt))
	a.statuses, a.queues = append(a.statuses, int16(s.Status)), append(a.queues, r.queue)
	a.fairs, a.shares = append(a.fairs, r.fair), append(a.shares, r.shares)
	a.datas, a.bodies, a.created = append(a.datas, data), append(a.bodies, r.body), append(a.created, nanoseconds(s.CreatedAt))
	if m.to == inDone || m.from == m.to || m.from == inReady {
		a.limited = append(a.limited, "")
		return nil // cost and limit key stay or move with the row
	}
	spec, err := r.specOf()
	if err != nil {
		return err
	}
	a.costs, a.types, a.limited = append(a.costs, spec.CostUnits), append(a.types, spec.Type), append(a.limited, spec.LimitKey)
	a.requires, a.demanding = append(a.requires, arrayOf(spec.Requires)), a.demanding || len(spec.Requires) > 0
	return nil
}

// alike reports whether the rows, which are new, differ only in their numbers, limit keys, bodies
// and data.
func (a *rowArrays) alike() bool {
	if a.demanding || len(a.seqs) == 0 {
		return false
	}
	for i := range a.seqs {
		if a.his[i] != a.his[0] || a.los[i] != signed(uint64(a.seqs[i])) || a.runs[i] != a.runs[0] || a.created[i] != a.created[0] ||
			a.costs[i] != a.costs[0] || a.statuses[i] != a.statuses[0] || a.queues[i] != a.queues[0] ||
			a.fairs[i] != a.fairs[0] || a.types[i] != a.types[0] || (a.dues[i] == nil) != (a.dues[0] == nil) || a.dues[i] != nil && *a.dues[i] != *a.dues[0] {
			return false
		}
	}
	return true
}

// sameLimited reports whether all rows have the same limit key, or none.
func (a *rowArrays) sameLimited() bool {
	return !slices.ContainsFunc(a.limited, func(key string) bool { return key != a.limited[0] })
}

// grow allocates room for n rows.
func (a *rowArrays) grow(n int) {
	numbers, names := make([]int64, 7*n), make([]string, 3*n)
	a.seqs, a.his, a.los, a.runs = numbers[:0:n], numbers[n:n:2*n], numbers[2*n:2*n:3*n], numbers[3*n:3*n:4*n]
	a.ends, a.created, a.instants = numbers[4*n:4*n:5*n], numbers[5*n:5*n:6*n], numbers[6*n:6*n]
	a.queues, a.limited, a.fairs = names[:0:n], names[n:n:2*n], names[2*n:2*n]
	bytes := make([][]byte, 2*n)
	a.dues, a.statuses, a.datas, a.bodies = make([]*int64, 0, n), make([]int16, 0, n), bytes[:0:n], bytes[n:n]
	a.shares = make([]bool, 0, n)
	a.costs, a.types, a.requires = nil, nil, nil
}

// reset empties the arrays and keeps their memory.
func (a *rowArrays) reset() {
	a.seqs, a.his, a.los, a.runs, a.dues = a.seqs[:0], a.his[:0], a.los[:0], a.runs[:0], a.dues[:0]
	a.instants, a.ends, a.statuses, a.queues = a.instants[:0], a.ends[:0], a.statuses[:0], a.queues[:0]
	a.limited, a.fairs, a.datas, a.bodies, a.created = a.limited[:0], a.fairs[:0], a.datas[:0], a.bodies[:0], a.created[:0]
	a.costs, a.types, a.requires, a.demanding, a.shares = a.costs[:0], a.types[:0], a.requires[:0], false, a.shares[:0]
}

func (a *rowArrays) forget() {
	for _, names := range [][]string{a.queues, a.limited, a.fairs, a.types, a.requires} {
		clear(names)
	}
	clear(a.datas)
	clear(a.bodies)
}

// stateGuess is the expected size of an encoded state in bytes. A state of at most
// maxStateGuess bytes always fits into the shared buffer.
const (
	stateGuess    = 160
	maxStateGuess = 512
)

// move is the table that a row leaves and the one that it enters.
type move struct{ from, to home }

// encodeRows encodes the recorded rows and groups them by move.
func (tx *txn) encodeRows() (map[move]*rowArrays, error) {
	moves := make(map[move]*rowArrays)
	var space []byte // the buffer for all states
	if tx.work != nil {
		space = tx.work.states[:0]
	}
	first := []int64{tx.segment} // the segments of a new job
	for i, r := range tx.rows {
		switch {
		case r.told && r.segments == nil:
			r.segments = first[:1:1]
		case r.told:
			r.segments = append(r.segments, tx.segment)
		}
		m := move{r.home, homeOf(r.state.Status)}
		r.changed, r.told = false, false
		if m.from == inDone {
			continue // a finished job no longer changes
		}
		if cap(space)-len(space) < maxStateGuess {
			space = make([]byte, 0, maxStateGuess+(len(tx.rows)-i)*stateGuess)
			if tx.work != nil {
				tx.work.states = space
			}
		}
		data, err := r.encode(space[len(space):])
		if err != nil {
			return nil, err
		}
		if len(data) <= cap(space)-len(space) {
			space = space[:len(space)+len(data)]
		}
		data = slices.Clip(data)
		if moves[m] == nil {
			moves[m] = tx.arrays(m)
			moves[m].far = farFrom(tx.now)
		}
		if err := moves[m].add(r, m, data, len(tx.rows)); err != nil {
			return nil, err
		}
		tx.minimums.note(r, m.to, tx.now)
		if m.to == inDone && r.state.Policy.Retention > 0 {
			tx.keepOwn(&r.state, &moves[m].ends[len(moves[m].ends)-1])
		}
		if m.to != inDone {
			tx.changes.at(nanoseconds(machine.Due(&r.state)))
		}
		if m.from == inHand {
			tx.inHand--
		}
		r.home = m.to
	}
	return moves, nil
}

// arrays returns empty arrays for the rows of a move.
func (tx *txn) arrays(m move) *rowArrays {
	if tx.work == nil || m != (move{nowhere, inReady}) {
		return new(rowArrays)
	}
	tx.work.ready.reset()
	return &tx.work.ready
}

// These statements find rows by number; the transaction has locked them. They compare
// with an array of one number: a plain join might be planned to read a whole table that
// seemed empty when it was last analysed. A row that moves takes its unchanged columns
// along. unnest is in the select list, because in FROM each column would be materialized.
const (
	beReady = `
		INSERT INTO gq.ready (seq, order_hi, order_lo, run_at, due, far, created, cost, status, queue, limited, fair, type, requires, body, data)
		SELECT n.seq, n.hi, n.lo, n.run_at, n.due, coalesce(n.due >= $15, false), n.created, n.cost, n.status, n.queue, nullif(n.limited, ''), n.fair, n.type, %s, n.body, n.data
		FROM (
			SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS hi, unnest($3::bigint[]) AS lo,
				unnest($4::bigint[]) AS run_at, unnest($5::bigint[]) AS due, unnest($6::bigint[]) AS created,
				unnest($7::bigint[]) AS cost, unnest($8::smallint[]) AS status, unnest($9::text[]) AS queue,
				unnest($10::text[]) AS limited, unnest($11::text[]) AS fair, unnest($12::text[]) AS type,
				unnest($13::bytea[]) AS body, unnest($14::bytea[]) AS data%s
		) AS n`
	// beReadyAlike is beReady for new jobs that differ in nothing else: see insertedFast. The gap is
	// for their limit keys.
	beReadyAlike = `
		INSERT INTO gq.ready (seq, order_hi, order_lo, run_at, due, far, created, cost, status, queue, limited, fair, type, body, data)
		SELECT n.seq, $4::bigint, ` + orderLo + `, $5::bigint, $6::bigint, coalesce($6 >= $14::bigint, false), $7::bigint, $8::bigint, $9::smallint, $10::text, nullif(n.limited, ''), $12::text, $13::text, n.body, n.data
		FROM (SELECT unnest($1::bigint[]) AS seq, unnest($2::bytea[]) AS body, unnest($3::bytea[]) AS data, %s AS limited) AS n`
	beHeld = `
		INSERT INTO gq.held (seq, members, due, created, cost, status, queue, limited, fair, body, data)
		SELECT n.seq, n.members, n.due, n.created, n.cost, n.status, n.queue, nullif(n.limited, ''), n.fair, n.body, n.data
		FROM (
			SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS due, unnest($3::bigint[]) AS created,
				unnest($4::bigint[]) AS cost, unnest($5::smallint[]) AS status, unnest($6::text[]) AS queue,
				unnest($7::text[]) AS limited, unnest($8::text[]) AS fair, unnest($9::bytea[]) AS body,
				unnest($10::bytea[]) AS data, unnest($11::bigint[]) AS members
		) AS n`
	beDone = `
		INSERT INTO gq.done (seq, members, ended, created, status, queue, fair, body, data)
		SELECT unnest($1::bigint[]), unnest($9::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::smallint[]), unnest($5::text[]),
			unnest($6::text[]), unnest($7::bytea[]), unnest($8::bytea[])`
	stayReady = `
		UPDATE gq.ready AS s
		SET order_hi = n.hi, order_lo = n.lo, run_at = n.run_at, due = n.due, far = coalesce(n.due >= $8, false), aside = NULL, status = n.status, data = n.data
		FROM (
			SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS hi, unnest($3::bigint[]) AS lo,
				unnest($4::bigint[]) AS run_at, unnest($5::bigint[]) AS due, unnest($6::smallint[]) AS status,
				unnest($7::bytea[]) AS data
		) AS n
		WHERE s.seq = ANY (ARRAY [n.seq])`
	stayHeld = `
		UPDATE gq.held AS s
		SET due = n.due, status = n.status, data = n.data
		FROM (
			SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS due, unnest($3::smallint[]) AS status,
				unnest($4::bytea[]) AS data
		) AS n
		WHERE s.seq = ANY (ARRAY [n.seq])`
	hold = `
		WITH gone AS (
			DELETE FROM gq.ready AS s
			USING (
				SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS due, unnest($3::smallint[]) AS status,
					unnest($4::bytea[]) AS data
			) AS n
			WHERE s.seq = ANY (ARRAY [n.seq])
			RETURNING n.seq, n.due, s.created, s.cost, n.status, s.queue, s.limited, s.fair, s.body, n.data
		)
		INSERT INTO gq.held (seq, due, created, cost, status, queue, limited, fair, body, data) SELECT * FROM gone`
	giveBack = `
		WITH gone AS (
			DELETE FROM gq.held AS s
			USING (
				SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS hi, unnest($3::bigint[]) AS lo,
					unnest($4::bigint[]) AS run_at, unnest($5::bigint[]) AS due, unnest($6::smallint[]) AS status,
					unnest($7::text[]) AS type, unnest($8::text[]) AS requires, unnest($9::bytea[]) AS data
			) AS n
			WHERE s.seq = ANY (ARRAY [n.seq])
			RETURNING n.seq, n.hi, n.lo, n.run_at, n.due, coalesce(n.due >= $10, false), s.created, s.cost, n.status, s.queue, s.limited, s.fair, n.type,
				nullif(n.requires, '{}')::text[], s.body, n.data
		)
		INSERT INTO gq.ready (seq, order_hi, order_lo, run_at, due, far, created, cost, status, queue, limited, fair, type, requires, body, data)
		SELECT * FROM gone`
	// endOf moves rows to gq.done from the table that %s names.
	endOf = `
		WITH gone AS (
			DELETE FROM gq.%s AS s
			USING (
				SELECT unnest($1::bigint[]) AS seq, unnest($2::bigint[]) AS ended, unnest($3::smallint[]) AS status,
					unnest($4::bytea[]) AS data
			) AS n
			WHERE s.seq = ANY (ARRAY [n.seq])
			RETURNING n.seq, n.ended, s.created, n.status, s.queue, s.fair, s.body, n.data
		)
		INSERT INTO gq.done (seq, ended, created, status, queue, fair, body, data) SELECT * FROM gone`
)

var (
	endHeld  = fmt.Sprintf(endOf, "held")
	endReady = fmt.Sprintf(endOf, "ready")

	// Most jobs require nothing; parsing an array takes as long as writing the row.
	beReadyPlain     = either(fmt.Sprintf(beReady, "NULL", ""), 15, "")
	beReadyDemanding = either(fmt.Sprintf(beReady, "nullif(n.requires, '{}')::text[]", ", unnest($16::text[]) AS requires"), 16, "")
	beReadyAlikeBoth = either(fmt.Sprintf(beReadyAlike, "$11::text"), 14, "")
	beReadyLimited   = either(fmt.Sprintf(beReadyAlike, "unnest($11::text[])"), 14, "")
	beHeldEither     = either(beHeld, 11, "")
	beDoneEither     = either(beDone, 9, andEnded)
)

func (a *rowArrays) write(batch *pgx.Batch, m move) {
	switch m {
	case move{nowhere, inReady}, move{inHand, inReady}, move{nowhere, inHeld}, move{inHand, inHeld}, move{nowhere, inDone}, move{inHand, inDone}:
		sql, args := a.insert(m.to)
		batch.Queue(sql.alone, args...)
	case move{inReady, inReady}:
		batch.Queue(stayReady, a.seqs, a.his, a.los, a.runs, a.dues, a.statuses, a.datas, a.far)
	case move{inHeld, inHeld}:
		batch.Queue(stayHeld, a.seqs, a.dues, a.statuses, a.datas)
	case move{inReady, inHeld}:
		batch.Queue(hold, a.seqs, a.dues, a.statuses, a.datas)
	case move{inHeld, inReady}:
		batch.Queue(giveBack, a.seqs, a.his, a.los, a.runs, a.dues, a.statuses, a.types, a.requires, a.datas, a.far)
	case move{inReady, inDone}:
		batch.Queue(endReady, a.seqs, a.ends, a.statuses, a.datas)
	case move{inHeld, inDone}:
		batch.Queue(endHeld, a.seqs, a.ends, a.statuses, a.datas)
	}
}

// statement writes rows alone, or together with their events and counts.
type statement struct{ alone, told string }

// insert returns the statement, with arguments, that writes rows which are in no table.
func (a *rowArrays) insert(to home) (statement, []any) {
	switch to {
	case inHeld:
		return beHeldEither, []any{a.seqs, a.dues, a.created, a.costs, a.statuses, a.queues, a.limited, a.fairs, a.bodies, a.datas, a.members}
	case inDone:
		return beDoneEither, []any{a.seqs, a.ends, a.created, a.statuses, a.queues, a.fairs, a.bodies, a.datas, a.members}
	default:
		if a.alike() {
			sql, limited := beReadyLimited, any(a.limited)
			if a.sameLimited() {
				sql, limited = beReadyAlikeBoth, a.limited[0]
			}
			return sql, []any{
				a.seqs, a.bodies, a.datas, a.his[0], a.runs[0], a.dues[0], a.created[0], a.costs[0], a.statuses[0], a.queues[0], limited, a.fairs[0], a.types[0], a.far,
			}
		}
		args := []any{
			a.seqs, a.his, a.los, a.runs, a.dues, a.created, a.costs, a.statuses, a.queues, a.limited, a.fairs, a.types, a.bodies, a.datas, a.far,
		}
		if a.demanding {
			return beReadyDemanding, append(args, a.requires)
		}
		return beReadyPlain, args
	}
}

// writeAll queues rows that are in no table, with their events and counts.
func (tx *txn) writeAll(a *rowArrays, m move, s segment, c countArrays) {
	sql, args := a.insert(m.to)
	args = append(args, s.mark.id, s.time, s.n, s.mark.token, s.data, c.queues, c.statuses, c.jobs, c.units)
	if m.to != inDone {
		tx.more.Queue(sql.told, args...)
		return
	}
	tx.more.Queue(sql.told, append(args, tx.endedArrays()...)...).Query(func(rows pgx.Rows) error {
		var waiting bool
		_, err := pgx.ForEachRow(rows, []any{&waiting}, func() error {
			tx.changes.parent = tx.changes.parent || waiting
			return nil
		})
		return err
	})
}

// either makes both forms of a statement that has n parameters.
func either(rows string, n int, more string) statement {
	last := ""
	if more == andEnded {
		last = "\n		RETURNING EXISTS (SELECT FROM ended)"
	}
	at := func(k int) string { return "$" + strconv.Itoa(n+k) }
	return statement{alone: rows, told: strings.NewReplacer(
		"$id", at(1), "$time", at(2), "$events", at(3), "$token", at(4), "$data", at(5), "$queues", at(6), "$statuses", at(7), "$jobs", at(8), "$units", at(9), "$parents", at(10), "$ends", at(11), "$priorities", at(12),
	).Replace(`
		WITH moved AS (` + rows + `
		), segment AS (
			INSERT INTO gq.segment (id, time, events, token) VALUES ($id, $time, $events, $token)
		), log AS (
			INSERT INTO gq.log (id, data) VALUES ($id, $data)
		)` + more + `
		INSERT INTO gq.delta (queue, status, jobs, units)
		SELECT unnest($queues::text[]), unnest($statuses::smallint[]), unnest($jobs::bigint[]), unnest($units::bigint[])` + last)}
}

// andEnded adds markers for ReleaseDependents to beDone: see writeEnded.
const andEnded = `, ended AS (
			INSERT INTO gq.ended (parent, status, priority)
			SELECT n.seq, n.status, n.priority
			FROM (
				SELECT unnest($parents::bigint[]) AS seq, unnest($ends::smallint[]) AS status, unnest($priorities::smallint[]) AS priority
			) AS n ` + awaited + `
			RETURNING parent
		)`

// awaited selects the jobs n that a child waits for, looking up each by number: with
// EXISTS the planner may choose to read a whole table that it believes to be empty.
const awaited = "CROSS JOIN LATERAL (SELECT FROM gq.edge WHERE parent = n.seq LIMIT 1) AS e"

func (tx *txn) writeLeases() {
	if len(tx.leases) == 0 {
		return
	}
	ids, seqs := make([]string, len(tx.leases)), make([]int64, len(tx.leases))
	for i, l := range tx.leases {
		ids[i], seqs[i] = string(l.id), l.seq
	}
	tx.more.Queue("INSERT INTO gq.lease (id, seq) SELECT unnest($1::text[]), unnest($2::bigint[])", ids, seqs)
}

// writeEnded adds a marker for ReleaseDependents for each ended job that a child waits
// for. No child can be added meanwhile, because that needs a lock on the parent.
func (tx *txn) writeEnded() {
	if len(tx.ended) == 0 {
		return
	}
	tx.more.Queue(`
		INSERT INTO gq.ended (parent, status, priority)
		SELECT n.seq, n.status, n.priority
		FROM (
			SELECT unnest($1::bigint[]) AS seq, unnest($2::smallint[]) AS status, unnest($3::smallint[]) AS priority
		) AS n `+awaited,
		tx.endedArrays()...).Exec(func(tag pgconn.CommandTag) error {
		tx.changes.parent = tx.changes.parent || tag.RowsAffected() > 0
		return nil
	})
}

// endedArrays returns the numbers, statuses and priorities of the ended jobs, which the
// caller writes.
func (tx *txn) endedArrays() []any {
	seqs, statuses, priorities := make([]int64, len(tx.ended)), make([]int16, len(tx.ended)), make([]int16, len(tx.ended))
	for i, e := range tx.ended {
		seqs[i], statuses[i], priorities[i] = e.seq, e.status, e.priority
	}
	tx.ended = nil
	return []any{seqs, statuses, priorities}
}

// segment is the events of a transaction, or of a part of one, as they are stored.
type segment struct {
	mark mark // zero if there are no events
	time int64
	n    int
	data []byte
}

// encodeEvents encodes the events as one record.
func (tx *txn) encodeEvents() (s segment, err error) {
	if tx.events.n == 0 {
		return s, nil
	}
	s = segment{mark: mark{id: tx.segment, token: random()}, time: nanoseconds(tx.now), n: tx.events.n, data: tx.events.data}
	tx.segment = 0
	return s, tx.events.err
}

func (s *segment) write(batch *pgx.Batch) {
	if s.mark.id == 0 {
		return
	}
	batch.Queue("INSERT INTO gq.segment (id, time, events, token) VALUES ($1, $2, $3, $4)", s.mark.id, s.time, s.n, s.mark.token)
	batch.Queue("INSERT INTO gq.log (id, data) VALUES ($1, $2)", s.mark.id, s.data)
}

// countArrays are rows of gq.delta, column by column.
type countArrays struct {
	queues   []string
	statuses []int16
	jobs     []int64
	units    []int64
}

func (tx *txn) encodeMoves() (a countArrays) {
	for at, n := range tx.moves {
		if (n.jobs != 0 || n.units != 0) && at.status.Valid() {
			a.queues, a.statuses = append(a.queues, at.queue), append(a.statuses, int16(at.status))
			a.jobs, a.units = append(a.jobs, n.jobs), append(a.units, n.units)
		}
	}
	tx.s.appended.Add(int64(len(a.jobs)))
	return a
}

func (a *countArrays) write(batch *pgx.Batch) {
	if len(a.jobs) == 0 {
		return
	}
	batch.Queue(`
		INSERT INTO gq.delta (queue, status, jobs, units)
		SELECT unnest($1::text[]), unnest($2::smallint[]), unnest($3::bigint[]), unnest($4::bigint[])`,
		a.queues, a.statuses, a.jobs, a.units)
}
