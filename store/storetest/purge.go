package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// The cases below test the optional [store.Purger]. They end at once if the store does not
// implement it.
var purgeCases = []Case{
	{
		Name:   "Purge/Gone",
		Clause: "a purged job is gone for every reader, with its history, its leases and its key, and is no longer counted",
		run:    purgeGone,
	},
	{
		Name:   "Purge/Live",
		Clause: "a job that has not ended is not purged, nor is one that does not exist; each has its own answer",
		run:    purgeLive,
	},
	{
		Name:   "Purge/Events",
		Clause: "whoever follows the events misses none of a purged job's",
		run:    purgeEvents,
	},
	{
		Name:   "Purge/Dependents",
		Clause: "dependents learn how a purged job ended",
		run:    purgeDependents,
	},
	{
		Name:   "Purge/Retention",
		Clause: "retention passes over what was purged, and counts only what it removes",
		run:    purgeRetention,
	},
	{
		Name:   "Purge/Concurrent",
		Clause: "of many who purge a job at once one removes it, and it is counted once",
		run:    purgeConcurrent,
	},
	{
		Name:    "Purge/Reopen",
		Clause:  "what was purged stays gone after a restart, and its numbers are not used again",
		Reopens: true,
		run:     purgeReopen,
	},
}

// purge removes jobs and returns the results; ok is false if the store does not implement
// it.
func (e *env) purge(ids ...gq.JobID) (answers []error, ok bool) {
	e.Helper()
	p, ok := e.store().(store.Purger)
	if !ok {
		return nil, false
	}
	answers, err := p.Purge(e.Context(), ids)
	e.check("Purge", err)
	if len(answers) != len(ids) {
		e.Fatalf("Purge of %d jobs has %d answers", len(ids), len(answers))
	}
	return answers, true
}

func purgeGone(e *env) {
	spec := e.spec(keyed("k", 1))
	e.fresh("a key", spec)
	j := e.one()
	e.complete(j)
	kept := e.add()
	answers, ok := e.purge(spec.ID)
	if !ok {
		return
	}
	e.check("Purge", answers[0])
	e.absent("a purged job", spec.ID)
	e.is("Get by its lease", e.find(byLease(j.State.Lease.ID), 0).Err, gq.ErrNotFound)
	_, err := e.store().History(e.Context(), spec.ID)
	e.is("History", err, gq.ErrNotFound)
	updated := e.tryUpdate(store.Update{Ref: byLease(j.State.Lease.ID), Apply: completing(j.State.Lease.Ref(), nil)})
	e.is("Update by its lease", updated[0].Err, gq.ErrStaleLease)
	e.listed("after the purge", gq.Query{}, []gq.JobID{kept.ID})
	e.refused(gq.ErrInvalid, e.spec(depends(gq.DependencyAfter, spec.ID)))
	e.fresh("the key of a purged job", e.spec(keyed("k", 1)))
	for _, c := range e.counts() {
		if c.By[gq.StatusCompleted] != 0 {
			e.Errorf("after the purge the counts are %+v", c)
		}
	}
	if again, _ := e.purge(spec.ID); again[0] == nil {
		e.Errorf("a purged job was purged again")
	} else {
		e.is("Purge again", again[0], gq.ErrNotFound)
	}
	if none, _ := e.purge(); len(none) != 0 {
		e.Errorf("a purge of nothing has %d answers", len(none))
	}
}

func purgeLive(e *env) {
	waiting, ended := e.add(), e.add(inQueue("other"))
	e.end(ended.ID, gq.StatusCancelled)
	answers, ok := e.purge(waiting.ID, e.spec().ID, ended.ID, ended.ID)
	if !ok {
		return
	}
	e.is("Purge of a job that waits", answers[0], gq.ErrIllegalMove)
	e.is("Purge of no job", answers[1], gq.ErrNotFound)
	e.check("Purge of a finished job", answers[2])
	e.is("Purge of it again", answers[3], gq.ErrNotFound)
	e.stands("a job that was not purged", waiting.ID, gq.StatusScheduled)
	running := e.one()
	answers, _ = e.purge(running.State.ID)
	e.is("Purge of a running job", answers[0], gq.ErrIllegalMove)
	e.complete(running)
}

func purgeEvents(e *env) {
	first := e.add()
	e.complete(e.one())
	second := e.add()
	before := e.events(0)
	if _, ok := e.purge(first.ID); !ok {
		return
	}
	e.equal("the events after a purge", e.events(0), before)
	e.cancel(second.ID)
	after := e.events(0)
	e.equal("the events before the last", after[:len(before)], before)
}

func purgeDependents(e *env) {
	parent := e.add()
	specs := e.specs(300, inQueue("c"), depends(gq.DependencyAfter, parent.ID))
	e.insert(specs...)
	e.end(parent.ID, gq.StatusCompleted)
	if _, ok := e.purge(parent.ID); !ok {
		return
	}
	e.release()
	for _, s := range specs {
		found := e.find(byID(s.ID), 0)
		if found.Err != nil || found.State.Status != gq.StatusScheduled {
			e.Fatalf("a dependent of a purged job is %s (%v), want SCHEDULED", found.State.Status, found.Err)
		}
	}
}

func purgeRetention(e *env) {
	e.keeping()
	first, second := e.add(under(brief)), e.add(under(brief))
	e.complete(e.one())
	e.complete(e.one())
	if _, ok := e.purge(first.ID); !ok {
		return
	}
	if n := e.collect(); n != 0 {
		e.Errorf("before its retention ended %d jobs were collected", n)
	}
	e.clock.Advance(time.Hour)
	if n := e.collect(); n != 1 {
		e.Errorf("%d jobs were collected, want the one that was not purged", n)
	}
	e.absent("a purged job", first.ID)
	e.absent("a collected job", second.ID)
	if got := e.counts(); len(got) != 0 {
		e.Errorf("after the collection the counts are %v", got)
	}
}

func purgeConcurrent(e *env) {
	e.keeping()
	p, ok := e.store().(store.Purger)
	if !ok {
		return
	}
	const rivals = 4
	ids := stateIDs(e.insert(e.specs(30)...))
	for _, id := range ids {
		e.cancel(id)
	}
	kept := e.add()
	e.cancel(kept.ID)
	e.clock.Advance(2 * time.Hour) // retention removes jobs at the same time
	var removed, collected atomic.Int64
	var wait sync.WaitGroup
	for range rivals {
		for _, id := range ids {
			wait.Go(func() {
				switch answers, err := p.Purge(e.Context(), []gq.JobID{id}); {
				case err != nil:
					e.Errorf("Purge: %v", err)
				case answers[0] == nil:
					removed.Add(1)
				case !errors.Is(answers[0], gq.ErrNotFound):
					e.Errorf("Purge: %v, want %v", answers[0], gq.ErrNotFound)
				}
			})
		}
		wait.Go(func() {
			n, _, err := e.store().Collect(e.Context(), 5)
			if err != nil {
				e.Errorf("Collect: %v", err)
			}
			collected.Add(int64(n))
		})
	}
	wait.Wait()
	collected.Add(int64(e.collect()))
	if got := removed.Load() + collected.Load(); got != int64(len(ids)+1) {
		e.Errorf("%d jobs were purged and %d collected, and there were %d", removed.Load(), collected.Load(), len(ids)+1)
	}
	for _, c := range e.counts() {
		if c.By[gq.StatusCancelled] != 0 {
			e.Errorf("after that the counts are %+v", c)
		}
	}
	e.absent("the last one", kept.ID)
}

func purgeReopen(e *env) {
	first := e.add()
	e.complete(e.one())
	sequence := e.find(byID(first.ID), 0).State.Sequence
	if _, ok := e.purge(first.ID); !ok {
		return
	}
	e.reopen()
	e.absent("what was purged before a restart", first.ID)
	if got := e.counts(); len(got) != 0 {
		e.Errorf("after a restart the counts are %v", got)
	}
	if next := e.each(e.spec())[0]; next.Sequence <= sequence {
		e.Errorf("a new job has sequence %d, the purged one had %d", next.Sequence, sequence)
	}
}
