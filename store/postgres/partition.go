package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
)

// The sequence numbers of jobs and segments have the day since 1970 in their upper bits.
const (
	dayBits = 32
	day     = 24 * time.Hour
)

// partitioned lists the partitioned tables. Their partitions have the same bounds.
var partitioned = []string{"done", "blob", "segment", "log", "report", "report_event"}

// partition holds the numbers from first up to, but not including, past.
type partition struct {
	name        string // suffix of its tables' names
	first, past int64
	gone        int64 // events up to this one may have been dropped from it
}

func (p partition) table(of string) string { return "gq." + of + "_" + p.name }

func dayOf(t time.Time) int64 { return t.UnixNano() / int64(day) }

// startDay creates the partitions of today and tomorrow and moves the sequences on to
// today. Any node may do so at any time. Until one does, numbers continue in yesterday's
// partition, which does no harm.
//
// The sequence of segments moves first, and a transaction takes the numbers of its jobs
// before that of its segment. So no segment with events of a job is in an older partition
// than the job.
func (s *Store) startDay(ctx context.Context) error {
	var today int64
	err := s.transact(ctx, s.begins.write, func(tx *txn) error {
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		if today = dayOf(tx.now); today <= s.startedDay.Load() {
			return nil
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockPartition); err != nil {
			return err
		}
		var past int64
		if err := tx.QueryRow(ctx, "SELECT max(past) FROM gq.partition").Scan(&past); err != nil {
			return err
		}
		for _, d := range []int64{today, today + 1} {
			if past >= (d+1)<<dayBits {
				continue
			}
			p := partition{name: instant(d * int64(day)).Format("20060102"), first: past, past: (d + 1) << dayBits}
			if err := tx.create(ctx, p); err != nil {
				return err
			}
			if err := tx.attach(ctx, p); err != nil {
				return err
			}
			past = p.past
		}
		return nil
	})
	if err != nil || today <= s.startedDay.Load() {
		return err
	}
	// The partitions are committed, so the sequences may move on.
	err = s.transact(ctx, s.begins.write, func(tx *txn) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockPartition); err != nil {
			return err
		}
		for _, sequence := range []string{"segment_id", "submission"} {
			_, err := tx.Exec(ctx, "SELECT setval('gq."+sequence+"', $1) FROM gq."+sequence+" WHERE last_value < $1", today<<dayBits)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.startedDay.Store(today)
	}
	return err
}

// create creates the tables of a partition without attaching them.
func (tx *txn) create(ctx context.Context, p partition) error {
	for _, of := range partitioned {
		sql := "CREATE TABLE " + p.table(of) + " (LIKE gq." + of + " INCLUDING ALL)"
		switch of {
		case "segment": // every row is updated once, when its events are numbered
			sql += " WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1)"
		case "done": // a row has several jobs
			sql += " WITH (toast_tuple_target = 8160)"
		}
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// attach attaches the tables of a partition. It blocks neither reads nor writes of other
// partitions.
func (tx *txn) attach(ctx context.Context, p partition) error {
	from := fmt.Sprint(p.first)
	if p.first == oldest {
		from = "MINVALUE"
	}
	for _, of := range partitioned {
		_, err := tx.Exec(ctx, fmt.Sprintf("ALTER TABLE gq.%s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%d)", of, p.table(of), from, p.past))
		if err != nil {
			return err
		}
	}
	tx.written = true
	_, err := tx.Exec(ctx, "INSERT INTO gq.partition (name, first, past, gone) VALUES ($1, $2, $3, $4)", p.name, p.first, p.past, p.gone)
	return err
}

// oldest is less than all sequence numbers.
const oldest = -1 << 63

const (
	// closedFor is how long a partition is left alone after its last day.
	closedFor = time.Hour
	// carryMost limits how many jobs are copied to another partition.
	carryMost = 10_000
	// maintainEvery is how often a node looks for partitions to drop; it also looks when
	// a day begins and when jobs have expired. maintainAgain is how soon it retries
	// partitions that were in use.
	maintainEvery = time.Hour
	maintainAgain = time.Minute
	// maintainWait is how long maintain waits for a lock on the tables. All other
	// transactions queue behind it, so it waits only after quiet has found none that
	// holds the tables for long.
	maintainWait = "; SET LOCAL lock_timeout = '250ms'"
	// quietWithin is how long quiet watches for that.
	quietWithin = time.Second
)

// maintain creates partitions when a day begins and drops old ones. Collect calls it; most
// of the time it does nothing.
func (s *Store) maintain(ctx context.Context) error {
	now := time.Now().UnixNano()
	next := s.maintainAt.Load()
	begun := dayOf(instant(s.latest.Load())) > s.startedDay.Load()
	if !begun && !s.stale.Swap(false) && now < next || !s.maintainAt.CompareAndSwap(next, now+int64(maintainAgain)) {
		return nil
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if begun {
		if err := s.startDay(ctx); err != nil {
			return err
		}
	}
	all, err := s.drop(ctx)
	if all {
		s.maintainAt.Store(now + int64(maintainEvery))
	}
	return err
}

// errBusy means that a partition cannot be dropped right now.
var errBusy = errors.New("partition in use")

// drop drops partitions whose jobs are all, or almost all, gone, and reports whether none
// remains to drop. If others hold the tables it leaves the work for the next time.
func (s *Store) drop(ctx context.Context) (all bool, err error) {
	if _, err := s.sequence(ctx); err != nil { // events must have numbers before they are dropped
		return false, err
	}
	for s.quiet(ctx) {
		went := 0
		err := s.transact(ctx, s.begins.write+maintainWait, func(tx *txn) error {
			var mine bool
			err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1, 0)", lockPartition).Scan(&mine)
			if err != nil || !mine {
				return err
			}
			if err := tx.readClock(ctx); err != nil {
				return err
			}
			group, err := tx.spent(ctx)
			if err != nil || len(group) == 0 {
				return err
			}
			went = len(group)
			return tx.replace(ctx, group)
		})
		if held(err) || errors.Is(err, errBusy) {
			return false, nil
		}
		if err != nil || went == 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// quiet reports whether all transactions that use the tables now end within quietWithin.
// It takes no lock on the tables.
func (s *Store) quiet(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, quietWithin)
	defer cancel()
	var tables, first []string
	for _, of := range partitioned {
		tables = append(tables, s.pool.dialect.of("gq."+of))
	}
	for seen := false; ; seen = true {
		rows, err := s.pool.Query(ctx, `
			SELECT DISTINCT l.virtualtransaction
			FROM pg_locks AS l
			WHERE l.relation = ANY ($1::regclass[]) AND l.granted AND l.pid <> pg_backend_pid()
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
			tables)
		if err != nil {
			return false
		}
		now, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return false
		}
		if !seen {
			first = now
		}
		if first = slices.DeleteFunc(first, func(id string) bool { return !slices.Contains(now, id) }); len(first) == 0 {
			return true
		}
		if !retry.Pause(ctx, 10*time.Millisecond) {
			return false
		}
	}
}

// spent finds a partition to drop, together with the one before it if the jobs left in
// both fit into one.
func (tx *txn) spent(ctx context.Context) ([]partition, error) {
	rows, err := tx.Query(ctx, "SELECT name, first, past, gone FROM gq.partition WHERE past <= $1 ORDER BY first",
		dayOf(tx.now.Add(-closedFor))<<dayBits)
	if err != nil {
		return nil, err
	}
	closed, err := pgx.CollectRows(rows, func(from pgx.CollectableRow) (p partition, err error) {
		err = from.Scan(&p.name, &p.first, &p.past, &p.gone)
		return p, err
	})
	before := carryMost + 1 // jobs left in the partition before
	for i, p := range closed {
		left, gone, err := tx.remainder(ctx, p)
		if err != nil {
			return nil, err
		}
		switch together := left+before <= carryMost; {
		case gone < left || left > carryMost: // copying would cost more than it frees
		case together:
			return closed[i-1 : i+1], nil
		case gone > 0:
			return closed[i : i+1], nil
		}
		before = left
	}
	return nil, err
}

// remainder counts the jobs of a partition that are left and those that are gone. For each
// kind and status it reads at most carryMost + 1 rows.
func (tx *txn) remainder(ctx context.Context, p partition) (left, gone int, err error) {
	const some = "SELECT coalesce(sum(" + membersCount + "), 0)::bigint FROM (SELECT members FROM gq."
	err = tx.QueryRow(ctx, some+"live WHERE seq >= $1 AND seq < $2 LIMIT $3) AS s", p.first, p.past, carryMost+1).Scan(&left)
	for _, status := range endings {
		if err != nil {
			return 0, 0, err
		}
		var h horizon
		if h, err = tx.horizon(ctx, status); err != nil {
			return 0, 0, err
		}
		var more, fewer int
		const where = "done WHERE status = $1 AND seq >= $2 AND seq < $3 AND (ended, seq + 0) "
		err = tx.QueryRow(ctx, "SELECT ("+some+where+"> ($4, $5) LIMIT $6) AS s), ("+some+where+"<= ($4, $5) LIMIT $6) AS s)",
			int16(status), p.first, p.past, h.ended, h.seq, carryMost+1).Scan(&more, &fewer)
		left, gone = left+more, gone+fewer
	}
	return left, gone, err
}

// replace copies what is left of adjacent partitions to a new one, and drops them.
//
// Remaining jobs may change meanwhile, so writers to the old partitions wait until the
// copy is done. Remaining events change only if a transaction commits that has been open
// since the partition's day; then replace fails with errBusy and is rolled back. It blocks
// all access only at the end, while it changes the catalog.
func (tx *txn) replace(ctx context.Context, group []partition) error {
	last := group[len(group)-1]
	p := partition{name: last.name + "_kept", first: group[0].first, past: last.past}
	if name, again := strings.CutSuffix(last.name, "_kept"); again {
		p.name = name
	}
	if err := tx.create(ctx, p); err != nil {
		return err
	}
	for _, old := range group {
		_, err := tx.Exec(ctx, fmt.Sprintf("LOCK TABLE %s, %s, %s IN SHARE ROW EXCLUSIVE MODE",
			old.table("done"), old.table("blob"), old.table("report")))
		if err != nil {
			return err
		}
	}
	var event int64 // a segment with a greater number was committed after this snapshot
	if err := tx.QueryRow(ctx, "SELECT event FROM gq.head").Scan(&event); err != nil {
		return err
	}
	left, err := tx.left(ctx, p)
	if err != nil {
		return err
	}
	for _, old := range group {
		for _, of := range []string{"done", "blob", "report"} {
			sql := "INSERT INTO " + p.table(of) + " SELECT o.* FROM unnest($1::bigint[]) AS n (seq) JOIN " + old.table(of) + " AS o USING (seq)"
			if _, err := tx.Exec(ctx, sql, left.seqs); err != nil {
				return err
			}
		}
	}
	if err := tx.carryEvents(ctx, p, left); err != nil {
		return err
	}
	// The head lock must not be taken here: its holder may be waiting for our locks.
	for _, of := range partitioned {
		for _, old := range group {
			if _, err := tx.Exec(ctx, "ALTER TABLE gq."+of+" DETACH PARTITION "+old.table(of)); err != nil {
				return err
			}
		}
	}
	for _, old := range group {
		var late bool
		var newest int64
		err := tx.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM `+old.table("segment")+` WHERE seq IS NULL), coalesce(max(seq + events - 1), 0)
			FROM (SELECT seq, events FROM `+old.table("segment")+` WHERE seq IS NOT NULL ORDER BY seq DESC LIMIT 1) AS s`).Scan(&late, &newest)
		if err != nil {
			return err
		}
		if late || newest > event {
			return errBusy
		}
		p.gone = max(p.gone, old.gone, newest)
		for _, of := range partitioned {
			if _, err := tx.Exec(ctx, "DROP TABLE "+old.table(of)); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "DELETE FROM gq.partition WHERE name = $1", old.name); err != nil {
			return err
		}
	}
	return tx.attach(ctx, p)
}

// leftover is what is left of a range of numbers.
type leftover struct {
	seqs     []int64           // remaining jobs in the range
	segments []int64           // segments in the range with events of a remaining job, in the range or not
	jobs     map[gq.JobID]bool // the jobs of these events
}

// readMost limits how many jobs are read to find the events to keep.
const readMost = 1_000_000

// left finds the remaining jobs and the segments with their events. It need not read newer
// partitions: their jobs have no segments in an older one.
func (tx *txn) left(ctx context.Context, p partition) (l leftover, err error) {
	rows, err := tx.Query(ctx, `
		SELECT s.seq, s.members, s.data FROM gq.live AS s WHERE s.seq < $1
		UNION ALL
		SELECT s.seq, s.members, s.data FROM gq.done AS s WHERE s.seq < $1 AND `+kept+`
		LIMIT $2`,
		p.past, readMost+1)
	if err != nil {
		return l, err
	}
	l.jobs = make(map[gq.JobID]bool)
	known := make(map[int64]bool)
	read := 0
	var policy policies
	add := func(seq int64, _, data []byte) error {
		if read++; read > readMost {
			return errBusy
		}
		if seq >= p.first {
			l.seqs = append(l.seqs, seq)
		}
		r, err := tx.s.decodeRow(data, seq, &policy)
		if err != nil {
			return err
		}
		state, segments := r.state, r.segments
		if len(segments) == 0 || segments[0] >= p.past || segments[len(segments)-1] < p.first {
			return nil
		}
		l.jobs[state.ID] = true
		for _, id := range segments {
			if id >= p.first && id < p.past {
				known[id] = true
			}
		}
		return nil
	}
	var seq int64
	var members *int64
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&seq, &members, &data}, func() error {
		return eachMember(seq, members, nil, data, nil, add)
	})
	for id := range known {
		l.segments = append(l.segments, id)
	}
	slices.Sort(l.segments)
	if len(l.seqs) > 2*carryMost { // many jobs ended since they were counted
		return l, errBusy
	}
	return l, err
}

// carryStep is how many segments are copied per statement.
const carryStep = 500

// carryEvents copies the segments in l without the events of jobs that are gone.
func (tx *txn) carryEvents(ctx context.Context, p partition, l leftover) error {
	jobs := make([][16]byte, 0, len(l.jobs))
	for id := range l.jobs {
		jobs = append(jobs, id)
	}
	for ids := range slices.Chunk(l.segments, carryStep) {
		rows, err := tx.Query(ctx, "SELECT l.id, l.data, l.jobs FROM unnest($1::bigint[]) AS n (id) JOIN gq.log AS l USING (id)", ids)
		if err != nil {
			return err
		}
		var id int64
		var data []byte
		var numbers []int64
		var datas [][]byte
		found := ids[:0:0]
		_, err = pgx.ForEachRow(rows, []any{&id, &data, &numbers}, func() error {
			lean, err := tx.s.ids.trimLog(data, numbers, func(job gq.JobID) bool { return l.jobs[job] })
			found, datas = append(found, id), append(datas, lean)
			return err
		})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO "+p.table("segment")+" SELECT s.* FROM unnest($1::bigint[]) AS n (id) JOIN gq.segment AS s USING (id)", found)
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO "+p.table("log")+" (id, data) SELECT * FROM unnest($1::bigint[], $2::bytea[])", found, datas)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO "+p.table("report_event")+" SELECT e.* FROM unnest($1::bigint[]) AS n (segment) JOIN gq.report_event AS e USING (segment) WHERE e.job = ANY ($2)",
				found, jobs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
