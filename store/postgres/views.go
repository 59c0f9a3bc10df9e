package postgres

import (
	"context"
	"crypto/sha256"
	_ "embed" // views.sql
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed views.sql
var viewsSource string

// views makes the views, and viewsVersion is in the comment of one of them.
var views, viewsVersion = func() (sql, version string) {
	sum := sha256.Sum256([]byte(viewsSource))
	version = hex.EncodeToString(sum[:8])
	return strings.Replace(viewsSource, "@VERSION@", version, 1), version
}()

// viewsComment is NULL if a database has no views, or those of an early program.
const viewsComment = "obj_description(to_regclass('gq.jobs'), 'pg_class')"

// viewsPatience is how long a store that is opened waits for somebody who reads the views.
const viewsPatience = "3s"

// migrationPatience is how long a migration waits for them. Whoever wants to read meanwhile waits
// behind it, and so does a server that starts.
const migrationPatience = "30s"

// refreshViews makes the views anew unless they are those of this program. Nothing of the queue
// needs them, so a store opens without: the role may not be allowed to change them, or somebody may
// be reading them. A migration insists on them, and waits.
func refreshViews(ctx context.Context, tx pgx.Tx, l Layout, insist bool) error {
	if !l.Stale {
		return nil
	}
	var failed error
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
		failed = makeViews(ctx, tx, insist)
		return failed
	})
	if failed != nil && !insist && ctx.Err() == nil && !tx.Conn().IsClosed() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the views: %w; the role must own the schema of the tables and the views, and may create schemas in the database, or objects in two that end in _matching and _scheduler", err)
	}
	return nil
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
		if _, err := tx.Exec(ctx, grant); err != nil {
			return err
		}
	}
	return nil
}

// viewGrants are the statements that grant anew what others may do with the views.
const viewGrants = `
	SELECT format('GRANT %s ON %I.%I TO %s', a.privilege_type, n.nspname, c.relname,
		CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
	FROM pg_class AS c
	JOIN pg_namespace AS n ON n.oid = c.relnamespace
	CROSS JOIN LATERAL aclexplode(c.relacl) AS a
	WHERE c.relkind = 'v' AND a.grantee <> c.relowner
		AND (c.oid = to_regclass('gq.jobs') AND obj_description(c.oid, 'pg_class') IS NOT NULL
			OR n.oid IN (to_regnamespace('gq_matching'), to_regnamespace('gq_scheduler')))`
