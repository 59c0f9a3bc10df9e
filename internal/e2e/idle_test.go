package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/worker"
)

// TestIdleServer counts the statements that an idle server, with a worker that waits for
// jobs, sends to its database. The database itself counts them, including those that
// begin and end transactions.
func TestIdleServer(t *testing.T) {
	t.Parallel()     // it mostly waits
	const most = 2.0 // per second
	cluster := pgtest.Own(t, "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all")
	url := cluster.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "CREATE EXTENSION pg_stat_statements"); err != nil {
		t.Fatal(err)
	}
	site := newCrashSite(t, url)
	site.start()
	defer site.kill()
	w := worker.New(site.client(), worker.Config{Slots: 16, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("go", func(context.Context, *worker.Run) error { return nil })
	working, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	// This covers everything that runs more than once a minute. The server is not idle
	// until the first sweeps are over.
	const length = 15 * time.Second
	var rate float64
	var asked string
	for range 4 {
		if rate, asked = statements(t, conn, length); rate > 0 && rate <= most {
			break
		}
	}
	t.Logf("%.2f statements a second:\n%s", rate, asked)
	if rate == 0 || rate > most {
		t.Errorf("an idle server sent %.2f statements a second, want some and at most %.0f:\n%s", rate, most, asked)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// statements counts the statements that a database gets per second, and lists them.
func statements(t *testing.T, conn *pgx.Conn, length time.Duration) (rate float64, asked string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "SELECT pg_stat_statements_reset()"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	rest(t.Context(), length)
	found, err := conn.Query(t.Context(), `
		SELECT calls, regexp_replace(query, '\s+', ' ', 'g')
		FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'
		ORDER BY calls DESC`)
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	var calls, all int
	var query string
	if _, err := pgx.ForEachRow(found, []any{&calls, &query}, func() error {
		all += calls
		fmt.Fprintf(&lines, "%5d %.160s\n", calls, query)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return float64(all) / took.Seconds(), lines.String()
}
