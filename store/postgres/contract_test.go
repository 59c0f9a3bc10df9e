package postgres_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/storetest"
)

func TestContract(t *testing.T) {
	spec.Covers(t, "Q-05")
	storetest.Run(t, backend(t, directly))
}

// TestModel runs fewer stories, because each step takes several transactions.
func TestModel(t *testing.T) {
	b := backend(t, directly)
	b.Stories = 12
	storetest.RunModel(t, b)
}

func directly(url string) string { return url }

// backend opens each store on an empty database, at the URL that through returns.
// Databases are emptied and reused until t ends, because creating one takes longer than
// most cases.
func backend(t *testing.T, through func(url string) string) storetest.Backend {
	t.Helper()
	var (
		mu   sync.Mutex
		free []string                   // unused databases
		urls = map[store.Store]string{} // databases of open stores
	)
	start := func(t testing.TB, url string, cfg store.Config) store.Store {
		t.Helper()
		s := open(t, through(url), cfg)
		mu.Lock()
		defer mu.Unlock()
		if len(urls)%2 == 1 {
			s.RaiseEvery(1)
			s.AsideEvery(1)
		}
		urls[s] = url
		return s
	}
	take := func() (url string, used bool) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(free); n > 0 {
			url, free = free[n-1], free[:n-1]
			return url, true
		}
		return pgtest.Database(t), false
	}
	return storetest.Backend{
		Parallel: true,
		Open: func(t testing.TB, cfg store.Config) store.Store {
			t.Helper()
			url, used := take()
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				free = append(free, url)
			})
			if used {
				execute(t, url, emptied(postgres.DefaultSchema))
			}
			return start(t, url, cfg)
		},
		Reopen: func(t testing.TB, s store.Store, cfg store.Config) store.Store {
			t.Helper()
			mu.Lock()
			url := urls[s]
			mu.Unlock()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return start(t, url, cfg)
		},
	}
}

// emptied resets a schema to its state after the migration. It reads the list of tables
// from the catalog, so that none is forgotten. Deleting a few rows is much faster than
// TRUNCATE, which creates new files.
func emptied(schema string) string {
	const script = `
	DO $$
	DECLARE
		name text;
	BEGIN
		FOR name IN
			SELECT tablename FROM pg_tables WHERE schemaname = 'LITERAL' AND tablename NOT IN ('migration', 'partition', 'id_key')
		LOOP
			EXECUTE format('DELETE FROM %I.%I', 'LITERAL', name);
		END LOOP;
		FOR name IN
			SELECT sequencename FROM pg_sequences WHERE schemaname = 'LITERAL'
		LOOP
			EXECUTE format('ALTER SEQUENCE %I.%I RESTART', 'LITERAL', name);
		END LOOP;
		INSERT INTO NAME.round DEFAULT VALUES;
		INSERT INTO NAME.near DEFAULT VALUES;
		UPDATE NAME.partition SET gone = 0;
	END $$`
	return strings.NewReplacer("LITERAL", strings.ReplaceAll(schema, "'", "''"), "NAME", pgx.Identifier{schema}.Sanitize()).Replace(script)
}
