package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

var poolCases = []Case{
	{
		Name:   "Pool/Capacity",
		Clause: "the held jobs of all queues of a pool cost no more than its capacity; what does not fit is passed over, and what costs nothing always fits",
		run:    poolCapacity,
	},
	{
		Name:   "Pool/Behind",
		Clause: "a claim finds what fits behind any number of jobs that do not",
		run:    poolBehind,
	},
	{
		Name:   "Pool/Expiry",
		Clause: "a lease that has run out occupies no capacity, and nobody's late words free it twice",
		run:    poolExpiry,
	},
	{
		Name:   "Pool/Changed",
		Clause: "a capacity, and which queues share it, counts from the next claim on, with what is held by then",
		run:    poolChanged,
	},
	{
		Name:   "Pool/AtStart",
		Clause: "a pool that is occupied at the start lets any number of jobs be held; a start that does not fit is a CapacityError and changes nothing",
		run:    poolAtStart,
	},
	{
		Name:   "Pool/AtStartExpiry",
		Clause: "a lease that has run out makes room for a start, whether or not a sweep has run",
		run:    poolAtStartExpiry,
	},
	{
		Name:   "Pool/AtStartBatch",
		Clause: "starts and ends of one call see each other's use of a pool in order",
		run:    poolAtStartBatch,
	},
	{
		Name:   "Pool/AtStartConcurrent",
		Clause: "however many start at once, the running jobs of a pool cost no more than its capacity, and as many start as fit",
		run:    poolAtStartConcurrent,
	},
	{
		Name:   "Pool/Used",
		Clause: "Pools tells what is in use: what counts, under leases that have not run out",
		run:    poolUsed,
	},
	{
		Name:   "Pool/Unknown",
		Clause: "a queue that names a pool which does not exist is ErrInvalid and stays as it was",
		run:    poolUnknown,
	},
	{
		Name:   "Pool/List",
		Clause: "a pool reads as it was put last, with the time of that; one that cannot be is ErrInvalid with every fault",
		run:    poolList,
	},
	{
		Name:    "Pool/Reopen",
		Clause:  "pools and what is held of them are known after a restart",
		Reopens: true,
		run:     poolReopen,
	},
}

func (e *env) inPool(queue, pool string) {
	e.Helper()
	e.put(queue, func(q *gq.Queue) { q.Pool = pool })
}

func poolCapacity(e *env) {
	e.putPool("p", 10)
	e.inPool("a", "p")
	e.inPool("b", "p")
	var a, b []gq.JobID
	for _, cost := range []int64{6, 6, 3, 0, 11} {
		a = append(a, e.add(inQueue("a"), costing(cost)).ID)
	}
	for _, cost := range []int64{2, 1, 0, 4} {
		b = append(b, e.add(inQueue("b"), costing(cost)).ID)
	}
	held := e.claim(20, from("a", "b"))
	if got, want := idsOf(held), []gq.JobID{a[0], a[2], a[3], b[1], b[2]}; !slices.Equal(got, want) {
		e.Fatalf("claimed %s, want %s, which cost 10", briefs(got), briefs(want))
	}
	e.none("with all capacity in use", from("a", "b"))
	e.complete(held[3]) // 1 unit is free
	e.none("for what costs more than is free", from("b", "a"))
	e.complete(held[0]) // 7 units
	e.claimed("with room for one of each", 20, []gq.JobID{b[0], b[3]}, from("b", "a"))
	e.none("with room for nothing that waits", from("b", "a"))
	e.complete(held[1])
	e.none("for what costs more than is free, again", from("b", "a"))
	free := e.add(inQueue("b"))
	e.claimed("what costs nothing", 20, []gq.JobID{free.ID}, from("b", "a"))
}

func poolBehind(e *env) {
	e.putPool("p", 5)
	e.inPool("q", "p")
	e.insert(e.specs(500, costing(6), at(gq.PriorityCritical))...)
	e.insert(e.specs(500, costing(9), ofType("other"))...)
	small := stateIDs(e.each(e.spec(costing(3)), e.spec(costing(4)), e.spec(costing(2), ofType("other"))))
	e.claimed("behind a thousand that do not fit", 10, []gq.JobID{small[0], small[2]})
	e.none("with nothing that fits")
}

func poolExpiry(e *env) {
	e.putPool("p", 4)
	e.inPool("q", "p")
	ids := stateIDs(e.each(e.specs(4, costing(3), under(func(p *gq.Policy) { p.OnLoss = gq.LossBackoff }))...))
	first := e.one(lasting(time.Minute))
	e.clock.Advance(time.Minute - 1)
	e.none("1 ns before the lease ends")
	e.clock.Advance(1)
	e.claimed("when the lease has run out", 5, ids[1:2])
	for range 2 {
		e.refusedUpdate(ids[0], completing(first.State.Lease.Ref(), nil))
		e.none("after the lost holder spoke")
	}
}

// refusedUpdate makes an update, which must be refused as stale.
func (e *env) refusedUpdate(id gq.JobID, apply func(gq.State, time.Time) (gq.State, []gq.Event, error)) {
	e.Helper()
	_, err := e.tryOne(id, apply)
	e.is("an update by a lost holder", err, gq.ErrStaleLease)
}

func poolChanged(e *env) {
	e.putPool("p", 10)
	e.putPool("other", 2)
	e.inPool("q", "p")
	ids := stateIDs(e.each(e.specs(12, costing(2))...))
	held := e.claim(3)
	e.putPool("p", 6)
	e.none("with as much in use as the new capacity")
	e.putPool("p", 4)
	e.none("with more in use than the new capacity")
	e.complete(held[0])
	e.none("with as much in use as the new capacity, again")
	e.putPool("p", 8)
	e.claimed("with a larger capacity", 20, ids[3:5])
	e.inPool("q", "other") // 8 are in use, of 2
	e.none("in a smaller pool")
	e.inPool("r", "p")
	r := stateIDs(e.each(e.specs(5, inQueue("r"), costing(2))...))
	e.claimed("in the pool that was left", 20, r[:4], from("r"))
	e.inPool("q", "")
	e.claimed("in no pool", 20, ids[5:])
	e.inPool("q", "p") // with more in use than its capacity
	e.add(costing(2))
	e.none("back in the pool", from("q", "r"))
}

func poolUnknown(e *env) {
	q := machine.NewQueue("q")
	e.check("PutQueue", e.store().PutQueue(e.Context(), q))
	_, before := e.queues()
	q.Pool, q.MaxRunning = "nowhere", 7
	err := e.store().PutQueue(e.Context(), q)
	e.is("PutQueue with an unknown pool", err, gq.ErrInvalid)
	if got := fields(err); !slices.Contains(got, "pool") {
		e.Errorf("the error names %q, want pool", got)
	}
	fresh := machine.NewQueue("fresh")
	fresh.Pool = "nowhere"
	e.is("PutQueue of a new queue with an unknown pool", e.store().PutQueue(e.Context(), fresh), gq.ErrInvalid)
	_, after := e.queues()
	e.equal("the queues after refused changes", after, before)
	e.putPool("nowhere", 1)
	e.check("PutQueue", e.store().PutQueue(e.Context(), q))
}

// pools lists all pools.
func (e *env) pools() []gq.Pool {
	e.Helper()
	pools, err := e.store().Pools(e.Context())
	e.check("Pools", err)
	return pools
}

func poolList(e *env) {
	if got := e.pools(); len(got) != 0 {
		e.Errorf("an empty store has the pools %+v", got)
	}
	e.putPool("m", 5)
	e.putPool("z", 0)
	then := e.now()
	e.clock.Advance(time.Second)
	e.putPool("B", gq.MaxCapacity)
	e.putPool("m", 7)
	want := []gq.Pool{
		{Name: "B", Capacity: gq.MaxCapacity, UpdatedAt: e.now()}, {Name: "m", Capacity: 7, UpdatedAt: e.now()}, {Name: "z", UpdatedAt: then},
	}
	e.equal("the pools", e.pools(), want)
	err := e.store().PutPool(e.Context(), gq.Pool{Name: "not a name", Capacity: -1})
	e.is("PutPool", err, gq.ErrInvalid)
	if got := fields(err); !slices.Equal(got, []string{"name", "capacity"}) {
		e.Errorf("the error names %q, want name and capacity", got)
	}
	e.equal("the pools after a refused one", e.pools(), want)
}

func poolReopen(e *env) {
	e.putPool("p", 5)
	e.inPool("q", "p")
	e.inPool("r", "p")
	ids := stateIDs(e.each(e.specs(3, costing(2))...))
	r := e.add(inQueue("r"), costing(2))
	held := e.claim(5)
	before := e.pools()
	e.reopen()
	e.equal("the pools after a restart", e.pools(), before)
	e.none("after a restart, with too little capacity left", from("q", "r"))
	e.complete(held[0])
	e.reopen()
	e.claimed("after a completion and a restart", 5, []gq.JobID{r.ID}, from("r", "q"))
	e.none("after that", from("r", "q"))
	if len(held) != 2 || held[1].State.ID != ids[1] {
		e.Errorf("claimed %s of a pool of 5, want 2 jobs of 2", briefs(idsOf(held)))
	}
}
