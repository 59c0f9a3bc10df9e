// Package pgtest gives tests a real PostgreSQL server.
//
// It starts one server per test process from the installed programs, in a private
// directory that no one else can connect to, and removes it when the process ends. It
// touches nothing else on the machine. Without PostgreSQL the tests that need it fail,
// because a skipped test proves nothing. Only go test -short, as make check runs it,
// skips them.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// or wraps m in Tests for a TestMain that does more.
package pgtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// shared is the server of this process.
var shared struct {
	mu      sync.Mutex
	managed bool // the tests are running, and their end stops the server
	started bool // cluster and err are set
	cluster *Cluster
	err     error
}

// Main runs the tests of a package and then stops the server, if a test has started
// one. The process exits with the tests' exit code.
func Main(m *testing.M) { Tests(m).Run() }

// Tests returns the tests of a package whose Run stops the server at the end, as Main does.
func Tests(m *testing.M) interface{ Run() int } { return tests{m} }

type tests struct{ m *testing.M }

func (t tests) Run() int {
	shared.mu.Lock()
	shared.managed = true
	shared.mu.Unlock()
	defer func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.managed = false
		if shared.cluster != nil {
			shared.cluster.stop()
		}
	}()
	return t.m.Run()
}

// Start returns the server of this test process and starts it on first use. If it
// cannot be started, every test that asks for it fails.
func Start(t testing.TB) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL, which -short does without")
	}
	spec.Needs(t, "postgresql")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.managed {
		t.Fatal("pgtest: nobody would stop the server: let TestMain call pgtest.Main(m), or run pgtest.Tests(m)")
	}
	if !shared.started {
		shared.started = true
		shared.cluster, shared.err = start(0)
	}
	if shared.err != nil {
		t.Fatalf("pgtest: %v", shared.err)
	}
	return shared.cluster
}

// Database creates an empty database on the shared server, as [Cluster.Database] does, and
// returns the URL to connect to it.
func Database(t testing.TB) (url string) {
	t.Helper()
	return Start(t).Database(t)
}

var databases atomic.Int64

// Database creates an empty database and returns its URL. When the test ends nobody can
// connect to it any more, and open connections are closed. It goes with the cluster: to
// drop it would take a checkpoint, and half a second.
func (c *Cluster) Database(t testing.TB) (url string) {
	t.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := c.exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("pgtest: create database: %v", err)
	}
	t.Cleanup(func() {
		for _, sql := range []string{
			"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'",
		} {
			if err := c.exec(context.Background(), sql); err != nil { // the test's context has ended
				t.Errorf("pgtest: close database: %v", err)
			}
		}
	})
	return c.URL(name)
}

// exec runs a statement on the maintenance database.
func (c *Cluster) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the statement has its own error
	_, err = conn.Exec(ctx, sql)
	return err
}
