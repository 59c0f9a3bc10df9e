package postgres

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Jobs of a key whose rate is used up would be skipped by each claim. So once many were skipped
// they are set aside: they leave the index ready_claim for the index ready_aside, where each key has
// a line for each class of its jobs. A class is what filters can tell apart: type, cost and
// requirements. Claims show jobs again, as many of each class as units of the rate have become free
// since: no claim could get more of them, whatever its filter. All this happens under the lock on
// the queue.
//
// A job that changes is shown at once, so a line has the jobs that nothing but their key delays. A
// row of gq.limit_key is lined while the key has lines, and next is when the first unit becomes free
// for which no job has been shown.

// settingAside sets aside those of the first $4 claimable jobs of each band whose keys have used up
// their rates at the time $3. It returns how many.
const settingAside = `
	WITH met AS MATERIALIZED (
		SELECT s.row
		FROM unnest($1::text[], $2::smallint[]) AS n (queue, band) ` + beginnings + `
		CROSS JOIN LATERAL (
			SELECT s.ctid AS row, s.queue, s.limited
			FROM gq.ready AS s
			WHERE ` + claimable + ` AND (s.status = 3 OR s.run_at <= $3)
			ORDER BY s.order_hi, s.order_lo
			LIMIT $4
		) AS s
		WHERE (SELECT k.aside AND k.free > $3 FROM gq.limit_key AS k WHERE k.queue = s.queue AND k.key = s.limited)
	), free AS MATERIALIZED (
		SELECT s.ctid AS row FROM gq.ready AS s WHERE s.ctid = ANY (ARRAY (SELECT row FROM met)) FOR UPDATE SKIP LOCKED
	), moved AS (
		UPDATE gq.ready AS s SET aside = hashtextextended(s.type || ' ' || s.cost || ' ' || coalesce(s.requires::text, ''), 0)
		WHERE s.ctid = ANY (ARRAY (SELECT row FROM free))
		RETURNING s.queue, s.limited
	), lined AS (
		UPDATE gq.limit_key AS k SET lined = true, next = k.free
		FROM (SELECT DISTINCT queue, limited FROM moved) AS m
		WHERE k.queue = m.queue AND k.key = ANY (ARRAY [m.limited])
	)
	SELECT count(*) FROM moved`

// showing shows the first jobs of each line of the keys $2 of queue $1, as many as $3 says for
// each, except those that others have locked. It returns the lowest position in each band, and the
// keys that have locked jobs.
const showing = `
	WITH picked AS MATERIALIZED (
		SELECT k.key, s.row
		FROM unnest($2::text[], $3::integer[]) AS k (key, n)
		CROSS JOIN LATERAL (
			WITH RECURSIVE class (class) AS (
				(SELECT s.aside FROM gq.ready AS s WHERE s.queue = $1 AND s.limited = k.key AND s.aside IS NOT NULL ORDER BY s.aside LIMIT 1)
				UNION ALL
				SELECT (SELECT s.aside FROM gq.ready AS s WHERE s.queue = $1 AND s.limited = k.key AND s.aside > c.class ORDER BY s.aside LIMIT 1)
				FROM class AS c
				WHERE c.class IS NOT NULL
			)
			SELECT class FROM class WHERE class IS NOT NULL
		) AS c
		CROSS JOIN LATERAL (
			SELECT s.ctid AS row
			FROM gq.ready AS s
			WHERE s.queue = $1 AND s.limited = k.key AND s.aside = c.class
			ORDER BY s.order_hi, s.order_lo
			LIMIT k.n
		) AS s
	), free AS MATERIALIZED (
		SELECT s.ctid AS row FROM gq.ready AS s WHERE s.ctid = ANY (ARRAY (SELECT row FROM picked)) FOR UPDATE SKIP LOCKED
	), shown AS (
		UPDATE gq.ready AS s SET aside = NULL WHERE s.ctid = ANY (ARRAY (SELECT row FROM free)) RETURNING s.order_hi, s.order_lo
	)` + lowestShown + `
	UNION ALL
	SELECT DISTINCT 0, 0, key FROM picked WHERE row NOT IN (SELECT row FROM free)`

// showingAll shows all jobs of the key $2 of queue $1, of all its keys if $2 is NULL.
const showingAll = `
	WITH shown AS (
		UPDATE gq.ready AS s SET aside = NULL
		WHERE s.queue = $1 AND s.aside IS NOT NULL AND ($2::text IS NULL OR s.limited = $2)
		RETURNING s.order_hi, s.order_lo
	), line AS (
		UPDATE gq.limit_key SET lined = false, next = 0 WHERE queue = $1 AND lined AND ($2::text IS NULL OR key = $2)
	)` + lowestShown

const lowestShown = `
	SELECT lowest[1], lowest[2], NULL::text
	FROM (SELECT min(ARRAY [order_hi, order_lo]) AS lowest FROM shown GROUP BY order_hi >> 56) AS s`

// linedAfter sets, for the keys $2 of queue $1, when the next job is to be shown, and returns which
// of them have more.
const linedAfter = `
	UPDATE gq.limit_key AS k
	SET next = n.next, lined = EXISTS (SELECT FROM gq.ready AS s WHERE s.queue = $1 AND s.limited = n.key AND s.aside IS NOT NULL)
	FROM (SELECT unnest($2::text[]) AS key, unnest($3::bigint[]) AS next) AS n
	WHERE k.queue = $1 AND k.key = ANY (ARRAY [n.key])
	RETURNING k.key, k.lined`

// showStep limits how many keys one statement shows jobs of.
const showStep = 1000

// showFreed shows jobs of keys that have free units again. The queue is locked.
func (tx *txn) showFreed(ctx context.Context, l *queueLimits) error {
	for {
		rows, err := tx.Query(ctx, "SELECT key, next FROM gq.limit_key WHERE queue = $1 AND lined AND next <= $2 ORDER BY next LIMIT $3", l.config.Name, nanoseconds(tx.now), showStep)
		if err != nil {
			return err
		}
		var (
			names []string
			nexts []int64
			key   string
			next  int64
		)
		if _, err := pgx.ForEachRow(rows, []any{&key, &next}, func() error {
			names, nexts = append(names, key), append(nexts, next)
			return nil
		}); err != nil {
			return err
		}
		if len(names) == 0 {
			var lined bool
			err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM gq.limit_key WHERE queue = $1 AND lined)", l.config.Name).Scan(&lined)
			tx.s.lined.learn(l.config.Name, lined)
			return err
		}
		if err := tx.readKeys(ctx, l, slices.Clone(names)); err != nil {
			return err
		}
		counts := make([]int32, len(names))
		for i, name := range names {
			_, rate := l.keyLimits(name)
			n, after := machine.FreedKeyUnits(rate, instant(nexts[i]), tx.now)
			counts[i], nexts[i] = int32(n), nanoseconds(after)
		}
		locked, err := tx.show(ctx, l.config.Name, showing, l.config.Name, names, counts)
		if err != nil {
			return err
		}
		for i, name := range names {
			if slices.Contains(locked, name) {
				nexts[i] = nanoseconds(tx.now) + 1 // for the next claim
			}
		}
		tx.written = true
		if rows, err = tx.Query(ctx, linedAfter, l.config.Name, names, nexts); err != nil {
			return err
		}
		var lined bool
		if _, err := pgx.ForEachRow(rows, []any{&key, &lined}, func() error {
			l.keys[key].lined = lined
			return nil
		}); err != nil {
			return err
		}
	}
}

// show runs a statement that shows jobs of a queue, and notes their positions for its floors. It
// returns keys that have jobs which others have locked.
func (tx *txn) show(ctx context.Context, queue, sql string, args ...any) (locked []string, err error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	var at position
	var key *string
	_, err = pgx.ForEachRow(rows, []any{&at.hi, &at.lo, &key}, func() error {
		if key != nil {
			locked = append(locked, *key)
			return nil
		}
		tx.minimums.low(bandKey{queue, gq.Priority(at.hi>>56 + 128)}, at)
		tx.written = true
		return nil
	})
	if err != nil || len(tx.minimums) == 0 {
		return locked, err
	}
	tx.writeMinimums()
	return locked, tx.flush(ctx)
}

// showAll shows all jobs of a key that were set aside, those of all keys of the queue if key is
// nil. The queue is locked.
func (tx *txn) showAll(ctx context.Context, queue string, key *string) error {
	_, err := tx.show(ctx, queue, showingAll, queue, key)
	return err
}

// Claims set jobs aside if they found manyAside jobs whose keys have used up their rates, and from
// time to time, since new ones may have come. They look at as many jobs as pay off.
const (
	manyAside   = 16
	asideEvery  = 32
	asideAtOnce = 1000
	asideMost   = 64_000
)

// asides decides when claims set jobs aside, by queue.
type asides struct {
	every atomic.Int64 // see asideEvery

	mu     sync.Mutex
	queues map[string]*asideCount // guarded by mu
}

type asideCount struct {
	claims int // since jobs were last set aside
	most   int // how many jobs to look at
}

// turn counts a claim from a queue that found jobs of keys without units, and returns how many jobs
// to look at now, 0 for none.
func (a *asides) turn(queue string, refused int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queues == nil {
		a.queues = make(map[string]*asideCount)
	}
	c, every := a.queues[queue], int(a.every.Load())
	if c == nil {
		c = &asideCount{claims: every - 1, most: asideAtOnce}
		a.queues[queue] = c
	}
	if c.claims++; c.claims < every && refused < manyAside && c.most == asideAtOnce {
		return 0
	}
	c.claims = 0
	return c.most
}

// moved notes how many jobs were set aside. If they were many, the next claim looks at more.
func (a *asides) moved(queue string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.queues[queue]
	if n < c.most/2 {
		c.most = asideAtOnce
	} else {
		c.most = min(4*c.most, asideMost)
	}
}

// setAside queues a statement that sets jobs of a queue aside, if it is time to. What keys owe must
// be queued before.
func (tx *txn) setAside(l *queueLimits) {
	name := l.config.Name
	most := tx.s.asides.turn(name, l.refused)
	if most == 0 {
		return
	}
	queues, bands := levels(name)
	tx.more.Queue(settingAside, queues, bands, nanoseconds(tx.now), most).QueryRow(func(row pgx.Row) error {
		var n int
		err := row.Scan(&n)
		if tx.s.asides.moved(name, n); n > 0 {
			tx.s.lined.learn(name, true)
		}
		return err
	})
}
