package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// TestFoldWhenQuiet checks that the counts of a burst are folded after it, although they are
// too few for that while work goes on, and that they stay the same.
func TestFoldWhenQuiet(t *testing.T) {
	t.Parallel()
	const jobs = 40
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	for range jobs {
		mustInsert(t, s, newSpec("q"))
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for deadline := time.Now().Add(time.Minute); ; {
		var left, folded int64
		err := conn.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM gq.delta), (SELECT coalesce(sum(jobs), 0)::bigint FROM gq.tally WHERE queue = 'q')
			FROM pg_sleep(0.02)`).Scan(&left, &folded)
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 && folded == jobs {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a minute after %d inserts %d counts are not folded, and the others add up to %d", jobs, left, folded)
		}
	}
	counts, err := s.Counts(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	if n := counts[0].Live(); n != jobs {
		t.Errorf("%d jobs are counted, want %d", n, jobs)
	}
}
