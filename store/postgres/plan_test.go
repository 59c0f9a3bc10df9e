package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/pgtest"
	"github.com/gopherqueue/gq/store"
)

// hot are the statements that run all the time, and what their plans must be made
// of: an index for every table, whatever the planner believes.
var hot = []struct {
	name, sql string
	args      string // of EXECUTE
	wants     []string
}{
	{
		"claim", candidates + skipping, "'q', 1, '{}', '{}', -1, '{}', 100, true",
		[]string{"Index Scan using live_claim", "Index Scan using job_pkey"},
	},
	{"reclaim", overdue + skipping, "'{q}', 1, 100", []string{"live_held"}},
	{
		"lock", "SELECT " + columns + " FROM gq.live AS s WHERE s.seq = ANY ($1::bigint[]) ORDER BY s.seq FOR UPDATE", "'{1,2,3}'",
		[]string{"live_pkey"},
	},
	{
		"change", `
			UPDATE gq.live AS s SET status = n.status
			FROM unnest($1::bigint[], $2::smallint[]) AS n (seq, status)
			WHERE s.seq = n.seq`, "'{1,2}', '{5,5}'",
		[]string{"Index Scan using live_pkey"},
	},
	{"leave", "DELETE FROM gq.live WHERE seq = ANY ($1::bigint[])", "'{1,2}'", []string{"live_pkey"}},
	{"fresh", fresh, "100", []string{"segment_fresh"}},
	{"number", `
		UPDATE gq.segment AS s SET seq = n.seq
		FROM unnest($1::bigint[], $2::bigint[]) AS n (id, seq)
		WHERE s.id = n.id`, "'{1,2}', '{5,5}'", []string{"segment_pkey"}},
	{
		"due", dueBy, "1, 10",
		[]string{"Index Scan using live_due"},
	},
	{"due next", dueNext, "1", []string{"Index Scan using live_due"}},
}

// TestPlans looks at the plans on empty tables, on tables that look as small as
// they were when they were last analysed, and on ones that look like ten million
// rows.
func TestPlans(t *testing.T) {
	url := pgtest.Database(t)
	s, err := Open(t.Context(), url, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, state := range []struct{ name, sql string }{
		{"fresh", ""},
		{"empty", "ANALYZE gq.live; ANALYZE gq.job; ANALYZE gq.segment"},
		{"large", `
			INSERT INTO gq.live (seq, order_hi, order_lo, run_at, due, status, queue, data)
			SELECT n, 0, n, 0, n, 3 + n % 3, 'q' || n % 10, '' FROM generate_series(1, 3000) AS n;
			INSERT INTO gq.job (seq, id, cost, created, type, requires, spec)
			SELECT n, gen_random_uuid(), 0, 0, 't', '{}', '' FROM generate_series(1, 3000) AS n;
			ANALYZE gq.live; ANALYZE gq.job;
			UPDATE pg_class SET reltuples = 1e7, relpages = 200000
			WHERE relnamespace = 'gq'::regnamespace AND relname IN ('live', 'job', 'segment')`},
	} {
		t.Run(state.name, func(t *testing.T) {
			if _, err := s.pool.Exec(t.Context(), state.sql); err != nil {
				t.Fatal(err)
			}
			for _, q := range hot {
				plan := explain(t, s, q.sql, q.args)
				for _, want := range q.wants {
					if !strings.Contains(plan, want) {
						t.Errorf("%s: the plan has no %q:\n%s", q.name, want, plan)
					}
				}
				for _, bad := range []string{"Seq Scan", "Hash Join", "Merge Join"} {
					if strings.Contains(plan, bad) {
						t.Errorf("%s: the plan has a %s:\n%s", q.name, bad, plan)
					}
				}
			}
		})
	}
}

func explain(t *testing.T, s *Store, sql, args string) string {
	t.Helper()
	var lines []string
	err := s.attempt(t.Context(), beginWrite, func(tx *txn) error {
		if _, err := tx.Exec(t.Context(), "PREPARE hot AS "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), fmt.Sprintf("EXPLAIN EXECUTE hot (%s)", args), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(context.WithoutCancel(t.Context()), "DEALLOCATE hot", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}
