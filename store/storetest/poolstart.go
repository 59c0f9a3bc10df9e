package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// startPool configures a pool whose capacity is taken at the start, and a queue in it.
func (e *env) startPool(capacity int64) {
	e.Helper()
	e.check("PutPool", e.store().PutPool(e.Context(), gq.Pool{Name: "p", Capacity: capacity, AtStart: true}))
	e.inPool("q", "p")
}

func startingHeld(j gq.Job) store.Update {
	lease := j.State.Lease.Ref()
	return store.Update{
		Ref: store.Ref{Job: j.State.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Start(s, lease, 0, now)
		},
	}
}

// starts starts a held job, which must succeed.
func (e *env) starts(j gq.Job) {
	e.Helper()
	got := e.tryUpdate(startingHeld(j))[0]
	e.check("start", got.Err)
	if got.State.Status != gq.StatusRunning {
		e.Fatalf("a started job is %s", got.State.Status)
	}
}

// noRoom fails unless the start of a held job is refused with these numbers.
func (e *env) noRoom(j gq.Job, used, capacity int64) {
	e.Helper()
	got := e.tryUpdate(startingHeld(j))[0]
	e.is("a start without room", got.Err, gq.ErrNoCapacity)
	want := machine.CapacityError{Pool: "p", Used: used, Requested: j.Spec.CostUnits, Capacity: capacity}
	if refused, ok := errors.AsType[*machine.CapacityError](got.Err); !ok || *refused != want {
		e.Errorf("the refusal is %+v, want %+v", got.Err, want)
	}
	if got.Changed || got.State.Status != gq.StatusClaimed {
		e.Errorf("a refused start left the job %s (changed: %v)", got.State.Status, got.Changed)
	}
}

func poolAtStart(e *env) {
	e.startPool(10)
	e.each(e.spec(costing(6)), e.spec(costing(6)), e.spec(costing(4)), e.spec(), e.spec(costing(11)))
	held := e.claim(10, holding)
	if len(held) != 5 {
		e.Fatalf("claimed %d of 5 jobs to be held, want all: nothing runs yet", len(held))
	}
	e.starts(held[0])
	e.noRoom(held[1], 6, 10)
	e.starts(held[2]) // fits exactly
	e.starts(held[3]) // costs nothing
	e.noRoom(held[1], 10, 10)
	e.complete(held[0])
	e.starts(held[1])
	e.noRoom(held[4], 10, 10)
	e.complete(held[1])
	e.complete(held[2])
	e.noRoom(held[4], 0, 10) // costs more than the capacity

	// A claim that starts needs room, as a start does.
	e.each(e.spec(costing(11), ofType("large")), e.spec(costing(10)), e.spec(costing(1)))
	if got := e.claim(10); len(got) != 1 || got[0].Spec.CostUnits != 10 {
		e.Errorf("a claim that starts got %d jobs, want the one that fits", len(got))
	}
	if got := e.claim(10, holding); len(got) != 2 {
		e.Errorf("a claim that does not start got %d jobs, want the other 2", len(got))
	}
}

func poolAtStartExpiry(e *env) {
	e.startPool(5)
	e.each(e.specs(3, costing(3), under(func(p *gq.Policy) {
		p.Hold, p.LeaseTTL, p.OnLoss = time.Hour, time.Minute, gq.LossFails
	}))...)
	held := e.claim(3, holding)
	e.starts(held[0])
	e.clock.Advance(time.Minute - 1)
	e.noRoom(held[1], 3, 5)
	e.clock.Advance(1)
	e.starts(held[1])
	e.refusedUpdate(held[0].State.ID, completing(held[0].State.Lease.Ref(), nil))
	e.noRoom(held[2], 3, 5) // the late call of the former holder freed nothing
}

func poolAtStartBatch(e *env) {
	e.startPool(5)
	e.each(e.specs(4, costing(3))...)
	held := e.claim(4, holding)
	first := held[0].State.Lease.Ref()
	got := e.tryUpdate(
		startingHeld(held[0]), startingHeld(held[1]),
		store.Update{Ref: store.Ref{Job: held[0].State.ID}, Apply: completing(first, nil)},
		startingHeld(held[2]), startingHeld(held[3]),
	)
	for i, want := range []error{nil, gq.ErrNoCapacity, nil, nil, gq.ErrNoCapacity} {
		if !errors.Is(got[i].Err, want) {
			e.Errorf("item %d of start, start, complete, start, start: %v, want %v", i, got[i].Err, want)
		}
	}
}

func poolAtStartConcurrent(e *env) {
	const capacity, cost, jobs = 10, 3, 24
	e.startPool(capacity)
	e.each(e.specs(jobs, costing(cost))...)
	held := e.claim(jobs, holding)
	var (
		mu      sync.Mutex
		started int
		wg      sync.WaitGroup
	)
	for _, j := range held {
		wg.Go(func() {
			got, err := e.store().Update(e.Context(), []store.Update{startingHeld(j)})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				e.Errorf("Update: %v", err)
			case got[0].Err == nil:
				started++
			case !errors.Is(got[0].Err, gq.ErrNoCapacity):
				e.Errorf("start: %v", got[0].Err)
			}
		})
	}
	wg.Wait()
	if started != capacity/cost {
		e.Errorf("%d jobs of cost %d started in a pool of %d, want %d", started, cost, capacity, capacity/cost)
	}
}

// uses fails unless the pool "p" reports the given use.
func (e *env) uses(when string, want int64) {
	e.Helper()
	for _, p := range e.pools() {
		if p.Name == "p" && p.Used != want {
			e.Errorf("%s the pool tells that %d are in use, want %d", when, p.Used, want)
		}
	}
}

func poolUsed(e *env) {
	e.startPool(10)
	e.each(e.specs(3, costing(2), under(func(p *gq.Policy) { p.LeaseTTL, p.Hold = time.Minute, time.Hour }))...)
	held := e.claim(2, holding)
	e.uses("with two jobs held", 0)
	e.starts(held[0])
	e.uses("with one job started", 2)
	e.check("PutPool", e.store().PutPool(e.Context(), gq.Pool{Name: "p", Capacity: 10, Used: 9}))
	e.uses("occupied from the claim on", 4)
	e.check("PutPool", e.store().PutPool(e.Context(), gq.Pool{Name: "p", Capacity: 10, AtStart: true}))
	e.starts(held[1])
	e.uses("with two jobs started", 4)
	e.complete(held[1])
	e.uses("after an end", 2)
	e.claim(1)
	e.uses("after a claim that starts", 4)
	e.clock.Advance(time.Minute)
	e.uses("when the leases have run out", 0)
}
