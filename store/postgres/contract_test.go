package postgres_test

import (
	"sync"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
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
				execute(t, url, empty)
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

// empty resets a database to its state after the migration. It reads the list of tables
// from the catalog, so that none is forgotten. Deleting a few rows is much faster than
// TRUNCATE, which creates new files.
const empty = `
	DO $$
	DECLARE
		name text;
	BEGIN
		FOR name IN
			SELECT tablename FROM pg_tables WHERE schemaname = 'gq' AND tablename NOT IN ('migration', 'partition', 'id_key')
		LOOP
			EXECUTE format('DELETE FROM gq.%I', name);
		END LOOP;
		FOR name IN
			SELECT sequencename FROM pg_sequences WHERE schemaname = 'gq'
		LOOP
			EXECUTE format('ALTER SEQUENCE gq.%I RESTART', name);
		END LOOP;
		INSERT INTO gq.round DEFAULT VALUES;
		INSERT INTO gq.near DEFAULT VALUES;
		UPDATE gq.partition SET gone = 0;
	END $$`
