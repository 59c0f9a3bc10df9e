package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// submitSQL submits a job with the SQL function.
func submitSQL(t *testing.T, conn *pgx.Conn, typ, queue string) gq.JobID {
	t.Helper()
	var id [16]byte
	if err := conn.QueryRow(t.Context(), "SELECT gq.submit($1, queue => $2)", typ, queue).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestBackupHasTheInbox backs up a database whose applications have submitted jobs that no server
// has taken in yet.
func TestBackupHasTheInbox(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	conn, tmp := connectTo(t, url), t.TempDir()
	var ids []gq.JobID
	for range 10 {
		ids = append(ids, submitSQL(t, conn, "x", "q"))
	}
	submitSQL(t, conn, "", "q") // will be refused
	// check backs the database up and looks for the jobs in the backup.
	check := func(name string, want []gq.JobID) {
		t.Helper()
		file, dir := filepath.Join(tmp, name), filepath.Join(tmp, name+"-data")
		out := gqIn(t.Context(), tmp, "backup", file, "--store", url)
		if out.status != 0 || !strings.Contains(out.stderr, "1 refused submissions are not copied") {
			t.Fatalf("%+v", out)
		}
		if out := gqIn(t.Context(), tmp, "restore", file, "--store", "file:"+dir); out.status != 0 {
			t.Fatalf("%+v", out)
		}
		s, err := local.Open(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, id := range want {
			if _, err := s.History(t.Context(), id); err != nil {
				t.Errorf("%s: job %s: %v", name, id, err)
			}
		}
	}
	check("unserved", ids)

	server := startServer(t, nil, "--store", url)
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	writer := connectTo(t, url)
	writing.Go(func() {
		for ctx.Err() == nil {
			id := submitSQL(t, writer, "x", "q")
			mu.Lock()
			ids = append(ids, id)
			mu.Unlock()
		}
	})
	cmdtest.WaitFor(t, "submissions", func() bool { mu.Lock(); defer mu.Unlock(); return len(ids) > 50 })
	mu.Lock()
	committed := ids[:len(ids):len(ids)]
	mu.Unlock()
	check("served", committed)
	stop()
	writing.Wait()
	cmdtest.WaitFor(t, "all submissions", func() bool {
		counts, err := server.client().Counts(t.Context(), "q")
		return err == nil && len(counts) == 1 && counts[0].Live() == int64(len(ids))
	})
}

// TestInboxCommands lists, retries and discards submissions that a server has refused.
func TestInboxCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	server := startServer(t, nil, "--store", url)
	conn := connectTo(t, url)
	run := func(args ...string) string {
		t.Helper()
		out := server.gq(args...)
		if out.status != 0 {
			t.Fatalf("gq %s: %+v", strings.Join(args, " "), out)
		}
		return out.stdout
	}
	type entry struct {
		Job     gq.JobID `json:"job_id"`
		Jobs    int      `json:"jobs"`
		Problem string   `json:"problem"`
	}
	list := func() (refused int, all []entry) {
		t.Helper()
		var page struct {
			Refused     int     `json:"refused"`
			Submissions []entry `json:"submissions"`
		}
		text := run("inbox", "list", "--json")
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return page.Refused, page.Submissions
	}
	run("queue", "set", "small", "--max-depth", "1")
	first := submitSQL(t, conn, "x", "small")
	cmdtest.WaitFor(t, "the first job", func() bool { return server.gq("job", "get", first.String()).status == 0 })
	full := submitSQL(t, conn, "x", "small")
	wrong := submitSQL(t, conn, strings.Repeat("x", 1000), "q")
	cmdtest.WaitFor(t, "two refusals", func() bool { n, _ := list(); return n == 2 })
	_, all := list()
	if len(all) != 2 || all[0].Job != full || all[1].Job != wrong || all[0].Jobs != 1 ||
		!strings.Contains(all[0].Problem, "depth limit") || !strings.Contains(all[1].Problem, "type") {
		t.Errorf("%+v", all)
	}
	for line := range strings.Lines(run("inbox", "list")) { // a name that is too long does not hide the reason
		if !strings.Contains(line, "PROBLEM") && !strings.Contains(line[:min(len(line), 250)], " are more than ") && !strings.Contains(line, "depth limit") || len(line) > 400 {
			t.Errorf("gq inbox list prints %q", line)
		}
	}
	if out := server.gq("doctor"); !strings.Contains(out.stdout, "2 submissions refused after the transaction") {
		t.Errorf("gq doctor says\n%s", out.stdout)
	}
	if out := server.gq("job", "get", full.String()); out.status == 0 || !strings.Contains(out.stderr, "refused after its transaction") {
		t.Errorf("%+v", out)
	}
	run("queue", "set", "small", "--max-depth", "10")
	run("inbox", "retry", full.String())
	cmdtest.WaitFor(t, "the retried job", func() bool { return server.gq("job", "get", full.String()).status == 0 })
	if n, _ := list(); n != 1 {
		t.Errorf("%d submissions are refused, want 1", n)
	}
	run("inbox", "retry", "--all") // it is refused again
	cmdtest.WaitFor(t, "the refusal", func() bool { n, _ := list(); return n == 1 })
	if out := server.gq("inbox", "discard", "--yes", machine.NewJobID([16]byte{1}).String()); strings.Contains(out.stdout, "discarded 1") {
		t.Errorf("an unknown submission was discarded: %+v", out)
	}
	if out := run("inbox", "discard", "--yes", wrong.String()); !strings.Contains(out, "discarded 1") {
		t.Errorf("%s", out)
	}
	if n, all := list(); n != 0 || len(all) != 0 {
		t.Errorf("%d: %s", n, fmt.Sprint(all))
	}
}
