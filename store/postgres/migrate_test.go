package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// TestMigrateAtOnce opens many stores on an empty database at the same time.
func TestMigrateAtOnce(t *testing.T) {
	url := pgtest.Database(t)
	before, err := postgres.MigrateStatus(t.Context(), url)
	if err != nil || before.Version != 0 || !before.Pending() {
		t.Fatalf("an empty database: %+v, %v", before, err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	after, err := postgres.MigrateStatus(t.Context(), url)
	if err != nil || after.Pending() || after.Version != after.Current {
		t.Errorf("afterwards: %+v, %v", after, err)
	}
}

// TestURLOfAPool passes a URL that limits the connections to one to everything that takes
// a URL.
func TestURLOfAPool(t *testing.T) {
	url := pgtest.Database(t)
	if strings.Contains(url, "?") {
		url += "&pool_max_conns=1"
	} else {
		url += "?pool_max_conns=1"
	}
	if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if l, err := postgres.MigrateStatus(t.Context(), url); err != nil || l.Pending() {
		t.Fatalf("layout %+v, %v", l, err)
	}
	s := open(t, url, store.Config{})
	defer s.Close()
	for range 2 { // as gq copy does, to check whether the store has changed
		x, err := s.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
	}
}

// TestMigrateDump applies the dump with another client.
func TestMigrateDump(t *testing.T) {
	url := pgtest.Database(t)
	for schema, table := range map[string]string{"": "gq.held", awkward: `"jobs-2 ""x'$%d".held`} {
		sql, err := postgres.MigrateDump(schema)
		if err != nil || !strings.Contains(sql, "CREATE TABLE "+table+" ") {
			t.Fatalf("%v: %.200s", err, sql)
		}
		execute(t, url, sql)
		s := open(t, inSchema(url, schema), store.Config{})
		defer s.Close()
		mustInsert(t, s, newSpec("q"))
	}
	if _, err := postgres.MigrateDump("public"); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a dump for the schema public: %v", err)
	}
}

// TestMigrateStep adds an invented step. Several processes apply it at the same time; it
// must run once and keep all data, and a program that does not know the new layout must
// refuse it.
func TestMigrateStep(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{Clock: still{}})
	furnish(t, s)
	want := takeInventory(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := postgres.MigrateStatus(t.Context(), url)
	if err != nil || before.Pending() {
		t.Fatalf("the layout before: %+v, %v", before, err)
	}
	next := before.Current + 1
	step := fmt.Sprintf(`
		CREATE TABLE gq.made_up (n integer);
		INSERT INTO gq.made_up VALUES (1);
		ALTER TABLE gq.ready ADD made_up text NOT NULL DEFAULT 'x';
		INSERT INTO gq.migration (version) VALUES (%d);`, next)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := postgres.MigrateFurther(t.Context(), url, next, step); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var applied, version int
	if err := connect(t, url).QueryRow(t.Context(), "SELECT (SELECT count(*) FROM gq.made_up), (SELECT max(version) FROM gq.migration)").Scan(&applied, &version); err != nil {
		t.Fatal(err)
	}
	if applied != 1 || version != next {
		t.Errorf("the step was applied %d times and the layout is %d, want once and %d", applied, version, next)
	}
	if _, err := postgres.Open(t.Context(), url, store.Config{}); !errors.Is(err, gq.ErrFormat) {
		t.Errorf("a program that does not know layout %d: %v", next, err)
	}
	execute(t, url, fmt.Sprintf("DELETE FROM gq.migration WHERE version = %d", next))
	s = open(t, url, store.Config{Clock: still{}})
	defer s.Close()
	if got := takeInventory(t, s); got != want {
		t.Errorf("after the step there is\n%s\nwant\n%s", got, want)
	}
}

// TestMigrateFails runs a step that fails. It must leave nothing behind.
func TestMigrateFails(t *testing.T) {
	url := pgtest.Database(t)
	if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if err := postgres.MigrateFurther(t.Context(), url, 1000, "CREATE TABLE gq.made_up (n integer); SELECT no_such_function()"); err == nil {
		t.Error("a step that cannot be taken was taken")
	}
	var left bool
	if err := connect(t, url).QueryRow(t.Context(), "SELECT to_regclass('gq.made_up') IS NOT NULL").Scan(&left); err != nil || left {
		t.Errorf("a part of the step is left: %v, %v", left, err)
	}
	if l, err := postgres.MigrateStatus(t.Context(), url); err != nil || l.Pending() {
		t.Errorf("the layout after: %+v, %v", l, err)
	}
}
