package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
	driver "github.com/gopherqueue/gq/driver/postgres"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestOwnPool: two queues in two schemas use the program's pool, do not see each other's jobs,
// and leave the pool open.
func TestOwnPool(t *testing.T) {
	pool := newPool(t, pgtest.Database(t))
	const quoted = `jobs-2 "x"`
	clients := map[string]*gq.Client{}
	ids := map[string]gq.JobID{}
	for _, schema := range []string{"jobs", quoted} {
		c, err := driver.Open(t.Context(), driver.WithPool(pool), driver.WithSchema(schema))
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Submit(t.Context(), gq.Spec{Type: "t"})
		if err != nil {
			t.Fatal(err)
		}
		clients[schema], ids[schema] = c, r.ID()
	}
	if _, err := clients["jobs"].Get(t.Context(), ids["jobs"], 0); err != nil {
		t.Error(err)
	}
	if _, err := clients["jobs"].Get(t.Context(), ids[quoted], 0); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("a job of the other schema: %v", err)
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the program's pool after Close: %v", err)
	}
}

func TestOpenWithoutPool(t *testing.T) {
	if _, err := driver.Open(t.Context()); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "pool") {
		t.Errorf("no pool: %v", err)
	}
	pool := newPool(t, pgtest.Database(t))
	if _, err := driver.Open(t.Context(), driver.WithPool(pool), driver.WithSchema("public")); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("schema public: %v", err)
	}
}
