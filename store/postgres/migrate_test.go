package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// TestMigrateAtOnce has many processes start on an empty database at the same
// moment.
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

// TestURLOfAPool has everything that takes a URL take one that says how many connections
// there may be, and do with one.
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
	for range 2 { // as gq copy does, to see whether the store has changed
		x, err := s.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
	}
}

// TestMigrateDump applies what is printed by other means.
func TestMigrateDump(t *testing.T) {
	url := pgtest.Database(t)
	sql, err := postgres.MigrateDump()
	if err != nil || !strings.Contains(sql, "CREATE TABLE gq.held") {
		t.Fatalf("%v:\n%.200s", err, sql)
	}
	execute(t, url, sql)
	s := open(t, url, store.Config{})
	defer s.Close()
	mustInsert(t, s, newSpec("q"))
}

// layout is the SQL of a database as an older program left it: see TestKeepLayout.
func layout(t testing.TB, version int) string {
	t.Helper()
	sql, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("layout%d.sql", version)))
	if err != nil {
		t.Fatal(err)
	}
	return "SET check_function_bodies = off;" + string(sql) + "RESET search_path; RESET check_function_bodies;"
}

// shape lists everything in the schema that a program depends on.
const shape = `
	SELECT string_agg(line, E'\n' ORDER BY line)
	FROM (
		SELECT format('%s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage) AS line
		FROM pg_class AS c
		JOIN pg_attribute AS a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'gq'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL
		SELECT indexdef FROM pg_indexes WHERE schemaname = 'gq'
	) AS lines`

// TestMigrateFromOlder brings a database up to date that an older program has
// left with one of everything: all of it is still there and goes on, and the
// tables are those of a database that was empty.
func TestMigrateFromOlder(t *testing.T) {
	for _, version := range []int{2, 5, 6} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			url, fresh := pgtest.Database(t), pgtest.Database(t)
			execute(t, url, layout(t, version))
			before, err := postgres.MigrateStatus(t.Context(), url)
			if err != nil || before.Version != version || !before.Pending() {
				t.Fatalf("the older database: %+v, %v", before, err)
			}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if _, err := postgres.MigrateUp(t.Context(), fresh); err != nil {
				t.Fatal(err)
			}
			shapes := make(map[string]string)
			for _, u := range []string{url, fresh} {
				var s string
				if err := connect(t, u).QueryRow(t.Context(), shape).Scan(&s); err != nil {
					t.Fatal(err)
				}
				shapes[u] = s
			}
			if shapes[url] != shapes[fresh] {
				t.Errorf("migrated:\n%s\n\nfrom nothing:\n%s", shapes[url], shapes[fresh])
			}

			want, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("layout%d.json", version)))
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, url, store.Config{Clock: still{}})
			defer s.Close()
			if got := takeInventory(t, s); got != string(want) {
				t.Errorf("after the migration there is\n%s\nwant\n%s", got, want)
			}
			// It goes on: what waits is claimed and completed, under larger numbers
			// than any before.
			newer := newSpec("work")
			mustInsert(t, s, newer)
			claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("work", 10)})
			if err != nil || len(claimed[0].Jobs) != 4 {
				t.Fatalf("claimed %d jobs, %v, want 4", len(claimed[0].Jobs), err)
			}
			for _, j := range claimed[0].Jobs {
				out, err := s.Update(t.Context(), []store.Update{completing(j)})
				if err != nil || out[0].Err != nil {
					t.Fatal(err, out[0].Err)
				}
			}
			if last := claimed[0].Jobs[3].State; last.ID != newer.ID {
				t.Errorf("the newest job is not the last: %+v", last)
			}
			if n, err := s.Release(t.Context(), 10); err != nil || n != 1 {
				t.Errorf("%d dependents were told, %v, want 1", n, err)
			}
		})
	}
}
