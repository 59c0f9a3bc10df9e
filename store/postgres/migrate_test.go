package postgres_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/gopherqueue/gq/internal/pgtest"
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

// TestMigrateDump applies what is printed by other means.
func TestMigrateDump(t *testing.T) {
	url := pgtest.Database(t)
	sql, err := postgres.MigrateDump()
	if err != nil || !strings.Contains(sql, "CREATE TABLE gq.live") {
		t.Fatalf("%v:\n%.200s", err, sql)
	}
	execute(t, url, sql)
	s := open(t, url, store.Config{})
	defer s.Close()
	mustInsert(t, s, newSpec("q"))
}
