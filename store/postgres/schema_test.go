package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/storetest"
)

// awkward is the name of a schema that needs every kind of quotes.
const awkward = `jobs-2 "x'$%d`

func inSchema(address, schema string) string {
	return withParameter(address, "gq_schema="+url.QueryEscape(schema))
}

func withParameter(address, parameter string) string {
	if strings.Contains(address, "?") {
		return address + "&" + parameter
	}
	return address + "?" + parameter
}

// TestSchemas checks that queues in two schemas of one database share no jobs, events,
// news or locks, and are migrated separately.
func TestSchemas(t *testing.T) {
	url := pgtest.Database(t)
	stores := map[string]*postgres.Store{}
	for _, schema := range []string{"gq", awkward} {
		at := inSchema(url, schema)
		if l, err := postgres.MigrateStatus(t.Context(), at); err != nil || l.Version != 0 {
			t.Fatalf("before there is a queue in %s: %+v, %v", schema, l, err)
		}
		s := open(t, at, store.Config{Clock: still{}})
		defer s.Close()
		stores[schema] = s
		if l, err := postgres.MigrateStatus(t.Context(), at); err != nil || l.Pending() {
			t.Fatalf("the layout of %s: %+v, %v", schema, l, err)
		}
	}
	news := make(chan store.News, 100)
	defer stores[awkward].Notify(false, func(n store.News) { news <- n })()
	furnish(t, stores["gq"])
	if counts, err := stores[awkward].Counts(t.Context()); err != nil || len(counts) > 0 {
		t.Errorf("the other queue counts %v, %v", counts, err)
	}
	if last, err := stores[awkward].LastEvent(t.Context()); err != nil || last != 0 {
		t.Errorf("the other queue has %d events, %v", last, err)
	}
	select {
	case n := <-news:
		if len(n.Queues) > 0 || n.Event > 0 {
			t.Errorf("the other queue has heard %+v", n)
		}
	case <-time.After(100 * time.Millisecond):
	}

	// An application's transaction in one schema holds a key. The same key is free in the
	// other.
	keyed := func() gq.Spec {
		spec := newSpec("work")
		spec.Key = gq.IdempotencyKey{Scope: "s", Name: "held"}
		return spec
	}
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // committed below
	out, err := stores[awkward].Tx(tx).Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{keyed()}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	mustInsert(t, stores["gq"], keyed())
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if counts, err := stores[awkward].Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].Live() != 1 {
		t.Errorf("after the commit the queue counts %v, %v", counts, err)
	}
	before := takeInventory(t, stores["gq"])
	if _, err := connect(t, url).Exec(t.Context(), "DROP SCHEMA "+pgx.Identifier{awkward}.Sanitize()+" CASCADE", pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	if after := takeInventory(t, stores["gq"]); after != before {
		t.Errorf("dropping one schema changed the queue in the other:\n%s\nwant\n%s", after, before)
	}
}

// TestSchemaNames checks which names are refused before anything is created.
func TestSchemaNames(t *testing.T) {
	for _, name := range []string{"pg_mine", "public", "information_schema", strings.Repeat("x", 64), strings.Repeat("ä", 32), "a\nb", "a$$b", "$sql$", "\xff", "a\x00"} {
		_, err := postgres.MigrateStatus(t.Context(), inSchema("postgres://localhost/none", name))
		if !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("schema %q: %v, want gq.ErrInvalid", name, err)
		}
	}
}

// TestLongSchemaNames checks that two schemas whose long names differ at the end do not
// hear each other, and that a schema that exists and is empty is used.
func TestLongSchemaNames(t *testing.T) {
	url := pgtest.Database(t)
	long := strings.Repeat("Ä ", 20)
	var news [2]chan store.News
	var stores [2]*postgres.Store
	for i, schema := range []string{long + "1", long + "2"} {
		execute(t, url, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
		at := inSchema(url, schema)
		stores[i] = open(t, at, store.Config{})
		defer stores[i].Close()
		listener := open(t, at, store.Config{})
		defer listener.Close()
		news[i] = make(chan store.News, 100)
		defer listener.Notify(false, func(n store.News) { news[i] <- n })()
	}
	heard := func(i int, queue string) bool {
		for {
			select {
			case n := <-news[i]:
				if slices.Contains(n.Queues, queue) {
					return true
				}
			case <-time.After(20 * time.Second):
				return false
			}
		}
	}
	mustInsert(t, stores[0], newSpec("first"))
	mustInsert(t, stores[1], newSpec("second"))
	if !heard(0, "first") || !heard(1, "second") {
		t.Fatal("a node has not heard of another node's job in its own schema")
	}
	for i := range news {
		for len(news[i]) > 0 {
			if n := <-news[i]; slices.Contains(n.Queues, []string{"second", "first"}[i]) {
				t.Errorf("a node has heard of a job in the other schema: %+v", n)
			}
		}
	}
}

// TestContractInASchemaOfAPool runs the contract in a schema whose name needs quotes, on the
// connections of an application's pool. The pool stays open.
func TestContractInASchemaOfAPool(t *testing.T) {
	b := backend(t, directly)
	b.Again = true
	start := func(t testing.TB, pool *pgxpool.Pool, cfg store.Config) store.Store {
		t.Helper()
		s, err := postgres.OpenPool(t.Context(), pool, awkward, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var (
		mu    sync.Mutex
		free  []*pgxpool.Pool                       // of databases that a case has left
		pools = make(map[store.Store]*pgxpool.Pool) // of open stores
	)
	// Another queue in the same database is in use and must not notice.
	furnished := func() *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), pgtest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		beside, err := postgres.OpenPool(t.Context(), pool, "", store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		mustInsert(t, beside, newSpec("beside"))
		t.Cleanup(func() {
			counts, err := beside.Counts(context.Background())
			if err != nil || len(counts) != 1 || counts[0].Live() != 1 {
				t.Errorf("the other queue has %+v, %v", counts, err)
			}
			beside.Close()
			pool.Close()
		})
		return pool
	}
	take := func() (pool *pgxpool.Pool, used bool) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(free); n > 0 {
			pool, free = free[n-1], free[:n-1]
			return pool, true
		}
		return furnished(), false
	}
	b.Open = func(t testing.TB, cfg store.Config) store.Store {
		t.Helper()
		pool, used := take()
		t.Cleanup(func() {
			if err := pool.Ping(context.Background()); err != nil {
				t.Errorf("the store has closed the application's pool: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			free = append(free, pool)
		})
		if used {
			if _, err := pool.Exec(t.Context(), emptied(awkward)); err != nil {
				t.Fatal(err)
			}
		}
		s := start(t, pool, cfg)
		mu.Lock()
		defer mu.Unlock()
		pools[s] = pool
		return s
	}
	b.Reopen = func(t testing.TB, s store.Store, cfg store.Config) store.Store {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		again := start(t, pools[s], cfg)
		pools[again] = pools[s]
		return again
	}
	seen := make(map[string]int)
	every := 4 // the rules are those of TestContract; what differs is how statements are sent
	if race.Share() {
		every = 8
	}
	b.Only = func(c storetest.Case) bool { // a share of each group
		group, _, _ := strings.Cut(c.Name, "/")
		mu.Lock()
		defer mu.Unlock()
		seen[group]++
		return seen[group]%every == 1
	}
	storetest.Run(t, b)
}

// TestPoolsThatAreRefused checks the errors for pools on which a store cannot work.
func TestPoolsThatAreRefused(t *testing.T) {
	url := pgtest.Database(t)
	for parameter, word := range map[string]string{"pool_max_conns=1": "MaxConns", "default_query_exec_mode=simple_protocol": "cache describe"} {
		settings, err := pgxpool.ParseConfig(withParameter(url, parameter))
		if err != nil {
			t.Fatal(err)
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), settings)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		_, err = postgres.OpenPool(t.Context(), pool, "", store.Config{})
		if !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("a pool with %s: %v", parameter, err)
		}
	}
	if _, err := postgres.OpenPool(t.Context(), nil, "", store.Config{}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("no pool: %v", err)
	}
}
