package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
)

//go:embed migrations/0001_store.sql
var layout string

// layoutVersion is the layout this program knows.
const layoutVersion = 1

// Classes of advisory locks. The first word is "gq" and a number, to stay out
// of the way of the application's own.
const (
	lockMigration = 0x67710001
	lockRelease   = 0x67710002
	lockKey       = 0x67710003
)

// migrate creates the tables, unless another process has, and refuses tables
// that this program does not know.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockMigration); err != nil {
			return err
		}
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass('gq.migration') IS NOT NULL").Scan(&there); err != nil {
			return err
		}
		if there {
			var version int
			if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM gq.migration").Scan(&version); err != nil {
				return err
			}
			if version != layoutVersion {
				return fmt.Errorf("the database has layout %d, this program knows %d: %w", version, layoutVersion, gq.ErrFormat)
			}
			return nil
		}
		_, err := tx.Exec(ctx, layout)
		const duplicateSchema = "42P06"
		if e := (*pgconn.PgError)(nil); errors.As(err, &e) && e.Code == duplicateSchema {
			return fmt.Errorf("the schema gq of the database is somebody else's: %w", gq.ErrFormat)
		}
		return err
	})
}
