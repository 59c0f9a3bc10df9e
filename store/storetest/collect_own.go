package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

var collectOwnCases = []Case{
	{
		Name:   "Collect/Own",
		Clause: "a finished job whose policy has a retention is kept for exactly that long, however it ended; others are not affected",
		run:    collectOwn,
	},
	{
		Name:   "Collect/OwnLonger",
		Clause: "a retention of its own can be longer than that of the store, and the job keeps its history",
		run:    collectOwnLonger,
	},
	{
		Name:   "Collect/None",
		Clause: "a job that is not to be kept goes with the next collection after its end; its events stay for whoever follows them",
		run:    collectNone,
	},
	{
		Name:   "Collect/OwnKey",
		Clause: "no key may outlive a job with a retention of its own, and a key is free again when that job is gone",
		run:    collectOwnKey,
	},
	{
		Name:   "Collect/OwnDependents",
		Clause: "dependents learn how a dependency ended that was not to be kept",
		run:    collectOwnDependents,
	},
	{
		Name:   "Collect/OwnLimit",
		Clause: "a step counts jobs with a retention of their own against its limit, and passes over those that are kept longer or were purged",
		run:    collectOwnLimit,
	},
	{
		Name:    "Collect/OwnReopen",
		Clause:  "a retention of its own holds after a restart",
		Reopens: true,
		run:     collectOwnReopen,
	},
}

// keepFor sets a policy with a retention of its own.
func keepFor(d time.Duration) setting {
	return under(func(p *gq.Policy) { brief(p); p.Retention = d })
}

func collectOwn(e *env) {
	e.keeping()
	const own = 10 * time.Minute
	for _, end := range append([]gq.Status{gq.StatusCompleted}, badEnds...) {
		job := e.add(keepFor(own))
		e.clock.Advance(time.Hour) // its age before it ended does not matter
		e.end(job.ID, end)
		other := e.add(under(brief))
		e.cancel(other.ID)
		e.clock.Advance(own - 1)
		if n := e.collect(); n != 0 {
			e.Errorf("1 ns before the retention of a job that is %s ends %d jobs were collected", end, n)
		}
		e.stands("1 ns before its retention ends", job.ID, end)
		e.clock.Advance(1)
		if n := e.collect(); n != 1 {
			e.Errorf("at the end of the retention of a job that is %s %d jobs were collected, want 1", end, n)
		}
		e.absent("a collected job", job.ID)
		e.stands("without a retention of its own", other.ID, gq.StatusCancelled)
		e.listed("after the collection", gq.Query{}, []gq.JobID{other.ID})
		e.recount("after the collection")
		e.clock.Advance(10 * time.Hour)
		e.collect()
		e.absent("without a retention of its own", other.ID)
	}
}

func collectOwnLonger(e *env) {
	keep := e.keeping()
	var ids []gq.JobID
	ends := append([]gq.Status{gq.StatusCompleted}, badEnds...)
	for _, end := range ends {
		ids = append(ids, e.add(keepFor(100*time.Hour)).ID)
		e.end(ids[len(ids)-1], end)
	}
	usual := e.add(under(brief))
	e.cancel(usual.ID)
	ended := e.now()
	history := e.history(ids[0])
	e.clock.Set(ended.Add(keep.DeadLetter * 2))
	if n := e.collect(); n != 1 {
		e.Errorf("%d jobs were collected after the retention of the store, want 1", n)
	}
	e.absent("a job without a retention of its own", usual.ID)
	e.clock.Set(ended.Add(99 * time.Hour))
	if n := e.collect(); n != 0 {
		e.Errorf("%d jobs were collected before their own retention ended", n)
	}
	for i, end := range ends {
		e.stands("before its own retention ends", ids[i], end)
	}
	e.equal("the history of a job that is kept longer", e.history(ids[0]), history)
	e.clock.Set(ended.Add(100 * time.Hour))
	if n := e.collect(); n != len(ids) {
		e.Errorf("%d jobs were collected when their own retention ended, want %d", n, len(ids))
	}
	for _, id := range ids {
		e.absent("a collected job", id)
	}
}

func collectNone(e *env) {
	e.keeping()
	job := e.add(keepFor(gq.KeepNone))
	e.clock.Advance(24 * time.Hour)
	j := e.one()
	before := e.events(0)
	if n := e.collect(); n != 0 {
		e.Errorf("a running job was collected")
	}
	e.update(job.ID, failing(j.State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent}))
	e.clock.Advance(1)
	if n := e.collect(); n != 1 {
		e.Errorf("%d jobs were collected, want 1", n)
	}
	e.absent("a job that is not kept", job.ID)
	e.is("Get by its lease", e.find(byLease(j.State.Lease.ID), 0).Err, gq.ErrNotFound)
	if got := e.counts(); len(got) != 0 {
		e.Errorf("after the collection the counts are %v", got)
	}
	after := e.events(before[len(before)-1].Seq)
	if !slices.ContainsFunc(after, func(v gq.Event) bool { return v.Job == job.ID && v.Type == gq.EventFailed }) {
		e.Errorf("the events after the claim do not tell that the job failed: %v", after)
	}
}

func collectOwnKey(e *env) {
	e.keeping()
	e.refused(gq.ErrInvalid, e.spec(keyed("k", 1), keepFor(gq.KeepNone)))
	minute := under(func(p *gq.Policy) { brief(p); p.Retention, p.IdempotencyWindow = time.Minute, time.Minute })
	first := e.spec(keyed("k", 1), minute)
	e.fresh("a key", first)
	e.cancel(first.ID)
	e.clock.Advance(time.Minute - 1)
	e.collect()
	e.hit("before its retention ends", e.spec(keyed("k", 1), minute), first.ID, true)
	e.clock.Advance(1)
	if n := e.collect(); n != 1 {
		e.Errorf("%d jobs were collected, want 1", n)
	}
	e.fresh("the key of a collected job", e.spec(keyed("k", 1), minute))
}

func collectOwnDependents(e *env) {
	e.keeping()
	parent := e.add(keepFor(gq.KeepNone))
	child := e.add(under(brief), depends(gq.DependencyAfter, parent.ID))
	e.complete(e.one())
	e.clock.Advance(1)
	e.collect()
	e.release()
	e.stands("after the dependency is gone", child.ID, gq.StatusScheduled)
	e.collect()
	e.absent("a dependency that is not kept, after its dependents know", parent.ID)
}

func collectOwnLimit(e *env) {
	e.keeping()
	var short []gq.JobID
	for range 5 {
		id := e.add(keepFor(time.Minute)).ID
		short = append(short, id)
		e.cancel(id)
	}
	long := e.add(keepFor(100 * time.Hour)).ID
	e.cancel(long)
	usual := e.add(under(brief)).ID
	e.cancel(usual)
	if answers, ok := e.purge(short[0]); ok {
		e.check("Purge", answers[0])
		short = short[1:]
	}
	removed := 0
	collect := func(want int) {
		n, _, err := e.store().Collect(e.Context(), 1)
		e.check("Collect", err)
		if n != want {
			e.Errorf("Collect with a limit of 1 removed %d jobs, want %d, after %d before", n, want, removed)
		}
		removed += n
	}
	e.clock.Advance(2 * time.Minute)
	for range short { // the one that was purged does not count
		collect(1)
	}
	collect(0)
	e.clock.Advance(10 * time.Hour)
	collect(1) // the usual one
	n, _, err := e.store().Collect(e.Context(), 1)
	e.check("Collect", err)
	if n != 0 {
		e.Errorf("Collect removed %d jobs when none was left", n)
	}
	e.listed("after the collection", gq.Query{}, []gq.JobID{long})
}

func collectOwnReopen(e *env) {
	e.keeping()
	short, long := e.add(keepFor(time.Minute)).ID, e.add(keepFor(100*time.Hour)).ID
	e.cancel(short)
	e.cancel(long)
	e.clock.Advance(10 * time.Hour)
	e.reopen()
	if n := e.collect(); n != 1 {
		e.Errorf("after a restart %d jobs were collected, want 1", n)
	}
	e.absent("a job past its own retention", short)
	e.stands("before its own retention ends", long, gq.StatusCancelled)
}
