package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var queueCases = []Case{
	{
		Name:   "Queues/List",
		Clause: "every queue that was configured or ever had a job is listed, by name",
		run:    queueList,
	},
	{
		Name:   "Queues/Query",
		Clause: "a query picks queues by name, by pool and by policy; a page has the first ones after a name",
		run:    queueQuery,
	},
	{
		Name:   "Queues/Put",
		Clause: "a queue reads as it was configured last, with the time of that",
		run:    queuePut,
	},
	{
		Name:   "Queues/Changed",
		Clause: "a change of a queue as it was read before another change is ErrConflict and changes nothing",
		run:    queueChanged,
	},
	{
		Name:   "Queues/Invalid",
		Clause: "a queue that cannot be is ErrInvalid, with every fault, and changes nothing",
		run:    queueInvalid,
	},
	{
		Name:   "Queues/Refused",
		Clause: "a refused submission leaves no queue behind",
		run:    queueRefused,
	},
	{
		Name:   "Queues/Delete",
		Clause: "a deleted queue has no configuration and is listed only while it has jobs; one with live jobs is ErrQueueInUse, one that is not listed ErrNotFound",
		run:    queueDelete,
	},
	{
		Name:    "Queues/DeleteReopen",
		Clause:  "a deleted queue is gone after a restart",
		Reopens: true,
		run:     queueDeleteReopen,
	},
	{
		Name:    "Queues/Reopen",
		Clause:  "queues and their configuration survive a restart, also when their jobs are gone",
		Reopens: true,
		run:     queueReopen,
	},
}

// queues reads all queues by name.
func (e *env) queues() (names []string, by map[string]gq.Queue) {
	e.Helper()
	queues, err := e.store().Queues(e.Context(), store.QueueQuery{})
	e.check("Queues", err)
	by = make(map[string]gq.Queue)
	for _, q := range queues {
		names = append(names, q.Name)
		by[q.Name] = q
	}
	return names, by
}

func queueList(e *env) {
	if names, _ := e.queues(); len(names) != 0 {
		e.Errorf("an empty store has the queues %q", names)
	}
	e.put("m", func(*gq.Queue) {})
	e.insert(e.spec(inQueue("z")), e.spec(inQueue("a")), e.spec(inQueue("B")))
	e.add(inQueue("m"))
	names, by := e.queues()
	if want := []string{"B", "a", "m", "z"}; !slices.Equal(names, want) {
		e.Errorf("the queues are %q, want %q", names, want)
	}
	e.equal("a queue that nobody configured", by["a"], machine.NewQueue("a"))
}

func queueQuery(e *env) {
	e.check("PutPool", e.store().PutPool(e.Context(), gq.Pool{Name: "p", Capacity: 5}))
	e.put("c", func(q *gq.Queue) { q.Pool = "p" })
	e.put("a", func(q *gq.Queue) { q.Pool, q.Policy = "p", gq.PresetAI.Policy() })
	e.put("e", func(q *gq.Queue) { q.Policy = gq.PresetScheduler.Policy() })
	e.put("f", func(*gq.Queue) {})
	e.insert(e.spec(inQueue("d")), e.spec(inQueue("B")), e.spec(inQueue("c"))) // queues that were never configured
	_, all := e.queues()
	standard := machine.DefaultPolicy()
	for _, c := range []struct {
		query store.QueueQuery
		want  []string
	}{
		{store.QueueQuery{}, []string{"B", "a", "c", "d", "e", "f"}},
		{store.QueueQuery{Names: []string{"d", "nobody's", "c", "d"}}, []string{"c", "d"}},
		{store.QueueQuery{Names: []string{}}, nil},
		{store.QueueQuery{Names: []string{"d", "c", "a"}, After: "a", Limit: 1}, []string{"c"}},
		{store.QueueQuery{Pool: "p"}, []string{"a", "c"}},
		{store.QueueQuery{Pool: "nobody's"}, nil},
		{store.QueueQuery{Pool: "p", Unlike: standard}, []string{"a"}},
		{store.QueueQuery{Unlike: standard}, []string{"a", "e"}},
		{store.QueueQuery{Unlike: standard, Limit: 1}, []string{"a"}},
		{store.QueueQuery{Unlike: gq.PresetScheduler.Policy()}, []string{"a", "c", "f"}},
		{store.QueueQuery{Limit: 2}, []string{"B", "a"}},
		{store.QueueQuery{After: "a", Limit: 2}, []string{"c", "d"}},
		{store.QueueQuery{After: "bb", Limit: 3}, []string{"c", "d", "e"}},
		{store.QueueQuery{After: "d"}, []string{"e", "f"}},
		{store.QueueQuery{After: "f", Limit: 2}, nil},
	} {
		queues, err := e.store().Queues(e.Context(), c.query)
		e.check("Queues", err)
		var names []string
		for _, q := range queues {
			names = append(names, q.Name)
			e.equal("a queue that was picked", q, all[q.Name])
		}
		if !slices.Equal(names, c.want) {
			e.Errorf("the queues of %+v are %q, want %q", c.query, names, c.want)
		}
	}
}

func queuePut(e *env) {
	put := func(q gq.Queue) {
		e.Helper()
		e.check("PutQueue", e.store().PutQueue(e.Context(), q))
		_, by := e.queues()
		q.UpdatedAt = e.now()
		e.equal("the queue", by[q.Name], q)
	}
	q := machine.NewQueue("q")
	q.Policy = gq.PresetAI.Policy()
	q.Paused, q.MaxRunning, q.MaxDepth = true, 3, 1<<40
	put(q)
	e.clock.Advance(time.Second)
	q.Paused, q.MaxRunning = false, 0
	put(q)
	put(machine.NewQueue("other"))
}

func queueChanged(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxDepth = 1 })
	_, by := e.queues()
	read := by["q"]
	mine, theirs := read, read
	mine.MaxDepth, theirs.Paused = 2, true
	e.check("PutQueue", e.store().PutQueue(e.Context(), theirs))
	_, before := e.queues()
	if at := before["q"].UpdatedAt; !at.After(read.UpdatedAt) {
		e.Errorf("configured at %v, and again at %v", read.UpdatedAt, at)
	}
	e.is("a change of what was read before", e.store().PutQueue(e.Context(), mine), gq.ErrConflict)
	stranger := machine.NewQueue("new")
	stranger.UpdatedAt = read.UpdatedAt
	e.is("a change of what there is not", e.store().PutQueue(e.Context(), stranger), gq.ErrConflict)
	_, after := e.queues()
	e.equal("the queues after refused changes", after, before)
	mine = before["q"]
	mine.MaxDepth = 2
	e.check("PutQueue", e.store().PutQueue(e.Context(), mine))
	if _, by := e.queues(); !by["q"].Paused || by["q"].MaxDepth != 2 {
		e.Errorf("both changes made %+v", by["q"])
	}
}

func queueInvalid(e *env) {
	q := machine.NewQueue("q")
	e.check("PutQueue", e.store().PutQueue(e.Context(), q))
	_, before := e.queues()
	q.MaxDepth, q.MaxRunning = -1, -1
	q.Policy.MaxAttempts = 0
	err := e.store().PutQueue(e.Context(), q)
	e.is("PutQueue", err, gq.ErrInvalid)
	for _, field := range []string{"max_depth", "max_running", "policy.max_attempts"} {
		if got := fields(err); !slices.Contains(got, field) {
			e.Errorf("the error names %q, want also %q", got, field)
		}
	}
	e.is("PutQueue without a name", e.store().PutQueue(e.Context(), machine.NewQueue("")), gq.ErrInvalid)
	_, after := e.queues()
	e.equal("the queues after refused changes", after, before)
}

func queueRefused(e *env) {
	bad := e.specs(2, inQueue("nowhere"))
	bad[1].Type = ""
	e.refused(gq.ErrInvalid, bad...)
	e.refused(gq.ErrInvalid, e.spec(inQueue("nowhere"), depends(gq.DependencyAfter, e.id())))
	if names, _ := e.queues(); len(names) != 0 {
		e.Errorf("after refused submissions the queues are %q, want none", names)
	}
}

func queueReopen(e *env) {
	e.put("paused", func(q *gq.Queue) { q.Paused = true })
	e.put("narrow", func(q *gq.Queue) { q.MaxRunning, q.MaxDepth = 1, 2 })
	e.add(inQueue("paused"))
	e.insert(e.specs(2, inQueue("narrow"))...)
	e.one(from("narrow"))
	e.end(e.add().ID, gq.StatusCompleted)
	names, before := e.queues()
	e.reopen()
	after, by := e.queues()
	if !slices.Equal(after, names) {
		e.Errorf("after a restart the queues are %q, want %q", after, names)
	}
	e.equal("the queues after a restart", by, before)
	e.none("in a paused queue, after a restart", from("paused"))
	e.none("in a queue at its limit, after a restart", from("narrow"))
	e.refused(gq.ErrQueueFull, e.spec(inQueue("narrow")))

	e.clock.Advance(7 * 24 * time.Hour)
	e.collect()
	e.reopen()
	if after, _ := e.queues(); !slices.Equal(after, names) {
		e.Errorf("after all jobs of a queue were collected the queues are %q, want %q", after, names)
	}
}

func queueDelete(e *env) {
	keep := e.keeping()
	remove := func(name string) error { return e.s.DeleteQueue(e.Context(), name) }
	e.is("delete an unknown queue", remove("x"), gq.ErrNotFound)
	e.putPool("pool", 5)
	e.put("q", func(q *gq.Queue) {
		q.Paused, q.MaxRunning, q.Rate, q.Pool, q.Fair = true, 1, gq.Rate{Count: 1, Per: time.Hour}, "pool", true
	})
	job := e.add()
	err := remove("q")
	e.is("delete a queue with a live job", err, gq.ErrQueueInUse)
	if err != nil && !strings.Contains(err.Error(), "1 SCHEDULED") {
		e.Errorf("%v does not tell the counts", err)
	}
	if _, by := e.queues(); !by["q"].Paused {
		e.Errorf("a refused deletion changed the queue: %+v", by["q"])
	}
	e.cancel(job.ID)
	e.check("delete a queue without live jobs", remove("q"))
	e.stands("its finished job", job.ID, gq.StatusCancelled)
	names, by := e.queues()
	if q := by["q"]; !slices.Equal(names, []string{"q"}) || q.Paused || q.MaxRunning != 0 || q.Rate.Limited() || q.Pool != "" || q.Fair || !q.UpdatedAt.IsZero() {
		e.Errorf("with a finished job the queues are %q, %+v; want one without configuration", names, q)
	}
	e.claimed("new jobs", 2, []gq.JobID{e.add().ID, e.add().ID})
	e.is("delete it with held jobs", remove("q"), gq.ErrQueueInUse)
	for _, j := range e.list(gq.Query{Statuses: []gq.Status{gq.StatusRunning}}) {
		e.complete(j)
	}
	e.clock.Advance(max(keep.Completed, keep.Cancelled) + time.Hour)
	e.collect()
	if names, _ := e.queues(); len(names) != 0 {
		e.Errorf("without jobs the queues are %q, want none", names)
	}
	if c := e.counts(); len(c) != 0 {
		e.Errorf("without jobs the counts are %v, want none", c)
	}
	e.is("delete it again", remove("q"), gq.ErrNotFound)
	e.put("q", func(q *gq.Queue) { q.MaxDepth = 7 })
	if _, by := e.queues(); by["q"].MaxDepth != 7 {
		e.Errorf("configured again it is %+v", by["q"])
	}
}

func queueDeleteReopen(e *env) {
	e.put("kept", func(*gq.Queue) {})
	e.put("gone", func(q *gq.Queue) { q.Fair, q.MaxRunning = true, 3 })
	e.check("DeleteQueue", e.s.DeleteQueue(e.Context(), "gone"))
	e.reopen()
	if names, _ := e.queues(); !slices.Equal(names, []string{"kept"}) {
		e.Errorf("after a restart the queues are %q, want only the other one", names)
	}
	e.put("gone", func(*gq.Queue) {})
	e.reopen()
	if names, by := e.queues(); !slices.Equal(names, []string{"gone", "kept"}) || by["gone"].MaxRunning != 0 {
		e.Errorf("configured again, after a restart, the queues are %q, %+v", names, by["gone"])
	}
}
