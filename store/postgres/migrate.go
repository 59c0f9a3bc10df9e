package postgres

import (
	"context"
	_ "embed" // schema.sql
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

//go:embed schema.sql
var schema string

// migration upgrades the tables from the previous layout to its own. Its SQL also adds the
// new version to gq.migration.
type migration struct {
	to     int
	name   string
	sql    string
	oldest int    // programs that know this layout or a later one can use the tables after sql; 0 is to
	finish string // executed when no program runs that knows only an older layout than to
}

// migrations lists all steps from an empty database to the layout of this program.
var migrations = []migration{{to: 1, name: "schema.sql", sql: schema}}

// migrationsFor returns migrations that also mark a new database which is to be filled.
func migrationsFor(cfg store.Config) []migration {
	if !cfg.Unfinished {
		return migrations
	}
	marked := slices.Clone(migrations)
	marked[0].sql += awaitImport
	return marked
}

// Classes of advisory locks: "gq" in ASCII and a number, to stay clear of the
// application's own locks.
const (
	lockMigration = 0x67710001
	lockRelease   = 0x67710002
	lockKey       = 0x67710003
	lockTurns     = 0x67710004
	lockDocs      = 0x67710005
	lockCollect   = 0x67710006
	lockPools     = 0x67710007
	lockPartition = 0x67710008
	lockImport    = 0x67710009
	lockHead      = 0x6771000A
	lockFloors    = 0x6771000B
)

// Layout is the version of a database's tables, and the version that this program knows.
type Layout struct {
	Version int // of the tables; 0 if there are none
	Oldest  int // programs that know this version or a later one can use the tables
	Current int // known by this program

	Stale bool // the views are older than those that this program makes
}

// Pending reports whether [MigrateUp] has anything to do.
func (l Layout) Pending() bool { return l.Version < l.Current || l.Stale }

// MigrateUp upgrades a database to the layout of this program in one transaction, and then to its
// views in another: if that fails, the layout stands. Any
// number of processes may do so at once, and programs of the layout before may go on using
// it. It changes nothing if a newer version has migrated the database and says that this
// program can still use it. The error is [gq.ErrFormat] if the tables belong to a version that
// is too new or to another program, and [gq.ErrInUse] if servers that are too old run.
func MigrateUp(ctx context.Context, url string) (before Layout, err error) {
	err = connected(ctx, url, func(conn connection) error {
		before, err = migrateAll(ctx, conn, migrations)
		return err
	})
	return before, err
}

// MigrateStatus returns the layout of a database and changes nothing.
func MigrateStatus(ctx context.Context, url string) (l Layout, err error) {
	err = connected(ctx, url, func(conn connection) error {
		l, err = layoutOf(ctx, conn, migrations)
		return err
	})
	return l, err
}

// MigrateDump returns the SQL that creates the layout of this program in a schema, for
// applying it with other tools. An empty schema means [DefaultSchema].
func MigrateDump(schema string) (string, error) {
	dialect, err := newDialect(schema)
	if err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	var b strings.Builder
	for _, m := range migrations {
		fmt.Fprintf(&b, "-- %s\n\n%s\n%s\n", m.name, dialect.of(m.sql), dialect.of(m.finish)) // nobody uses the tables yet
	}
	fmt.Fprintf(&b, "-- views.sql\n\n%s\n", dialect.of(views))
	return b.String(), nil
}

func connected(ctx context.Context, url string, f func(connection) error) error {
	url, dialect, err := cutSchema(url)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	settings, err := parseURL(url) // it accepts the pool parameters of a URL
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // prepared statements of different clients may clash behind a pooler
	conn, err := dial(ctx, settings.ConnConfig)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // what was done is committed
	if err := f(connection{conn, dialect}); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// migrateAll applies the missing steps and insists on the views.
func migrateAll(ctx context.Context, conn connection, steps []migration) (before Layout, err error) {
	before, now, err := migrate(ctx, conn, steps)
	if err != nil {
		return before, withGrant(ctx, conn, err)
	}
	if err := refreshViews(ctx, conn, steps, now, true); err != nil {
		return before, fmt.Errorf("the tables have layout %d now, but not the views: %w", now.Version, err)
	}
	return before, nil
}

// migrate applies the missing steps, unless another process already did, and returns the layout before
// and after. It refuses tables that this program does not know.
func migrate(ctx context.Context, db beginner, steps []migration) (before, now Layout, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockMigration); err != nil {
			return err
		}
		if before, err = layoutOf(ctx, tx, steps); err != nil {
			return err
		}
		for _, m := range steps {
			if m.to <= before.Version {
				continue
			}
			if before.Version > 0 {
				if err := m.allow(ctx, tx); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, m.sql); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if _, err := tx.Exec(ctx, "UPDATE gq.migration SET oldest = $1 WHERE version = $2", m.since(), m.to); err != nil {
				return err
			}
		}
		if now, err = layoutOf(ctx, tx, steps); err == nil {
			_, err = finish(ctx, tx, steps, now)
		}
		return err
	})
	return before, now, err
}

// layoutOf reads the layout. It refuses one that this program can neither use nor upgrade.
func layoutOf(ctx context.Context, db querier, steps []migration) (Layout, error) {
	l := Layout{Current: steps[len(steps)-1].to}
	var used, ours bool
	err := db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('gq')), to_regclass('gq.migration') IS NOT NULL`).Scan(&used, &ours)
	if err != nil || !used {
		return l, err
	}
	if !ours {
		return l, fmt.Errorf("the database has a schema of that name that is not GopherQueue's: %w", gq.ErrFormat)
	}
	var views int
	err = db.QueryRow(ctx, `
		SELECT version, coalesce(oldest, version), `+foundViews+`
		FROM gq.migration
		ORDER BY version DESC
		LIMIT 1`).Scan(&l.Version, &l.Oldest, &views)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return l, err
	}
	switch {
	case l.Current < l.Oldest:
		return l, fmt.Errorf("the database has layout %d, which needs a program that knows layout %d; this one knows layout %d: install a newer version: %w", l.Version, l.Oldest, l.Current, gq.ErrFormat)
	case l.Version < steps[0].to:
		return l, fmt.Errorf("the schema of the queue has no layout: %w", gq.ErrFormat)
	}
	l.Stale = l.Version <= l.Current && views < viewsNumber
	return l, nil
}
