package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// The cases below test the optional [store.Exporter] and [store.Importer]. They end at once
// if the store does not implement them.
var moveCases = []Case{
	{
		Name:   "Move/Everything",
		Clause: "a store that was filled from another one shows all that the other one does, with the same numbers, versions and instants",
		run:    moveEverything,
	},
	{
		Name:   "Move/GoesOn",
		Clause: "what was begun in one store goes on in the one that was filled from it: leases, timers, dependencies, keys, turns, rates, numbers",
		run:    moveGoesOn,
	},
	{
		Name:    "Move/Resume",
		Clause:  "an import that was broken off goes on from its mark and ends as if it had not been",
		Reopens: true,
		run:     moveResume,
	},
	{
		Name:   "Move/Refused",
		Clause: "a store that is not empty, or holds a part of another one, is not filled, and nothing changes",
		run:    moveRefused,
	},
	{
		Name:   "Move/Collected",
		Clause: "jobs that were collected are not moved, those that are left keep their histories and are collected in their time, and a replay goes on from the last event",
		run:    moveCollected,
	},
	{
		Name:    "Move/Origin",
		Clause:  "the origin of an export is the same while nothing changes, over a restart too, and another one after any change",
		Reopens: true,
		run:     moveOrigin,
	},
	{
		Name:   "Move/Moment",
		Clause: "an export shows one moment, whatever happens while it is read",
		run:    moveMoment,
	},
}

// movable reports whether the store implements both.
func (e *env) movable() bool {
	e.Helper()
	_, exports := e.store().(store.Exporter)
	_, imports := e.store().(store.Importer)
	return exports && imports
}

// another returns a second, empty store with the same clock.
func (e *env) another(change ...func(*store.Config)) *env {
	e.Helper()
	other := &env{TB: e.TB, clause: e.clause, backend: e.backend, clock: e.clock, random: e.random}
	cfg := e.cfg
	other.open(append([]func(*store.Config){func(c *store.Config) { *c = cfg }}, change...)...)
	return other
}

// export reads everything in small parts.
func (e *env) export(limit int) (all store.Items, head store.Head) {
	e.Helper()
	x, err := e.store().(store.Exporter).Export(e.Context())
	e.check("Export", err)
	defer func() { e.check("Close of an export", x.Close()) }()
	e.parts(x, "", limit, func(items store.Items, _ string) bool {
		all.Pools, all.Queues, all.Docs = append(all.Pools, items.Pools...), append(all.Queues, items.Queues...), append(all.Docs, items.Docs...)
		all.Keys, all.Owed = append(all.Keys, items.Keys...), append(all.Owed, items.Owed...)
		all.Events, all.Jobs = append(all.Events, items.Events...), append(all.Jobs, items.Jobs...)
		all.Leases, all.Edges, all.Ended = append(all.Leases, items.Leases...), append(all.Edges, items.Edges...), append(all.Ended, items.Ended...)
		return true
	})
	slices.SortFunc(all.Keys, func(a, b gq.QueueKey) int { return bytes.Compare([]byte(a.Queue+" "+a.Key), []byte(b.Queue+" "+b.Key)) })
	slices.SortFunc(all.Owed, func(a, b store.OwedItem) int {
		return bytes.Compare([]byte(a.Queue+" "+a.Key), []byte(b.Queue+" "+b.Key))
	})
	slices.SortFunc(all.Events, func(a, b gq.Event) int { return int(int64(a.Seq) - int64(b.Seq)) })
	slices.SortFunc(all.Jobs, func(a, b store.JobItem) int { return int(int64(a.State.Sequence) - int64(b.State.Sequence)) })
	slices.SortFunc(all.Queues, func(a, b store.QueueItem) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return all, x.Head()
}

// parts reads from a cursor on, until the end or until the reader stops.
func (e *env) parts(x store.Export, cursor string, limit int, visit func(items store.Items, next string) bool) {
	e.Helper()
	for range 10_000 {
		items, next, err := x.Read(e.Context(), cursor, limit)
		e.check("Read", err)
		if !visit(items, next) || next == "" {
			return
		}
		cursor = next
	}
	e.Fatalf("an export never came to an end")
}

// fill moves everything from one store to this one, without interruption.
func (e *env) fill(from *env, limit int) {
	e.Helper()
	x, err := from.store().(store.Exporter).Export(e.Context())
	e.check("Export", err)
	defer func() { e.check("Close of an export", x.Close()) }()
	to, err := e.store().(store.Importer).Import(e.Context(), x.Head())
	e.check("Import", err)
	from.parts(x, "", limit, func(items store.Items, next string) bool {
		e.check("Write", to.Write(e.Context(), items, []byte("to "+next)))
		return true
	})
	e.check("Finish", to.Finish(e.Context()))
}

// rich fills the store with every kind of item.
func (e *env) rich() {
	e.Helper()
	e.putPool("p", 10)
	e.putPool("starts", 5)
	e.check("PutPool", e.store().PutPool(e.Context(), gq.Pool{Name: "starts", Capacity: 7, AtStart: true}))
	e.put("pooled", func(q *gq.Queue) { q.Pool = "p" })
	e.put("limits", func(q *gq.Queue) {
		q.MaxRunning, q.MaxDepth, q.KeyLimit, q.Rate = 5, 100, 1, gq.Rate{Count: 1, Per: time.Minute, Burst: 2}
	})
	e.put("fair", func(q *gq.Queue) { q.Fair = true })
	e.put("still", func(q *gq.Queue) { q.Paused = true })
	e.story()
	e.mixture()
	for i := range 5 {
		e.add(inQueue("fair"), fairly("abcab"[i:i+1]))
	}
	e.one(from("fair"))
	e.each(e.specs(3, inQueue("limits"), func(s *gq.Spec) { s.LimitKey = "tenant" })...)
	e.one(from("limits"))
	e.add(inQueue("pooled"), costing(3))
	e.one(from("pooled"))
	e.each(e.spec(inQueue("pooled"), costing(8)), e.spec(inQueue("still"), requiring("gpu", `odd "one"\`), ofType("other")))
	key := e.add(keyed("again", 7), inQueue("still"))
	e.updated(store.Update{
		Ref: byID(key.ID), Apply: updating(gq.PriorityHigh),
		Metadata: &gq.Metadata{Priority: gq.PriorityHigh, Tags: map[string]string{"team": "x"}, CorrelationID: "c"},
	})
	held := e.add(inQueue("work"), binary(e.noise(3000)))
	j := e.one(from("work"), holding)
	e.update(held.ID, starting(j.State.Lease.Ref(), 0))
	e.updated(store.Update{
		Ref: byID(held.ID), Apply: beating(j.State.Lease.Ref(), machine.Report{Progress: 0.25, CheckpointBytes: 6}), Checkpoint: []byte("so far"),
	})
	foreign := e.add(inQueue("work"))
	e.update(foreign.ID, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Claim(s, machine.Grant{Lease: "a lease of its own", Worker: "w"}, now)
	})
	parent := e.add(inQueue("work"), at(gq.PriorityLow))
	e.each(e.spec(inQueue("kids"), depends(gq.DependencyAfter, parent.ID)), e.spec(inQueue("kids"), depends(gq.DependencyAfterAny, parent.ID, held.ID)))
	versions := e.putDocs(doc("schedule", "a", 0, "1"), doc("token", "b", 0, ""), doc("delivery", "c", 0, "3"))
	e.putDocs(store.Doc{Kind: "token", Name: "b", Version: versions[1], Data: []byte("2")}, store.Doc{Kind: "delivery", Name: "c", Version: versions[2]})
}

// shown is everything that callers of a store can read.
type shown struct {
	Jobs      []gq.Job
	Histories [][]gq.Event
	Counts    map[string]gq.Count
	Events    []gq.Event
	Queues    map[string]gq.Queue
	Pools     []gq.Pool
	Docs      []store.Doc
	Due       store.Due
}

func (e *env) shows() (all shown) {
	e.Helper()
	for _, j := range e.list(gq.Query{OldestFirst: true, Limit: 100}) {
		all.Jobs = append(all.Jobs, e.get(j.State.ID))
		all.Histories = append(all.Histories, e.history(j.State.ID))
	}
	all.Counts, all.Events, all.Due, all.Pools = e.counts(), e.events(0), e.due(100), e.pools()
	for name, c := range all.Counts { // a queue without jobs may be missing
		if c.By == (gq.Count{}).By {
			delete(all.Counts, name)
		}
	}
	_, all.Queues = e.queues()
	for _, kind := range []string{"schedule", "token", "delivery"} {
		all.Docs = append(all.Docs, e.docs(kind, 10)...)
	}
	return all
}

func moveEverything(e *env) {
	if !e.movable() {
		return
	}
	e.rich()
	e.put("keyed", func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 1, Per: time.Hour} })
	e.putKey(gq.QueueKey{Queue: "keyed", Key: "a", Limit: 2})
	e.putKey(gq.QueueKey{Queue: "keyed", Key: "b", Rate: gq.Rate{Count: 1, Per: time.Minute}})
	e.each(e.specs(1, inQueue("keyed"), limitedBy("a"))...)
	e.each(e.specs(1, inQueue("keyed"), limitedBy("c"), weighing(3))...)
	e.limited("two keys", 5, 2, time.Time{}, from("keyed"))
	before := e.shows()
	if items, _ := e.export(1000); len(items.Keys) != 2 || len(items.Owed) != 2 {
		e.Errorf("exported limits of keys %+v and what keys owe %+v, want two of each", items.Keys, items.Owed)
	}
	for _, limit := range []int{7, 1000} {
		to := e.another()
		to.fill(e, limit)
		e.equal(fmt.Sprintf("a store that was filled %d at a time", limit), to.shows(), before)
		items, head := e.export(limit)
		again, headAgain := to.export(7)
		e.equal("an export of what was imported", again, items)
		if headAgain.LastJob < head.LastJob || headAgain.LastDoc < head.LastDoc || headAgain.Time.Before(head.Time) ||
			headAgain.LastEvent != head.LastEvent || headAgain.Gone != head.Gone || headAgain.Jobs != head.Jobs {
			e.Errorf("the head of an export of what was imported is %+v, want %+v", headAgain, head)
		}
		if e.backend.Reopen != nil {
			to.reopen()
			e.equal("the store after a restart", to.shows(), before)
		}
	}
	e.equal("the source afterwards", e.shows(), before)
}

func moveGoesOn(e *env) {
	if !e.movable() {
		return
	}
	e.rated("rated", gq.Rate{Count: 1, Per: time.Hour})
	e.put("fair", func(q *gq.Queue) { q.Fair = true })
	parent := e.add()
	child := e.add(inQueue("kids"), depends(gq.DependencyAfter, parent.ID))
	first := e.one(lasting(time.Minute))
	e.clock.Advance(time.Minute)
	held := e.one(lasting(time.Hour)) // first is stale
	late := e.add(delayed(time.Hour))
	key := e.add(keyed("k", 1), inQueue("keyed"))
	fair := append(e.adds(3, "a", inQueue("fair")), e.adds(2, "b", inQueue("fair"))...)
	e.one(from("fair"))
	e.each(e.specs(2, inQueue("rated"))...)
	e.one(from("rated"))
	e.put("customers", func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 1, Per: time.Hour} })
	e.putKey(gq.QueueKey{Queue: "customers", Key: "b", Limit: 1})
	e.each(e.specs(2, inQueue("customers"), limitedBy("a"))...)
	e.one(from("customers"))
	e.each(e.specs(2, inQueue("customers"), limitedBy("b"))...)
	foreign := e.add(inQueue("foreign"))
	e.update(foreign.ID, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Claim(s, machine.Grant{Lease: "a lease of its own", Worker: "w"}, now)
	})
	version := e.putDocs(doc("schedule", "a", 0, "1"))[0]
	events := e.events(0)
	last := events[len(events)-1].Seq

	to := e.another()
	to.fill(e, 2)
	to.stale("the lease that ran out before the move", parent.ID, first.State.Lease.Ref())
	to.limited("of keys after the move", 5, 1, e.now().Add(time.Hour), from("customers"))
	if s := to.complete(held); s.Status != gq.StatusCompleted {
		e.Errorf("the holder of a lease left its job %s", s.Status)
	}
	to.release()
	to.stands("a dependent whose dependency ended after the move", child.ID, gq.StatusScheduled)
	if found := to.find(byLease("a lease of its own"), 0); found.Err != nil || found.State.ID != foreign.ID {
		e.Errorf("the job of a lease with an id of its own: %v, %v", found.State.ID, found.Err)
	}
	to.hit("the key", e.spec(keyed("k", 1), inQueue("keyed")), key.ID, true)
	to.limited("a rate that was used up", 1, 0, e.now().Add(time.Hour), from("rated"))
	to.claimed("by turns", 10, []gq.JobID{fair[3], fair[1], fair[4], fair[2]}, from("fair"))
	to.clock.Advance(time.Hour)
	to.claimed("when the delay is over", 10, []gq.JobID{late.ID})
	if s := to.add(); s.Sequence <= foreign.Sequence {
		e.Errorf("a new job has sequence %d, the last before the move %d", s.Sequence, foreign.Sequence)
	}
	more := to.events(last)
	if len(more) == 0 || more[0].Seq <= last {
		e.Fatalf("after event %d there are %d", last, len(more))
	}
	e.equal("the events up to the move", to.events(0)[:len(events)], events)
	if v := to.putDocs(store.Doc{Kind: "schedule", Name: "a", Version: version, Data: []byte("2")})[0]; v <= version {
		e.Errorf("a document got version %d after %d", v, version)
	}
	to.refused(gq.ErrDuplicateID, func() gq.Spec { s := e.spec(); s.ID = parent.ID; return s }())
	to.recount("after the move")
}

func moveResume(e *env) {
	if !e.movable() {
		return
	}
	e.rich()
	before := e.shows()
	to := e.another(func(c *store.Config) { c.Unfinished = true })
	for cut := 0; ; cut++ { // one part each time
		x, err := e.store().(store.Exporter).Export(e.Context())
		e.check("Export", err)
		in, err := to.store().(store.Importer).Import(e.Context(), x.Head())
		e.check("Import", err)
		if (in.Mark() == nil) != (cut == 0) {
			e.Fatalf("after %d parts the mark is %q", cut, in.Mark())
		}
		next := string(in.Mark())
		e.parts(x, next, 20, func(items store.Items, after string) bool {
			next = after
			e.check("Write", in.Write(e.Context(), items, []byte(after)))
			return false
		})
		e.check("Close of an export", x.Close())
		if next == "" {
			e.check("Finish", in.Finish(e.Context()))
			break
		}
		if cut%5 == 0 {
			to.reopen()
		}
	}
	to.cfg.Unfinished = false
	to.reopen()
	e.equal("a store that was filled in many goes", to.shows(), before)
}

func moveRefused(e *env) {
	if !e.movable() {
		return
	}
	e.add()
	x, err := e.store().(store.Exporter).Export(e.Context())
	e.check("Export", err)
	defer func() { e.check("Close of an export", x.Close()) }()
	for name, fill := range map[string]func(to *env){
		"a job":      func(to *env) { to.add() },
		"a queue":    func(to *env) { to.put("q", func(*gq.Queue) {}) },
		"a pool":     func(to *env) { to.putPool("p", 1) },
		"a document": func(to *env) { to.putDocs(doc("k", "a", 0, "1")) },
	} {
		to := e.another()
		fill(to)
		before := to.shows()
		_, err := to.store().(store.Importer).Import(e.Context(), x.Head())
		e.is("Import into a store with "+name, err, gq.ErrNotEmpty)
		e.equal("a store with "+name, to.shows(), before)
	}
	to := e.another()
	in, err := to.store().(store.Importer).Import(e.Context(), x.Head())
	e.check("Import", err)
	items, _, err := x.Read(e.Context(), "", 1)
	e.check("Read", err)
	e.check("Write", in.Write(e.Context(), items, []byte("mark")))
	e.add()
	later, err := e.store().(store.Exporter).Export(e.Context())
	e.check("Export", err)
	defer func() { e.check("Close of an export", later.Close()) }()
	_, err = to.store().(store.Importer).Import(e.Context(), later.Head())
	e.is("Import of a later moment", err, gq.ErrUnfinished)
	in, err = to.store().(store.Importer).Import(e.Context(), x.Head())
	e.check("Import of the first moment", err)
	e.equal("the mark", in.Mark(), []byte("mark"))
}

func moveCollected(e *env) {
	e.keeping()
	if !e.movable() {
		return
	}
	live := e.add(under(brief), inQueue("live"))
	done := e.add(under(brief))
	e.end(done.ID, gq.StatusCompleted)
	failed := e.add(under(brief))
	e.end(failed.ID, gq.StatusFailed)
	e.clock.Advance(90 * time.Minute)
	e.add(under(brief), inQueue("live"))
	if n := e.collect(); n != 1 {
		e.Fatalf("Collect removed %d jobs, want 1", n)
	}
	histories := [][]gq.Event{e.history(live.ID), e.history(failed.ID)}
	last, err := e.store().LastEvent(e.Context())
	e.check("LastEvent", err)

	to := e.another()
	to.fill(e, 2)
	to.absent("a job that was collected before the move", done.ID)
	e.equal("the histories", [][]gq.Event{to.history(live.ID), to.history(failed.ID)}, histories)
	items, _ := e.export(10)
	again, _ := to.export(10)
	e.equal("an export of what was imported", again, items)
	if all, err := to.store().Events(e.Context(), 0, 100); err == nil {
		_, err := e.store().Events(e.Context(), 0, 100)
		e.check("Events of the source, where those of the destination go on without what is gone", err)
		e.equal("the events", all, items.Events)
	} else {
		e.is("Events from the beginning", err, gq.ErrGone)
	}
	now, err := to.store().LastEvent(e.Context())
	e.check("LastEvent", err)
	if now != last {
		e.Errorf("the last event is %d, want %d", now, last)
	}
	if more := to.events(last); len(more) != 0 {
		e.Errorf("%d events come after the last", len(more))
	}
	if n := to.collect(); n != 0 {
		e.Errorf("Collect removed %d jobs before their time", n)
	}
	e.clock.Advance(2 * time.Hour)
	if n := to.collect(); n != 1 {
		e.Errorf("Collect removed %d jobs, want the failed one", n)
	}
	to.absent("a job past its retention", failed.ID)
	e.equal("the history of the job that lives", to.history(live.ID), histories[0])
	to.recount("after the move and a collection")
}

func moveOrigin(e *env) {
	if !e.movable() {
		return
	}
	origin := func() [32]byte {
		_, head := e.export(100)
		return head.Origin
	}
	empty := origin()
	job := e.add()
	held := e.one()
	seen := map[[32]byte]string{empty: "an empty store", origin(): "a claim"}
	if len(seen) != 2 {
		e.Fatalf("a job does not change the origin")
	}
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"a heartbeat", func() { e.update(job.ID, beating(held.State.Lease.Ref(), machine.Report{Progress: 0.5})) }},
		{"a document", func() { e.putDocs(doc("k", "a", 0, "1")) }},
		{"a queue", func() { e.put("q", func(q *gq.Queue) { q.MaxDepth = 7 }) }},
		{"a pool", func() { e.putPool("p", 1) }},
		{"a submission", func() { e.add() }},
		{"an outcome", func() { e.complete(held) }},
	} {
		e.clock.Advance(time.Second)
		change.do()
		now := origin()
		if before, known := seen[now]; known {
			e.Errorf("%s leaves the origin as it was after %s", change.name, before)
		}
		seen[now] = change.name
		e.reopen()
		if origin() != now {
			e.Errorf("a restart after %s changes the origin", change.name)
		}
	}
}

func moveMoment(e *env) {
	if !e.movable() {
		return
	}
	e.rich()
	items, head := e.export(1000)
	x, err := e.store().(store.Exporter).Export(e.Context())
	e.check("Export", err)
	defer func() { e.check("Close of an export", x.Close()) }()
	var all store.Items
	e.parts(x, "", 25, func(part store.Items, _ string) bool {
		all.Docs, all.Events, all.Jobs = append(all.Docs, part.Docs...), append(all.Events, part.Events...), append(all.Jobs, part.Jobs...)
		all.Edges, all.Leases = append(all.Edges, part.Edges...), append(all.Leases, part.Leases...)
		j := e.add(inQueue("new"), keyed(e.id().String(), 1))
		e.end(j.ID, gq.StatusCompleted, from("new"))
		e.putDocs(doc("k", j.ID.String(), 0, "1"))
		return true
	})
	e.equal("the numbers", x.Head().LastEvent, head.LastEvent)
	e.equal("the documents", all.Docs, items.Docs)
	e.equal("the events", all.Events, items.Events)
	e.equal("the jobs", all.Jobs, items.Jobs)
	e.equal("the leases", all.Leases, items.Leases)
	e.equal("the dependencies", all.Edges, items.Edges)
}
