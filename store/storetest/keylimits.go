package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var keyLimitCases = []Case{
	{
		Name:   "KeyLimit/Held",
		Clause: "at most KeyLimit jobs of a queue with the same limit key are held at once; each end of a lease frees one place of its key",
		run:    keyLimitHeld,
	},
	{
		Name:   "KeyLimit/None",
		Clause: "jobs without a limit key are not limited, nor are those of a queue without a KeyLimit",
		run:    keyLimitNone,
	},
	{
		Name:   "KeyLimit/Others",
		Clause: "a key without a free place hides no other job, and a claim gets as many as there are",
		run:    keyLimitOthers,
	},
	{
		Name:   "KeyLimit/Queues",
		Clause: "the same key in two queues is two keys",
		run:    keyLimitQueues,
	},
	{
		Name:   "KeyLimit/Expiry",
		Clause: "a lease that has run out occupies no place of its key, and nobody's late words free one twice",
		run:    keyLimitExpiry,
	},
	{
		Name:   "KeyLimit/Filter",
		Clause: "filters find every job of a key with a free place, and none of one without",
		run:    keyLimitFilter,
	},
	{
		Name:   "KeyLimit/Changed",
		Clause: "a key limit counts from the next claim on, for jobs that wait and jobs that are held",
		run:    keyLimitChanged,
	},
	{
		Name:   "KeyLimit/Cancelled",
		Clause: "jobs that end while they wait leave their key as it is",
		run:    keyLimitCancelled,
	},
	{
		Name:    "KeyLimit/Reopen",
		Clause:  "who holds what is known after a restart, and nothing more",
		Reopens: true,
		run:     keyLimitReopen,
	},
	{
		Name:   "KeyLimit/Batch",
		Clause: "limits hold over all claims of one call",
		run:    keyLimitBatch,
	},
	{
		Name:   "KeyLimit/Peek",
		Clause: "Peek honours every limit as a claim does, and uses nothing up",
		run:    keyLimitPeek,
	},
	{
		Name:   "KeyLimit/Concurrent",
		Clause: "however many claim at once, no key exceeds its limit and no pool its capacity",
		run:    keyLimitConcurrent,
	},
}

func limitedBy(key string) setting { return func(s *gq.Spec) { s.LimitKey = key } }

// putPool configures a pool.
func (e *env) putPool(name string, capacity int64) {
	e.Helper()
	e.check("PutPool", e.store().PutPool(e.Context(), gq.Pool{Name: name, Capacity: capacity}))
}

// peek lists the jobs that Peek finds.
func (e *env) peek(n int, asks ...asking) (ids []gq.JobID) {
	e.Helper()
	found, err := e.store().Peek(e.Context(), claimOf(n, asks...).Filter, n)
	e.check("Peek", err)
	for _, f := range found {
		e.check("Peek", f.Err)
		ids = append(ids, f.State.ID)
	}
	return ids
}

func keyLimitHeld(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 2 })
	a := stateIDs(e.each(e.specs(8, limitedBy("a"))...))
	first := e.claim(10)
	if len(first) != 2 {
		e.Fatalf("a claim for 10 got %d jobs of one key, want KeyLimit, 2", len(first))
	}
	e.none("with all places of the key taken")
	at := 2
	free := func(what string) gq.Job {
		e.Helper()
		got := e.claim(10)
		if ids := idsOf(got); !slices.Equal(ids, a[at:at+1]) {
			e.Fatalf("%s: claimed %s, want %s", what, briefs(ids), briefs(a[at:at+1]))
		}
		at++
		e.none(what + ", again")
		return got[0]
	}
	e.complete(first[0])
	third := free("after a completion")
	e.fail(first[1], permanent)
	fourth := free("after a failure")
	e.fail(third, temporary)
	fifth := free("after a failure that will be retried")
	e.update(fourth.State.ID, cancelling("stop"))
	e.none("after a cancel was only asked for")
	e.update(fourth.State.ID, releasing(fourth.State.Lease.Ref(), 0, "stopping"))
	free("after a cancel was honoured")
	e.update(fifth.State.ID, releasing(fifth.State.Lease.Ref(), time.Hour, "later"))
	free("after a release")
}

func keyLimitNone(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 1 })
	e.each(e.specs(5)...)
	if got := len(e.claim(10)); got != 5 {
		e.Errorf("of 5 jobs without a key %d can be held at once", got)
	}
	e.each(e.specs(5, inQueue("open"), limitedBy("a"))...)
	if got := len(e.claim(10, from("open"))); got != 5 {
		e.Errorf("of 5 jobs in a queue without a KeyLimit %d can be held at once", got)
	}
}

func keyLimitOthers(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 2 })
	a := stateIDs(e.insert(e.specs(1000, limitedBy("a"), at(gq.PriorityCritical))...))
	b := stateIDs(e.each(e.specs(3, limitedBy("b"))...))
	plain := e.add()
	c := stateIDs(e.each(e.specs(2, limitedBy("c"), at(gq.PriorityBulk))...))
	want := []gq.JobID{a[0], a[1], b[0], b[1], plain.ID, c[0], c[1]}
	if got := idsOf(e.claim(3)); !slices.Equal(got, want[:3]) {
		e.Fatalf("claimed %s, want %s", briefs(got), briefs(want[:3]))
	}
	e.claimed("behind a thousand jobs of a full key", 10, want[3:])
	e.none("with every key full")
	late := e.add(limitedBy("d"), at(gq.PriorityBulk))
	e.claimed("of a new key", 10, []gq.JobID{late.ID})
	e.cancel(a[2])
	e.none("after a waiting job of a full key was cancelled")
}

func keyLimitQueues(e *env) {
	e.put("a", func(q *gq.Queue) { q.KeyLimit = 1 })
	e.put("b", func(q *gq.Queue) { q.KeyLimit = 2 })
	a := stateIDs(e.each(e.specs(3, inQueue("a"), limitedBy("k"))...))
	b := stateIDs(e.each(e.specs(3, inQueue("b"), limitedBy("k"))...))
	e.claimed("of two queues with the same key", 10, []gq.JobID{a[0], b[0], b[1]}, from("a", "b"))
	e.none("with the key full in both", from("a", "b"))
}

func keyLimitExpiry(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 1 })
	ids := stateIDs(e.each(e.specs(4, limitedBy("a"), under(func(p *gq.Policy) { p.OnLoss = gq.LossBackoff }))...))
	first := e.one(lasting(time.Minute))
	e.clock.Advance(time.Minute - 1)
	e.none("1 ns before the lease ends")
	e.clock.Advance(1)
	second := e.claim(5)
	if got := idsOf(second); !slices.Equal(got, ids[1:2]) {
		e.Fatalf("when the lease has run out: claimed %s, want %s", briefs(got), briefs(ids[1:2]))
	}
	for _, apply := range []store.Apply{completing(first.State.Lease.Ref(), nil), releasing(first.State.Lease.Ref(), 0, "")} {
		answer := e.tryUpdate(store.Update{Ref: byID(ids[0]), Apply: apply})[0]
		e.is("a settlement by the lost holder", answer.Err, gq.ErrStaleLease)
		e.none("after the lost holder spoke")
	}
	e.complete(second[0])
	e.complete(second[0]) // repeated: no second effect
	if got := len(e.claim(5)); got != 1 {
		e.Errorf("after one completion, told twice, a claim got %d jobs, want 1", got)
	}
}

func keyLimitFilter(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 1 })
	// Jobs of one key, each cheaper than the one before, in two types and with
	// capabilities, so that any of them can be the first match.
	var ids []gq.JobID
	for i := range 12 {
		s := e.spec(limitedBy("k"), costing(int64(20-i)), ofType([]string{"x", "y"}[i%2]))
		if i%3 == 2 {
			s = e.spec(limitedBy("k"), costing(int64(20-i)), ofType([]string{"x", "y"}[i%2]), requiring("gpu"))
		}
		ids = append(ids, s.ID)
		e.insert(s)
	}
	e.insert(e.specs(100, limitedBy("k"), costing(50))...)
	take := func(what string, want int, asks ...asking) {
		e.Helper()
		got := e.claim(5, asks...)
		if !slices.Equal(idsOf(got), ids[want:want+1]) {
			e.Fatalf("%s: claimed %s, want %s", what, briefs(idsOf(got)), briefs(ids[want:want+1]))
		}
		for _, a := range [][]asking{nil, {upTo(10)}, {types("x")}, {types("y"), offering("gpu")}} {
			e.none(what+", with its key full", a...)
		}
		e.complete(got[0])
	}
	take("at most 12", 9, upTo(12)) // the job before it needs a gpu
	take("at most 12, with a gpu", 8, upTo(12), offering("gpu"))
	take("type y", 1, types("y"))
	take("type y at most 17", 3, types("y"), upTo(17))
	take("type x with a gpu, at most 18", 2, types("x"), upTo(18), offering("gpu"))
	take("anything", 0)
	take("at most 9", 11, upTo(9), offering("gpu"))
	e.none("at most 9, again", upTo(9), offering("gpu"))
	take("anything, again", 4)
}

func keyLimitChanged(e *env) {
	a := stateIDs(e.each(e.specs(8, limitedBy("a"))...))
	b := stateIDs(e.each(e.specs(4, limitedBy("b"))...))
	held := e.claim(3)
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 2 })
	e.claimed("with more of a key running than the new limit", 5, b[:2])
	e.complete(held[0])
	e.none("with as many of a key running as the new limit")
	e.complete(held[1])
	e.claimed("with a place free", 5, a[3:4])
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 4 })
	e.claimed("with a larger limit", 20, []gq.JobID{a[4], a[5], b[2], b[3]})
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 1 })
	e.none("with a smaller limit")
	e.put("q", func(*gq.Queue) {})
	e.claimed("without a limit", 20, a[6:])
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 1 })
	c := stateIDs(e.each(e.specs(2, limitedBy("c"))...))
	e.claimed("under a limit again", 20, c[:1])
}

func keyLimitCancelled(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 1 })
	ids := stateIDs(e.each(e.specs(6, limitedBy("a"))...))
	e.cancel(ids[0])
	j := e.one()
	if j.State.ID != ids[1] {
		e.Fatalf("claimed %s, want the first job that was not cancelled", j.State.ID)
	}
	for _, id := range ids[2:4] {
		e.cancel(id)
		e.none("after a waiting job was cancelled")
	}
	e.complete(j)
	last := e.claim(5)
	if got := idsOf(last); !slices.Equal(got, ids[4:5]) {
		e.Fatalf("claimed %s, want %s", briefs(got), briefs(ids[4:5]))
	}
	e.cancel(ids[5])
	e.complete(last[0])
	again := e.add(limitedBy("a"))
	e.claimed("of a key that had nothing left", 5, []gq.JobID{again.ID})
}

func keyLimitReopen(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 2 })
	a := stateIDs(e.each(e.specs(6, limitedBy("a"))...))
	held := e.claim(2)
	e.reopen()
	e.none("after a restart, with all places of the key taken")
	b := e.add(limitedBy("b"))
	e.claimed("of another key, after a restart", 5, []gq.JobID{b.ID})
	e.complete(held[0])
	e.reopen()
	e.claimed("after a completion and a restart", 5, a[2:3])
	e.clock.Set(held[1].State.Lease.ExpiresAt)
	e.reopen()
	n := 0
	for _, j := range e.claim(5) {
		if j.Spec.LimitKey == "a" {
			n++
		}
	}
	if n != 2 {
		e.Errorf("with all leases run out and a restart %d jobs of the key can be held, want 2", n)
	}
}

func keyLimitBatch(e *env) {
	e.putPool("p", 3)
	for name, limit := range map[string]func(*gq.Queue){
		"key": func(q *gq.Queue) { q.KeyLimit = 3 }, "running": func(q *gq.Queue) { q.MaxRunning = 3 },
		"pool": func(q *gq.Queue) { q.Pool = "p" }, "rate": func(q *gq.Queue) { q.Rate = gq.Rate{Count: 1, Per: time.Hour, Burst: 3} },
	} {
		e.put(name, limit)
		ids := stateIDs(e.each(e.specs(6, inQueue(name), limitedBy("k"), costing(1))...))
		answers := e.tryClaim(claimOf(2, from(name)), claimOf(2, from(name)), claimOf(2, from(name)))
		var got []gq.JobID
		for _, a := range answers {
			e.check("Claim", a.Err)
			got = append(got, idsOf(a.Jobs)...)
		}
		if !slices.Equal(got, ids[:3]) {
			e.Errorf("limited by %s, three claims for 2 got %s, want %s", name, briefs(got), briefs(ids[:3]))
		}
	}
}

func keyLimitPeek(e *env) {
	e.putPool("p", 7)
	e.put("q", func(q *gq.Queue) {
		q.KeyLimit, q.Pool, q.Fair, q.MaxRunning, q.Rate = 2, "p", true, 9, gq.Rate{Count: 1, Per: time.Second, Burst: 8}
	})
	e.put("r", func(q *gq.Queue) { q.Pool, q.KeyLimit = "p", 1 })
	for i := range 30 {
		e.add(limitedBy([]string{"a", "b", "", "c"}[i%4]), costing(int64(i%3)), func(s *gq.Spec) { s.FairKey = []string{"x", "y", "z"}[i/10] })
		e.add(inQueue("r"), limitedBy([]string{"a", "b"}[i%2]), costing(1))
	}
	for round := range 4 {
		for n := 1; n < 12; n++ {
			if first, second := e.peek(n, from("q", "r")), e.peek(n, from("q", "r")); !slices.Equal(first, second) {
				e.Fatalf("round %d: Peek for %d found %s and then %s", round, n, briefs(first), briefs(second))
			}
		}
		n := 2 + round
		want := e.peek(n, from("q", "r"))
		if round == 0 && len(want) != n {
			e.Fatalf("Peek for %d found %d jobs", n, len(want))
		}
		e.claimed(fmt.Sprintf("round %d: after Peek", round), n, want, from("q", "r"))
		e.clock.Advance(time.Second)
	}
}

func keyLimitConcurrent(e *env) {
	e.putPool("p", 9)
	e.put("q", func(q *gq.Queue) { q.KeyLimit, q.Pool = 2, "p" })
	specs := e.specs(120, costing(1))
	for i := range specs {
		specs[i].LimitKey = fmt.Sprint(i % 7)
	}
	e.insert(specs...)
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		held = make(map[string]int)
		all  int
	)
	for range 10 {
		wait.Go(func() {
			for range 3 {
				answers, err := e.s.Claim(e.Context(), []store.Claim{claimOf(2), claimOf(1)})
				if err != nil || answers[0].Err != nil || answers[1].Err != nil {
					e.Errorf("Claim: %v, %+v", err, answers)
					return
				}
				mu.Lock()
				for _, j := range append(answers[0].Jobs, answers[1].Jobs...) {
					held[j.Spec.LimitKey]++
					all++
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if all != 9 {
		e.Errorf("%d jobs are held at once, want the capacity, 9", all)
	}
	for key, n := range held {
		if n > 2 {
			e.Errorf("%d jobs of key %s are held at once, want KeyLimit, 2", n, key)
		}
	}
}
