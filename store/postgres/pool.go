package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// PutPool implements [store.Store].
func (s *Store) PutPool(ctx context.Context, p gq.Pool) error {
	if err := machine.CheckPool(p); err != nil {
		return err
	}
	return s.write(ctx, func(tx *txn) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockPools); err != nil {
			return err
		}
		if _, err := tx.stamp(ctx, 0); err != nil {
			return err
		}
		var others int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM gq.pool WHERE name <> $1", p.Name).Scan(&others); err != nil {
			return err
		}
		if others >= gq.MaxPools {
			return fmt.Errorf("pool %s would be one more than %d: %w", p.Name, gq.MaxPools, gq.ErrTooMany)
		}
		sharing, err := tx.sharing(ctx, p.Name)
		if err != nil {
			return err
		}
		tx.changes.open(sharing...)
		tx.more.Queue(`
			INSERT INTO gq.pool (name, capacity, at_start, updated)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE SET
				capacity = excluded.capacity, at_start = excluded.at_start, updated = excluded.updated`,
			p.Name, p.Capacity, p.AtStart, nanoseconds(tx.now))
		return tx.flush(ctx)
	})
}

// Pools implements [store.Store].
func (s *Store) Pools(ctx context.Context) ([]gq.Pool, error) {
	var out []gq.Pool
	err := s.readOnce(ctx, func(tx *txn) error {
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		pools, err := tx.pools(ctx, nanoseconds(tx.now))
		for _, p := range pools {
			out = append(out, p)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b gq.Pool) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// anyPools selects the pools $1, or all if it is NULL. A pool whose queues have held jobs
// has a second row with its use.
const anyPools = `
	SELECT p.name, p.capacity, p.at_start, p.updated, 0::bigint
	FROM gq.pool AS p
	WHERE $1::text[] IS NULL OR p.name = ANY ($1)
	UNION ALL ` + usedPools

// usedPools selects those of these pools whose queues have held jobs, and their use by
// leases that end after $2. The use is what the counts say less what the expired leases
// have, so no other lease is read. 5 is RUNNING.
const usedPools = `
	SELECT p.name, p.capacity, p.at_start, p.updated,
		(sum(CASE WHEN p.at_start THEN n.running ELSE n.held END) - sum(s.units))::bigint
	FROM (
		SELECT queue, 0::smallint AS band, sum(units) AS held, coalesce(sum(units) FILTER (WHERE status = 5), 0) AS running
		FROM ` + tally + `
		WHERE status IN (4, 5)
		GROUP BY queue
	) AS n
	CROSS JOIN LATERAL (SELECT config ->> 'Pool' AS pool FROM gq.queue WHERE name = n.queue OFFSET 0) AS q
	CROSS JOIN LATERAL (SELECT * FROM gq.pool WHERE name = q.pool OFFSET 0) AS p ` + beginnings + `
	CROSS JOIN LATERAL (
		SELECT coalesce(sum(s.cost * ` + membersCount + `), 0) AS units
		FROM gq.held AS s
		WHERE ` + leased + ` AND s.due <= $2 AND (s.status = 5 OR NOT p.at_start)
	) AS s
	WHERE $1::text[] IS NULL OR p.name = ANY ($1)
	GROUP BY p.name, p.capacity, p.at_start, p.updated`

// pools reads the named pools, or all, and how much of each is used by leases that end
// after since.
func (tx *txn) pools(ctx context.Context, since int64, names ...string) (map[string]gq.Pool, error) {
	rows, err := tx.Query(ctx, anyPools, names, since)
	if err != nil {
		return nil, err
	}
	pools := make(map[string]gq.Pool)
	var p gq.Pool
	var updated int64
	_, err = pgx.ForEachRow(rows, []any{&p.Name, &p.Capacity, &p.AtStart, &updated, &p.Used}, func() error {
		p.UpdatedAt = instant(updated)
		p.Used += pools[p.Name].Used
		pools[p.Name] = p
		return nil
	})
	return pools, err
}

// uncounted finds the queues whose pools do not count the jobs that wants claim: the jobs
// are only held, and the pool counts running jobs. Such claims need not wait for each
// other. A shared lock keeps the pools and their queues as they are until the commit.
func (tx *txn) uncounted(ctx context.Context, wants []*want) (map[string]bool, error) {
	held := make(map[string]bool)
	for _, w := range wants {
		for _, name := range w.Queues {
			if w.Hold {
				held[name] = true
			}
		}
	}
	for _, w := range wants {
		for _, name := range w.Queues {
			if !w.Hold {
				delete(held, name)
			}
		}
	}
	if len(held) == 0 {
		return nil, nil
	}
	queues := slices.Collect(maps.Keys(held))
	clear(held)
	var batch pgx.Batch
	queueUncounted(&batch, queues, held)
	return held, tx.SendBatch(ctx, &batch).Close()
}

// queueUncounted queues the lock, and the query for the queues whose pools count only
// running jobs.
func queueUncounted(batch *pgx.Batch, queues []string, into map[string]bool) {
	batch.Queue("SELECT pg_advisory_xact_lock_shared($1, 0)", lockPools)
	batch.Queue(`
		SELECT q.name
		FROM gq.queue AS q
		JOIN gq.pool AS p ON p.name = q.config ->> 'Pool'
		WHERE q.name = ANY ($1) AND p.at_start`,
		queues).Query(func(rows pgx.Rows) error {
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, name := range names {
			into[name] = true
		}
		return err
	})
}

// lockPools locks the pools of queues, and returns all queues that share these pools.
func (tx *txn) lockPools(ctx context.Context, queues map[string]gq.Queue) (sharing []string, err error) {
	var names []string
	for _, q := range queues {
		if q.Pool != "" {
			names = append(names, q.Pool)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	if _, err := tx.Exec(ctx, "SELECT FROM gq.pool WHERE name = ANY ($1) ORDER BY name FOR UPDATE", names); err != nil {
		return nil, err
	}
	return tx.sharing(ctx, names...)
}

// sharing lists the queues that share the given pools.
func (tx *txn) sharing(ctx context.Context, pools ...string) ([]string, error) {
	return collect[string](tx.Query(ctx, "SELECT name FROM gq.queue WHERE config ->> 'Pool' = ANY ($1)", pools))
}

// starts is the use of the pools in which held jobs may be about to start.
type starts struct {
	pools map[string]*gq.Pool // by name; updated as the call proceeds
	of    map[string]string   // the pool of each queue
	over  map[int64]bool      // jobs whose leases have expired: they occupy nothing
}

// lockStarts locks the pools in which held jobs may be about to start, reads their use,
// and then takes the stamp. A transaction that has freed capacity by then has an earlier
// stamp, so the log never shows two jobs running at once for which there was no room.
// lockStarts reserves sequence numbers for n jobs.
func (tx *txn) lockStarts(ctx context.Context, rows []*row, n int) (numbers []int64, err error) {
	tx.starts = starts{}
	var starting, queues []string
	for _, r := range rows {
		if r.state.Status == gq.StatusClaimed {
			starting = append(starting, r.queue)
		}
		queues = append(queues, r.queue)
	}
	if len(starting) == 0 {
		return tx.stamp(ctx, n)
	}
	l := starts{make(map[string]*gq.Pool), make(map[string]string), make(map[int64]bool)}
	var batch pgx.Batch
	batch.Queue(startingPools, starting)
	batch.Queue(startingUse, starting, tx.s.known(), tx.s.cfg.Clock == nil).Query(l.readUse)
	batch.Queue(queuesByName, queues).Query(func(from pgx.Rows) error {
		configured, err := parseQueues(from)
		for name, q := range configured {
			l.of[name] = q.Pool
		}
		return err
	})
	batch.Queue(stamps, n).QueryRow(func(row pgx.Row) error {
		numbers, err = tx.stampFrom(row)
		return err
	})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	if len(l.pools) > 0 {
		tx.starts = l
	}
	return numbers, nil
}

// startsIn selects the pools in which jobs of the queues $1 use capacity once they start.
const startsIn = "at_start AND name = ANY (ARRAY (SELECT config ->> 'Pool' FROM gq.queue WHERE name = ANY ($1)))"

const startingPools = "SELECT FROM gq.pool WHERE " + startsIn + " ORDER BY name FOR UPDATE"

// startingUse is the use of these pools: what the counts say less what the expired leases
// have. An expired lease occupies nothing, unless another transaction has locked it and may
// be renewing it. 5 is RUNNING.
var startingUse = `
	WITH pools AS MATERIALIZED (
		SELECT name, capacity, updated FROM gq.pool WHERE ` + startsIn + `
	), running AS MATERIALIZED (
		SELECT r.queue, q.pool, r.units
		FROM (SELECT queue, sum(units) AS units FROM ` + tally + ` WHERE status = 5 GROUP BY queue) AS r
		CROSS JOIN LATERAL (SELECT config ->> 'Pool' AS pool FROM gq.queue WHERE name = r.queue OFFSET 0) AS q
		WHERE q.pool = ANY (ARRAY (SELECT name FROM pools))
	), over AS MATERIALIZED (
		SELECT n.pool, s.seq, s.members, s.units
		FROM (SELECT queue, pool, 0::smallint AS band FROM running) AS n ` + beginnings + `
		CROSS JOIN LATERAL (
			SELECT s.seq, ` + membersOf + ` AS members, s.cost * ` + membersCount + ` AS units
			FROM gq.held AS s
			WHERE ` + leased + ` AND s.due <= ` + fmt.Sprintf(presently, 2, 3) + ` AND s.status = 5
			FOR UPDATE OF s SKIP LOCKED
		) AS s
	)
	SELECT p.name, p.capacity, p.updated, (
		coalesce((SELECT sum(units) FROM running WHERE pool = p.name), 0) - coalesce((SELECT sum(units) FROM over WHERE pool = p.name), 0)
	)::bigint, ARRAY (SELECT seq FROM over ORDER BY seq), ARRAY (SELECT members FROM over ORDER BY seq)
	FROM pools AS p`

func (l *starts) readUse(from pgx.Rows) error {
	p := gq.Pool{AtStart: true}
	var updated int64
	var over, members []int64
	_, err := pgx.ForEachRow(from, []any{&p.Name, &p.Capacity, &updated, &p.Used, &over, &members}, func() error {
		one := p
		one.UpdatedAt = instant(updated)
		l.pools[one.Name] = &one
		for i := range over {
			for _, seq := range numbersOfRow(over[i], &members[i]) {
				l.over[seq] = true
			}
		}
		return nil
	})
	return err
}

func collect[T any](rows pgx.Rows, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// admit refuses to start a job for which its pool has no room.
func (l *starts) admit(r *row, to gq.Status) error {
	p := l.pools[l.of[r.queue]]
	if p == nil || to != gq.StatusRunning || r.state.Status != gq.StatusClaimed {
		return nil
	}
	return machine.AdmitToPool(*p, r.state.Lease.CostUnits)
}

// occupy counts what a job takes from its pool, or gives back, by moving to a status.
func (l *starts) occupy(r *row, to gq.Status) {
	p := l.pools[l.of[r.queue]]
	if p == nil || r.state.Lease == nil {
		return
	}
	if r.state.Status == gq.StatusRunning && !l.over[int64(r.state.Sequence)] {
		p.Used -= r.state.Lease.CostUnits
	}
	if to == gq.StatusRunning {
		p.Used += r.state.Lease.CostUnits
	}
}
