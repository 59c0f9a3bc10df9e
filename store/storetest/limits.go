package storetest

import (
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var limitCases = []Case{
	{
		Name:   "Limit/Paused",
		Clause: "a paused queue hands out nothing and takes submissions; a settled job is settled",
		run:    limitPaused,
	},
	{
		Name:   "Limit/MaxRunning",
		Clause: "at most MaxRunning jobs of a queue are held at once, over all workers; each end of a lease frees one place",
		run:    limitRunning,
	},
	{
		Name:   "Limit/MaxRunningExpiry",
		Clause: "a lease that has run out occupies no place, and nobody's late words free one twice",
		run:    limitRunningExpiry,
	},
	{
		Name:   "Limit/MaxRunningQueues",
		Clause: "a queue at its limit does not hold up the others of a claim",
		run:    limitRunningQueues,
	},
	{
		Name:   "Limit/MaxRunningChanged",
		Clause: "a limit counts from the next claim on, and takes nothing from those that hold",
		run:    limitRunningChanged,
	},
	{
		Name:   "Limit/OneWinner",
		Clause: "however many claim at once, one gets the job",
		Covers: []string{"Q-22", "Q-43"},
		run:    limitOneWinner,
	},
	{
		Name:   "Limit/MaxRunningConcurrent",
		Clause: "however many claim at once, no more than MaxRunning are held",
		run:    limitRunningConcurrent,
	},
}

func limitPaused(e *env) {
	running := e.add()
	j := e.one()
	e.put("q", func(q *gq.Queue) { q.Paused = true })
	waiting := e.add()
	other := e.add(inQueue("other"))
	e.none("in a paused queue")
	e.claimed("beside a paused queue", 5, []gq.JobID{other.ID}, from("q", "other"))
	e.complete(j)
	e.put("q", func(*gq.Queue) {})
	e.claimed("after "+running.ID.String()+" was settled and the queue resumed", 5, []gq.JobID{waiting.ID})
}

func limitRunning(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxRunning = 3 })
	ids := stateIDs(e.each(e.specs(20)...))
	first := e.claim(10)
	if len(first) != 3 {
		e.Fatalf("a claim for 10 got %d jobs, want MaxRunning, 3", len(first))
	}
	e.none("with MaxRunning jobs running")
	at := 3
	free := func(what string) {
		e.Helper()
		e.claimed(what, 10, ids[at:at+1])
		at++
		e.none(what + ", again")
	}
	e.complete(first[0])
	free("after a completion")
	e.fail(first[1], permanent)
	free("after a failure")
	e.fail(first[2], temporary)
	free("after a failure that will be retried")

	held := e.update(ids[3], cancelling("stop")) // running: it keeps its place until it ends
	e.none("after a cancel was only asked for")
	e.update(ids[3], releasing(held.Lease.Ref(), 0, "stopping"))
	free("after a cancel was honoured")
	last := e.find(byID(ids[at-1]), 0)
	e.update(ids[at-1], releasing(last.State.Lease.Ref(), time.Hour, "later"))
	free("after a release")
}

func limitRunningExpiry(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxRunning = 1 })
	ids := stateIDs(e.each(e.specs(4, under(func(p *gq.Policy) { p.OnLoss = gq.LossBackoff }))...))
	first := e.one(lasting(time.Minute))
	e.clock.Advance(time.Minute - 1)
	e.none("1 ns before the lease ends")
	e.clock.Advance(1)
	e.claimed("when the lease has run out", 5, ids[1:2])
	e.none("with the place taken again")
	for _, apply := range []store.Apply{completing(first.State.Lease.Ref(), nil), releasing(first.State.Lease.Ref(), 0, "")} {
		answer := e.tryUpdate(store.Update{Ref: byID(ids[0]), Apply: apply})[0]
		e.is("a settlement by the lost holder", answer.Err, gq.ErrStaleLease)
		e.none("after the lost holder spoke")
	}
	second := e.find(byID(ids[1]), 0)
	e.update(ids[1], completing(second.State.Lease.Ref(), nil))
	e.update(ids[1], completing(second.State.Lease.Ref(), nil)) // repeated: no second effect
	if got := len(e.claim(5)); got != 1 {
		e.Errorf("after one completion, told twice, a claim got %d jobs, want 1", got)
	}
}

func limitRunningQueues(e *env) {
	e.put("a", func(q *gq.Queue) { q.MaxRunning = 1 })
	a := stateIDs(e.each(e.specs(3, inQueue("a"))...))
	b := stateIDs(e.each(e.specs(3, inQueue("b"))...))
	filter := store.Filter{Queues: []string{"a", "b"}}
	found, err := e.store().Peek(e.Context(), filter, 10)
	e.check("Peek", err)
	if len(found) != 4 {
		e.Errorf("Peek found %d jobs, want the 4 a claim would get", len(found))
	}
	e.claimed("of a limited and an open queue", 3, []gq.JobID{a[0], b[0], b[1]}, from("a", "b"))
	e.claimed("with the limited queue full", 5, []gq.JobID{b[2]}, from("a", "b"))
}

func limitRunningChanged(e *env) {
	ids := stateIDs(e.each(e.specs(6)...))
	held := e.claim(3)
	e.put("q", func(q *gq.Queue) { q.MaxRunning = 2 })
	e.none("with more running than the new limit")
	for _, j := range held[:2] {
		e.complete(j)
	}
	e.claimed("with one running under a limit of 2", 5, ids[3:4])
	e.put("q", func(q *gq.Queue) { q.MaxRunning = 0 })
	e.claimed("without a limit", 5, ids[4:])
}

func limitOneWinner(e *env) {
	for round := range 5 {
		job := e.add()
		var (
			wait sync.WaitGroup
			mu   sync.Mutex
			won  []gq.Job
		)
		ready := make(chan struct{})
		for i := range 100 {
			wait.Go(func() {
				<-ready
				answers, err := e.s.Claim(e.Context(), []store.Claim{claimOf(1, by(numbered(100)[i]))})
				if err != nil || answers[0].Err != nil {
					e.Errorf("Claim: %v, %+v", err, answers)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				won = append(won, answers[0].Jobs...)
			})
		}
		close(ready)
		wait.Wait()
		if len(won) != 1 {
			e.Fatalf("round %d: 100 claims for one job got %d, want 1", round, len(won))
		}
		if s := e.state(job.ID); s.Lease == nil || s.Lease.ID != won[0].State.Lease.ID || s.Version != 1 {
			e.Errorf("round %d: the job is stored with lease %+v, the winner has %+v", round, s.Lease, won[0].State.Lease)
		}
	}
}

func limitRunningConcurrent(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxRunning = 7 })
	e.insert(e.specs(100)...)
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		held = make(map[gq.JobID]int)
	)
	for range 20 {
		wait.Go(func() {
			for range 3 {
				answers, err := e.s.Claim(e.Context(), []store.Claim{claimOf(2)})
				if err != nil || answers[0].Err != nil {
					e.Errorf("Claim: %v, %+v", err, answers)
					return
				}
				mu.Lock()
				for _, id := range idsOf(answers[0].Jobs) {
					held[id]++
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if len(held) != 7 {
		e.Errorf("%d jobs are held at once, want MaxRunning, 7", len(held))
	}
	for id, n := range held {
		if n != 1 {
			e.Errorf("job %s was given to %d claims", id, n)
		}
	}
}
