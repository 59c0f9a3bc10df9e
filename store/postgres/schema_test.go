package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

func inSchema(url, schema string) string {
	if strings.Contains(url, "?") {
		return url + "&gq_schema=" + schema
	}
	return url + "?gq_schema=" + schema
}

// TestSchemas checks that queues in two schemas of one database share no jobs, events,
// news or locks, and are migrated separately.
func TestSchemas(t *testing.T) {
	url := pgtest.Database(t)
	stores := map[string]*postgres.Store{}
	for _, schema := range []string{"gq", "billing"} {
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
	defer stores["billing"].Notify(false, func(n store.News) { news <- n })()
	furnish(t, stores["gq"])
	if counts, err := stores["billing"].Counts(t.Context()); err != nil || len(counts) > 0 {
		t.Errorf("the other queue counts %v, %v", counts, err)
	}
	if last, err := stores["billing"].LastEvent(t.Context()); err != nil || last != 0 {
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
	out, err := stores["billing"].Tx(tx).Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{keyed()}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	mustInsert(t, stores["gq"], keyed())
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if counts, err := stores["billing"].Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].Live() != 1 {
		t.Errorf("after the commit the queue counts %v, %v", counts, err)
	}
	before := takeInventory(t, stores["gq"])
	if _, err := connect(t, url).Exec(t.Context(), "DROP SCHEMA billing CASCADE", pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	if after := takeInventory(t, stores["gq"]); after != before {
		t.Errorf("dropping one schema changed the queue in the other:\n%s\nwant\n%s", after, before)
	}
}

// TestSchemaNames checks that names that need quotes, and PostgreSQL's own, are refused.
func TestSchemaNames(t *testing.T) {
	for _, name := range []string{"Big", "1st", "a-b", `x";DROP`, "pg_mine", "public", "information_schema", strings.Repeat("x", 41), "ä"} {
		_, err := postgres.MigrateStatus(t.Context(), "postgres://localhost/none?gq_schema="+name)
		if !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("schema %q: %v, want gq.ErrInvalid", name, err)
		}
	}
}
