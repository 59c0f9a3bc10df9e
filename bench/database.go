package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// serverSettings are the server's settings in addition to those of pgtest. They are the
// same for all sides; README.md repeats them.
var serverSettings = []string{
	"shared_buffers=2GB",
	"max_wal_size=8GB",
	"max_connections=200",
	"wal_level=replica",
	"fsync=on",
	"synchronous_commit=on",
	"shared_preload_libraries=pg_stat_statements",
	"pg_stat_statements.track=none", // except while queries are counted
	"track_io_timing=off",
}

// execute runs statements on a new connection.
func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the statements have their own errors
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// settle brings a freshly filled database into the state of one that was filled a while
// ago.
func settle(ctx context.Context, url string) error {
	err := execute(ctx, url, "VACUUM ANALYZE", "CHECKPOINT")
	time.Sleep(time.Second)
	return err
}

// hold opens a snapshot. Until it is released, rows that are deleted or changed cannot
// be vacuumed.
func hold(ctx context.Context, url string) (release func(), err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class", pgx.QueryExecModeSimpleProtocol)
	return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, err // closing rolls back
}

// databaseName is the database in which a side is measured.
const databaseName = "bench"

// withDatabase calls a function with a new database and drops it afterwards.
func withDatabase(ctx context.Context, c *pgtest.Cluster, name string, use func(url string) error) error {
	root := c.TCP("postgres")
	if err := execute(ctx, root, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return err
	}
	err := use(c.TCP(name))
	// The checkpoint keeps one side's writes out of the next one's time.
	drop := execute(context.WithoutCancel(ctx), root, "DROP DATABASE "+name+" WITH (FORCE)", "CHECKPOINT")
	if err == nil {
		err = drop
	}
	return err
}

// countQueries counts the statements that a database gets while the side is idle, after
// a rest in which it becomes idle.
func countQueries(ctx context.Context, c *pgtest.Cluster, name string, rest, length time.Duration) (perSecond float64, err error) {
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	root := c.TCP("postgres")
	if err := execute(ctx, root, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements", "SELECT pg_stat_statements_reset()"); err != nil {
		return 0, err
	}
	start := time.Now()
	time.Sleep(length)
	conn, err := pgx.Connect(ctx, root)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx) //nolint:errcheck // read only
	var n float64
	err = conn.QueryRow(ctx, `
		SELECT coalesce(sum(calls), 0)::float8
		FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = $1)`, name).Scan(&n)
	return n / time.Since(start).Seconds(), err
}

// showStatements prints the statements that took longest since its last call.
func showStatements(ctx context.Context, url string, w io.Writer) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // read only
	if _, err := conn.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		return err
	}
	found, err := conn.Query(ctx, `
		SELECT total_exec_time, calls, rows, regexp_replace(query, '\s+', ' ', 'g')
		FROM pg_stat_statements
		ORDER BY total_exec_time DESC
		LIMIT 25`)
	if err != nil {
		return err
	}
	var took float64
	var calls, touched int64
	var text string
	_, err = pgx.ForEachRow(found, []any{&took, &calls, &touched, &text}, func() error {
		_, err := fmt.Fprintf(w, "%10.0f ms %8d calls %9d rows  %.150s\n", took, calls, touched, text)
		return err
	})
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_stat_statements_reset()")
	return err
}
