package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var collectCases = []Case{
	{
		Name:   "Collect/Retention",
		Clause: "a finished job is kept for exactly the retention of the way it ended",
		Covers: []string{"J-10"},
		run:    collectRetention,
	},
	{
		Name:   "Collect/Default",
		Clause: "by default what went well is kept for 7 days and what did not for 30",
		run:    collectDefault,
	},
	{
		Name:   "Collect/Limit",
		Clause: "a step removes up to its limit and says how many; 0 means that none is left",
		run:    collectLimit,
	},
	{
		Name:   "Collect/Next",
		Clause: "a step tells when the next retention ends, or an earlier time",
		run:    collectNext,
	},
	{
		Name:   "Collect/Live",
		Clause: "a live job is never collected, whatever its age",
		run:    collectLive,
	},
	{
		Name:   "Collect/Gone",
		Clause: "a collected job is unknown to every read and write, by id and by lease",
		run:    collectGone,
	},
	{
		Name:   "Collect/AtOnce",
		Clause: "what Collect says it has removed is gone for every reader when it returns",
		run:    collectAtOnce,
	},
	{
		Name:   "Collect/Key",
		Clause: "a key never outlives its job",
		run:    collectKey,
	},
	{
		Name:   "Collect/KeyTaken",
		Clause: "a key that another job has taken since stays with that one when the first goes",
		run:    collectKeyTaken,
	},
	{
		Name:   "Collect/Events",
		Clause: "events go with their job and not before, and whoever is up to date goes on reading",
		run:    collectEvents,
	},
	{
		Name:   "Collect/Replay",
		Clause: "a replay from any number has every later event of the jobs that are kept, or is ErrGone",
		run:    collectReplay,
	},
	{
		Name:   "Collect/Dependents",
		Clause: "dependents learn how a dependency ended even when it is past its retention by then",
		run:    collectDependents,
	},
	{
		Name:    "Collect/Numbers",
		Clause:  "sequence and event numbers are never used again, not even when everything was collected and the store restarted",
		Reopens: true,
		run:     collectNumbers,
	},
	{
		Name:    "Collect/Reopen",
		Clause:  "what was collected stays gone, and what was not is collected after a restart",
		Reopens: true,
		run:     collectReopen,
	},
}

// keeping opens a store whose shortest retention is one hour.
func (e *env) keeping() store.Retention {
	e.Helper()
	keep := store.Retention{Completed: time.Hour, Cancelled: 2 * time.Hour, Failed: 3 * time.Hour, DeadLetter: 4 * time.Hour}
	e.open(func(c *store.Config) { c.Retention = keep })
	return keep
}

// brief sets a policy for such a store: its keys do not outlive its jobs.
func brief(p *gq.Policy) {
	p.Lifetime, p.IdempotencyWindow = 0, time.Hour
}

func collectRetention(e *env) {
	keep := e.keeping()
	for _, end := range append([]gq.Status{gq.StatusCompleted}, badEnds...) {
		job := e.add(under(brief))
		e.clock.Advance(10 * time.Hour) // a job's age before it ended does not matter
		e.end(job.ID, end)
		e.clock.Advance(keep.Of(end) - 1)
		if n := e.collect(); n != 0 {
			e.Errorf("1 ns before the retention of %s ends %d jobs were collected", end, n)
		}
		e.stands("1 ns before its retention ends", job.ID, end)
		e.clock.Advance(1)
		e.stands("before it is collected", job.ID, end)
		if n := e.collect(); n != 1 {
			e.Errorf("at the end of the retention of %s %d jobs were collected, want 1", end, n)
		}
		e.absent("a collected job", job.ID)
	}
}

func collectDefault(e *env) {
	const day = 24 * time.Hour
	ends := append([]gq.Status{gq.StatusCompleted}, badEnds...)
	ids := make(map[gq.Status]gq.JobID)
	for _, end := range ends {
		ids[end] = e.add().ID
		e.end(ids[end], end)
	}
	ended := e.now()
	want := func(when string, kept ...gq.Status) {
		e.Helper()
		e.collect()
		for _, end := range ends {
			if slices.Contains(kept, end) {
				e.stands(when, ids[end], end)
			} else {
				e.absent(when, ids[end])
			}
		}
	}
	e.clock.Set(start.Add(7*day - 1))
	want("before 7 days are over", ends...)
	e.clock.Set(ended.Add(7 * day))
	want("after 7 days", gq.StatusFailed, gq.StatusDeadLetter)
	e.clock.Set(start.Add(30*day - 1))
	want("before 30 days are over", gq.StatusFailed, gq.StatusDeadLetter)
	e.clock.Set(ended.Add(30 * day))
	want("after 30 days")
}

func collectLimit(e *env) {
	e.keeping()
	var updates []store.Update
	for _, s := range e.insert(e.specs(25, under(brief))...) {
		updates = append(updates, store.Update{Ref: byID(s.ID), Apply: cancelling("")})
	}
	e.tryUpdate(updates...)
	e.clock.Advance(2 * time.Hour)
	total := 0
	for steps := 0; ; steps++ {
		n, _, err := e.store().Collect(e.Context(), 10)
		e.check("Collect", err)
		if n < 0 || n > 10 || steps > 25 {
			e.Fatalf("step %d collected %d jobs, want at most 10", steps, n)
		}
		total += n
		if left := len(e.list(gq.Query{})); left != 25-total {
			e.Errorf("after %d jobs were collected %d are left of 25", total, left)
		}
		if n == 0 {
			break
		}
	}
	if total != 25 {
		e.Errorf("%d jobs were collected, want 25", total)
	}
}

func collectNext(e *env) {
	e.keeping()
	e.cancel(e.add(keepFor(4 * time.Second)).ID)
	e.cancel(e.add(under(brief)).ID)
	ended := e.now()
	for _, over := range []time.Time{ended.Add(4 * time.Second), ended.Add(2 * time.Hour)} {
		for removed, steps := 0, 0; removed == 0; steps++ {
			n, next, err := e.store().Collect(e.Context(), 100)
			e.check("Collect", err)
			if removed = n; removed > 0 {
				break
			}
			if next.IsZero() || next.After(over) || steps > 100 {
				e.Fatalf("Collect says that the next retention ends at %v, want %v or earlier", next, over)
			}
			if next.After(e.now()) {
				e.clock.Set(next)
			}
		}
		if e.now().After(over) {
			e.Errorf("the job was removed at %v, want %v", e.now(), over)
		}
	}
}

func collectLive(e *env) {
	e.keeping()
	policy := under(func(p *gq.Policy) { brief(p); p.ExecutionTimeout = 0 })
	ids := []gq.JobID{e.add(policy).ID}
	e.fail(e.one(), temporary)
	ids = append(ids, e.add(policy).ID)
	e.one()
	ids = append(ids, e.add(policy).ID, e.add(policy, delayed(24*365*time.Hour)).ID)
	ids = append(ids, e.add(policy, depends(gq.DependencyAfter, ids[2])).ID)
	before := e.snapshot(ids[2:]...)
	e.clock.Advance(100 * 24 * time.Hour)
	if n := e.collect(); n != 0 {
		e.Errorf("%d live jobs were collected", n)
	}
	after := e.snapshot(ids[2:]...)
	e.equal("the jobs", after.Jobs, before.Jobs)
	e.equal("their history", after.History, before.History)
	e.claimed("after a long time", 10, ids[:3])
}

func collectGone(e *env) {
	e.keeping()
	job := e.add(under(brief))
	j := e.one()
	e.complete(j)
	kept := e.add(under(brief))
	e.clock.Advance(time.Hour)
	e.collect()

	e.absent("a collected job", job.ID)
	e.is("Get by its lease", e.find(byLease(j.State.Lease.ID), 0).Err, gq.ErrNotFound)
	_, err := e.store().History(e.Context(), job.ID)
	e.is("History", err, gq.ErrNotFound)
	answers := e.tryUpdate(
		store.Update{Ref: byID(job.ID), Apply: completing(j.State.Lease.Ref(), nil)},
		store.Update{Ref: byLease(j.State.Lease.ID), Apply: completing(j.State.Lease.Ref(), nil)},
	)
	e.is("Update", answers[0].Err, gq.ErrNotFound)
	e.is("Update by its lease", answers[1].Err, gq.ErrStaleLease)
	e.listed("after the collection", gq.Query{}, []gq.JobID{kept.ID})
	e.refused(gq.ErrInvalid, e.spec(depends(gq.DependencyAfter, job.ID)))
}

func collectAtOnce(e *env) {
	e.keeping()
	for round := range 10 {
		job := e.add(under(brief))
		j := e.one()
		e.complete(j)
		e.clock.Advance(time.Hour)
		n, _, err := e.store().Collect(e.Context(), 10) // no other commit follows
		e.check("Collect", err)
		if n != 1 {
			e.Fatalf("round %d: collected %d jobs, want 1", round, n)
		}
		_, err = e.store().History(e.Context(), job.ID)
		e.is("History of a collected job", err, gq.ErrNotFound)
		e.is("Get by its lease", e.find(byLease(j.State.Lease.ID), 0).Err, gq.ErrNotFound)
		e.absent("a collected job", job.ID)
		e.listed("after the collection", gq.Query{}, nil)
		if got := e.counts(); len(got) != 0 {
			e.Errorf("after the collection the counts are %v", got)
		}
	}
}

func collectKey(e *env) {
	e.keeping()
	// A store may refuse a window longer than the retention. If it accepts one, the key
	// must be free once its job is removed.
	long := e.spec(keyed("long", 1), under(func(p *gq.Policy) { brief(p); p.IdempotencyWindow = 10 * time.Hour }))
	answer := e.tryInsert(store.One(long))[0]
	if answer.Err != nil && !errors.Is(answer.Err, gq.ErrInvalid) {
		e.Fatalf("Insert with a long window: %v, want nil or ErrInvalid", answer.Err)
	}
	short := e.spec(keyed("short", 1), under(brief))
	e.fresh("a key", short)
	for _, j := range e.claim(2) {
		e.complete(j)
	}
	e.clock.Advance(time.Hour)
	e.collect()
	e.absent("a collected job", short.ID)
	e.fresh("the key of a collected job", e.spec(keyed("short", 1), under(brief)))
	e.fresh("the key of a collected job with a longer window", e.spec(keyed("long", 1), under(brief)))
}

func collectKeyTaken(e *env) {
	keep := e.keeping()
	window := under(func(p *gq.Policy) { brief(p); p.IdempotencyWindow = 3 * keep.Cancelled / 8 })
	for _, purged := range []bool{false, true} {
		first := e.spec(keyed("k", 1), window)
		e.fresh("a key", first)
		e.cancel(first.ID)
		e.clock.Advance(3 * keep.Cancelled / 4)
		second := e.spec(keyed("k", 1), window)
		e.fresh("a key whose window is over", second)
		if purged {
			if _, ok := e.purge(first.ID); !ok {
				return
			}
		} else {
			e.clock.Advance(keep.Cancelled / 4)
			e.collect()
		}
		e.absent("the first job", first.ID)
		e.hit("the key of the second job", e.spec(keyed("k", 1), window), second.ID, true)
		e.clock.Advance(keep.Cancelled) // the key is free again
	}
}

func collectEvents(e *env) {
	e.keeping()
	first := e.add(under(brief))
	e.complete(e.one())
	second := e.add(under(brief))
	third := e.add(under(brief))
	e.complete(e.one())
	all := e.events(0)
	last := all[len(all)-1].Seq
	histories := map[gq.JobID][]gq.Event{second.ID: e.history(second.ID), third.ID: e.history(third.ID)}

	e.clock.Advance(time.Hour - 1)
	e.collect()
	e.equal("the events before any retention ended", e.events(0), all)
	e.clock.Advance(1)
	e.cancel(third.ID)
	e.collect()
	for _, id := range []gq.JobID{first.ID, second.ID} {
		_, err := e.store().History(e.Context(), id)
		e.is("History of a collected job", err, gq.ErrNotFound)
	}
	got := e.history(third.ID)
	if len(got) == 0 {
		e.Fatalf("the history of a job that is kept is empty")
	}
	e.equal("the history of a job that is kept", got[:len(got)-1], histories[third.ID])
	e.equal("the events after the last that was read", e.events(last), got[len(got)-1:])
	if replay, err := e.store().Events(e.Context(), 0, 1000); err == nil {
		replay = slices.DeleteFunc(replay, func(v gq.Event) bool { return v.Job == first.ID || v.Job == second.ID })
		e.equal("a replay of what is kept", replay, got)
	} else {
		e.is("a replay from before what is kept", err, gq.ErrGone)
	}
}

func collectReplay(e *env) {
	e.keeping()
	kept := e.spec(inQueue("kept"), under(brief))
	e.insert(kept)
	for i := range 12 { // mix events of the kept job with those of others
		e.clock.Advance(time.Hour)
		e.add(under(brief))
		if i%3 == 0 {
			e.update(kept.ID, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Update(s, s.Own, now) })
		}
		e.complete(e.one())
		e.collect()
		history := e.history(kept.ID)
		last, err := e.store().LastEvent(e.Context())
		e.check("LastEvent", err)
		refusable := true
		for after := range last + 1 {
			events, err := e.store().Events(e.Context(), after, 1000)
			if err != nil {
				e.is("Events", err, gq.ErrGone)
				if !refusable || after == last {
					e.Fatalf("a replay from %d of %d is refused, and one from before is not or it is the last", after, last)
				}
				continue
			}
			refusable = false
			events = slices.DeleteFunc(events, func(v gq.Event) bool { return v.Job != kept.ID })
			want := slices.DeleteFunc(slices.Clone(history), func(v gq.Event) bool { return v.Seq <= after })
			e.equal("a replay of the job that is kept", events, want)
		}
	}
}

func collectDependents(e *env) {
	e.keeping()
	parent := e.add(under(brief))
	specs := e.specs(300, inQueue("c"), under(brief), depends(gq.DependencyAfter, parent.ID))
	e.insert(specs...)
	e.end(parent.ID, gq.StatusCompleted)
	e.clock.Advance(time.Hour)
	e.collect()
	e.release()
	for _, s := range specs {
		found := e.find(byID(s.ID), 0)
		if found.Err != nil || found.State.Status != gq.StatusScheduled {
			e.Fatalf("a dependent of a collected job is %s (%v), want SCHEDULED", found.State.Status, found.Err)
		}
	}
}

func collectNumbers(e *env) {
	e.keeping()
	var sequence, event uint64
	for round := range 4 {
		for _, s := range e.each(e.specs(3, under(brief))...) {
			if s.Sequence <= sequence {
				e.Errorf("round %d: a new job has sequence %d, an earlier one had %d", round, s.Sequence, sequence)
			}
			sequence = s.Sequence
		}
		newest := event
		for _, j := range e.claim(3) {
			e.complete(j)
			h := e.history(j.State.ID)
			if h[0].Seq <= event {
				e.Errorf("round %d: a new event has number %d, an earlier one had %d", round, h[0].Seq, event)
			}
			newest = max(newest, h[len(h)-1].Seq)
		}
		event = newest
		e.clock.Advance(time.Hour)
		if n := e.collect(); n != 3 {
			e.Errorf("round %d: collected %d jobs, want all 3", round, n)
		}
		if round%2 == 1 {
			e.reopen()
		}
	}
}

func collectReopen(e *env) {
	e.keeping()
	first, second := e.add(under(brief)), e.add(under(brief))
	e.complete(e.one())
	e.clock.Advance(time.Hour)
	e.collect()
	e.complete(e.one())
	e.reopen()
	e.absent("what was collected before a restart", first.ID)
	e.stands("what was not", second.ID, gq.StatusCompleted)
	e.clock.Advance(time.Hour)
	e.reopen()
	if n := e.collect(); n != 1 {
		e.Errorf("after a restart %d jobs were collected, want 1", n)
	}
	e.absent("what was collected after a restart", second.ID)
}
