package postgres

import (
	"context"
	_ "embed" // views.sql
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed views.sql
var viewsSource string

// viewsNumber is the number of the views in views.sql; every change of that file needs a higher one. It
// is in the comment of one of them. A program makes views with a lower number anew and leaves those with
// a higher one alone, so a server of an older version that restarts does not take back the newer views.
const viewsNumber = 1

// views makes the views.
var views = strings.Replace(viewsSource, "@NUMBER@", strconv.Itoa(viewsNumber), 1)

// foundViews is the number of a database's views; 0 if it has none, or those of an early program.
const foundViews = "coalesce(substring(obj_description(to_regclass('gq.jobs'), 'pg_class') FROM 'number ([0-9]{1,9})\\M')::integer, 0)"

// viewsPatience is how long a store that is opened waits for somebody who reads the views.
const viewsPatience = "3s"

// migrationPatience is how long a migration waits for them. Whoever wants to read meanwhile waits
// behind it, and so does a server that starts.
const migrationPatience = "30s"

// refreshViews makes the views anew if they are older than those of this program. Nothing of the queue
// needs them, so a store opens without: the role may not be allowed to change them, or somebody may
// be reading them. A migration insists on them, and waits.
func refreshViews(ctx context.Context, db beginner, steps []migration, now Layout, insist bool) error {
	if !now.Stale {
		return nil
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockMigration); err != nil {
			return err
		}
		now, err := layoutOf(ctx, tx, steps)
		if err != nil || !now.Stale { // another process has made them
			return err
		}
		return makeViews(ctx, tx, insist)
	})
	if err == nil {
		return nil
	}
	const dependentObjects = "2BP01"
	var e *pgconn.PgError
	switch errors.As(err, &e); {
	case sqlState(err) == dependentObjects:
		err = fmt.Errorf("%w: %s; drop what depends on them, and create it again afterwards", err, strings.ReplaceAll(e.Detail, "\n", ", "))
	case held(err):
		err = fmt.Errorf("%w: somebody reads them", err)
	default:
		err = fmt.Errorf("%w; the role must own the schema of the tables and the views, and may create schemas in the database, or objects in two that end in _matching and _scheduler", err)
	}
	return fmt.Errorf("make the views: %w", err)
}

func makeViews(ctx context.Context, tx pgx.Tx, insist bool) error {
	patience := viewsPatience
	if insist {
		patience = migrationPatience
	}
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+patience+"'"); err != nil {
		return err
	}
	granted, err := collect[string](tx.Query(ctx, viewGrants))
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, views); err != nil {
		return err
	}
	for _, grant := range granted {
		const undefinedColumn = "42703"
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
			_, err := tx.Exec(ctx, grant)
			return err
		})
		if code := sqlState(err); err != nil && code != undefinedTable && code != undefinedColumn { // the new views may lack what was granted
			return err
		}
	}
	return nil
}

// viewGrants are the statements that grant anew what others may do with the views and their columns.
const viewGrants = `
	SELECT format('GRANT %s%s ON %I.%I TO %s%s', a.privilege_type, '(' || quote_ident(a.attname) || ')', n.nspname, c.relname,
		CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
		CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
	FROM pg_class AS c
	JOIN pg_namespace AS n ON n.oid = c.relnamespace
	CROSS JOIN LATERAL (
		SELECT NULL::name AS attname, x.* FROM aclexplode(c.relacl) AS x
		UNION ALL
		SELECT t.attname, x.* FROM pg_attribute AS t CROSS JOIN LATERAL aclexplode(t.attacl) AS x WHERE t.attrelid = c.oid AND NOT t.attisdropped
	) AS a
	WHERE c.relkind = 'v' AND a.grantee <> c.relowner
		AND (c.oid = to_regclass('gq.jobs') AND obj_description(c.oid, 'pg_class') IS NOT NULL
			OR n.oid IN (to_regnamespace('gq_matching'), to_regnamespace('gq_scheduler')))`
