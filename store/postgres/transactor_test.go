package postgres_test

import (
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// absent fails the test if other transactions see a job.
func absent(t *testing.T, s store.Store, id gq.JobID) {
	t.Helper()
	found, err := s.Get(t.Context(), []store.Ref{{Job: id}}, 0)
	if err != nil || !errors.Is(found[0].Err, gq.ErrNotFound) {
		t.Errorf("job %s is there: %v, %+v", id, err, found)
	}
}

func statusOf(t *testing.T, s store.Store, id gq.JobID) gq.Status {
	t.Helper()
	found, err := s.Get(t.Context(), []store.Ref{{Job: id}}, 0)
	if err != nil || found[0].Err != nil {
		t.Fatalf("get: %v, %+v", err, found)
	}
	return found[0].State.Status
}

func TestInsertWithinATransaction(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	conn := connect(t, url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dropped, kept := newSpec("q"), newSpec("q")
	if _, err := s.Tx(tx).Insert(t.Context(), []store.Group{store.One(dropped)}); err != nil {
		t.Fatal(err)
	}
	absent(t, s, dropped.ID)
	// An open transaction delays neither other inserts nor their events.
	mustInsert(t, s, newSpec("q"))
	before, err := s.Events(t.Context(), 0, 100)
	if err != nil || len(before) == 0 {
		t.Fatalf("events beside an open transaction: %v, %v", before, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	absent(t, s, dropped.ID)

	if tx, err = conn.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers, err := s.Tx(tx).Insert(t.Context(), []store.Group{store.One(kept), {}})
	if err != nil || answers[0].Err != nil || !errors.Is(answers[1].Err, gq.ErrInvalid) {
		t.Fatalf("insert: %v, %+v", err, answers)
	}
	mustInsert(t, s, newSpec("q"))
	middle, err := s.Events(t.Context(), before[len(before)-1].Seq, 100)
	if err != nil || len(middle) != 2 {
		t.Fatalf("events: %v, %v", middle, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statusOf(t, s, kept.ID); got != gq.StatusScheduled {
		t.Errorf("the job is %v", got)
	}
	late, err := s.Events(t.Context(), middle[len(middle)-1].Seq, 100)
	if err != nil || len(late) != 2 || late[0].Job != kept.ID {
		t.Errorf("the events of a late commit: %v, %v", late, err)
	}
}

func TestUpdateWithinATransaction(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	mustInsert(t, s, newSpec("q"), newSpec("q"))
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 2)})
	if err != nil || len(claimed[0].Jobs) != 2 {
		t.Fatalf("claim: %v, %+v", err, claimed)
	}
	first, second := claimed[0].Jobs[0], claimed[0].Jobs[1]
	conn := connect(t, url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Tx(tx).Update(t.Context(), []store.Update{completing(first)})
	if err != nil || !out[0].Changed {
		t.Fatalf("complete: %v, %+v", err, out)
	}
	if got := statusOf(t, s, first.State.ID); got != gq.StatusRunning {
		t.Errorf("before the commit the job is %v for others", got)
	}
	// Only an update of the same job waits.
	waits := make(chan error, 1)
	go func() {
		_, err := s.Update(t.Context(), []store.Update{completing(first)})
		waits <- err
	}()
	if out, err := s.Update(t.Context(), []store.Update{completing(second)}); err != nil || out[0].Err != nil {
		t.Errorf("beside the open transaction: %v, %+v", err, out)
	}
	select {
	case err := <-waits:
		t.Errorf("an update did not wait for the open transaction: %v", err)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
	if got := statusOf(t, s, first.State.ID); got != gq.StatusCompleted {
		t.Errorf("after the commit the job is %v", got)
	}
}

func TestInsertWithDatabaseSQL(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := s.SQL(conn).Insert(t.Context(), nil); err == nil {
		t.Error("a connection without a transaction was accepted")
	}
	for _, commit := range []bool{false, true} {
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		spec := newSpec("q")
		answers, err := s.SQL(conn).Insert(t.Context(), []store.Group{store.One(spec)})
		if err != nil || answers[0].Err != nil {
			t.Fatalf("insert: %v, %+v", err, answers)
		}
		absent(t, s, spec.ID)
		if !commit {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			absent(t, s, spec.ID)
			continue
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, s, spec.ID); got != gq.StatusScheduled {
			t.Errorf("the job is %v", got)
		}
	}
}

// TestNews checks that a node learns of the commits of another node and of an application.
func TestNews(t *testing.T) {
	nodes := twoNodes(t)
	news := make(chan store.News, 100)
	stop := nodes[1].Notify(false, func(n store.News) { news <- n })
	defer stop()
	hears := func(what string) {
		t.Helper()
		limit := time.After(2 * time.Minute)
		for {
			select {
			case n := <-news:
				if slices.Contains(n.Queues, what) {
					return
				}
			case <-limit:
				t.Fatalf("there was no word of queue %s", what)
			}
		}
	}
	mustInsert(t, nodes[0], newSpec("of-another"))
	hears("of-another")
	mustInsert(t, nodes[1], newSpec("of-its-own"))
	hears("of-its-own")
}

// TestEveryWayToSendStatements runs with every query execution mode, on the application's
// connections and on the store's.
func TestEveryWayToSendStatements(t *testing.T) {
	url := pgtest.Database(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			with := url + "&default_query_exec_mode=" + mode
			s := open(t, with, store.Config{})
			defer s.Close()
			first := newSpec(mode)
			first.Key = gq.IdempotencyKey{Scope: "s", Name: mode}
			first.Payload = gq.Payload{Data: []byte("\x00\xff'\\"), ContentType: "application/octet-stream"}
			second := newSpec(mode, gq.Dependency{Kind: gq.DependencyAfter, Job: first.ID})
			second.Requires = []string{`a\b`, `"x"`, "NULL", "{}", "a,b"}
			complete := func(update func([]store.Update) ([]store.Updated, error)) {
				t.Helper()
				claim := claimFrom(mode, 1)
				claim.Parts = gq.WithPayload
				got, err := s.Claim(t.Context(), []store.Claim{claim})
				if err != nil || len(got[0].Jobs) != 1 {
					t.Fatalf("claim: %v, %+v", err, got)
				}
				if job := got[0].Jobs[0]; job.State.ID == first.ID && string(job.Spec.Payload.Data) != string(first.Payload.Data) {
					t.Errorf("the payload is %q", job.Spec.Payload.Data)
				}
				u := completing(got[0].Jobs[0])
				u.Result = []byte("\x00")
				out, err := update([]store.Update{u})
				if err != nil || out[0].Err != nil {
					t.Fatalf("update: %v, %+v", err, out)
				}
			}
			tx, err := connect(t, with).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Tx(tx).Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{first, second}}})
			if err != nil || out[0].Err != nil {
				t.Fatalf("insert: %v, %+v", err, out)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tx, err = connect(t, with).Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			complete(func(u []store.Update) ([]store.Updated, error) { return s.Tx(tx).Update(t.Context(), u) })
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustInsert(t, s, newSpec(mode))
			complete(func(u []store.Update) ([]store.Updated, error) { return s.Update(t.Context(), u) })
			if told, err := s.ReleaseDependents(t.Context(), 10); err != nil || told != 1 {
				t.Errorf("released %d, %v", told, err)
			}
			if events, err := s.Events(t.Context(), 0, 1000); err != nil || len(events) == 0 {
				t.Errorf("%d events, %v", len(events), err)
			}
		})
	}
}
