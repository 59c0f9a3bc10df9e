package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// shop is an application with its own table in the database of the queue.
type shop struct {
	*testing.T
	*engine.Engine
	store *postgres.Store
	url   string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	url := pgtest.Database(t)
	s, err := postgres.Open(t.Context(), url, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &shop{T: t, Engine: newEngine(t, s, engine.Options{}), store: s, url: url}
	if _, err := f.connect().Exec(t.Context(), "CREATE TABLE orders (id text)"); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *shop) connect() *pgx.Conn {
	f.Helper()
	conn, err := pgx.Connect(f.Context(), f.url)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close(context.WithoutCancel(f.Context())) })
	return conn
}

// owned is a transaction of the application, of pgx or of database/sql.
type owned struct {
	queue            *engine.Tx
	exec             func(statement string)
	commit, rollback func()
}

func (f *shop) begin(with string) owned {
	f.Helper()
	check := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	if with == "pgx" {
		tx, err := f.connect().Begin(f.Context())
		check(err)
		return owned{
			f.In(f.store.Tx(tx)),
			func(statement string) { _, err := tx.Exec(f.Context(), statement); check(err) },
			func() { check(tx.Commit(f.Context())) },
			func() { check(tx.Rollback(f.Context())) },
		}
	}
	db, err := sql.Open("pgx", f.url)
	check(err)
	f.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(f.Context())
	check(err)
	tx, err := conn.BeginTx(f.Context(), nil)
	check(err)
	return owned{
		f.In(f.store.SQL(conn)),
		func(statement string) { _, err := tx.ExecContext(f.Context(), statement); check(err) },
		func() { check(errors.Join(tx.Commit(), conn.Close())) },
		func() { check(errors.Join(tx.Rollback(), conn.Close())) },
	}
}

func (f *shop) orders() (n int) {
	f.Helper()
	if err := f.connect().QueryRow(f.Context(), "SELECT count(*) FROM orders").Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

func (f *shop) exists(id gq.JobID) bool {
	f.Helper()
	_, err := f.Get(f.Context(), id, 0)
	if err != nil && !errors.Is(err, gq.ErrNotFound) {
		f.Fatal(err)
	}
	return err == nil
}

// TestSubmitWithinATransaction: a job exists if and only if the application's transaction
// commits.
func TestSubmitWithinATransaction(t *testing.T) {
	f := newShop(t)
	policy := machine.DefaultPolicy()
	policy.MaxAttempts = 7
	if _, err := f.PutQueue(t.Context(), gq.Queue{Name: "mail", Policy: policy}); err != nil {
		t.Fatal(err)
	}
	for _, with := range []string{"pgx", "database/sql"} {
		t.Run(with, func(t *testing.T) {
			f := &shop{t, f.Engine, f.store, f.url}
			before := f.orders()
			spec := gq.Spec{Queue: "mail", Type: "mail.send", Key: gq.IdempotencyKey{Name: with}}

			tx := f.begin(with)
			tx.exec("INSERT INTO orders VALUES ('dropped')")
			dropped, err := tx.queue.Submit(t.Context(), spec)
			if err != nil || dropped.Existing || f.exists(dropped.ID()) {
				t.Fatalf("submit: %v, %+v; it exists: %t", err, dropped, f.exists(dropped.ID()))
			}
			tx.rollback()
			if f.exists(dropped.ID()) || f.orders() != before {
				t.Error("what was rolled back is there")
			}

			// The commit wakes a waiting claim.
			claimed := make(chan gq.Job, 1)
			go func() {
				jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, Wait: 10 * time.Minute, N: 1})
				if err != nil || len(jobs) != 1 {
					t.Errorf("claim: %v, %d jobs", err, len(jobs))
					jobs = make([]gq.Job, 1)
				}
				claimed <- jobs[0]
			}()
			tx = f.begin(with)
			tx.exec("INSERT INTO orders VALUES ('kept')")
			// Invalid input is refused and changes nothing, including the transaction.
			if _, err := tx.queue.Submit(t.Context(), gq.Spec{Queue: "mail", Type: "no such name\x00"}); !errors.Is(err, gq.ErrInvalid) {
				t.Errorf("a bad spec: %v", err)
			}
			kept, err := tx.queue.Submit(t.Context(), spec) // the key is free again
			if err != nil || kept.Existing || kept.State.Bound != 7 {
				t.Fatalf("submit: %v, %+v", err, kept)
			}
			again, err := tx.queue.Submit(t.Context(), spec)
			if err != nil || !again.Existing || !again.Same || again.ID() != kept.ID() {
				t.Errorf("the same key again: %v, %+v", err, again)
			}
			if f.exists(kept.ID()) {
				t.Error("a job exists before its transaction commits")
			}
			began := time.Now()
			tx.commit()
			job := <-claimed
			if took := time.Since(began); job.State.ID != kept.ID() || took > 2*time.Minute {
				t.Errorf("after %v job %s was claimed, want %s", took, job.State.ID, kept.ID())
			}
			if f.orders() != before+1 {
				t.Error("the application's own row is missing")
			}

			// The job is completed together with a row, or not at all.
			lease := job.State.Lease.Ref()
			tx = f.begin(with)
			tx.exec("INSERT INTO orders VALUES ('dropped')")
			if s, err := tx.queue.Complete(t.Context(), lease, []byte("1")); err != nil || s.Status != gq.StatusCompleted {
				t.Errorf("complete: %v, %v", s.Status, err)
			}
			tx.rollback()
			if j, err := f.Get(t.Context(), kept.ID(), 0); err != nil || j.State.Status != gq.StatusRunning {
				t.Errorf("after a rollback the job is %v, %v", j.State.Status, err)
			}
			tx = f.begin(with)
			stale := lease
			stale.Version++
			if _, err := tx.queue.Complete(t.Context(), stale, nil); !errors.Is(err, gq.ErrStaleLease) {
				t.Errorf("a lease that nobody has: %v", err)
			}
			tx.exec("INSERT INTO orders VALUES ('done')")
			if _, err := tx.queue.Complete(t.Context(), lease, []byte("2")); err != nil {
				t.Error(err)
			}
			tx.commit()
			j, err := f.Get(t.Context(), kept.ID(), gq.WithResult)
			if err != nil || j.State.Status != gq.StatusCompleted || string(j.Result) != "2" || f.orders() != before+2 {
				t.Errorf("after the commit: %v, %v with %q, %d orders", err, j.State.Status, j.Result, f.orders())
			}
			// The worker's completion after its handler returned changes nothing.
			if s, err := f.Complete(t.Context(), lease, []byte("2")); err != nil || s.Status != gq.StatusCompleted {
				t.Errorf("completed again: %v, %v", s.Status, err)
			}
		})
	}
}

// TestAnOpenTransactionStallsNobody keeps a transaction open that has submitted a job with
// a key and completed another job. Calls that need these wait; other calls, which share
// transactions with them, do not; and no event is missed.
func TestAnOpenTransactionStallsNobody(t *testing.T) {
	f := newShop(t)
	keyed := gq.Spec{Queue: "q", Type: "work", Key: gq.IdempotencyKey{Name: "k"}}
	held, err := f.Submit(t.Context(), gq.Spec{Queue: "q", Type: "work"})
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 1})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("claim: %v, %d jobs", err, len(jobs))
	}
	lease := jobs[0].State.Lease.Ref()

	open := f.begin("pgx")
	late, err := open.queue.Submit(t.Context(), keyed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.queue.Complete(t.Context(), lease, nil); err != nil {
		t.Fatal(err)
	}

	same := make(chan gq.SubmitResult, 1)
	go func() {
		s, err := f.Submit(t.Context(), keyed)
		if err != nil {
			t.Error(err)
		}
		same <- s
	}()
	beaten := make(chan error, 1)
	go func() {
		answers, err := f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease}})
		if err == nil {
			err = answers[0].Err
		}
		beaten <- err
	}()
	const rounds = 50
	for i := range rounds {
		s, err := f.Submit(t.Context(), gq.Spec{Queue: "q", Type: "work", Key: gq.IdempotencyKey{Name: fmt.Sprint(i)}})
		if err != nil {
			t.Fatal(err)
		}
		jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 1})
		if err != nil || len(jobs) != 1 || jobs[0].State.ID != s.ID() {
			t.Fatalf("claim: %v, %+v", err, jobs)
		}
		if _, err := f.Complete(t.Context(), jobs[0].State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	before, err := f.Events(t.Context(), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	completed := 0
	for _, e := range before {
		if e.Type == gq.EventCompleted {
			completed++
		}
		if e.Job == late.ID() || e.Job == held.ID() && e.Type == gq.EventCompleted {
			t.Errorf("%s of an open transaction is told", e.Type)
		}
	}
	if completed != rounds {
		t.Errorf("%d of %d completions are told beside the open transaction", completed, rounds)
	}
	select {
	case s := <-same:
		t.Errorf("a submission with the key of an open transaction was answered: %+v", s)
	case err := <-beaten:
		t.Errorf("a job that an open transaction has completed was changed: %v", err)
	default:
	}
	open.commit()
	if s := <-same; !s.Existing || s.ID() != late.ID() {
		t.Errorf("after the commit the key leads to %+v, want %s", s, late.ID())
	}
	if err := <-beaten; errs.KindOf(err) != gq.KindStaleLease {
		t.Errorf("a beat of a completed job: %v", err)
	}
	after, err := f.Events(t.Context(), before[len(before)-1].Seq, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	told := map[gq.JobID]int{}
	for _, e := range after {
		told[e.Job]++
	}
	if told[late.ID()] != 2 || told[held.ID()] != 1 {
		t.Errorf("the events of the late commit: %+v", after)
	}
}

// TestAnOpenTransactionStallsNoSweep keeps a transaction open that has locked a due job, a
// job whose dependency has ended, a claimable job, and a fair queue. Other due jobs,
// dependents and claimable jobs do not wait for it.
func TestAnOpenTransactionStallsNoSweep(t *testing.T) {
	const soon = time.Minute // allows for a busy machine; the transaction stays open
	f := newShop(t)
	submit := func(s gq.Spec) gq.JobID {
		t.Helper()
		s.Type = "work"
		out, err := f.Submit(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return out.ID()
	}
	claim := func(queue string, r gq.ClaimRequest) []gq.Job {
		t.Helper()
		r.Worker, r.Queues = "w", []string{queue}
		jobs, err := f.Claim(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}
	after := func(id gq.JobID) []gq.Dependency { return []gq.Dependency{{Kind: gq.DependencyAfter, Job: id}} }
	due := submit(gq.Spec{Queue: "due", Delay: time.Millisecond})
	submit(gq.Spec{Queue: "due", Delay: time.Millisecond})
	parents := []gq.JobID{submit(gq.Spec{Queue: "parents"}), submit(gq.Spec{Queue: "parents"})}
	children := []gq.JobID{
		submit(gq.Spec{Queue: "children", DependsOn: after(parents[0])}),
		submit(gq.Spec{Queue: "children", DependsOn: after(parents[1])}),
	}
	locked := submit(gq.Spec{Queue: "claimed"})
	fair := machine.NewQueue("fair")
	fair.Fair = true
	if _, err := f.PutQueue(t.Context(), fair); err != nil {
		t.Fatal(err)
	}

	open := f.begin("pgx")
	for _, id := range []gq.JobID{due, children[0], locked} {
		if _, err := open.queue.Submit(t.Context(), gq.Spec{Queue: "late", Type: "work", DependsOn: after(id)}); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := open.queue.Submit(t.Context(), gq.Spec{Queue: "fair", Type: "work"}); err != nil {
		t.Fatal(err)
	}

	// Three claims wait: for a locked job, for a locked queue, and for another queue.
	type got struct {
		jobs []gq.Job
		err  error
	}
	wait := func(queue string) chan got {
		answer := make(chan got, 1)
		go func() {
			jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{queue}, Wait: 5 * time.Minute, N: 1})
			answer <- got{jobs, err}
		}()
		return answer
	}
	receive := func(from chan got, want gq.JobID) {
		t.Helper()
		select {
		case g := <-from:
			if g.err != nil || len(g.jobs) != 1 || g.jobs[0].State.ID != want {
				t.Errorf("claimed %+v, %v, want job %s", g.jobs, g.err, want)
			}
		case <-time.After(soon):
			t.Errorf("job %s was not claimed within %v", want, soon)
		}
	}
	first, second, other := wait("claimed"), wait("fair"), wait("other")
	time.Sleep(200 * time.Millisecond) // they probably wait by now; the checks hold even if they do not
	receive(other, submit(gq.Spec{Queue: "other"}))
	receive(first, submit(gq.Spec{Queue: "claimed"}))

	for _, j := range claim("parents", gq.ClaimRequest{N: 2}) {
		if _, err := f.Complete(t.Context(), j.State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	defer cancel()
	for advanced, released := 0, 0; advanced == 0 || released == 0; time.Sleep(10 * time.Millisecond) {
		report, err := f.Sweep(ctx, time.Now())
		if err != nil {
			t.Fatalf("sweep: %v", err)
		}
		advanced, released = advanced+report.Advanced, released+report.Released
	}
	if j, err := f.Get(ctx, children[1], 0); err != nil || j.State.Status != gq.StatusScheduled {
		t.Errorf("a dependent of another is %v, %v", j.State.Status, err)
	}

	again := wait("claimed")           // and gets what was locked once it is not
	time.Sleep(200 * time.Millisecond) // the same; the checks hold even if it does not wait yet
	open.rollback()
	receive(again, locked)
	receive(second, submit(gq.Spec{Queue: "fair"}))
	for status := gq.StatusPending; status == gq.StatusPending; {
		if _, err := f.Sweep(ctx, time.Now()); err != nil {
			t.Fatalf("sweep: %v", err)
		}
		j, err := f.Get(ctx, children[0], 0)
		if err != nil {
			t.Fatal(err)
		}
		status = j.State.Status
	}
}
