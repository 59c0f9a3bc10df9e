package postgres

import (
	"context"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// holdOpen opens a connection and executes statements that leave a transaction open.
func holdOpen(t *testing.T, address, application, sql string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return conn
}

func mustExamine(t *testing.T, s *Store) gq.Database {
	t.Helper()
	d, err := s.examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// snapshotOf returns the snapshot with a name.
func snapshotOf(d gq.Database, name string) *gq.DatabaseSnapshot {
	i := slices.IndexFunc(d.Snapshots, func(s gq.DatabaseSnapshot) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Snapshots[i]
}

// TestExamineFindsSnapshots holds snapshots in all ways that one server allows.
func TestExamineFindsSnapshots(t *testing.T) {
	cluster := pgtest.Own(t, "max_prepared_transactions=2", "wal_level=logical")
	address, other := cluster.Database(t), cluster.Database(t)
	s, err := Open(t.Context(), address, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := time.Now()
	const snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"
	// It waits for the end of all transactions that have written, so it comes first.
	slot := holdOpen(t, address, "slot", "SELECT pg_create_logical_replication_slot('feed', 'pgoutput')")
	reader := holdOpen(t, address, "report", snapshot)
	holdOpen(t, other, "report elsewhere", snapshot)
	holdOpen(t, other, "import elsewhere", "CREATE TABLE t (n integer); BEGIN; INSERT INTO t VALUES (1)")
	holdOpen(t, address, "idle", "SELECT 1")
	two := holdOpen(t, address, "two phases", "CREATE TABLE t (n integer); BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'payment 7'")
	d := mustExamine(t, s)
	for _, want := range []gq.DatabaseSnapshot{
		{Holder: gq.HolderSession, Name: "report", PID: int(reader.PgConn().PID()), Database: reader.Config().Database, State: "idle in transaction"},
		{Holder: gq.HolderSession, Name: "import elsewhere", State: "idle in transaction"},
		{Holder: gq.HolderPrepared, Name: "payment 7", Database: reader.Config().Database},
		{Holder: gq.HolderSlot, Name: "feed", Database: reader.Config().Database, State: "inactive"},
	} {
		got := snapshotOf(d, want.Name)
		switch {
		case got == nil:
			t.Errorf("%s is missing in %+v", want.Name, d.Snapshots)
		case got.Holder != want.Holder || got.State != want.State || want.PID != 0 && got.PID != want.PID || want.Database != "" && got.Database != want.Database:
			t.Errorf("%+v, want %+v", *got, want)
		case want.Holder != gq.HolderSlot && (got.Role == "" || got.Since.Before(before.Add(-time.Minute)) || got.Since.After(time.Now().Add(time.Minute))):
			t.Errorf("%+v has no role or time", *got)
		}
	}
	for _, name := range []string{"report elsewhere", "idle"} {
		if got := snapshotOf(d, name); got != nil {
			t.Errorf("%+v does not hold back vacuum here", *got)
		}
	}
	for conn, sql := range map[*pgx.Conn]string{reader: "ROLLBACK", two: "ROLLBACK PREPARED 'payment 7'", slot: "SELECT pg_drop_replication_slot('feed')"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	d = mustExamine(t, s)
	for _, name := range []string{"report", "payment 7", "feed"} {
		if got := snapshotOf(d, name); got != nil {
			t.Errorf("%+v has ended", *got)
		}
	}
}

// TestExamineMeasures compares what Examine returns with what was done.
func TestExamineMeasures(t *testing.T) {
	address, err := url.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	query.Set(schemaParameter, "odd one")
	address.RawQuery = query.Encode()
	s, err := Open(t.Context(), address.String(), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := mustExamine(t, s)
	if d.Bytes < 1<<20 || !d.Autovacuum || d.Connections < 1 || d.MaxConnections < d.Connections || d.TransactionAge < 1 || d.OldestDatabase == "" || d.Hidden != 0 {
		t.Errorf("%+v", d)
	}
	names := map[string]int{}
	for i, table := range d.Tables {
		names[table.Name]++
		if table.Bytes < 0 || i > 0 && table.Bytes > d.Tables[i-1].Bytes || table.VacuumAfter < 50 {
			t.Errorf("%+v", table)
		}
	}
	for _, name := range []string{"ready", "held", "segment", "delta"} {
		if names[name] != 1 {
			t.Errorf("table %s occurs %d times", name, names[name])
		}
	}
	conn := connTo(t, s)
	if _, err := conn.Exec(t.Context(), `
		CREATE TABLE "odd one".ledger (n integer) WITH (autovacuum_enabled = off, autovacuum_vacuum_threshold = 7, autovacuum_vacuum_scale_factor = 0);
		INSERT INTO "odd one".ledger SELECT generate_series(1, 5000);
		DELETE FROM "odd one".ledger WHERE n <= 3000`); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute) // sessions report their statistics about once a second
	for {
		d = mustExamine(t, s)
		i := slices.IndexFunc(d.Tables, func(t gq.DatabaseTable) bool { return t.Name == "ledger" })
		if i >= 0 && d.Tables[i].DeadRows == 3000 && d.Tables[i].VacuumAfter == 7 && d.Tables[i].Bytes > 5000*28 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", d.Tables)
		}
		if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil { // reports
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// connTo opens a connection to the database of a store.
func connTo(t *testing.T, s *Store) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestExamineAsOrdinaryRole runs as a role that may not see what other roles do.
func TestExamineAsOrdinaryRole(t *testing.T) {
	cluster := pgtest.Own(t)
	address := cluster.Database(t)
	admin := holdOpen(t, address, "admin", "CREATE ROLE clerk LOGIN PASSWORD 'x'")
	if _, err := admin.Exec(t.Context(), "GRANT CREATE ON DATABASE "+pgx.Identifier{admin.Config().Database}.Sanitize()+" TO clerk"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(cluster.TCP(admin.Config().Database))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("clerk", "x")
	s, err := Open(t.Context(), u.String(), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	holdOpen(t, address, "report", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
	if d := mustExamine(t, s); d.Hidden != 2 || snapshotOf(d, "report") != nil {
		t.Errorf("%d sessions are hidden: %+v", d.Hidden, d.Snapshots)
	}
	if _, err := admin.Exec(t.Context(), "GRANT pg_read_all_stats TO clerk"); err != nil {
		t.Fatal(err)
	}
	if d := mustExamine(t, s); d.Hidden != 0 || snapshotOf(d, "report") == nil {
		t.Errorf("%d sessions are hidden: %+v", d.Hidden, d.Snapshots)
	}
}

// TestExamineKeepsItsResult calls Examine twice.
func TestExamineKeepsItsResult(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := s.examination.at
	first.Tables[0].Name = "changed by the caller"
	second, err := s.Examine(t.Context())
	if err != nil || second.Tables[0].Name == first.Tables[0].Name || !s.examination.at.Equal(at) {
		t.Errorf("%+v, %v", second.Tables[0], err)
	}
	s.examination.at = at.Add(-examinationAge)
	if _, err := s.Examine(t.Context()); err != nil || s.examination.at.Before(at) {
		t.Errorf("a result of %v is used again: %v", examinationAge, err)
	}
}
