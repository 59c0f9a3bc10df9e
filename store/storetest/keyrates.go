package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var keyRateCases = []Case{
	{
		Name:   "KeyRate/Claims",
		Clause: "each limit key of a queue with a KeyRate gets its burst at once and then one unit in each interval; other keys and jobs without one do not wait for it",
		run:    keyRateClaims,
	},
	{
		Name:   "KeyRate/Weight",
		Clause: "a claim uses up as many units as the job's weight; one free unit is enough, and the key then owes the rest",
		run:    keyRateWeight,
	},
	{
		Name:   "KeyRate/Filter",
		Clause: "a key whose rate is used up hides no job of others, whatever the filter, and none of its own once it is free",
		run:    keyRateFilter,
	},
	{
		Name:   "KeyRate/RetryAt",
		Clause: "a claim that only the rate of keys kept from another job says when the first of them lets one through",
		run:    keyRateRetryAt,
	},
	{
		Name:   "KeyRate/Tells",
		Clause: "a claim says that the rate of a key kept jobs from it, and not if that was the rate of the queue or nothing",
		run:    keyRateTells,
	},
	{
		Name:   "KeyRate/Limits",
		Clause: "KeyRate holds besides KeyLimit, MaxRunning and Rate; a job that another limit refuses uses nothing up",
		run:    keyRateLimits,
	},
	{
		Name:   "KeyRate/Retry",
		Clause: "a job that is tried again counts again",
		run:    keyRateRetry,
	},
	{
		Name:   "KeyRate/Peek",
		Clause: "Peek honours the rates of keys as a claim does, and uses nothing up",
		run:    keyRatePeek,
	},
	{
		Name:   "KeyRate/Changed",
		Clause: "a new KeyRate counts from the next claim on; the units that a key owes stay",
		run:    keyRateChanged,
	},
	{
		Name:    "KeyRate/Reopen",
		Clause:  "what a key owes it owes after a restart, under a rate that changed as well",
		Reopens: true,
		run:     keyRateReopen,
	},
	{
		Name:   "KeyRate/Idle",
		Clause: "a key keeps owing while it has no jobs",
		run:    keyRateIdle,
	},
	{
		Name:   "OwnKey/Limits",
		Clause: "a key with limits of its own keeps these, from the next claim on, and the queue's for the rest",
		run:    ownKeyLimits,
	},
	{
		Name:   "OwnKey/Alone",
		Clause: "a key can be the only one of its queue with a limit; without it the queue is not limited any more",
		run:    ownKeyAlone,
	},
	{
		Name:   "OwnKey/List",
		Clause: "Keys lists the keys with limits of their own by name, page by page, and any key by name; the queue tells how many there are",
		run:    ownKeyList,
	},
	{
		Name:   "OwnKey/Faults",
		Clause: "PutKey refuses faults, queues that are not configured, and to remove what is not there, and changes nothing",
		run:    ownKeyFaults,
	},
	{
		Name:    "OwnKey/Reopen",
		Clause:  "limits of keys are there after a restart",
		Reopens: true,
		run:     ownKeyReopen,
	},
}

func weighing(n int) setting { return func(s *gq.Spec) { s.Weight = n } }

func (e *env) keyRated(r gq.Rate) {
	e.Helper()
	e.put("q", func(q *gq.Queue) { q.KeyRate = r })
}

func (e *env) putKey(k gq.QueueKey) {
	e.Helper()
	e.check("PutKey", e.store().PutKey(e.Context(), k))
}

func (e *env) keys(q store.KeyQuery) []gq.QueueKey {
	e.Helper()
	keys, err := e.store().Keys(e.Context(), q)
	e.check("Keys", err)
	return keys
}

func keyRateClaims(e *env) {
	e.keyRated(gq.Rate{Count: 2, Per: time.Second, Burst: 3})
	a := stateIDs(e.each(e.specs(9, limitedBy("a"))...))
	b := stateIDs(e.each(e.specs(5, limitedBy("b"))...))
	none := stateIDs(e.each(e.specs(6)...))
	after := func(d time.Duration) time.Time { return start.Add(d) }
	e.claimed("at first", 11, slices.Concat(a[:3], b[:3], none[:5]))
	e.limited("at once again", 10, 1, after(500*time.Millisecond))
	e.clock.Set(after(500*time.Millisecond - 1))
	e.limited("1 ns too early", 10, 0, after(500*time.Millisecond))
	e.clock.Set(after(500 * time.Millisecond))
	e.claimed("after an interval", 10, []gq.JobID{a[3], b[3]})
	e.clock.Set(after(time.Minute))
	e.claimed("after a pause", 10, []gq.JobID{a[4], a[5], a[6], b[4]})
	e.limited("after that", 10, 0, after(time.Minute+500*time.Millisecond))
	e.each(e.specs(2, inQueue("other"), limitedBy("a"))...)
	e.limited("of another queue", 10, 2, time.Time{}, from("other"))
}

func keyRateWeight(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Second, Burst: 3})
	var ids []gq.JobID
	for _, weight := range []int{2, 5, 1, 0, 1, 1} {
		ids = append(ids, e.add(limitedBy("a"), weighing(weight)).ID)
	}
	e.claimed("two units and five", 10, ids[:2]) // owes seven, of which three are the burst
	at := start.Add(5 * time.Second)
	e.limited("at once", 10, 0, at)
	e.clock.Set(at)
	e.claimed("when one unit is free", 10, ids[2:3])
	e.limited("and no more", 10, 0, at.Add(time.Second))
	e.clock.Set(at.Add(10 * time.Second))
	e.claimed("after a pause", 10, ids[3:6])
}

func keyRateFilter(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute})
	first := e.add(limitedBy("a"), ofType("x"))
	x := e.add(limitedBy("a"), ofType("x"), costing(5))
	y := e.add(limitedBy("a"), ofType("y"))
	other := e.add(limitedBy("b"), ofType("y"), costing(3))
	cheap := e.add(limitedBy("b"), ofType("x"))
	e.claimed("the first of each key", 10, []gq.JobID{first.ID, other.ID})
	e.clock.Advance(time.Minute)
	e.claimed("by type", 10, []gq.JobID{y.ID}, types("y"))
	e.claimed("by cost", 10, []gq.JobID{cheap.ID}, upTo(4))
	e.none("with both used up")
	e.clock.Advance(time.Minute)
	e.none("of another type", types("z"))
	e.claimed("in the end", 10, []gq.JobID{x.ID})
}

func keyRateRetryAt(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute})
	e.add(limitedBy("a"))
	e.limited("a claim that gets all there is", 5, 1, time.Time{})
	e.limited("a claim with nothing to get", 5, 0, time.Time{})
	e.clock.Advance(20 * time.Second)
	e.add(limitedBy("b"))
	e.limited("of another key", 1, 1, time.Time{})
	e.add(limitedBy("b"))
	e.limited("a claim that one key keeps from a job", 5, 0, e.now().Add(time.Minute))
	waiting := e.add(limitedBy("a"))
	e.limited("a claim that two keys do", 5, 0, start.Add(time.Minute))
	e.update(waiting.ID, cancelling("not needed"))
	e.clock.Set(start.Add(time.Minute))
	e.limited("after the job of one was cancelled", 5, 0, start.Add(80*time.Second))
	e.clock.Set(start.Add(80 * time.Second))
	e.limited("when the time has come", 5, 1, time.Time{})
	e.limited("with nothing left", 5, 0, time.Time{})

	e.each(e.specs(2, limitedBy("a"))...)
	first := e.now().Add(time.Minute)
	e.limited("the first of two", 5, 1, first)
	e.clock.Advance(20 * time.Second)
	e.each(e.specs(2, limitedBy("c"))...)
	e.limited("a claim that uses up another key while the first waits", 5, 1, first)
}

func keyRateTells(e *env) {
	tells := func(what string, want bool, c store.Claim) {
		e.Helper()
		answer := e.tryClaim(c)[0]
		e.check("Claim", answer.Err)
		if answer.KeyRate != want {
			e.Errorf("%s: the claim got %d of %d jobs; the rate of a key kept jobs from it: %v", what, len(answer.Jobs), c.N, answer.KeyRate)
		}
	}
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute})
	tells("without jobs", false, claimOf(1))
	e.insert(e.specs(3, limitedBy("a"))...)
	tells("that gets all it asked for", false, claimOf(1))
	tells("with the rate used up", true, claimOf(5))
	e.rated("slow", gq.Rate{Count: 1, Per: time.Minute})
	e.insert(e.specs(2, inQueue("slow"))...)
	tells("with the rate of the queue", false, claimOf(5, from("slow")))
	e.clock.Advance(time.Minute)
	tells("for more jobs than the key has", true, claimOf(5))
}

func keyRateLimits(e *env) {
	e.put("q", func(q *gq.Queue) {
		q.KeyRate, q.KeyLimit = gq.Rate{Count: 1, Per: time.Second, Burst: 2}, 1
	})
	ids := stateIDs(e.each(e.specs(4, limitedBy("a"))...))
	first := e.claim(10)
	if got := idsOf(first); !slices.Equal(got, ids[:1]) {
		e.Fatalf("claimed %s, want %s", briefs(got), briefs(ids[:1]))
	}
	e.limited("at the key's limit", 10, 0, time.Time{})
	e.complete(first[0])
	second := e.claim(10)
	if got := idsOf(second); !slices.Equal(got, ids[1:2]) {
		e.Fatalf("claimed %s, want %s", briefs(got), briefs(ids[1:2]))
	}
	e.complete(second[0])
	e.limited("with its burst used up", 10, 0, start.Add(time.Second))
	e.put("q", func(q *gq.Queue) {
		q.KeyRate, q.Rate = gq.Rate{Count: 1, Per: time.Second, Burst: 2}, gq.Rate{Count: 1, Per: time.Hour}
	})
	e.clock.Advance(time.Second)
	e.claimed("under both rates", 10, ids[2:3])
	e.clock.Advance(time.Second)
	e.limited("under the queue's rate", 10, 0, start.Add(time.Second+time.Hour))
	e.put("q", func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 1, Per: time.Second, Burst: 2} })
	e.claimed("without the queue's rate, which used nothing of the key's up", 10, ids[3:])
}

func keyRateRetry(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute, Burst: 2})
	e.each(e.specs(2, limitedBy("a"))...)
	j := e.one()
	if s := e.update(j.State.ID, releasing(j.State.Lease.Ref(), 0, "not now")); s.Status != gq.StatusScheduled {
		e.Fatalf("the released job is %s", s.Status)
	}
	e.limited("for a job that was given back", 1, 1, time.Time{})
	e.limited("after two claims", 5, 0, start.Add(time.Minute))
}

func keyRatePeek(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute, Burst: 2})
	a := stateIDs(e.each(e.specs(2, limitedBy("a"), weighing(5))...))
	b := stateIDs(e.each(e.specs(3, limitedBy("b"))...))
	for range 2 {
		e.equal("Peek", e.peek(10), []gq.JobID{a[0], b[0], b[1]})
	}
	e.claimed("as Peek said", 10, []gq.JobID{a[0], b[0], b[1]})
	e.equal("Peek when all is used up", e.peek(10), []gq.JobID(nil))
	e.clock.Advance(time.Minute)
	e.equal("Peek after an interval", e.peek(10), b[2:])
	e.claimed("after an interval", 10, b[2:])
}

func keyRateChanged(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Hour})
	e.each(e.specs(30, limitedBy("a"))...)
	e.limited("under a slow rate", 5, 1, start.Add(time.Hour))
	e.keyRated(gq.Rate{Count: 1, Per: time.Second})
	e.limited("after it was made faster", 5, 0, start.Add(time.Second))
	e.clock.Advance(time.Second)
	e.limited("a second later", 5, 1, start.Add(2*time.Second))
	e.keyRated(gq.Rate{Count: 1, Per: time.Second, Burst: 3})
	e.limited("with a larger burst", 5, 2, start.Add(2*time.Second))
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute, Burst: 3})
	e.clock.Advance(time.Second)
	e.limited("after it was made slower", 5, 0, start.Add(61*time.Second))
	e.keyRated(gq.Rate{})
	e.limited("without a rate", 5, 5, time.Time{})
	e.keyRated(gq.Rate{Count: 1, Per: time.Second, Burst: 2})
	e.limited("under a rate again", 5, 2, e.now().Add(time.Second))
}

func keyRateReopen(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute, Burst: 2})
	e.each(e.specs(2, limitedBy("gone"))...)
	for _, j := range e.claim(10) {
		e.complete(j)
	}
	e.each(e.specs(5, limitedBy("a"), weighing(2))...)
	e.limited("before the restart", 1, 1, time.Time{})
	e.reopen()
	e.limited("after it", 5, 0, start.Add(time.Minute))
	e.each(e.specs(1, limitedBy("gone"))...)
	e.limited("for a key that had no jobs", 5, 0, start.Add(time.Minute))
	e.clock.Set(start.Add(time.Minute))
	e.limited("after an interval", 5, 2, start.Add(3*time.Minute))
	e.reopen()
	e.limited("after a second restart", 5, 0, start.Add(3*time.Minute))
	e.keyRated(gq.Rate{Count: 1, Per: time.Hour, Burst: 2})
	e.reopen()
	e.limited("under a slower rate, after a restart", 5, 0, start.Add(time.Minute+2*time.Hour))
	e.putKey(gq.QueueKey{Queue: "q", Key: "a", Rate: gq.Rate{Count: 1, Per: time.Second, Burst: 2}})
	e.reopen()
	e.limited("under a faster rate of its own, after a restart", 5, 0, start.Add(time.Minute+2*time.Second))
}

func keyRateIdle(e *env) {
	e.keyRated(gq.Rate{Count: 1, Per: time.Minute})
	at := func() time.Time {
		e.Helper()
		keys := e.keys(store.KeyQuery{Queue: "q", Names: []string{"a"}})
		if len(keys) != 1 || keys[0].Queue != "q" || keys[0].Key != "a" || !keys[0].UpdatedAt.IsZero() {
			e.Fatalf("Keys of a key without limits of its own: %+v", keys)
		}
		return keys[0].FreeAt
	}
	e.equal("FreeAt of a new key", at(), time.Time{})
	e.add(limitedBy("a"))
	e.complete(e.one())
	if got, want := at(), start.Add(time.Minute); !got.Equal(want) {
		e.Errorf("FreeAt is %v, want %v", got, want)
	}
	e.add(limitedBy("a"))
	e.limited("a second job", 5, 0, start.Add(time.Minute))
	e.clock.Advance(time.Minute)
	e.complete(e.one())
	e.clock.Advance(time.Hour)
	e.equal("FreeAt after an hour", at(), time.Time{})
	e.add(limitedBy("a"))
	e.limited("after an hour", 5, 1, time.Time{})
}

func ownKeyLimits(e *env) {
	e.put("q", func(q *gq.Queue) { q.KeyLimit, q.KeyRate = 1, gq.Rate{Count: 1, Per: time.Hour, Burst: 100} })
	a := stateIDs(e.each(e.specs(9, limitedBy("a"))...))
	b := stateIDs(e.each(e.specs(9, limitedBy("b"))...))
	e.claimed("under the queue's limit", 10, []gq.JobID{a[0], b[0]})
	e.putKey(gq.QueueKey{Queue: "q", Key: "a", Limit: 3})
	e.claimed("with a larger limit for one", 10, a[1:3])
	e.putKey(gq.QueueKey{Queue: "q", Key: "b", Limit: 100, Rate: gq.Rate{Count: 1, Per: time.Second, Burst: 2}})
	e.limited("with another rate too", 10, 1, start.Add(time.Second)) // one of two units is used up
	e.clock.Advance(time.Second)
	e.claimed("a second later", 10, b[2:3])
	e.put("q", func(q *gq.Queue) { q.KeyLimit, q.KeyRate = 2, gq.Rate{Count: 1, Per: time.Hour, Burst: 3} })
	e.limited("after a change of the queue's limits, which are not theirs", 10, 0, start.Add(2*time.Second))
	e.putKey(gq.QueueKey{Queue: "q", Key: "a", Limit: 5})
	e.limited("under the queue's new rate", 10, 0, start.Add(2*time.Second)) // that of b
}

func ownKeyAlone(e *env) {
	e.put("q", func(*gq.Queue) {})
	a := stateIDs(e.each(e.specs(4, limitedBy("a"))...))
	b := stateIDs(e.each(e.specs(2, limitedBy("b"))...))
	e.putKey(gq.QueueKey{Queue: "q", Key: "a", Limit: 1})
	e.claimed("with a limit for one key", 10, []gq.JobID{a[0], b[0], b[1]})
	e.put("q", func(q *gq.Queue) { q.MaxDepth = 100 })
	e.limited("after the queue was configured", 10, 0, time.Time{})
	e.putKey(gq.QueueKey{Queue: "q", Key: "a"})
	e.claimed("without limits", 10, a[1:])
}

func ownKeyList(e *env) {
	e.put("q", func(*gq.Queue) {})
	e.put("r", func(*gq.Queue) {})
	e.putKey(gq.QueueKey{Queue: "r", Key: "k3", Limit: 7})
	rate := gq.Rate{Count: 2, Per: time.Minute, Burst: 5}
	for i := range 7 {
		e.putKey(gq.QueueKey{Queue: "q", Key: fmt.Sprint("k", i), Limit: i + 1, Rate: rate})
	}
	e.putKey(gq.QueueKey{Queue: "q", Key: "k0", Limit: 50})
	e.putKey(gq.QueueKey{Queue: "q", Key: "k6"})
	own := func() int {
		e.Helper()
		queues, err := e.store().Queues(e.Context(), store.QueueQuery{Names: []string{"q"}})
		e.check("Queues", err)
		return queues[0].OwnKeys
	}
	if got := own(); got != 6 {
		e.Errorf("OwnKeys is %d, want 6", got)
	}
	e.put("q", func(q *gq.Queue) { q.OwnKeys = 99 })
	if got := own(); got != 6 {
		e.Errorf("OwnKeys is %d after the queue was configured, want 6", got)
	}
	var names []string
	for after := ""; ; {
		page := e.keys(store.KeyQuery{Queue: "q", After: after, Limit: 4})
		for _, k := range page {
			if k.Queue != "q" || k.UpdatedAt.IsZero() || !k.FreeAt.IsZero() {
				e.Errorf("listed %+v", k)
			}
			names = append(names, k.Key)
		}
		if len(page) < 4 {
			break
		}
		after = names[len(names)-1]
	}
	e.equal("the pages", names, []string{"k0", "k1", "k2", "k3", "k4", "k5"})
	named := e.keys(store.KeyQuery{Queue: "q", Names: []string{"k3", "none", "k0"}})
	if len(named) != 3 || named[0].Limit != 4 || named[0].Rate != rate || named[1] != (gq.QueueKey{Queue: "q", Key: "none"}) || named[2].Limit != 50 || named[2].Rate.Limited() {
		e.Errorf("by name: %+v", named)
	}
	e.check("DeleteQueue", e.store().DeleteQueue(e.Context(), "q"))
	e.put("q", func(*gq.Queue) {})
	if got := e.keys(store.KeyQuery{Queue: "q"}); len(got) != 0 || own() != 0 {
		e.Errorf("after the queue was deleted and made again: %+v", got)
	}
	if got := e.keys(store.KeyQuery{Queue: "r"}); len(got) != 1 || got[0].Limit != 7 {
		e.Errorf("of the other queue: %+v", got)
	}
	if got := e.keys(store.KeyQuery{Queue: "unknown"}); len(got) != 0 {
		e.Errorf("of an unknown queue: %+v", got)
	}
}

func ownKeyFaults(e *env) {
	e.put("q", func(*gq.Queue) {})
	for _, c := range []struct {
		key  gq.QueueKey
		want error
	}{
		{gq.QueueKey{Queue: "q", Key: "", Limit: 1}, gq.ErrInvalid},
		{gq.QueueKey{Queue: "q", Key: "a", Limit: -1}, gq.ErrInvalid},
		{gq.QueueKey{Queue: "q", Key: "a", Rate: gq.Rate{Count: 1}}, gq.ErrInvalid},
		{gq.QueueKey{Queue: "no queue", Key: "a", Limit: 1}, gq.ErrInvalid},
		{gq.QueueKey{Queue: "unknown", Key: "a", Limit: 1}, gq.ErrNotFound},
		{gq.QueueKey{Queue: "q", Key: "a"}, gq.ErrNotFound},
	} {
		if err := e.store().PutKey(e.Context(), c.key); !errors.Is(err, c.want) {
			e.Errorf("PutKey %+v: %v, want %v", c.key, err, c.want)
		}
	}
	if _, err := e.store().Keys(e.Context(), store.KeyQuery{Queue: "q", Limit: store.MaxPage + 1}); !errors.Is(err, gq.ErrInvalid) {
		e.Errorf("Keys with too large a limit: %v", err)
	}
	if got := e.keys(store.KeyQuery{Queue: "q"}); len(got) != 0 {
		e.Errorf("after all that: %+v", got)
	}
}

func ownKeyReopen(e *env) {
	e.put("q", func(*gq.Queue) {})
	e.each(e.specs(5, limitedBy("a"))...)
	e.putKey(gq.QueueKey{Queue: "q", Key: "a", Limit: 2, Rate: gq.Rate{Count: 1, Per: time.Minute, Burst: 4}})
	before := e.keys(store.KeyQuery{Queue: "q"})
	e.reopen()
	after := e.keys(store.KeyQuery{Queue: "q"})
	if len(before) != 1 || len(after) != 1 || !after[0].UpdatedAt.Equal(before[0].UpdatedAt) || after[0].Limit != 2 || after[0].Rate != before[0].Rate {
		e.Errorf("after a restart %+v, before %+v", after, before)
	}
	e.limited("after a restart", 5, 2, time.Time{})
}
