package postgres_test

import (
	"errors"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t testing.TB, url string, cfg store.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func execute(t testing.TB, url, sql string) {
	t.Helper()
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestNewerLayoutIsRefused(t *testing.T) {
	url := pgtest.Database(t)
	if err := open(t, url, store.Config{}).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "INSERT INTO gq.migration (version) SELECT max(version) + 1 FROM gq.migration")
	if _, err := postgres.Open(t.Context(), url, store.Config{}); !errors.Is(err, gq.ErrFormat) {
		t.Errorf("a newer layout: %v, want %v", err, gq.ErrFormat)
	}
}

func TestForeignSchemaIsRefused(t *testing.T) {
	url := pgtest.Database(t)
	execute(t, url, "CREATE SCHEMA gq; CREATE TABLE gq.thing ()")
	if _, err := postgres.Open(t.Context(), url, store.Config{}); !errors.Is(err, gq.ErrFormat) {
		t.Errorf("somebody else's schema: %v, want %v", err, gq.ErrFormat)
	}
	if l, err := postgres.MigrateStatus(t.Context(), url); !errors.Is(err, gq.ErrFormat) {
		t.Errorf("somebody else's schema has layout %+v, %v, want %v", l, err, gq.ErrFormat)
	}
}
