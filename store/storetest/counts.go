package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var countCases = []Case{
	{
		Name:   "Counts/Steps",
		Clause: "after every step the counts are what a recount finds, for each queue and status",
		run:    countSteps,
	},
	{
		Name:   "Counts/Queues",
		Clause: "the counts are for the named queues or for all",
		run:    countQueues,
	},
	{
		Name:   "Counts/Collected",
		Clause: "what is collected is no longer counted",
		run:    countCollected,
	},
	{
		Name:    "Counts/Reopen",
		Clause:  "the counts survive a restart",
		Reopens: true,
		run:     countReopen,
	},
}

// recount fails unless the counts equal the number of listed jobs.
func (e *env) recount(what string) {
	e.Helper()
	want := make(map[string]gq.Count)
	for _, j := range e.list(gq.Query{Limit: store.MaxPage}) {
		c := want[j.Spec.Queue]
		c.Queue = j.Spec.Queue
		c.By[j.State.Status]++
		want[j.Spec.Queue] = c
	}
	e.equal("the counts "+what, e.counts(), want)
}

func countSteps(e *env) {
	step := 0
	then := func() {
		e.Helper()
		step++
		e.recount(fmt.Sprintf("after step %d", step))
	}
	e.counts() // an empty store
	e.insert(e.specs(3)...)
	then()
	parent := e.add(inQueue("b"))
	e.each(e.spec(delayed(time.Second)), e.spec(inQueue("b"), depends(gq.DependencyAfter, parent.ID)), e.spec(inQueue("b"), depends(gq.DependencyFanIn, parent.ID)))
	then()
	bad := e.spec()
	bad.Type = ""
	e.refused(gq.ErrInvalid, e.spec(), bad)
	then()
	e.each(e.spec(keyed("k", 1)), e.spec(keyed("k", 1)))
	then()
	jobs := e.claim(3)
	then()
	held := e.one(holding)
	then()
	e.update(held.State.ID, starting(held.State.Lease.Ref(), 0))
	then()
	e.complete(jobs[0])
	then()
	e.complete(jobs[0]) // a repeat has no second effect
	then()
	e.fail(jobs[1], temporary)
	then()
	e.fail(jobs[2], permanent)
	then()
	e.cancel(jobs[1].State.ID)
	then()
	e.clock.Advance(time.Second)
	e.sweep()
	then()
	e.claim(10)
	then()
	e.clock.Advance(5 * time.Minute)
	e.one() // takes the job of an expired lease
	e.sweep()
	then()
	e.end(parent.ID, gq.StatusFailed, from("b"))
	e.release()
	then()
	e.clock.Set(start.Add(7 * 24 * time.Hour))
	e.sweep()
	e.release()
	then()
	for queue, c := range e.counts() {
		if c.Live() != 0 {
			e.Errorf("after all lifetimes are over %d jobs of queue %s are counted live", c.Live(), queue)
		}
	}
}

func countQueues(e *env) {
	e.insert(append(e.specs(2, inQueue("a")), e.specs(3, inQueue("b"))...)...)
	e.add(inQueue("c"), delayed(time.Hour))
	for _, test := range []struct {
		named, want []string
	}{
		{nil, []string{"a", "b", "c"}},
		{[]string{"b"}, []string{"b"}},
		{[]string{"c", "a"}, []string{"a", "c"}},
		{[]string{"nowhere", "b"}, []string{"b"}},
		{[]string{"nowhere"}, nil},
	} {
		var got []string
		for queue := range e.counts(test.named...) {
			got = append(got, queue)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			e.Errorf("the counts of %q are of %q, want %q", test.named, got, test.want)
		}
	}
	all := e.counts()
	if all["a"].By[gq.StatusScheduled] != 2 || all["b"].By[gq.StatusScheduled] != 3 || all["c"].By[gq.StatusDelayed] != 1 {
		e.Errorf("the counts are %v", all)
	}
}

func countCollected(e *env) {
	e.each(e.specs(3)...)
	e.complete(e.one())
	e.fail(e.one(), permanent)
	e.cancel(e.add().ID)
	e.clock.Advance(7 * 24 * time.Hour)
	e.collect()
	got := e.counts()["q"]
	if got.By[gq.StatusCompleted] != 0 || got.By[gq.StatusCancelled] != 0 || got.By[gq.StatusFailed] != 1 || got.Live() != 1 {
		e.Errorf("after a week the counts are %v, want one FAILED and one live", got)
	}
}

func countReopen(e *env) {
	e.each(e.specs(5)...)
	jobs := e.claim(3)
	e.complete(jobs[0])
	e.fail(jobs[1], temporary)
	e.add(inQueue("other"))
	want := e.counts()
	e.reopen()
	e.equal("the counts after a restart", e.counts(), want)
	e.complete(jobs[2])
	if got := e.counts()["q"].By[gq.StatusCompleted]; got != 2 {
		e.Errorf("%d jobs are counted COMPLETED, want 2", got)
	}
}
