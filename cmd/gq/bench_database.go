package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// benchServer creates stores on a PostgreSQL server, each in its own new database, so
// that it touches nobody's data. It has no floor, because only the server knows what it
// writes.
type benchServer struct {
	url  string
	made map[string]bool
}

func (b *benchServer) Open(name string, _ func([]byte)) (store.Store, error) {
	ctx := context.Background()
	database := b.database(name)
	if !b.made[name] {
		if err := b.execute(ctx, "CREATE DATABASE "+database+" TEMPLATE template0"); err != nil {
			return nil, fmt.Errorf("make a database to measure in: %w", err)
		}
		b.made[name] = true
	}
	u, err := url.Parse(b.url)
	if err != nil {
		return nil, err
	}
	u.Path = "/" + database
	return postgres.Open(ctx, u.String(), store.Config{})
}

// database returns the name of a store's database, which is unique to this process.
func (b *benchServer) database(name string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(name))
	return fmt.Sprintf("gq_bench_%d_%s", os.Getpid(), plain)
}

func (b *benchServer) connect(ctx context.Context) (*pgx.Conn, error) {
	settings, err := pgxpool.ParseConfig(b.url) // it understands pool parameters in the URL
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, settings.ConnConfig)
}

func (b *benchServer) execute(ctx context.Context, sql string) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // the statement has its own error
	_, err = conn.Exec(ctx, sql)
	return err
}

func (b *benchServer) Remove(name string) error {
	if !b.made[name] {
		return nil
	}
	delete(b.made, name)
	return b.execute(context.Background(), "DROP DATABASE IF EXISTS "+b.database(name)+" WITH (FORCE)")
}

// Gauge implements [bench.Gauge].
func (b *benchServer) Gauge(ctx context.Context, name string) (use bench.ServerUse, err error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return use, err
	}
	defer conn.Close(ctx) //nolint:errcheck // read only
	var backend int
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid(), (pg_current_wal_insert_lsn() - '0/0')::int8, pg_database_size($1)", b.database(name)).
		Scan(&backend, &use.WALBytes, &use.DiskBytes)
	if err != nil {
		return use, fmt.Errorf("read what the server has done: %w", err)
	}
	address := conn.PgConn().Conn().RemoteAddr()
	if tcp, ok := address.(*net.TCPAddr); !ok || tcp.IP.IsLoopback() {
		if used, ok := bench.ServerTime(backend, "postgres"); ok {
			use.CPU = &used
		}
	}
	return use, nil
}

// multiplied copies all rows of finished jobs $1 times, with numbers that follow theirs. The last
// six bits of a number say which job of its row it is, so they must not change.
const (
	multiplied = `
	INSERT INTO gq.done (seq, members, ended, created, status, queue, fair, body, data)
	SELECT d.seq + n * s.width, d.members, d.ended, d.created, d.status, d.queue, d.fair, d.body, d.data
	FROM (SELECT ((max(seq) - min(seq)) / 64 + 2) * 64 AS width FROM gq.done) s, generate_series(1, $1::bigint) n, gq.done d`
	countedMore = `
	INSERT INTO gq.delta (queue, status, jobs, units)
	SELECT queue, status, sum(jobs) * $1, 0
	FROM (SELECT queue, status, jobs FROM gq.tally UNION ALL SELECT queue, status, jobs FROM gq.delta) c
	WHERE status IN (SELECT status FROM gq.done LIMIT 1) GROUP BY queue, status`
	numberedAfter = "SELECT setval('gq.submission', (SELECT max(seq) + 64 FROM gq.done))"
)

// Multiply implements [bench.Multiplier].
func (b *benchServer) Multiply(ctx context.Context, name string, factor int) error {
	settings, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return err
	}
	settings.ConnConfig.Database = b.database(name)
	conn, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // the transaction has its own error
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, sql := range []string{countedMore, multiplied} { // counted before there are more
			if _, err := tx.Exec(ctx, sql, factor-1); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, numberedAfter)
		return err
	})
}

func (b *benchServer) Keeps() bool { return true }

func (b *benchServer) Close() error {
	for name := range b.made {
		if err := b.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchServer) String() string { return config.Redact(b.url) }
