package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/store"
)

var claimCases = []Case{
	{
		Name:   "Claim/Slow",
		Clause: "a claim looks at the clock again before it answers, and gives back without fault what it has left too little time for",
		run:    claimSlow,
	},
	{
		Name:   "Claim/Priority",
		Clause: "the more urgent level is served first: 0 to 4, whatever the order of submission",
		Covers: []string{"Q-09", "J-40", "J-41", "J-42", "J-44", "J-45", "J-46", "J-48"},
		run:    claimPriority,
	},
	{
		Name:   "Claim/FIFO",
		Clause: "within a level the order of submission holds, however many jobs wait",
		Covers: []string{"Q-07", "J-47"},
		run:    claimFIFO,
	},
	{
		Name:   "Claim/Overtakes",
		Clause: "an urgent job goes to the front of a thousand that wait, and takes nothing from those that run",
		Covers: []string{"Q-17", "J-49"},
		run:    claimOvertakes,
	},
	{
		Name:   "Claim/RetryKeepsPlace",
		Clause: "a job that is tried again keeps its place by submission, once its backoff is over",
		Covers: []string{"Q-16"},
		run:    claimRetryPlace,
	},
	{
		Name:   "Claim/Queues",
		Clause: "queues are served in the order the claim names them, and no others",
		run:    claimQueues,
	},
	{
		Name:   "Claim/UnknownQueue",
		Clause: "a queue that never had a job is empty, not an error",
		run:    claimUnknownQueue,
	},
	{
		Name:   "Claim/Number",
		Clause: "a claim finds as many jobs as it asked for while there are so many, and never more",
		run:    claimNumber,
	},
	{
		Name:   "Claim/Batch",
		Clause: "the claims of one call share nothing, and each has its own answer",
		run:    claimBatch,
	},
	{
		Name:   "Claim/Invalid",
		Clause: "a claim that cannot be is ErrInvalid, naming what is wrong",
		run:    claimInvalid,
	},
	{
		Name:   "Claim/Peek",
		Clause: "Peek reads the jobs a claim would get, in order, and changes nothing",
		run:    claimPeek,
	},
}

func claimPriority(e *env) {
	specs := e.specs(10)
	levels := []gq.Priority{gq.PriorityBulk, gq.PriorityNormal, gq.PriorityCritical, gq.PriorityLow, gq.PriorityHigh}
	for i := range specs {
		specs[i].Metadata.Priority = levels[i%len(levels)]
	}
	e.each(specs...)
	var want []gq.JobID
	for _, p := range enum.All[gq.Priority]() {
		for _, s := range specs {
			if s.Metadata.Priority == p {
				want = append(want, s.ID)
			}
		}
	}
	e.claimed("the first half", 5, want[:5])
	e.claimed("the second half", 5, want[5:])
	e.none("with all levels empty")
}

func claimFIFO(e *env) {
	var want []gq.JobID
	for range 4 { // several calls, each with single jobs and a group
		want = append(want, stateIDs(e.each(e.specs(150)...))...)
		want = append(want, stateIDs(e.insert(e.specs(100)...))...)
		e.clock.Advance(time.Millisecond)
	}
	var got []gq.JobID
	for n := 1; len(got) < len(want); n = n*3%101 + 1 { // claims of many sizes
		jobs := e.claim(n)
		if len(jobs) == 0 {
			break
		}
		got = append(got, idsOf(jobs)...)
	}
	if len(got) != len(want) {
		e.Fatalf("claimed %d jobs, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			e.Fatalf("claimed job %d of the queue as number %d", slices.Index(want, got[i])+1, i+1)
		}
	}
}

func claimOvertakes(e *env) {
	bulk := e.insert(e.specs(1000, at(gq.PriorityBulk))...)
	running := e.one()
	urgent := e.add(at(gq.PriorityCritical))
	e.claimed("behind a thousand others", 2, []gq.JobID{urgent.ID, bulk[1].ID})
	e.equal("the job that ran when it came", e.state(running.State.ID), running.State)
	e.complete(running)
}

func claimRetryPlace(e *env) {
	jobs := e.each(e.specs(3)...)
	first := e.fail(e.one(), temporary)
	e.claimed("during the backoff of the first", 1, []gq.JobID{jobs[1].ID})
	e.clock.Set(first.RunAt)
	e.claimed("after the backoff of the first", 2, []gq.JobID{jobs[0].ID, jobs[2].ID})
}

func claimQueues(e *env) {
	a := stateIDs(e.each(e.specs(2, inQueue("a"), at(gq.PriorityBulk))...))
	b := stateIDs(e.each(e.specs(2, inQueue("b"))...))
	c := stateIDs(e.each(e.specs(2, inQueue("c"), at(gq.PriorityCritical))...))
	e.claimed("b before a", 3, []gq.JobID{b[0], b[1], a[0]}, from("b", "a"))
	e.claimed("what is left of a and b", 10, []gq.JobID{a[1]}, from("b", "a", "b"))
	e.claimed("c", 10, c, from("c"))
}

func claimUnknownQueue(e *env) {
	e.none("in a queue that never had a job", from("nowhere"))
	job := e.add()
	e.claimed("behind a queue that never had a job", 5, []gq.JobID{job.ID}, from("nowhere", "q"))
	found, err := e.store().Peek(e.Context(), store.Filter{Queues: []string{"nowhere"}}, 5)
	e.check("Peek", err)
	if len(found) != 0 {
		e.Errorf("Peek found %d jobs in a queue that never had one", len(found))
	}
}

func claimNumber(e *env) {
	e.each(e.specs(7, inQueue("a"))...)
	e.each(e.specs(7, inQueue("b"))...)
	for i, want := range []int{5, 5, 4, 0} {
		if got := len(e.claim(5, from("a", "b"))); got != want {
			e.Errorf("claim %d of 5 found %d jobs, want %d", i+1, got, want)
		}
	}
	e.insert(e.specs(store.MaxClaim + 1)...)
	if got := len(e.claim(store.MaxClaim)); got != store.MaxClaim {
		e.Errorf("the largest claim found %d jobs, want %d", got, store.MaxClaim)
	}
	if got := len(e.claim(store.MaxClaim)); got != 1 {
		e.Errorf("the claim after it found %d jobs, want 1", got)
	}
}

func claimBatch(e *env) {
	ids := stateIDs(e.each(e.specs(5)...))
	bad := claimOf(0)
	answers := e.tryClaim(claimOf(2, by("one")), bad, claimOf(2, by("two")), claimOf(2, by("three")), claimOf(2, by("four")))
	e.is("a claim for no jobs", answers[1].Err, gq.ErrInvalid)
	for i, want := range [][]gq.JobID{ids[:2], nil, ids[2:4], ids[4:], nil} {
		if i != 1 {
			e.check("Claim", answers[i].Err)
		}
		if got := idsOf(answers[i].Jobs); !slices.Equal(got, want) {
			e.Errorf("claim %d got %s, want %s", i, briefs(got), briefs(want))
		}
	}
	for i, worker := range map[int]string{0: "one", 2: "two", 3: "three"} {
		for _, j := range answers[i].Jobs {
			if j.State.Lease.Worker != worker {
				e.Errorf("a job of claim %d is leased to %q, want %q", i, j.State.Lease.Worker, worker)
			}
		}
	}
}

func claimInvalid(e *env) {
	job := e.add()
	for _, test := range []struct {
		field string
		claim store.Claim
	}{
		{"queues", claimOf(1, from())},
		{"queues[1]", claimOf(1, from("q", "not a name"))},
		{"n", claimOf(0)},
		{"n", claimOf(-1)},
		{"n", claimOf(store.MaxClaim + 1)},
		{"worker", claimOf(1, by(""))},
		{"ttl", claimOf(1, lasting(-1))},
		{"max_cost", claimOf(1, upTo(-1))},
	} {
		answer := e.tryClaim(test.claim)[0]
		e.is("a claim with a bad "+test.field, answer.Err, gq.ErrInvalid)
		if got := fields(answer.Err); !slices.Contains(got, test.field) {
			e.Errorf("a claim with a bad %s: the error names %q", test.field, got)
		}
	}
	_, err := e.store().Peek(e.Context(), store.Filter{}, 1)
	e.is("Peek without a queue", err, gq.ErrInvalid)
	e.claimed("after refused claims", 1, []gq.JobID{job.ID})
}

func claimPeek(e *env) {
	e.each(e.spec(at(gq.PriorityLow)), e.spec(ofType("other")), e.spec(delayed(time.Minute)), e.spec(), e.spec(inQueue("b"), costing(5)), e.spec(at(gq.PriorityHigh)))
	retrying := e.fail(e.one(), temporary) // the HIGH one
	e.clock.Set(retrying.RunAt)
	filter := store.Filter{Queues: []string{"b", "q"}, Types: []string{"work"}, MaxCost: 5}
	ids := stateIDs(e.each(e.specs(2)...))
	before := e.snapshot(ids...)

	peek := func(n int) (ids []gq.JobID) {
		found, err := e.store().Peek(e.Context(), filter, n)
		e.check("Peek", err)
		for _, f := range found {
			e.check("Peek", f.Err)
			ids = append(ids, f.State.ID)
		}
		return ids
	}
	for n := 1; n <= 6; n++ {
		if first, second := peek(n), peek(n); !slices.Equal(first, second) {
			e.Errorf("Peek for %d found %s and then %s", n, briefs(first), briefs(second))
		}
	}
	e.unchanged("Peek", before, ids...)
	want := peek(4)
	if len(want) != 4 || want[1] != retrying.ID {
		e.Fatalf("Peek for 4 found %s, want four jobs, the second of them the job whose backoff is over", briefs(want))
	}
	e.claimed("after Peek", 4, want, func(c *store.Claim) { c.Filter = filter })
	e.put("q", func(q *gq.Queue) { q.Paused = true })
	if got := peek(10); len(got) != 0 {
		e.Errorf("Peek found %s in a paused queue", briefs(got))
	}
}

// lagging is a clock that advances by a nanosecond on each reading, so that readings are
// distinct. One reading can be armed to be followed by a long jump.
type lagging struct {
	*Clock
	mu       sync.Mutex
	left     int           // readings until the jump
	by       time.Duration // length of the jump
	readings []time.Time
}

func (l *lagging) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Clock.Advance(1)
	now := l.Clock.Now()
	l.readings = append(l.readings, now)
	if l.left--; l.left == 0 {
		l.Clock.Advance(l.by)
	}
	return now
}

// arm makes the clock jump after the given number of readings.
func (l *lagging) arm(readings int, by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.by, l.readings = readings, by, nil
}

func (l *lagging) disarm() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = 0
	return l.readings
}

func claimSlow(e *env) {
	clock := &lagging{Clock: e.clock}
	e.open(func(c *store.Config) { c.Clock = clock })
	for after := range 8 {
		queue := fmt.Sprint("q", after)
		e.each(e.specs(3, inQueue(queue))...)
		clock.arm(after, 10*time.Minute) // 0: no jump
		got := e.claim(3, from(queue), lasting(12*time.Minute))
		readings := clock.disarm()
		if after == 0 && len(got) != 3 {
			e.Errorf("a claim that took no time got %d jobs, want 3", len(got))
		}
		last := readings[len(readings)-1]
		known := map[gq.JobID]bool{}
		for _, j := range got {
			l := j.State.Lease
			if known[j.State.ID] {
				e.Errorf("job %s is twice in an answer", j.State.ID)
			}
			known[j.State.ID] = true
			if !l.GrantedAt.Before(last) {
				e.Errorf("the answer came without another look at the clock")
			}
			if !store.Usable(l, last) {
				e.Errorf("of a lease granted until %v there were %v left when the clock was read last", l.ExpiresAt, l.ExpiresAt.Sub(last))
			}
		}
		rest := e.claim(3, from(queue), by("next"))
		if len(rest)+len(got) != 3 {
			e.Errorf("when the clock jumped after %d readings, of 3 jobs %d were claimed and %d are left", after, len(got), len(rest))
		}
		for _, j := range rest {
			if j.State.Losses > 0 || j.State.Faults > 0 || j.State.Attempt-j.State.Bound != 1-j.State.Policy.MaxAttempts {
				e.Errorf("a job that was given back has %d lost leases, %d faults and %d of %d attempts", j.State.Losses, j.State.Faults, j.State.Attempt, j.State.Bound)
			}
		}
	}
}
