package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var keyCrowdCases = []Case{
	{
		Name:   "KeyRate/Crowd",
		Clause: "however many jobs wait for the rate of their key, each unit that becomes free lets the first of them that a claim selects through, by their present order, and a new rate counts for all of them",
		run:    keyRateCrowd,
	},
	{
		Name:   "KeyRate/Limited",
		Clause: "a KeyLimit counts the running jobs of a key that were claimed when the queue had only a KeyRate",
		run:    keyRateLimited,
	},
}

func keyRateCrowd(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute, Burst: 2})
	var x, y []gq.JobID // of key a, in turns
	for range 30 {
		x = append(x, e.add(limitedBy("a"), ofType("x"), costing(2)).ID)
		y = append(y, e.add(limitedBy("a"), ofType("y"), requiring("disk")).ID)
	}
	b := stateIDs(e.each(e.specs(3, limitedBy("b"), ofType("x"))...))
	step := func(what string, n int, want []gq.JobID, asks ...asking) {
		e.Helper()
		e.equal("Peek "+what, e.peek(n, asks...), want)
		jobs := e.claim(n, asks...)
		if got := idsOf(jobs); !slices.Equal(got, want) {
			e.Fatalf("%s: claimed %s, want %s", what, briefs(got), briefs(want))
		}
		for _, j := range jobs {
			e.complete(j)
		}
	}
	step("at first", 10, []gq.JobID{x[0], x[1], b[0], b[1]})
	e.none("with all used up")
	e.none("of a filter with all used up", types("y"), offering("disk"))
	e.equal("the queues with jobs for later", e.waiting("", "", 10), []string{"q"})

	e.clock.Advance(time.Minute)
	step("of one type", 10, []gq.JobID{y[0]}, types("y"), offering("disk"))
	step("of the rest", 10, []gq.JobID{b[2]})
	urgent := e.add(limitedBy("a"), at(gq.PriorityCritical))
	e.update(x[2], cancelling("not needed"))
	e.check("a new priority", e.tryUpdate(store.Update{Ref: byID(x[20]), Apply: updating(gq.PriorityHigh)})[0].Err)
	e.none("of the urgent job")

	e.clock.Advance(time.Minute)
	step("the urgent job first", 10, []gq.JobID{urgent.ID}, offering("disk"))
	e.clock.Advance(time.Minute)
	step("then the one with a higher priority", 10, []gq.JobID{x[20]}, offering("disk"))
	e.clock.Advance(time.Minute)
	step("by cost", 10, []gq.JobID{y[1]}, offering("disk"), upTo(1))
	e.clock.Advance(time.Hour)
	step("no more than the burst after a pause", 10, []gq.JobID{y[2], x[3]}, offering("disk"))
	e.none("after that", offering("disk"))
	e.clock.Advance(time.Minute)
	step("one for a claim of one", 1, []gq.JobID{x[4]})
	e.clock.Advance(time.Minute)

	e.keyRated(gq.Rate{Count: 1, Per: time.Second, Burst: 4})
	e.clock.Advance(time.Minute)
	step("under a new rate", 10, []gq.JobID{y[3], y[4], x[5], y[5]}, offering("disk"))
	e.none("with that used up", offering("disk"))
	e.put("q", func(*gq.Queue) {})
	var rest []gq.JobID
	for i := 6; i < 30; i++ {
		if i != 20 {
			rest = append(rest, x[i])
		}
		rest = append(rest, y[i])
	}
	step("without a rate", 100, rest, offering("disk"))
}

func keyRateLimited(e *env) {
	e.keyRated(gq.Rate{Count: 100, Per: time.Second, Burst: 100})
	ids := []gq.JobID{}
	for range 4 {
		ids = append(ids, e.add(limitedBy("a")).ID, e.add(limitedBy("b")).ID)
	}
	held := e.claim(5) // three of a, two of b
	if got := idsOf(held); !slices.Equal(got, ids[:5]) {
		e.Fatalf("claimed %s, want %s", briefs(got), briefs(ids[:5]))
	}
	e.put("q", func(q *gq.Queue) { q.KeyLimit = 3 })
	e.claimed("up to the new limit", 10, ids[5:6])
	e.none("at the limits")
	e.complete(held[0])
	e.claimed("after a job of one key has ended", 10, ids[6:7])
	e.complete(held[1])
	e.claimed("after a job of the other has ended", 10, ids[7:8])
}
