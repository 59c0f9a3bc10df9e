package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
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

// walkClock is a clock that a test advances.
type walkClock struct{ nanoseconds atomic.Int64 }

func (c *walkClock) Now() time.Time { return time.Unix(0, c.nanoseconds.Load()).UTC() }

// heldNow is what the rows of held jobs say about each queue and status. counted is what
// the counts say.
const (
	heldNow = `
		SELECT queue || ' ' || status, sum(CASE WHEN members IS NULL THEN 1 ELSE bit_count(members::bit(64)) END)::bigint,
			sum(cost * CASE WHEN members IS NULL THEN 1 ELSE bit_count(members::bit(64)) END)::bigint
		FROM gq.held
		GROUP BY queue, status`
	counted = `
		SELECT queue || ' ' || status, sum(jobs)::bigint, sum(units)::bigint
		FROM (
			SELECT queue, status, jobs, units FROM gq.tally
			UNION ALL
			SELECT queue, status, jobs, units FROM gq.delta WHERE xid >= (SELECT folded FROM gq.head)
		) AS t
		GROUP BY queue, status
		HAVING (status IN (4, 5) AND sum(jobs) <> 0) OR sum(units) <> 0`
	// poolsNow is the use of each pool by leases that end after $1.
	poolsNow = `
		SELECT p.name, coalesce(sum(s.cost * CASE WHEN s.members IS NULL THEN 1 ELSE bit_count(s.members::bit(64)) END), 0)::bigint, p.capacity
		FROM gq.pool AS p
		LEFT JOIN gq.queue AS q ON q.config ->> 'Pool' = p.name
		LEFT JOIN gq.held AS s ON s.queue = q.name AND s.due > $1 AND (s.status = 5 OR NOT p.at_start)
		GROUP BY p.name`
)

// pairs reads rows of a name and two numbers.
func pairs(t *testing.T, conn *pgx.Conn, sql string, args ...any) map[string][2]int64 {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][2]int64)
	var name string
	var a, b int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &a, &b}, func() error {
		all[name] = [2]int64{a, b}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// countsAgree fails unless the counts of held jobs and of their units equal what the rows
// say.
func countsAgree(t *testing.T, conn *pgx.Conn, when string) {
	t.Helper()
	if rows, counts := pairs(t, conn, heldNow), pairs(t, conn, counted); !maps.Equal(rows, counts) {
		t.Fatalf("%s: jobs and units are %v by the rows, %v by the counts", when, rows, counts)
	}
}

// poolWalk is a random sequence of calls on two nodes that share a database and a clock.
type poolWalk struct {
	*testing.T
	random *mathrand.Rand
	clock  *walkClock
	nodes  []*postgres.Store
	held   []gq.Job
	use    map[string][2]int64 // use and capacity of each pool before the call
	done   map[string]int      // what has happened, by name
}

var walkQueues = []string{"a", "b", "c"}

func (w *poolWalk) node() *postgres.Store { return w.nodes[w.random.IntN(len(w.nodes))] }

func (w *poolWalk) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *poolWalk) insert() {
	var specs []gq.Spec
	for range 1 + w.random.IntN(5) {
		s := newSpec(walkQueues[w.random.IntN(3)])
		s.CostUnits = w.random.Int64N(8)
		s.Policy.LeaseTTL, s.Policy.Hold = time.Minute, 2*time.Minute
		specs = append(specs, s)
	}
	mustInsert(w.T, w.node(), specs...)
}

func (w *poolWalk) claim() {
	c := store.Claim{
		Filter: store.Filter{Queues: slices.Clone(walkQueues[w.random.IntN(3):])},
		N:      1 + w.random.IntN(4), Worker: "w", Hold: w.random.IntN(3) > 0,
	}
	out, err := w.node().Claim(w.Context(), []store.Claim{c})
	w.check(err)
	w.check(out[0].Err)
	w.held = append(w.held, out[0].Jobs...)
	w.done["claimed"] += len(out[0].Jobs)
}

// update applies one verb to up to three held jobs. A lease may have expired by now, or a
// pool may have no room.
func (w *poolWalk) update() {
	verbs := map[string]func(s gq.State, l gq.LeaseRef, now time.Time) (gq.State, []gq.Event, error){
		"start": func(s gq.State, l gq.LeaseRef, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Start(s, l, 0, now)
		},
		"heartbeat": func(s gq.State, l gq.LeaseRef, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Heartbeat(s, l, machine.Report{}, now)
		},
		"complete": func(s gq.State, l gq.LeaseRef, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Complete(s, l, nil, now)
		},
		"fail": func(s gq.State, l gq.LeaseRef, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Fail(s, l, gq.Failure{Category: gq.CategoryTemporary}, machine.Draw{}, now)
		},
		"release": func(s gq.State, l gq.LeaseRef, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Release(s, l, 0, "", now)
		},
	}
	names := []string{"start", "start", "start", "heartbeat", "complete", "fail", "release"}
	var updates []store.Update
	var did []string
	for range min(len(w.held), 1+w.random.IntN(3)) {
		name := names[w.random.IntN(len(names))]
		recent := w.held[max(0, len(w.held)-12):]
		lease := recent[w.random.IntN(len(recent))].State.Lease.Ref()
		updates = append(updates, store.Update{
			Ref: store.Ref{Lease: lease.ID}, Settles: name != "start" && name != "heartbeat",
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return verbs[name](s, lease, now) },
		})
		did = append(did, name)
	}
	out, err := w.node().Update(w.Context(), updates)
	w.check(err)
	for i := range out {
		switch {
		case out[i].Err == nil:
			w.done[did[i]]++
		case errors.Is(out[i].Err, gq.ErrNoCapacity):
			w.done["refused"]++
			if full, ok := errors.AsType[*machine.CapacityError](out[i].Err); !ok || len(out) == 1 && full.Used != w.use[full.Pool][0] {
				w.Fatalf("a start was refused with %v, the use is %v", out[i].Err, w.use)
			}
		}
	}
}

// sweep applies the passage of time to jobs that are due.
func (w *poolWalk) sweep() {
	due, err := w.node().Due(w.Context(), 5)
	w.check(err)
	var updates []store.Update
	for _, id := range due.Jobs {
		updates = append(updates, store.Update{
			Ref: store.Ref{Job: id},
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Advance(s, machine.Draw{}, now)
			},
		})
	}
	_, err = w.node().Update(w.Context(), updates)
	w.check(err)
	w.done["swept"] += len(updates)
}

// configure moves a queue to another pool, or changes a pool.
func (w *poolWalk) configure() {
	if w.random.IntN(2) == 0 {
		q := machine.NewQueue(walkQueues[w.random.IntN(3)])
		q.Pool = []string{"", "p", "p", "r"}[w.random.IntN(4)]
		w.check(w.node().PutQueue(w.Context(), q))
		return
	}
	p := gq.Pool{Name: []string{"p", "r"}[w.random.IntN(2)], Capacity: 5 + w.random.Int64N(30), AtStart: w.random.IntN(3) > 0}
	w.check(w.node().PutPool(w.Context(), p))
}

// TestPoolUseIsThatOfItsLeases walks through random calls on two nodes. After every call
// the counts must agree with the rows, both nodes must report the use that the unexpired
// leases have, and no claim or start may have raised it above the capacity.
func TestPoolUseIsThatOfItsLeases(t *testing.T) {
	const seed, steps = 20261117, 700
	url := pgtest.Database(t)
	clock := new(walkClock)
	clock.nanoseconds.Store(still{}.Now().UnixNano())
	w := &poolWalk{T: t, random: mathrand.New(mathrand.NewPCG(seed, 1)), clock: clock, done: map[string]int{}}
	for range 2 {
		w.nodes = append(w.nodes, open(t, url, store.Config{Clock: clock}))
		defer w.nodes[len(w.nodes)-1].Close()
	}
	w.nodes[0].RaiseEvery(1)
	conn := connect(t, url)
	for _, p := range []gq.Pool{{Name: "p", Capacity: 20, AtStart: true}, {Name: "r", Capacity: 20}} {
		w.check(w.nodes[0].PutPool(t.Context(), p))
	}
	for i, name := range walkQueues {
		q := machine.NewQueue(name)
		q.Pool = []string{"p", "p", "r"}[i]
		w.check(w.nodes[0].PutQueue(t.Context(), q))
	}
	actions := []struct {
		name   string
		weight int
		grants bool // it may raise the use, within the capacity
		do     func()
	}{
		{"insert", 5, false, w.insert},
		{"claim", 8, true, w.claim},
		{"update", 12, true, w.update},
		{"sweep", 2, false, w.sweep},
		{"configure", 1, false, w.configure},
		{"fold", 1, false, func() { w.check(w.node().Fold(t.Context())) }},
		{"time", 2, false, func() { clock.nanoseconds.Add(w.random.Int64N(int64(40 * time.Second))) }},
	}
	var drawn []int
	for i, a := range actions {
		drawn = append(drawn, slices.Repeat([]int{i}, a.weight)...)
	}
	w.use = pairs(t, conn, poolsNow, clock.nanoseconds.Load())
	for step := range steps {
		a := actions[drawn[w.random.IntN(len(drawn))]]
		a.do()
		when := fmt.Sprintf("seed %d, step %d, %s", seed, step, a.name)
		countsAgree(t, conn, when)
		now := pairs(t, conn, poolsNow, clock.nanoseconds.Load())
		for i, s := range w.nodes {
			pools, err := s.Pools(t.Context())
			w.check(err)
			for _, p := range pools {
				if p.Used != now[p.Name][0] {
					t.Fatalf("%s: node %d reports %d units of pool %s in use, its leases have %d", when, i, p.Used, p.Name, now[p.Name][0])
				}
				if a.grants && p.Used > p.Capacity && p.Used > w.use[p.Name][0] {
					t.Fatalf("%s: %d units of pool %s are in use, its capacity is %d", when, p.Used, p.Name, p.Capacity)
				}
			}
		}
		w.use = now
	}
	for _, name := range []string{"claimed", "start", "heartbeat", "complete", "fail", "release", "refused", "swept"} {
		if w.done[name] < 5 {
			t.Errorf("only %d times %s: %v", w.done[name], name, w.done)
		}
	}
}

// TestStartsOnTwoNodes starts jobs on two nodes at once, more than there is room for.
func TestStartsOnTwoNodes(t *testing.T) {
	const capacity, cost, jobs = 10, 3, 4
	nodes := twoNodes(t)
	if err := nodes[0].PutPool(t.Context(), gq.Pool{Name: "p", Capacity: capacity, AtStart: true}); err != nil {
		t.Fatal(err)
	}
	q := machine.NewQueue("a")
	q.Pool = "p"
	if err := nodes[0].PutQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		var specs []gq.Spec
		for range 2 * jobs {
			s := newSpec("a")
			s.CostUnits = cost
			specs = append(specs, s)
		}
		mustInsert(t, nodes[0], specs...)
		var everyone sync.WaitGroup
		var started atomic.Int64
		var held [2][]gq.Job
		for i, s := range nodes {
			claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{"a"}}, N: jobs, Worker: "w", Hold: true}})
			if err != nil || len(claimed[0].Jobs) != jobs {
				t.Fatalf("claim: %v, %+v", err, claimed)
			}
			held[i] = claimed[0].Jobs
		}
		for i, s := range nodes {
			everyone.Go(func() {
				var updates []store.Update
				for _, j := range held[i] {
					updates = append(updates, starting(j))
				}
				out, err := s.Update(t.Context(), updates)
				if err != nil {
					t.Error(err)
				}
				for _, u := range out {
					if u.Err == nil {
						started.Add(1)
					} else if !errors.Is(u.Err, gq.ErrNoCapacity) {
						t.Error(u.Err)
					}
				}
			})
		}
		everyone.Wait()
		if started.Load() != capacity/cost {
			t.Fatalf("round %d: %d jobs of cost %d started in a pool of %d", round, started.Load(), cost, capacity)
		}
		for _, j := range slices.Concat(held[0], held[1]) {
			if _, err := nodes[round%2].Update(t.Context(), []store.Update{completing(j)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// starting starts a held job.
func starting(j gq.Job) store.Update {
	lease := j.State.Lease.Ref()
	return store.Update{Ref: store.Ref{Lease: lease.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Start(s, lease, 0, now)
	}}
}

// TestPoolUseSurvivesLostConnections claims, starts and settles on two nodes at once while
// their connections are closed at random. The running jobs may never cost more than the
// capacity, and in the end the counts must agree with the rows.
func TestPoolUseSurvivesLostConnections(t *testing.T) {
	const capacity, callers, rounds, mostKills = 9, 6, 15, 12
	url := pgtest.Database(t)
	var nodes []*postgres.Store
	for range 2 {
		nodes = append(nodes, open(t, url, store.Config{}))
		defer nodes[len(nodes)-1].Close()
	}
	if err := nodes[0].PutPool(t.Context(), gq.Pool{Name: "p", Capacity: capacity, AtStart: true}); err != nil {
		t.Fatal(err)
	}
	q := machine.NewQueue("a")
	q.Pool = "p"
	if err := nodes[0].PutQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	var specs []gq.Spec
	for i := range callers * rounds * 2 {
		s := newSpec("a")
		s.CostUnits = int64(1 + i%3)
		specs = append(specs, s)
	}
	mustInsert(t, nodes[0], specs...)
	ctx, stop := context.WithCancel(t.Context())
	var callersDone, others sync.WaitGroup
	var started, lost atomic.Int64
	for i := range callers {
		s := nodes[i%2]
		callersDone.Go(func() {
			for range rounds {
				claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{"a"}}, N: 2, Worker: "w", Hold: true}})
				if err != nil || claimed[0].Err != nil {
					lost.Add(1)
					continue
				}
				for _, j := range claimed[0].Jobs {
					out, err := s.Update(t.Context(), []store.Update{starting(j)})
					if err != nil {
						lost.Add(1)
					} else if out[0].Err == nil {
						started.Add(1)
					}
					if _, err := s.Update(t.Context(), []store.Update{completing(j)}); err != nil {
						lost.Add(1)
					}
				}
			}
		})
	}
	kills := 0
	killer, watcher := connect(t, url), connect(t, url)
	others.Go(func() {
		for kills < mostKills && ctx.Err() == nil {
			_, err := killer.Exec(t.Context(), `
				SELECT pg_terminate_backend(pid) FROM (
					SELECT pid FROM pg_stat_activity
					WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), $1) AND state <> 'idle'
					ORDER BY random() LIMIT 1
				) AS b`, int32(watcher.PgConn().PID()))
			if err != nil {
				t.Error(err)
				return
			}
			kills++
			select {
			case <-time.After(25 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			var used int64
			if err := watcher.QueryRow(t.Context(), "SELECT coalesce(sum(cost), 0) FROM gq.held WHERE status = 5 AND members IS NULL").Scan(&used); err != nil || used > capacity {
				t.Errorf("running jobs cost %d of %d, %v", used, capacity, err)
				return
			}
		}
	})
	callersDone.Wait()
	stop()
	others.Wait()
	countsAgree(t, watcher, fmt.Sprintf("%d starts, %d connections closed, %d outcomes unknown", started.Load(), kills, lost.Load()))
	if started.Load() < rounds || kills < 5 {
		t.Errorf("%d starts and %d closed connections prove nothing", started.Load(), kills)
	}
}
