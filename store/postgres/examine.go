package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

const (
	// examinationAge is how long the result of an examination is used.
	examinationAge = 5 * time.Second

	// examineTimeout limits an examination. The size of a table that somebody has locked
	// cannot be read.
	examineTimeout = 3 * time.Second

	maxSnapshots = 10
)

var _ store.Examiner = (*Store)(nil)

// examination is the last result of Examine.
type examination struct {
	mu    sync.Mutex // held during an examination
	at    time.Time
	found gq.Database
	err   error
}

// Examine implements [store.Examiner]. The result is up to five seconds old.
func (s *Store) Examine(ctx context.Context) (gq.Database, error) {
	x := &s.examination
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at.IsZero() || time.Since(x.at) > examinationAge {
		found, err := s.examine(ctx)
		if ctx.Err() != nil {
			return gq.Database{}, err
		}
		x.at, x.found, x.err = time.Now(), found, err
	}
	return x.found.Clone(), x.err
}

func (s *Store) examine(ctx context.Context) (d gq.Database, err error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	err = s.readOnce(ctx, func(tx *txn) error {
		d = gq.Database{}
		if err := tx.QueryRow(ctx, databaseState).Scan(
			&d.Bytes, &d.Autovacuum, &d.Connections, &d.Hidden, &d.MaxConnections, &d.TransactionAge, &d.OldestDatabase,
		); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, tableStates, s.pool.dialect.name())
		if err != nil {
			return err
		}
		d.Tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t gq.DatabaseTable, err error) {
			err = row.Scan(&t.Name, &t.Bytes, &t.Rows, &t.DeadRows, &t.VacuumAfter)
			return t, err
		})
		if err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, heldSnapshots, maxSnapshots); err != nil {
			return err
		}
		d.Snapshots, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h gq.DatabaseSnapshot, err error) {
			var since *time.Time
			err = row.Scan(&h.Holder, &h.Name, &h.PID, &h.Role, &h.Database, &h.State, &since, &h.Age)
			if since != nil {
				h.Since = since.UTC()
			}
			return h, err
		})
		return err
	})
	return d, err
}

// name returns the name of the schema.
func (d *dialect) name() string {
	if d == nil {
		return DefaultSchema
	}
	return d.schema
}

// databaseState reads no table of the store. reserved_connections exists since PostgreSQL 16.
// Without pg_read_all_stats, the type of a session of another role is null, as is its snapshot.
const databaseState = `
	SELECT
		pg_database_size(current_database()),
		current_setting('autovacuum')::boolean,
		(SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'),
		(SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL AND backend_type IS NULL),
		current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
			- coalesce(current_setting('reserved_connections', true), '0')::integer,
		oldest.age,
		oldest.datname
	FROM (
		SELECT datname::text, greatest(age(datfrozenxid), mxid_age(datminmxid))::bigint AS age
		FROM pg_database
		ORDER BY 2 DESC, 1
		LIMIT 1
	) oldest`

// tableStates adds up the partitions of each table. The number of tables is small: that of
// the days that jobs are kept, times four.
const tableStates = `
	SELECT
		coalesce(parent.relname, c.relname)::text,
		sum(coalesce(pg_total_relation_size(c.oid), 0))::bigint AS bytes,
		sum(greatest(c.reltuples, 0))::bigint,
		sum(coalesce(pg_stat_get_dead_tuples(c.oid), 0))::bigint,
		sum(coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold')::float8)
			+ coalesce(o.scale, current_setting('autovacuum_vacuum_scale_factor')::float8) * greatest(c.reltuples, 0))::bigint
	FROM pg_class c
	LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
	LEFT JOIN pg_class parent ON parent.oid = i.inhparent
	CROSS JOIN LATERAL (
		SELECT
			max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold')::float8 AS threshold,
			max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor')::float8 AS scale
		FROM pg_options_to_table(c.reloptions)
	) o
	WHERE c.relnamespace = to_regnamespace(quote_ident($1::text)) AND c.relkind = 'r'
	GROUP BY 1
	ORDER BY bytes DESC, 1`

// heldSnapshots lists what keeps vacuum from removing rows of this database. A transaction
// that has written holds back claims from whichever database it is in; others only matter
// here. Vacuum ignores the snapshots of autovacuum.
const heldSnapshots = `
	SELECT * FROM (
		SELECT
			CASE WHEN backend_type = 'walsender' THEN 'standby' ELSE 'session' END,
			coalesce(application_name, ''),
			pid,
			coalesce(usename::text, ''),
			coalesce(datname::text, ''),
			coalesce(state, ''),
			xact_start,
			greatest(age(backend_xmin), age(backend_xid))::bigint AS age
		FROM pg_stat_activity
		WHERE pid <> pg_backend_pid()
			AND backend_type NOT LIKE 'autovacuum%'
			AND (backend_xid IS NOT NULL
				OR backend_xmin IS NOT NULL AND (datname = current_database() OR backend_type = 'walsender'))
		UNION ALL
		SELECT 'prepared transaction', gid, 0, owner::text, database::text, '', prepared, age(transaction)::bigint
		FROM pg_prepared_xacts
		UNION ALL
		SELECT
			'replication slot', slot_name::text, 0, '', coalesce(database::text, ''),
			CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, greatest(age(xmin), age(catalog_xmin))::bigint
		FROM pg_replication_slots
		WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL
	) held
	ORDER BY age DESC, xact_start
	LIMIT $1`
