package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// List implements [store.Store]. It merges up to three sources, each in the order of submission:
// gq.ready, gq.held and gq.done. The waiting jobs of one queue come from the index ready_claim;
// everything else follows the index on seq and also reads rows that the query does not select,
// as many as [gq.Query.MaxScan] allows.
func (s *Store) List(ctx context.Context, q gq.Query) (page gq.Page, err error) {
	if err := store.CheckQuery(&q); err != nil {
		return gq.Page{}, err
	}
	if asksOldest(&q) {
		if page, known, err := s.listOldest(ctx, q.Queue); known || err != nil {
			return page, err
		}
	}
	l := listing{q: &q, from: math.MinInt64, to: math.MaxInt64}
	cursor, err := store.ParseCursor(q.Cursor)
	if err != nil {
		return gq.Page{}, err
	}
	if last := &l.to; cursor > 0 {
		if q.OldestFirst {
			last = &l.from
		}
		*last = int64(cursor)
	}
	l.after, l.before = bound(q.CreatedAfter, math.MinInt64), bound(q.CreatedBefore, math.MaxInt64)
	err = s.read(ctx, func(tx *txn) error {
		l := l
		l.tx = tx
		page = gq.Page{}
		some, err := l.prepare(ctx)
		if err != nil || !some {
			return err
		}
		page, err = l.page(ctx)
		return err
	})
	if err != nil {
		return gq.Page{}, err
	}
	return page, nil
}

// listing is one call of List.
type listing struct {
	tx            *txn
	q             *gq.Query
	from, to      int64 // sequence numbers, exclusive
	after, before int64 // creation, in nanoseconds

	ready, held, done []gq.Status // to select from each table
	turns             []int64     // values of order_hi of the queue's waiting jobs; nil reads gq.ready by number
	cut               bool        // there may be more jobs beyond from and to
}

// direction of the sequence numbers.
func (l *listing) direction() string {
	if l.q.OldestFirst {
		return "ASC"
	}
	return "DESC"
}

// prepare decides what to read. It reports whether there can be any job.
func (l *listing) prepare(ctx context.Context) (some bool, err error) {
	statuses := l.q.Statuses
	if len(statuses) == 0 {
		statuses = allStatuses
	}
	bounded := l.q.MaxScan > 0 && (l.q.Queue != "" || len(l.q.Statuses) > 0 || !l.q.CreatedAfter.IsZero() || !l.q.CreatedBefore.IsZero())
	if bounded || l.q.Queue != "" {
		if statuses, err = l.present(ctx, statuses); err != nil || len(statuses) == 0 {
			return false, err
		}
	}
	for _, s := range statuses {
		switch {
		case s.Terminal():
			l.done = append(l.done, s)
		case s == gq.StatusClaimed || s == gq.StatusRunning:
			l.held = append(l.held, s)
		default:
			l.ready = append(l.ready, s)
		}
	}
	if l.q.Queue != "" && len(l.ready) > 0 && !slices.Contains(l.ready, gq.StatusPending) {
		if err := l.findTurns(ctx); err != nil {
			return false, err
		}
	}
	if bounded {
		err = l.cutOff(ctx)
	}
	return len(l.ready)+len(l.held)+len(l.done) > 0, err
}

var allStatuses = []gq.Status{
	gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusClaimed, gq.StatusRunning, gq.StatusRetrying,
	gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled,
}

// present returns the statuses in which there are jobs, so that nobody searches a million jobs
// for none.
func (l *listing) present(ctx context.Context, statuses []gq.Status) ([]gq.Status, error) {
	ofQueue := "$1 = ''"
	if l.q.Queue != "" {
		ofQueue = "queue = $1"
	}
	found, err := collect[int16](l.tx.Query(ctx, "SELECT status FROM "+tally+" WHERE "+ofQueue+" AND status = ANY ($2) GROUP BY status HAVING sum(jobs) <> 0",
		l.q.Queue, codesOf(statuses)))
	return slices.DeleteFunc(slices.Clone(statuses), func(s gq.Status) bool { return !slices.Contains(found, int16(s)) }), err
}

// codesOf are statuses as the tables have them.
func codesOf(statuses []gq.Status) []int16 {
	out := make([]int16, len(statuses))
	for i, s := range statuses {
		out[i] = int16(s)
	}
	return out
}

// findTurns finds the turns of the queue, unless it has too many, or jobs that were set aside: those
// are not in ready_claim.
func (l *listing) findTurns(ctx context.Context) (err error) {
	var aside bool
	if err := l.tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM gq.ready WHERE aside IS NOT NULL AND queue = $1)", l.q.Queue).Scan(&aside); err != nil || aside {
		return err
	}
	if l.turns, err = collect[int64](l.tx.Query(ctx, turnsOf, l.q.Queue, maxTurns+1)); err != nil {
		return err
	}
	switch {
	case len(l.turns) == 0:
		l.ready = nil
	case len(l.turns) > maxTurns:
		l.turns = nil
	}
	return nil
}

// maxTurns is the number of turns of a queue that List merges. A queue has one for each priority
// that is in use; fair queues and queues whose jobs age have more.
const maxTurns = 8

// turnsOf jumps along ready_claim from turn to turn. Within one, the index has the jobs in the
// order of submission.
const turnsOf = `
	WITH RECURSIVE turn (hi) AS (
		(SELECT s.order_hi FROM gq.ready AS s WHERE s.status IN (2, 3, 6) AND s.aside IS NULL AND s.queue = $1 ORDER BY s.order_hi LIMIT 1)
		UNION ALL
		SELECT (SELECT s.order_hi FROM gq.ready AS s WHERE s.status IN (2, 3, 6) AND s.aside IS NULL AND s.queue = $1 AND s.order_hi > t.hi ORDER BY s.order_hi LIMIT 1)
		FROM turn AS t
		WHERE t.hi IS NOT NULL
	)
	SELECT hi FROM turn WHERE hi IS NOT NULL LIMIT $2`

// cutOff moves the end of the range so that no table that is read by number has more than
// MaxScan rows in it.
func (l *listing) cutOff(ctx context.Context) error {
	var tables []string
	if len(l.ready) > 0 && l.turns == nil {
		tables = append(tables, "gq.ready")
	}
	if len(l.held) > 0 && l.q.Queue == "" {
		tables = append(tables, "gq.held")
	}
	if len(l.done) > 0 {
		tables = append(tables, "gq.done")
	}
	for _, table := range tables {
		last, err := collect[int64](l.tx.Query(ctx, `
			SELECT s.seq FROM `+table+` AS s
			WHERE s.seq > $1 AND s.seq < $2
			ORDER BY s.seq `+l.direction()+`
			OFFSET $3 LIMIT 1`,
			l.from, l.to, l.q.MaxScan))
		switch {
		case err != nil:
			return err
		case len(last) == 0:
			continue
		}
		// A row has jobs of one block, so the jobs of other blocks are complete.
		l.cut = true
		if l.q.OldestFirst {
			l.to = min(l.to, blockOf(last[0])+blockSize)
		} else {
			l.from = max(l.from, blockOf(last[0])-1)
		}
	}
	return nil
}

// sources are the queries of the tables, with the parameters of page.
func (l *listing) sources() (sources []string) {
	ofQueue := "$3 = ''"
	if l.q.Queue != "" {
		ofQueue = "s.queue = $3"
	}
	add := func(table, columns string, statuses []gq.Status, more string) {
		if len(statuses) == 0 {
			return
		}
		sources = append(sources, `
			(
				SELECT `+columns+`
				FROM `+table+` AS s
				WHERE s.seq >= $1 AND s.seq < $2
					AND `+ofQueue+`
					AND s.status IN (`+literals(statuses)+`)`+more+`
				ORDER BY s.seq `+l.direction()+`
				LIMIT $6
			)`)
	}
	// The members of a row that has several were created at different times.
	created, either := " AND s.created >= $4 AND s.created < $5", " AND (s.members IS NOT NULL OR s.created >= $4 AND s.created < $5)"
	switch {
	case l.turns != nil:
		sources = append(sources, `
			(
				SELECT s.*
				FROM unnest($7::bigint[]) AS t (hi)
				CROSS JOIN LATERAL (
					SELECT `+readyColumns+`
					FROM gq.ready AS s
					WHERE s.status IN (2, 3, 6) AND s.aside IS NULL AND s.queue = $3 AND s.order_hi = t.hi
						AND s.order_lo >= $8 AND s.order_lo < $9 AND s.seq >= $1 AND s.seq < $2
						AND s.status IN (`+literals(l.ready)+`)`+created+`
					ORDER BY s.order_lo `+l.direction()+`
					LIMIT $6
				) AS s
				ORDER BY s.seq `+l.direction()+`
				LIMIT $6
			)`)
	default:
		add("gq.ready", readyColumns, l.ready, created)
	}
	add("gq.held", columns, l.held, either)
	add("gq.done", columns, l.done, either+" AND "+kept)
	return sources
}

// literals are statuses in SQL, so that the planner knows which partial index has them.
func literals(statuses []gq.Status) string {
	out := make([]string, len(statuses))
	for i, s := range statuses {
		out[i] = strconv.Itoa(int(s))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

// page reads the jobs.
func (l *listing) page(ctx context.Context) (page gq.Page, err error) {
	sources := l.sources()
	sql := sources[0]
	if len(sources) > 1 {
		sql = strings.Join(sources, " UNION ALL ") + " ORDER BY seq " + l.direction() + " LIMIT $6"
	}
	limit := l.q.Limit
	most := limit + 1 + blockSize
	arguments := []any{nil, nil, l.q.Queue, l.after, l.before, most}
	if l.turns != nil {
		arguments = append(arguments, l.turns, nil, nil)
	}
	var rows []*row
	for from, to, more := l.from, l.to, true; more && len(rows) <= limit; {
		arguments[0], arguments[1] = blockOf(max(from, math.MinInt64+blockSize)+1), to
		if l.turns != nil { // order_lo is the number
			arguments[7], arguments[8] = signed(uint64(max(0, from+1))), signed(uint64(to))
		}
		var found pgx.Rows
		found, err = l.tx.Query(ctx, sql, arguments...)
		some, err := l.tx.scanRows(found, err)
		if err != nil {
			return gq.Page{}, err
		}
		more = rowsOf(some) == most // then rows of the last block may be missing
		var last int64
		if len(some) > 0 {
			last = blockOf(int64(some[len(some)-1].state.Sequence))
		}
		for _, r := range some {
			seq, created := int64(r.state.Sequence), nanoseconds(r.state.CreatedAt)
			if seq > from && seq < to && created >= l.after && created < l.before && !(more && blockOf(seq) == last) {
				rows = append(rows, r)
			}
		}
		if l.q.OldestFirst {
			from = last - 1
		} else {
			to = last + blockSize
		}
	}
	slices.SortFunc(rows, func(a, b *row) int {
		if l.q.OldestFirst {
			a, b = b, a
		}
		return cmp.Compare(b.state.Sequence, a.state.Sequence)
	})
	switch {
	case len(rows) > limit:
		rows = rows[:limit]
		page.Next = store.Cursor(rows[limit-1].state.Sequence)
	case l.cut && l.q.OldestFirst:
		page.Next = store.Cursor(uint64(l.to - 1))
	case l.cut && l.from >= 0:
		page.Next = store.Cursor(uint64(l.from + 1))
	}
	for _, r := range rows {
		r.state = r.state.At(l.tx.now)
	}
	page.Jobs, err = l.tx.assemble(ctx, rows, 0)
	return page, err
}

// bound is t in nanoseconds, clamped to the range of int64, or zero if t is zero.
func bound(t time.Time, zero int64) int64 {
	switch {
	case t.IsZero():
		return zero
	case t.Year() < 1700:
		return math.MinInt64
	case t.Year() > 2200:
		return math.MaxInt64
	default:
		return t.UnixNano()
	}
}
