package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// TestIdleNode counts what a node that has nothing to do asks of its database, by
// the server's own count of statements, the ones that begin and end transactions
// among them: at most 2 in a second.
func TestIdleNode(t *testing.T) {
	cluster := pgtest.Own(t)
	url := cluster.Database(t)
	conn := dial(t, url)
	for _, sql := range []string{
		"ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'",
		"ALTER SYSTEM SET pg_stat_statements.track = 'all'",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Crash(t) // and start with these settings
	conn = dial(t, url)
	if _, err := conn.Exec(t.Context(), "CREATE EXTENSION pg_stat_statements"); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), url, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	calls := func() (n int) {
		t.Helper()
		err := conn.QueryRow(t.Context(), `
			SELECT coalesce(sum(calls), 0)
			FROM pg_stat_statements
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	// A sweep of which there is one in a minute while nothing happens.
	if _, err := e.Sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	before := calls()
	if _, err := e.Sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	sweep := calls() - before
	t.Logf("a sweep is %d statements", sweep)
	if sweep == 0 || sweep > 60 {
		t.Errorf("a sweep is %d statements; with one in a minute, and a question every 15 seconds, that is not at most 1 in a second", sweep)
	}

	// Besides, a running engine asks next to nothing.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for last := -1; last != calls(); { // until its first sweep and its probe are over
		last = calls()
		time.Sleep(time.Second) // this is about real time
	}
	before = calls()
	const seconds = 3
	time.Sleep(seconds * time.Second)
	if n := calls() - before; n > 2*seconds {
		t.Errorf("%d statements in %d idle seconds, want at most 2 in each", n, seconds)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func dial(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) }) // the server may be gone
	return conn
}
