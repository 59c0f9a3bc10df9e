package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/worker"
)

// laterBuild builds gq with as many made-up steps more.
func laterBuild(t *testing.T, steps int) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "gq")
	if err := cmdtest.Build(program, "github.com/gopherqueue/gq/cmd/gq", []string{"gq_layout2", "gq_layout3"}[:steps]...); err != nil {
		t.Fatal(err)
	}
	return program
}

func serveWith(t *testing.T, program, url string) *served {
	t.Helper()
	return launch(t, nil, exec.Command(program, "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", url))
}

// refusedBy runs a program that must not succeed and returns what it says.
func refusedBy(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var said bytes.Buffer
	c := exec.CommandContext(ctx, program, args...)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Run(); err == nil || ctx.Err() != nil {
		t.Fatalf("%s %v was not refused: %v\n%s", program, args, ctx.Err(), said.String())
	}
	return said.String()
}

// TestRollingUpgrade replaces the server on a database by one whose program knows the next layout.
// Both serve the same jobs meanwhile, and the upgrade is finished when the old one is gone.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what builds programs; make test runs it")
	}
	t.Parallel()
	first, second, third := cmdtest.Program(t), laterBuild(t, 1), ""
	if !race.Share() { // building it takes long
		third = laterBuild(t, 2)
	}
	url := pgtest.Database(t)
	layout := func() postgres.Layout {
		t.Helper()
		l, err := postgres.MigrateStatus(t.Context(), url)
		if err != nil && !errors.Is(err, gq.ErrFormat) {
			t.Fatal(err)
		}
		return l
	}

	old := serveWith(t, first, url)
	passJobs(t, old, old)
	if third == "" {
		t.Log("a program two layouts ahead is left out")
	} else if out := refusedBy(t, third, "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", url); !strings.Contains(out, "upgrade or stop them first") {
		t.Errorf("a program two layouts ahead of a server that runs says %s", out)
	}
	if l := layout(); l.Version != 1 {
		t.Fatalf("a refused program left %+v", l)
	}

	next := serveWith(t, second, url)
	if l := layout(); l.Version != 2 || l.Oldest != 1 {
		t.Fatalf("beside an old server the layout is %+v", l)
	}
	passJobs(t, old, next)
	passJobs(t, next, old)
	for _, s := range []*served{old, next} {
		cmdtest.WaitFor(t, "all servers to be announced", func() bool { return strings.Count(s.gq("stats", "--json").stdout, `"layout"`) == 2 })
		if out := s.gq("doctor").stdout; !strings.Contains(out, "1 × layout 1, 1 × layout 2") {
			t.Errorf("gq doctor says\n%s", out)
		}
	}
	again := serveWith(t, first, url) // an old server may restart meanwhile
	passJobs(t, again, next)
	if out := again.gq("migrate", "status", "--store", url); out.status != 0 || !strings.Contains(out.stdout, "this program can use them") {
		t.Errorf("%+v", out)
	}
	for _, s := range []*served{old, again} {
		s.Signal(syscall.SIGTERM)
		if status := s.Ended(); status != 0 {
			t.Errorf("the old server ended with %d", status)
		}
	}

	another := serveWith(t, second, url) // it finishes the upgrade, as the other one would within a minute
	if l := layout(); l.Version != 2 || l.Oldest != 2 {
		t.Errorf("without old servers the layout is %+v", l)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var gone bool
	if err := conn.QueryRow(t.Context(), "SELECT to_regproc('gq.made_up') IS NULL").Scan(&gone); err != nil || !gone {
		t.Errorf("what only old programs need is still there: %v", err)
	}
	passJobs(t, next, another)
	for _, args := range [][]string{{"serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", url}, {"migrate", "up", "--store", url}} {
		if out := refusedBy(t, first, args...); !strings.Contains(out, "the database has layout 2, which needs a program that knows layout 2; this one knows layout 1") {
			t.Errorf("gq %s on a database that is too new says %s", args[0], out)
		}
	}

	if third == "" {
		return
	}
	newest := serveWith(t, third, url)
	passJobs(t, another, newest)
	passJobs(t, newest, next)
	if out := refusedBy(t, first, "migrate", "status", "--store", url); !strings.Contains(out, "layout 3") || !strings.Contains(out, "this program knows 1: too new") {
		t.Errorf("a program two layouts behind says %s", out)
	}
}

// passJobs submits jobs to one server and runs them on another.
func passJobs(t *testing.T, from, to *served) {
	t.Helper()
	const n = 100
	specs := make([]gq.Spec, n)
	for i := range specs {
		specs[i] = gq.Spec{Queue: "pass", Type: "work"}
		if i%3 == 0 {
			specs[i].Key.Name = fmt.Sprint("key ", i) // of an earlier job, the second time
		}
	}
	out, err := from.client().SubmitBatch(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	defer working.Wait()
	w := worker.New(to.client(), worker.Config{Slots: 20, QueueSets: []worker.QueueSet{{Queues: []string{"pass"}}}, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("work", func(context.Context, *worker.Run) error { return nil })
	working.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	c := from.client()
	for i := range out {
		if out[i].Err != nil {
			t.Fatal(out[i].Err)
		}
		waiting, cancel := context.WithTimeout(t.Context(), patience)
		j, err := c.Wait(waiting, out[i].ID())
		cancel()
		if err != nil || j.State.Status != gq.StatusCompleted {
			t.Fatalf("%v: %v", err, j.State.Status)
		}
	}
	stop()
}
