package postgres_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// calendar is a clock that a test advances.
type calendar struct{ at atomic.Int64 }

func newCalendar() *calendar {
	c := &calendar{}
	c.at.Store(time.Date(2100, 1, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *calendar) Now() time.Time       { return time.Unix(0, c.at.Load()).UTC() }
func (c *calendar) pass(d time.Duration) { c.at.Add(int64(d)) }
func days(n int) time.Duration           { return time.Duration(n) * 24 * time.Hour }

// noDeletes makes every deletion of history fail, in all partitions that exist or follow.
const noDeletes = `
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'a row of % was deleted', tg_table_name;
	END $$;
	CREATE TRIGGER refuse BEFORE DELETE ON gq.done FOR EACH ROW EXECUTE FUNCTION refuse();
	CREATE TRIGGER refuse BEFORE DELETE ON gq.blob FOR EACH ROW EXECUTE FUNCTION refuse();
	CREATE TRIGGER refuse BEFORE DELETE ON gq.segment FOR EACH ROW EXECUTE FUNCTION refuse();
	CREATE TRIGGER refuse BEFORE DELETE ON gq.log FOR EACH ROW EXECUTE FUNCTION refuse();`

func collectAll(t *testing.T, s store.Store) (total int) {
	t.Helper()
	for {
		n, _, err := s.Collect(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if total += n; n == 0 {
			return total
		}
	}
}

// dropAll collects, and then drops all partitions that can be dropped. It retries while
// they are in use, for instance by the store itself when it numbers events.
func dropAll(t *testing.T, s *postgres.Store) (collected int) {
	t.Helper()
	collected = collectAll(t, s)
	for {
		all, err := s.Drop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if all {
			return collected
		}
	}
}

func number(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) // not at the end of the test, since callers poll with number
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// TestHistoryIsDropped follows jobs through their retention. They must disappear without
// any row of history being deleted, and the jobs that are kept must keep all their data.
func TestHistoryIsDropped(t *testing.T) {
	url := pgtest.Database(t)
	clock := newCalendar()
	s := open(t, url, store.Config{Clock: clock})
	defer s.Close()
	execute(t, url, noDeletes)

	apply := func(u store.Update) {
		t.Helper()
		out, err := s.Update(t.Context(), []store.Update{u})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out[0].Err)
		}
	}
	// On each of two days twenty jobs complete, one fails, and one with a checkpoint
	// keeps waiting.
	var failed, waiting []gq.JobID
	for range 2 {
		specs := make([]gq.Spec, 22)
		for i := range specs {
			specs[i] = newSpec("q")
		}
		late := &specs[21]
		late.Policy.Lifetime = 0
		mustInsert(t, s, specs...)
		claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 22)})
		if err != nil || len(claimed[0].Jobs) != 22 {
			t.Fatalf("claimed %d jobs: %v", len(claimed[0].Jobs), err)
		}
		for i, j := range claimed[0].Jobs {
			u := store.Update{Ref: store.Ref{Lease: j.State.Lease.ID}, Result: []byte("result"), Apply: completing(j).Apply}
			switch i {
			case 20:
				failed = append(failed, j.State.ID)
				u.Apply = func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Fail(s, j.State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent, Message: "no"}, machine.Draw{}, now)
				}
			case 21:
				waiting = append(waiting, j.State.ID)
				u.Result, u.Checkpoint = nil, []byte("checkpoint")
				u.Apply = func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Release(s, j.State.Lease.Ref(), days(200), "later", now)
				}
			}
			apply(u)
		}
		clock.pass(days(1))
		dropAll(t, s)
	}
	type memory struct {
		job    gq.Job
		events []gq.Event
	}
	remember := func(id gq.JobID) memory {
		t.Helper()
		found, err := s.Get(t.Context(), []store.Ref{{Job: id}}, gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
		if err != nil || found[0].Err != nil {
			t.Fatal(err, found[0].Err)
		}
		events, err := s.History(t.Context(), id)
		if err != nil || len(events) < 3 {
			t.Fatalf("a history of %d events: %v", len(events), err)
		}
		return memory{found[0].Job, events}
	}
	before := make(map[gq.JobID]memory)
	for _, id := range append(failed, waiting...) {
		before[id] = remember(id)
	}
	unchanged := func(ids []gq.JobID) {
		t.Helper()
		for _, id := range ids {
			if after := remember(id); !reflect.DeepEqual(after, before[id]) {
				t.Errorf("job %s was\n%+v\nand is\n%+v", id, before[id], after)
			}
		}
	}
	last, err := s.LastEvent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unchanged(append(failed, waiting...))
	if n := number(t, url, "SELECT (SELECT count(*) FROM gq.live) + (SELECT count(*) FROM gq.done)"); n != 44 {
		t.Fatalf("%d rows before any retention ended, want 44", n)
	}

	clock.pass(days(8)) // past the retention of completed jobs
	if n := dropAll(t, s); n != 40 {
		t.Errorf("collected %d jobs, want 40", n)
	}
	unchanged(append(failed, waiting...))
	for table, want := range map[string]int{"live": 2, "done": 2, "foreign_id": 4, "blob": 4, "partition": 3} {
		if n := number(t, url, "SELECT count(*) FROM gq."+table); n != want {
			t.Errorf("gq.%s has %d rows after the week, want %d", table, n, want)
		}
	}
	if _, err := s.Events(t.Context(), 0, 10); !errors.Is(err, gq.ErrGone) {
		t.Errorf("events from the beginning: %v, want %v", err, gq.ErrGone)
	}
	mustInsert(t, s, newSpec("r"))
	if events, err := s.Events(t.Context(), last, 10); err != nil || len(events) != 2 {
		t.Errorf("whoever had read all goes on with %d events, %v, want 2", len(events), err)
	}

	clock.pass(days(231)) // past the retention of failed jobs
	if n := dropAll(t, s); n != 2 {
		t.Errorf("collected %d jobs, want 2", n)
	}
	for _, id := range waiting { // now claimable
		m := before[id]
		m.job.State = m.job.State.At(clock.Now())
		before[id] = m
	}
	unchanged(waiting)
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 10)})
	if err != nil || len(claimed[0].Jobs) != 2 {
		t.Fatalf("claimed %d jobs: %v", len(claimed[0].Jobs), err)
	}
	for _, j := range claimed[0].Jobs {
		apply(completing(j))
	}
	claimed, err = s.Claim(t.Context(), []store.Claim{claimFrom("r", 10)})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range claimed[0].Jobs {
		apply(completing(j))
	}
	clock.pass(days(40))
	dropAll(t, s)
	for _, table := range []string{"live", "done", "blob", "foreign_id", "segment", "log"} {
		if n := number(t, url, "SELECT count(*) FROM gq."+table); n != 0 {
			t.Errorf("gq.%s has %d rows at the end", table, n)
		}
	}
	if n := number(t, url, "SELECT count(*) FROM gq.partition"); n != 3 {
		t.Errorf("%d partitions at the end, want the oldest, today's and tomorrow's", n)
	}
}

// TestDropUnderLoad drops partitions while two nodes work and days pass quickly. No call
// may fail because of it.
func TestDropUnderLoad(t *testing.T) {
	url := pgtest.Database(t)
	clock := newCalendar()
	nodes := []*postgres.Store{open(t, url, store.Config{Clock: clock}), open(t, url, store.Config{Clock: clock})}
	execute(t, url, noDeletes)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var inserted, completed atomic.Int64
	var all sync.WaitGroup
	for _, s := range nodes {
		defer s.Close()
		all.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				specs := make([]gq.Spec, 20)
				for i := range specs {
					specs[i] = newSpec("q")
					specs[i].Policy.Lifetime, specs[i].Policy.ExecutionTimeout = 0, 0
					specs[i].Policy.OnLoss = gq.LossFree // leases expire as the days pass
				}
				mustInsert(t, s, specs...)
				inserted.Add(int64(len(specs)))
				claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 30)})
				if err != nil {
					t.Error(err)
					return
				}
				var updates []store.Update
				for _, j := range claimed[0].Jobs {
					updates = append(updates, completing(j))
				}
				out, err := s.Update(t.Context(), updates)
				if err != nil {
					t.Error(err)
					return
				}
				for _, u := range out {
					switch {
					case u.Err == nil:
						completed.Add(1)
					case !errors.Is(u.Err, gq.ErrStaleLease): // leases expire as the days pass
						t.Error(u.Err)
					}
				}
			}
		})
	}
	collected := 0
	dropped := func() bool { return number(t, url, "SELECT max(gone) FROM gq.partition") > 0 }
	for day, limit := 0, time.Now().Add(2*time.Minute); day < 3 || !dropped(); day++ {
		if time.Now().After(limit) {
			t.Error("no partition was ever dropped")
			break
		}
		clock.pass(days(4))
		collected += collectAll(t, nodes[day%2])
	}
	stop()
	all.Wait()
	for {
		claimed, err := nodes[0].Claim(t.Context(), []store.Claim{claimFrom("q", 100)})
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed[0].Jobs) == 0 {
			break
		}
		for _, j := range claimed[0].Jobs {
			if _, err := nodes[1].Update(t.Context(), []store.Update{completing(j)}); err != nil {
				t.Fatal(err)
			}
			completed.Add(1)
		}
	}
	if inserted.Load() != completed.Load() {
		t.Errorf("%d jobs were inserted and %d completed", inserted.Load(), completed.Load())
	}
	clock.pass(days(10))
	collected += collectAll(t, nodes[0])
	if int64(collected) != completed.Load() {
		t.Errorf("%d jobs were completed and %d collected", completed.Load(), collected)
	}
	counts, err := nodes[0].Counts(t.Context(), "q")
	if err != nil || counts[0].By != (gq.Count{}).By {
		t.Errorf("at the end the counts are %v, %v", counts, err)
	}
}

// TestOldSnapshotSeesNoDrop lets an application's transaction release a job and submit
// another, with a snapshot older than the partition that replaced a dropped one. Both must
// be refused: the first could lose the job, and the second could miss a used key.
func TestOldSnapshotSeesNoDrop(t *testing.T) {
	url := pgtest.Database(t)
	clock := newCalendar()
	s := open(t, url, store.Config{Clock: clock, Retention: store.Retention{
		Completed: days(1), Failed: days(30), DeadLetter: days(30), Cancelled: days(30),
	}})
	defer s.Close()
	specs := make([]gq.Spec, 12)
	for i := range specs {
		specs[i] = newSpec("q")
		specs[i].Policy.Lifetime = 0
	}
	mustInsert(t, s, specs...)
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 11)})
	if err != nil || len(claimed[0].Jobs) != 11 {
		t.Fatalf("claimed %d jobs: %v", len(claimed[0].Jobs), err)
	}
	for _, j := range claimed[0].Jobs {
		if out, err := s.Update(t.Context(), []store.Update{completing(j)}); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	clock.pass(days(3))
	if claimed, err = s.Claim(t.Context(), []store.Claim{claimFrom("q", 1)}); err != nil || len(claimed[0].Jobs) != 1 {
		t.Fatalf("claimed %d jobs: %v", len(claimed[0].Jobs), err)
	}
	held := claimed[0].Jobs[0]

	tx, err := connect(t, url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM gq.queue"); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	dropAll(t, s)
	if n := number(t, url, "SELECT count(*) FROM gq.partition WHERE name LIKE '%kept'"); n != 1 {
		t.Fatalf("%d partitions were replaced, want 1", n)
	}
	_, err = s.Tx(tx).Update(t.Context(), []store.Update{{
		Ref: store.Ref{Lease: held.State.Lease.ID}, Settles: true,
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Release(s, held.State.Lease.Ref(), 0, "", now)
		},
	}})
	if !errors.Is(err, gq.ErrConflict) {
		t.Errorf("a job was given back that the transaction does not see: %v", err)
	}
	if _, err := s.Tx(tx).Insert(t.Context(), []store.Group{store.One(newSpec("q"))}); !errors.Is(err, gq.ErrConflict) {
		t.Errorf("a job was inserted beside others that the transaction does not see: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statusOf(t, s, held.State.ID); got != gq.StatusRunning {
		t.Errorf("the job is %s", got)
	}
}
