package postgres

import (
	"context"
	"maps"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// moving is a clock that a test advances.
type moving struct{ now atomic.Int64 }

func (m *moving) Now() time.Time { return time.Unix(0, m.now.Load()) }

// TestWorkUnderAHeldSnapshot lets jobs come and go while an old snapshot keeps dead
// entries in the indexes, and counts the entries that statements read. They must read
// only those of the last jobs. Without its lower bound each statement reads all entries,
// which proves that the dead ones exist.
func TestWorkUnderAHeldSnapshot(t *testing.T) {
	const cycles, each = 40, 25
	// On a server of its own: a transaction anywhere on it keeps segments fresh, such as ANALYZE.
	url, clock := pgtest.Own(t, "autovacuum=off").Database(t), &moving{}
	clock.now.Store(time.Now().UnixNano())
	s, err := Open(t.Context(), url, store.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.RaiseEvery(math.MaxInt) // only the test raises floors
	holder, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(context.WithoutCancel(t.Context()))
	if _, err := holder.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM gq.ready"); err != nil {
		t.Fatal(err)
	}
	for range cycles {
		cycle(t, s, each)
		if _, err := s.LastEvent(t.Context()); err != nil { // numbers the events of this cycle
			t.Fatal(err)
		}
		clock.now.Add(int64(time.Hour)) // longer than any lease
		if err := s.Raise(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	untilAlone(t, url, holder.PgConn().PID())
	now := clock.now.Load()
	queues, bands := levels("q")
	const (
		holds  = "INSERT INTO gq.delta (queue, status, jobs, units) VALUES ('q', 5, 1, 0)" // leases are read only of queues that have some
		forget = holds + "; DELETE FROM gq.floor; UPDATE gq.round SET numbered = '0', folded = '0'"
	)
	for _, c := range []struct {
		name, index, sql string
		args             []any
		most, without    int64
	}{
		{
			"candidates", "ready_claim", lockCandidates,
			[]any{queues, bands, now, []string{}, []string{}, -1, []string{}, 100},
			4 * each, cycles * each,
		},
		{"overdue", "held_due", lockOverdue, []any{[]string{"q"}, now, 100}, 4, cycles},
		{"next lease to run out", "held_due", dueNext, []any{now - int64(cycles*time.Hour)}, 4, cycles},
		{"next job to be late", "ready_due", dueNext, []any{now}, 4 * each, cycles * each},
		{"fresh segments", "segment_%_xid_idx", fresh, []any{100}, 10, cycles},
	} {
		with := walked(t, url, c.index, holds, c.sql, c.args...)
		without := walked(t, url, c.index, forget, c.sql, c.args...)
		t.Logf("%s: %d entries, %d without the bound", c.name, with, without)
		if with > c.most {
			t.Errorf("%s read %d entries, want at most %d", c.name, with, c.most)
		}
		if without < c.without {
			t.Errorf("%s read %d entries without the bound, want at least %d: nothing dead was there", c.name, without, c.without)
		}
	}
	with := walked(t, url, "round_pkey", "SELECT", "SELECT time FROM gq.head")
	without := walked(t, url, "round_pkey", "SET LOCAL enable_seqscan = off", "SELECT time FROM gq.round ORDER BY number")
	if with > 2 || without < 10 {
		t.Errorf("the head is read by %d entries, all rows of it by %d", with, without)
	}
}

// untilAlone waits until no connection is left but one. Each tells the server at its end what it
// has read, which would count as read by somebody else.
func untilAlone(t *testing.T, url string, but uint32) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for left := 1; left > 0; time.Sleep(10 * time.Millisecond) {
		if err := conn.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid NOT IN (pg_backend_pid(), $1)`, int64(but)).Scan(&left); err != nil {
			t.Fatal(err)
		}
	}
}

// cycle submits, claims and completes jobs.
func cycle(t *testing.T, s *Store, n int) {
	t.Helper()
	specs := make([]gq.Spec, n)
	for i := range specs {
		specs[i] = gq.Spec{ID: machine.NewJobID(random()), Queue: "q", Type: "work"}.WithDefaults()
		specs[i].Policy.Lifetime = farAway - time.Hour // so that it has an entry in ready_due
	}
	if out, err := s.Insert(t.Context(), []store.Group{{Jobs: specs}}); err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{"q"}}, N: n, Worker: "w"}})
	if err != nil || len(claimed[0].Jobs) != n {
		t.Fatalf("claimed %d jobs, %v", len(claimed[0].Jobs), err)
	}
	var updates []store.Update
	for _, j := range claimed[0].Jobs {
		updates = append(updates, store.Update{
			Ref: store.Ref{Lease: j.State.Lease.ID},
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Complete(s, j.State.Lease.Ref(), nil, now)
			},
		})
	}
	out, err := s.Update(t.Context(), updates)
	for _, o := range out {
		if err == nil {
			err = o.Err
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// walked returns how many entries of an index, live or dead, a statement reads. It runs
// the statement before first, and rolls both back.
func walked(t *testing.T, url, index, before, sql string, args ...any) (n int64) {
	t.Helper()
	ctx := t.Context()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(config.RuntimeParams, planning)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	read := func() (n int64) {
		if err := conn.QueryRow(ctx, `
			SELECT sum(idx_tup_read)::bigint FROM pg_stat_all_indexes
			WHERE schemaname = 'gq' AND indexrelname LIKE $1`, index).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tx, err := conn.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, before)
	}
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT pg_stat_force_next_flush()")
	}
	was := read()
	if err == nil {
		_, err = tx.Exec(ctx, sql, args...)
	}
	if err == nil {
		err = tx.Rollback(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read() - was
}
