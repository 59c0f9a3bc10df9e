package postgres_test

import (
	"context"
	"fmt"
	"math"
	mathrand "math/rand/v2"
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

func urgent(p gq.Priority) gq.Spec {
	spec := newSpec("q")
	spec.Metadata.Priority = p
	return spec
}

// releasing releases a job, so that it can be claimed again at once.
func releasing(j gq.Job) store.Update {
	return store.Update{Ref: store.Ref{Lease: j.State.Lease.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Release(s, j.State.Lease.Ref(), 0, "", now)
	}}
}

// prioritising changes the priority of a job.
func prioritising(id gq.JobID, p gq.Priority) store.Update {
	return store.Update{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Update(s, p, now)
	}}
}

// floored is a store whose floors only the test raises, and a connection for the
// transactions of an application.
type floored struct {
	t    *testing.T
	s    *postgres.Store
	conn *pgx.Conn
}

func newFloored(t *testing.T) floored {
	t.Helper()
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	t.Cleanup(func() { _ = s.Close() })
	s.RaiseEvery(math.MaxInt)
	return floored{t, s, connect(t, url)}
}

// raise raises the floors as far as possible. That takes a claim, which extends the range,
// and two steps.
func (f floored) raise() {
	f.t.Helper()
	for range 3 {
		mustInsert(f.t, f.s, newSpec("q"))
		f.update(completing(f.claim()))
		if err := f.s.Raise(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// claim claims the next job.
func (f floored) claim() gq.Job {
	f.t.Helper()
	out, err := f.s.Claim(f.t.Context(), []store.Claim{claimFrom("q", 1)})
	if err != nil || len(out[0].Jobs) != 1 {
		f.t.Fatalf("claimed %d jobs: %v", len(out[0].Jobs), err)
	}
	return out[0].Jobs[0]
}

// next claims a job, checks that it is the one wanted, and completes it.
func (f floored) next(want gq.JobID) {
	f.t.Helper()
	got := f.claim()
	if got.State.ID != want {
		f.t.Errorf("claimed %v, want %v", got.State.ID, want)
	}
	f.update(completing(got))
}

func (f floored) update(u store.Update) {
	f.t.Helper()
	out, err := f.s.Update(f.t.Context(), []store.Update{u})
	if err != nil || out[0].Err != nil {
		f.t.Fatal(err, out)
	}
}

// begin begins a transaction of the application and gives it a snapshot.
func (f floored) begin(level pgx.TxIsoLevel) pgx.Tx {
	f.t.Helper()
	tx, err := f.conn.BeginTx(f.t.Context(), pgx.TxOptions{IsoLevel: level})
	if err == nil {
		_, err = tx.Exec(f.t.Context(), "SELECT 1")
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return tx
}

func (f floored) commit(tx pgx.Tx) {
	f.t.Helper()
	if err := tx.Commit(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f floored) insertIn(tx pgx.Tx, spec gq.Spec) {
	f.t.Helper()
	out, err := f.s.Tx(tx).Insert(f.t.Context(), []store.Group{store.One(spec)})
	if err != nil || out[0].Err != nil {
		f.t.Fatal(err, out)
	}
}

func (f floored) updateIn(tx pgx.Tx, u store.Update) {
	f.t.Helper()
	out, err := f.s.Tx(tx).Update(f.t.Context(), []store.Update{u})
	if err != nil || out[0].Err != nil {
		f.t.Fatal(err, out)
	}
}

// TestNothingIsPassedOver puts jobs below a floor in every possible way. The next claim
// must get each of them. The cases do not run in parallel: an open transaction in another
// database of the server would keep the floors from rising.
func TestNothingIsPassedOver(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(f floored)
	}{
		{"given back", func(f floored) {
			mustInsert(f.t, f.s, newSpec("q"))
			old := f.claim()
			f.raise()
			f.update(releasing(old))
			mustInsert(f.t, f.s, newSpec("q"))
			f.next(old.State.ID)
		}},
		{"given back and still there when floors rise", func(f floored) {
			mustInsert(f.t, f.s, newSpec("q"), newSpec("q"))
			first, second := f.claim(), f.claim()
			f.raise()
			f.update(releasing(first))
			f.update(releasing(second))
			f.next(first.State.ID)
			for range 3 {
				if err := f.s.Raise(f.t.Context()); err != nil {
					f.t.Fatal(err)
				}
			}
			f.next(second.State.ID)
		}},
		{"more urgent", func(f floored) {
			early := urgent(gq.PriorityHigh)
			mustInsert(f.t, f.s, early, newSpec("q"))
			f.next(early.ID)
			f.raise()
			late := urgent(gq.PriorityHigh)
			mustInsert(f.t, f.s, late)
			f.next(late.ID)
		}},
		{"made more urgent", func(f floored) {
			old := newSpec("q")
			mustInsert(f.t, f.s, newSpec("q"), old)
			f.update(completing(f.claim()))
			for range 3 { // so that the floor of the urgent band is above the old job
				urgent := urgent(gq.PriorityHigh)
				mustInsert(f.t, f.s, urgent)
				f.next(urgent.ID)
				if err := f.s.Raise(f.t.Context()); err != nil {
					f.t.Fatal(err)
				}
			}
			mustInsert(f.t, f.s, newSpec("q"))
			f.update(prioritising(old.ID, gq.PriorityHigh))
			f.next(old.ID)
		}},
		{"committed late", func(f floored) {
			late := newSpec("q")
			tx := f.begin(pgx.ReadCommitted)
			f.insertIn(tx, late)
			f.raise()
			f.commit(tx)
			f.next(late.ID)
		}},
		{"committed late, before the floor is there", func(f floored) {
			late := newSpec("q")
			tx := f.begin(pgx.ReadCommitted)
			f.insertIn(tx, late)
			f.raise()
			f.commit(tx)
			f.raiseBeside()
			f.next(late.ID)
		}},
		{"written from an old snapshot", func(f floored) {
			mustInsert(f.t, f.s, newSpec("q"))
			old := f.claim()
			tx := f.begin(pgx.RepeatableRead)
			f.raise()
			f.updateIn(tx, releasing(old))
			f.commit(tx)
			f.next(old.State.ID)
		}},
		{"given back in a savepoint", func(f floored) {
			mustInsert(f.t, f.s, newSpec("q"))
			old := f.claim()
			f.raise()
			tx := f.begin(pgx.ReadCommitted)
			inner, err := tx.Begin(f.t.Context())
			if err != nil {
				f.t.Fatal(err)
			}
			f.updateIn(inner, releasing(old))
			f.commit(inner)
			f.raise()
			f.commit(tx)
			f.next(old.State.ID)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(newFloored(t))
		})
	}
}

// raiseBeside raises the floors of the queue without a claim from it.
func (f floored) raiseBeside() {
	f.t.Helper()
	for range 3 {
		f.s.Pass("q")
		if err := f.s.Raise(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestFloorsOfARestoredDatabase uses transaction ids that this server has not reached, as
// after restoring a logical backup from a server that was further ahead.
func TestFloorsOfARestoredDatabase(t *testing.T) {
	f := newFloored(t)
	mustInsert(t, f.s, newSpec("q"))
	old := f.claim()
	f.raise()
	f.update(releasing(old))
	if _, err := f.conn.Exec(t.Context(), `
		UPDATE gq.floor SET seen = '1000000000', marked = '1000000000';
		UPDATE gq.round SET numbered = '1000000000', folded = '1000000000'`); err != nil {
		t.Fatal(err)
	}
	s := open(t, f.conn.Config().ConnString(), store.Config{})
	defer s.Close()
	f.next(old.State.ID)
	if events, err := s.History(t.Context(), old.State.ID); err != nil || events[len(events)-1].Status != gq.StatusCompleted {
		t.Errorf("its history is %+v, %v", events, err)
	}
	counts, err := s.Counts(t.Context(), "q")
	if err != nil || counts[0].By[gq.StatusCompleted] != 4 {
		t.Errorf("counts: %+v, %v", counts, err)
	}
}

// TestFloorsUnderStress lets many transactions write below floors that rise with every
// claim of two nodes: they commit late, or release, fail or reprioritise jobs. Each job
// must be completed exactly once.
func TestFloorsUnderStress(t *testing.T) {
	const jobs, most = 200, 5 * time.Minute
	nodes := twoNodes(t)
	for _, s := range nodes {
		s.RaiseEvery(1)
	}
	url := nodes[0].URL()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	var work sync.WaitGroup
	var left atomic.Int64
	left.Store(jobs)
	fail := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", what, err)
			cancel()
		}
	}
	var mu sync.Mutex
	known, done := []gq.JobID{}, map[gq.JobID]int{}

	const producers = 4
	for n := range producers {
		work.Go(func() {
			conn := connect(t, url)
			for range jobs / producers {
				spec := urgent(gq.PriorityHigh + gq.Priority(mathrand.IntN(3)))
				switch s := nodes[n%len(nodes)]; mathrand.IntN(3) {
				case 0:
					mustInsert(t, s, spec)
				default:
					level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead}[mathrand.IntN(2)]
					fail("insert late", insertLate(ctx, conn, s, level, spec))
				}
				mu.Lock()
				known = append(known, spec.ID)
				mu.Unlock()
			}
		})
	}
	settle := func(ctx context.Context, s *postgres.Store, j gq.Job) {
		u, ends := completing(j), true
		if mathrand.IntN(3) == 0 && ctx.Err() == nil {
			u, ends = releasing(j), false
		}
		out, err := s.Update(ctx, []store.Update{u})
		if err == nil {
			err = out[0].Err
		}
		fail("settle", err)
		if err == nil && ends {
			mu.Lock()
			done[j.State.ID]++
			mu.Unlock()
			if left.Add(-1) == 0 {
				cancel()
			}
		}
	}
	for _, s := range nodes {
		for range 2 {
			work.Go(func() {
				for ctx.Err() == nil {
					out, err := s.Claim(ctx, []store.Claim{claimFrom("q", 1+mathrand.IntN(4))})
					fail("claim", err)
					if err != nil {
						continue
					}
					for _, j := range out[0].Jobs {
						settle(ctx, s, j)
					}
				}
			})
		}
		work.Go(func() { // raises the priority of random jobs
			for ctx.Err() == nil {
				mu.Lock()
				var id gq.JobID
				if len(known) > 0 {
					id = known[mathrand.IntN(len(known))]
				}
				mu.Unlock()
				_, err := s.Update(ctx, []store.Update{prioritising(id, gq.PriorityHigh+gq.Priority(mathrand.IntN(3)))})
				fail("change priority", err)
			}
		})
	}
	work.Go(func() { // uses a queue of its own, in which the order is known
		for ctx.Err() == nil {
			fail("most urgent first", mostUrgentFirst(ctx, nodes))
		}
	})
	work.Wait()
	if n := left.Load(); n != 0 {
		t.Errorf("%d of %d jobs were not claimed within %v", n, jobs, most)
	}
	for id, n := range done {
		if n != 1 {
			t.Errorf("job %v was completed %d times", id, n)
		}
	}
	var floors, told int
	err := connect(t, url).QueryRow(t.Context(), `
		SELECT coalesce(max(version), 0), (SELECT n_tup_ins FROM pg_stat_all_tables WHERE relid = 'gq.early'::regclass)
		FROM gq.floor WHERE queue = 'q'`).Scan(&floors, &told)
	if err != nil || floors < 10 {
		t.Errorf("the floors rose %d times, %v: too seldom to show anything", floors, err)
	}
	t.Logf("floors rose %d times; %d rows were told of", floors, told)
}

// insertLate submits a job in a transaction that stays open for a while.
func insertLate(ctx context.Context, conn *pgx.Conn, s *postgres.Store, level pgx.TxIsoLevel, spec gq.Spec) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
		out, err := s.Tx(tx).Insert(ctx, []store.Group{store.One(spec)})
		if err == nil {
			err = out[0].Err
		}
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT pg_sleep($1)", mathrand.Float64()/50)
		}
		return err
	})
}

// mostUrgentFirst submits two jobs and checks that claims get the more urgent one first.
func mostUrgentFirst(ctx context.Context, nodes []*postgres.Store) error {
	either := func() *postgres.Store { return nodes[mathrand.IntN(len(nodes))] }
	next := func(want gq.JobID) error {
		out, err := either().Claim(ctx, []store.Claim{claimFrom("own", 1)})
		if err != nil {
			return err
		}
		if len(out[0].Jobs) != 1 || out[0].Jobs[0].State.ID != want {
			return fmt.Errorf("a claim got %+v, want job %v", out[0].Jobs, want)
		}
		settled, err := either().Update(ctx, []store.Update{completing(out[0].Jobs[0])})
		if err == nil {
			err = settled[0].Err
		}
		return err
	}
	normal, critical := newSpec("own"), newSpec("own")
	critical.Metadata.Priority = gq.PriorityCritical
	for _, spec := range []gq.Spec{normal, critical} {
		out, err := either().Insert(ctx, []store.Group{store.One(spec)})
		if err == nil {
			err = out[0].Err
		}
		if err != nil {
			return err
		}
	}
	if err := next(critical.ID); err != nil {
		return err
	}
	return next(normal.ID)
}
