package storetest

import (
	"time"

	"github.com/gopherqueue/gq"
)

var rateCases = []Case{
	{
		Name:   "Rate/Claims",
		Clause: "a queue with a rate hands out its burst at once and then one in each interval, whoever asks",
		run:    rateClaims,
	},
	{
		Name:   "Rate/RetryAt",
		Clause: "a claim that only a rate kept from another job says when that lets one through, and no other claim does",
		run:    rateRetryAt,
	},
	{
		Name:   "Rate/Queues",
		Clause: "a queue whose rate is used up does not hold up the others of a claim, and the earliest of them is named",
		run:    rateQueues,
	},
	{
		Name:   "Rate/Peek",
		Clause: "Peek shows what a rate would let a claim have, and uses nothing of it up",
		run:    ratePeek,
	},
	{
		Name:   "Rate/Unused",
		Clause: "a claim that gets nothing uses nothing up, and a job that is tried again counts again",
		run:    rateUnused,
	},
	{
		Name:   "Rate/Changed",
		Clause: "a new rate counts from the next claim on; nobody waits for what a slower one left behind",
		run:    rateChanged,
	},
	{
		Name:    "Rate/Reopen",
		Clause:  "what was used up of a rate is used up after a restart",
		Reopens: true,
		run:     rateReopen,
	},
}

func (e *env) rated(queue string, r gq.Rate) {
	e.Helper()
	e.put(queue, func(q *gq.Queue) { q.Rate = r })
}

// limited fails unless a claim for n gets the given number of jobs and returns the given
// time to retry; zero means none.
func (e *env) limited(what string, n, want int, retry time.Time, asks ...asking) {
	e.Helper()
	answer := e.tryClaim(claimOf(n, asks...))[0]
	e.check("Claim", answer.Err)
	if len(answer.Jobs) != want {
		e.Fatalf("%s: a claim for %d got %d jobs, want %d", what, n, len(answer.Jobs), want)
	}
	if !answer.RetryAt.Equal(retry) {
		e.Errorf("%s: the claim is told to come back at %v, want %v (now is %v)", what, answer.RetryAt, retry, e.now())
	}
}

func rateClaims(e *env) {
	e.rated("q", gq.Rate{Count: 2, Per: time.Second, Burst: 3})
	e.insert(e.specs(20)...)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	e.limited("at first", 10, 3, after(500*time.Millisecond))
	e.limited("at once again", 10, 0, after(500*time.Millisecond))
	e.clock.Set(after(500*time.Millisecond - 1))
	e.limited("1 ns too early", 10, 0, after(500*time.Millisecond))
	e.clock.Set(after(500 * time.Millisecond))
	e.limited("after an interval", 10, 1, after(time.Second))
	e.clock.Set(after(1500 * time.Millisecond))
	e.limited("after two more", 1, 1, time.Time{})
	e.limited("the second of them", 10, 1, after(2*time.Second))
	e.clock.Set(after(time.Hour))
	e.limited("after a pause", 10, 3, after(time.Hour+500*time.Millisecond))

	e.rated("even", gq.Rate{Count: 1, Per: time.Second})
	e.insert(e.specs(3, inQueue("even"))...)
	e.limited("without a burst", 10, 1, e.now().Add(time.Second), from("even"))
}

func rateRetryAt(e *env) {
	slow := gq.Rate{Count: 1, Per: time.Minute}
	e.rated("q", slow)
	e.add(ofType("a"))
	e.limited("a claim that gets all there is", 5, 1, time.Time{})
	e.limited("a claim with nothing to get", 5, 0, time.Time{})
	later := e.now().Add(time.Minute)
	e.add(ofType("a"), costing(5), limitedBy("k"))
	e.limited("a claim that the rate keeps from a job", 5, 0, later)
	e.limited("a claim for another type", 5, 0, time.Time{}, types("b"))
	e.limited("a claim that could not afford it", 5, 0, time.Time{}, upTo(4))
	e.putPool("p", 4)
	for what, limit := range map[string]func(*gq.Queue){
		"paused":          func(q *gq.Queue) { q.Paused = true },
		"at MaxRunning":   func(q *gq.Queue) { q.MaxRunning = 1 },
		"of a small pool": func(q *gq.Queue) { q.Pool = "p" },
	} {
		e.put("q", func(q *gq.Queue) { q.Rate = slow; limit(q) })
		e.limited("in a queue "+what, 5, 0, time.Time{})
	}
	e.put("q", func(q *gq.Queue) { q.Rate, q.KeyLimit = slow, 1 })
	e.limited("under another limit that leaves room", 5, 0, later)
	e.clock.Set(later)
	e.limited("when the time has come", 5, 1, time.Time{})
	e.add(limitedBy("k"))
	e.limited("with its key full", 5, 0, time.Time{})
}

func rateQueues(e *env) {
	e.rated("a", gq.Rate{Count: 1, Per: time.Minute})
	e.rated("b", gq.Rate{Count: 1, Per: time.Second})
	e.insert(e.specs(3, inQueue("a"))...)
	e.insert(e.specs(3, inQueue("b"))...)
	e.insert(e.specs(3, inQueue("c"))...)
	e.limited("of three queues", 3, 3, time.Time{}, from("a", "b", "c"))
	e.limited("with two rates used up", 5, 2, e.now().Add(time.Second), from("a", "b", "c"))
	e.limited("of the slower one", 5, 0, e.now().Add(time.Minute), from("a", "c"))
	e.limited("the other way round", 5, 0, e.now().Add(time.Second), from("b", "a"))
}

func ratePeek(e *env) {
	e.rated("q", gq.Rate{Count: 1, Per: time.Minute, Burst: 2})
	ids := stateIDs(e.each(e.specs(4)...))
	other := e.add(inQueue("other"))
	for range 2 {
		e.equal("Peek under a rate", e.peek(10, from("q", "other")), []gq.JobID{ids[0], ids[1], other.ID})
	}
	e.claimed("under the rate", 10, ids[:2])
	e.equal("Peek when the rate is used up", e.peek(10, from("q", "other")), []gq.JobID{other.ID})
	e.clock.Advance(time.Minute)
	e.equal("Peek after an interval", e.peek(10), ids[2:3])
}

func rateUnused(e *env) {
	e.rated("q", gq.Rate{Count: 1, Per: time.Minute, Burst: 2})
	for range 5 {
		e.limited("in an empty queue", 5, 0, time.Time{})
	}
	e.insert(e.specs(4)...)
	e.limited("after claims for nothing", 1, 1, time.Time{})
	e.none("for a type that nobody submitted", types("other"))
	j := e.one()
	s := e.update(j.State.ID, releasing(j.State.Lease.Ref(), 0, "not now"))
	if s.Status != gq.StatusScheduled {
		e.Fatalf("the released job is %s", s.Status)
	}
	e.limited("for a job that was given back", 5, 0, e.now().Add(time.Minute))
}

func rateChanged(e *env) {
	e.rated("q", gq.Rate{Count: 1, Per: 24 * time.Hour})
	e.insert(e.specs(30)...)
	e.limited("under a slow rate", 5, 1, start.Add(24*time.Hour))
	e.rated("q", gq.Rate{Count: 10, Per: time.Second})
	e.clock.Advance(time.Second)
	e.limited("a second after it was made faster", 5, 1, e.now().Add(100*time.Millisecond))
	e.rated("q", gq.Rate{})
	e.limited("without a rate", 5, 5, time.Time{})
	e.rated("q", gq.Rate{Count: 1, Per: time.Second, Burst: 2})
	e.clock.Advance(time.Minute)
	e.limited("under a rate again", 5, 2, e.now().Add(time.Second))
}

func rateReopen(e *env) {
	e.rated("q", gq.Rate{Count: 1, Per: time.Minute, Burst: 2})
	e.insert(e.specs(10)...)
	e.limited("before the restart", 2, 2, time.Time{})
	e.reopen()
	e.limited("after it", 5, 0, start.Add(time.Minute))
	e.clock.Set(start.Add(time.Minute))
	e.limited("after an interval", 5, 1, start.Add(2*time.Minute))
	e.reopen()
	e.limited("after a second restart", 5, 0, start.Add(2*time.Minute))
}
