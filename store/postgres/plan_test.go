package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// The index conditions with which a scan starts at the floor.
const (
	belowNothing   = `AND (ROW(order_hi, order_lo) >= ROW(`
	leaseFromFloor = `AND (due >= COALESCE(`
)

// hot lists the statements that run all the time, and what their plans must contain: an
// index for every table, whatever the statistics say.
var hot = []struct {
	name, sql string
	args      string // of EXECUTE
	wants     []string
}{
	{
		"claim", lockCandidates, "'{q,q}', '{1,2}', 1, '{}', '{}', -1, '{}', 100",
		[]string{"Index Scan using ready_claim", belowNothing, "Index Scan Backward using floor_pkey", "Index Scan using early_xid"},
	},
	{
		"fast claim", fastCandidates, "'{q,q}', '{1,2}', 1, '{}', '{}', -1, '{}', 100, true",
		[]string{"Tid Scan on ready", "Index Scan using ready_claim", belowNothing, "Index Scan Backward using floor_pkey", "Index Scan using early_xid", "Index Scan Backward using round_pkey"},
	},
	{
		"settle", beDoneEither.told, "'{1}', '{1}', '{1}', '{7}', '{q}', '{}', '{x}', '{x}', '{NULL}', 1, 1, 1, '00000000-0000-0000-0000-000000000001', 'x', '{q}', '{7}', '{1}', '{0}', '{1}', '{7}', '{3}'",
		[]string{"edge_pkey"},
	},
	{
		"fast stamp", fastStamp, "'{q,q}', '{1,2}', 1, '{}', '{}', -1, '{}', 1, true, '{q}', 1",
		[]string{"Index Scan using ready_claim", belowNothing, "held_due", leaseFromFloor, "Index Scan Backward using floor_pkey", "Index Scan using early_xid", "Index Scan Backward using round_pkey"},
	},
	{
		"submit", insertedFast, `1, 1, NULL, '{q}', 1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
			1, '00000000-0000-0000-0000-000000000001', '', '{}', '{}', '{}'`,
		[]string{"Index Scan using queue_pkey"},
	},
	{"reclaim", lockOverdue, "'{q}', 1, 100", []string{"held_due", leaseFromFloor, "Index Scan Backward using floor_pkey", "Index Scan using early_xid"}},
	{"lock", heldByNumber, "'{0,64}', '{2,4}'", []string{"Index Scan using held_pkey"}},
	{"shrink", fmt.Sprintf(shrink, "held"), "'{1}', '{1}', '{1}'", []string{"Index Scan using held_pkey"}},
	{"shrink done", fmt.Sprintf(shrink, "done"), "'{1}', '{1}', '{1}'", []string{"Index Scan using done_0_pkey"}},
	{"stay held", stayHeld, "'{1}', '{1}', '{5}', '{x}'", []string{"Index Scan using held_pkey"}},
	{"stay ready", stayReady, "'{1}', '{1}', '{1}', '{1}', '{1}', '{3}', '{x}', 9", []string{"Index Scan using ready_pkey"}},
	{"hold", hold, "'{1}', '{1}', '{5}', '{x}'", []string{"Index Scan using ready_pkey"}},
	{"give back", giveBack, "'{1}', '{1}', '{1}', '{1}', '{1}', '{3}', '{t}', '{\"{}\"}', '{x}', 9", []string{"Index Scan using held_pkey"}},
	{"end held", endHeld, "'{1}', '{1}', '{7}', '{x}'", []string{"Index Scan using held_pkey"}},
	{"end ready", endReady, "'{1}', '{1}', '{7}', '{x}'", []string{"Index Scan using ready_pkey"}},
	{"states", states, "'{0,64}', '{2,4}'", []string{"ready_pkey", "held_pkey", "done_0_pkey"}},
	{
		"tell fast", tellingFast, "'{q}', '{3}', '{1}'",
		[]string{"Index Scan Backward using floor_pkey"},
	},
	{"tell", telling, "'{q}', '{3}', '{1}', '{1}'", []string{"Index Scan Backward using floor_pkey"}},
	{
		"raise", raising, "'{q,q}', '{0,3}', '{1,1}', '{1,1}'",
		[]string{"ready_claim", belowNothing, "held_due", leaseFromFloor, "Index Scan Backward using floor_pkey", "Index Scan using early_xid", "Tid Scan on floor", "Tid Scan on early"},
	},
	{"mark", marking, "'{q,q}', '{0,3}'", []string{"Index Scan Backward using floor_pkey", "Tid Scan on floor"}},
	{"time", "SELECT time FROM gq.head", "", []string{"Index Scan Backward using round_pkey"}},
	{"fold", folding, "100", []string{"delta_xid"}},
	{"count", "SELECT queue, jobs FROM " + tally, "", []string{"delta_xid"}},
	{"count named", countsOfNamed, "'{q,r}'", []string{"tally_pkey", "delta_xid"}},
	{"turns of each", turnsOfEach, "'{q,r}', 9", []string{"ready_claim", "ready_aside"}},
	{"first of turns", firstOfTurns, "'{q,r}', '{1,2}'", []string{"Index Scan using ready_claim"}},
	{"used pools", usedPools, "NULL, 1", []string{"delta_xid", "Index Scan using queue_pkey", "held_due", leaseFromFloor}},
	{"starting use", startingUse, "'{q}', 1, true", []string{"delta_xid", "held_due", leaseFromFloor}},
	{"anything fresh", unsequenced, "", []string{"segment_0_xid_idx"}},
	{"anything unheard", unheard, "", []string{"segment_0_xid_idx", "inbox_pkey"}},
	{"inbox", waitingLetters, "100", []string{"Index Scan using inbox_pkey"}},
	{"fresh", fresh, "100", []string{"segment_0_xid_idx"}},
	{"number", numbering, "100", []string{"segment_0_pkey", "segment_0_xid_idx"}},
	{
		"due", dueBy, "1, 10",
		[]string{"Index Scan using ready_due", "held_due"},
	},
	{"due next", dueNext, "1", []string{"Index Scan using ready_due", "held_due"}},
	{"come near", nearing, "'(0,0)', '(256,0)', 1", []string{"Tid Range Scan on ready", "Tid Scan on ready"}},
	{"collect any", firstOver, "'{7,8}', '{1,1}'", []string{"done_0_status_ended_expr_idx", "horizon_pkey", "kept_pkey"}},
	{"collect", ended, "7, 0, 0, 1, 100", []string{"done_0_status_ended_expr_idx", "Merge Append"}},
	{
		"find", rowsIn("gq.done", "FOR UPDATE OF s") + " WHERE " + kept, "'{0,64}', '{2,4}'",
		[]string{"Index Scan using done_0_pkey", "horizon_pkey"},
	},
	{"foreign id", strings.Replace(foreignIDs, "$1", "$1::uuid[]", 1), "'{}'", []string{"foreign_id_pkey"}},
	{
		"events", fmt.Sprintf(logAfter, ", l.jobs"), "1, 64, 1000",
		[]string{"segment_0_seq", "log_0_pkey"},
	},
}

// TestPlans checks the plans on new tables, on tables that were analysed while empty, and
// on tables that look like ten million rows.
func TestPlans(t *testing.T) {
	url := pgtest.Database(t)
	s, err := Open(t.Context(), url, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, state := range []struct{ name, sql string }{
		{"fresh", ""},
		{"empty", "ANALYZE"},
		{"large", `
			INSERT INTO gq.ready (seq, order_hi, order_lo, run_at, due, far, created, cost, status, queue, type, body, data)
			SELECT n, 0, n, 0, n, n % 2 = 0, 0, 0, 3, 'q' || n % 10, 't', '', '' FROM generate_series(1, 1500) AS n;
			INSERT INTO gq.held (seq, due, created, cost, status, queue, fair, body, data)
			SELECT n, n, 0, 0, 5, 'q' || n % 10, '', '', '' FROM generate_series(1501, 3000) AS n;
			INSERT INTO gq.done (seq, ended, created, status, queue, fair, body, data)
			SELECT n, n, 0, 7 + n % 4, 'q' || n % 10, '', '', '' FROM generate_series(3001, 6000) AS n;
			INSERT INTO gq.foreign_id (id, seq) SELECT gen_random_uuid(), n FROM generate_series(1, 3000) AS n;
			INSERT INTO gq.segment (id, seq, time, events, token)
			SELECT n, n, n, 1, gen_random_uuid() FROM generate_series(1, 3000) AS n;
			INSERT INTO gq.log (id, data) SELECT n, '' FROM generate_series(1, 3000) AS n;
			ANALYZE;
			UPDATE pg_class SET reltuples = 1e7, relpages = 200000
			WHERE relnamespace = 'gq'::regnamespace AND relkind = 'r' AND relname ~ '^(ready|held|foreign_id|done|segment|log|floor|early|delta|round)';
			UPDATE pg_class SET reltuples = 1e7, relpages = 40000
			WHERE relnamespace = 'gq'::regnamespace AND relkind = 'i' AND relname ~ '^(ready|held|foreign_id|done|segment|log|floor|early|delta|round)'`},
	} {
		t.Run(state.name, func(t *testing.T) {
			if _, err := s.pool.Exec(t.Context(), state.sql); err != nil {
				t.Fatal(err)
			}
			for _, q := range hot {
				plan := explain(t, s, q.sql, q.args)
				// gq.tally and gq.near are small, so they may be read as a whole.
				plan = strings.NewReplacer("Seq Scan on tally", "", "Seq Scan on near", "").Replace(plan)
				for _, want := range q.wants {
					if !strings.Contains(plan, want) {
						t.Errorf("%s: the plan has no %q:\n%s", q.name, want, plan)
					}
				}
				for _, bad := range []string{"Seq Scan", "Hash Join", "Merge Join", "Materialize", "Join Filter", "Filter: (n.id = id)", "Filter: (n.seq = seq)"} {
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
	err := s.attempt(t.Context(), s.begins.write, false, func(tx *txn) error {
		if _, err := tx.Exec(t.Context(), "PREPARE hot AS "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		if args != "" {
			args = "(" + args + ")"
		}
		rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE hot "+args, pgx.QueryExecModeSimpleProtocol)
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
