package storetest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var replaceCases = []Case{
	{
		Name:   "Replace/Key",
		Clause: "a submission that replaces cancels the waiting job that has its key and takes its place and its key, in one commit, each names the other, and the answer tells",
		run:    replaceKey,
	},
	{
		Name:   "Replace/Held",
		Clause: "a job that a worker holds, that has started or that has ended is not replaced: the submission is refused, and nothing changes",
		run:    replaceHeld,
	},
	{
		Name:   "Replace/Named",
		Clause: "a job that names another one in its spec replaces it if that one waits, whether or not it has a key",
		run:    replaceNamed,
	},
	{
		Name:   "Replace/TakesKey",
		Clause: "a job that replaces another one by name takes its key, and is refused if a third one has its key",
		run:    replaceTakesKey,
	},
	{
		Name:   "Replace/Dependents",
		Clause: "jobs that wait for a replaced job wait for the one that takes its place, and end or run as that one ends",
		run:    replaceDependents,
	},
	{
		Name:   "Replace/Late",
		Clause: "a job that names a replaced one in its dependencies, also one that was replaced twice, waits for the job that stands in its place",
		run:    replaceLate,
	},
	{
		Name:   "Replace/Often",
		Clause: "a job that names one which was replaced a hundred times waits for the job that stands in its place; naming one that was replaced more often is refused",
		run:    replaceOften,
	},
	{
		Name:   "Replace/Twice",
		Clause: "a job that names a replaced job and its successor is refused, and told which stands for which",
		run:    replaceTwice,
	},
	{
		Name:   "Replace/Gone",
		Clause: "a job that names a replaced one whose successor was removed is refused, and told both",
		run:    replaceGone,
	},
	{
		Name:   "Replace/Chain",
		Clause: "a job for which others wait is not replaced by one that depends on a longer chain, so that nothing can wait for itself, nor if too many wait",
		run:    replaceChain,
	},
	{
		Name:   "Replace/Depth",
		Clause: "the job that is replaced makes room in its queue for the one that takes its place",
		run:    replaceDepth,
	},
	{
		Name:   "Replace/Refused",
		Clause: "where a group is refused, no job is replaced",
		run:    replaceRefused,
	},
	{
		Name:   "Replace/Unauthorized",
		Clause: "who may not change a job neither replaces nor postpones it",
		run:    replaceUnauthorized,
	},
	{
		Name:   "Replace/Spawned",
		Clause: "a child of a job can replace a waiting job, in the commit of the update",
		run:    replaceSpawned,
	},
	{
		Name:   "Replace/Race",
		Clause: "two that replace one waiting job while a third claims it: it runs and has no successor, or it is cancelled and has exactly one, and of all jobs exactly one is left to run",
		run:    replaceRace,
	},
}

// replacing names the job that a job replaces.
func replacing(id gq.JobID) setting { return func(s *gq.Spec) { s.Replaces = id } }

// replaced fails unless a job was replaced by another one.
func (e *env) replaced(what string, old, by gq.JobID) {
	e.Helper()
	s := e.state(old)
	if s.Status != gq.StatusCancelled || s.ReplacedBy != by || s.Reason != "replaced by "+by.String() {
		e.Errorf("%s is %s, replaced by %s, reason %q; want CANCELLED, replaced by %s", what, s.Status, s.ReplacedBy, s.Reason, by)
	}
	if got := e.get(by).Spec.Replaces; got != old {
		e.Errorf("the job that took the place of %s says that it replaces %s, want %s", what, got, old)
	}
}

func replaceKey(e *env) {
	rule := unique("k", gq.WhileWaiting, gq.Replace)
	for _, extra := range []setting{delayed(time.Hour), func(*gq.Spec) {}, depends(gq.DependencyAfter, e.add(delayed(time.Hour), inQueue("parent")).ID)} {
		old, next := e.spec(rule, extra), e.spec(rule, at(gq.PriorityHigh))
		next.Payload.Data = []byte(`{"new":true}`)
		if !e.placed(old).Replaces.IsZero() {
			e.Errorf("the first replaces a job")
		}
		before := e.events(0)
		e.clock.Advance(time.Second)
		if p := e.placed(next); p.Replaces != old.ID || p.Existing || p.State.ID != next.ID {
			e.Errorf("the answer to the second is %+v, want that it replaces the first", p)
		}
		e.replaced("the first", old.ID, next.ID)
		if got := string(e.get(old.ID).Spec.Payload.Data); got != "null" {
			e.Errorf("the payload of the replaced job is %s, want it unchanged", got)
		}
		if got := string(e.get(next.ID).Spec.Payload.Data); got != `{"new":true}` {
			e.Errorf("the payload of the new job is %s", got)
		}
		told := e.events(before[len(before)-1].Seq)
		types := make(map[gq.EventType]gq.JobID)
		for _, v := range told {
			if types[v.Type] = v.Job; !v.Time.Equal(told[0].Time) {
				e.Errorf("the events are of different times: %v and %v", v.Time, told[0].Time)
			}
		}
		if len(told) != 3 || types[gq.EventCancelled] != old.ID || types[gq.EventSubmitted] != next.ID || types[gq.EventScheduled] != next.ID {
			e.Errorf("the events of the replacement are %+v, want the first one cancelled, the second one submitted and scheduled", told)
		}
		e.claimed("only the second runs", 10, []gq.JobID{next.ID})
		third := e.spec(rule)
		e.fresh("the second is claimed", third)
		e.hit("the third has the key", e.spec(unique("k", gq.WhileWaiting, gq.Existing)), third.ID, true)
		e.cancel(third.ID)
	}
	e.recount("after replacements")
	minted := e.minted(e.spec(unique("minted", gq.WhileWaiting, gq.Existing)))[0]
	by := e.minted(e.spec(unique("minted", gq.WhileWaiting, gq.Replace)))[0]
	e.replaced("a job whose id the store may have made", minted.ID, by.ID)
}

// placed submits a job and returns the answer.
func (e *env) placed(spec gq.Spec) store.Placed {
	e.Helper()
	answer := e.tryInsert(store.One(spec))[0]
	e.check("Insert", answer.Err)
	return answer.Jobs[0]
}

func replaceHeld(e *env) {
	for name, prepare := range map[string]func(queue string){
		"claimed": func(q string) { e.one(from(q), holding) },
		"running": func(q string) { e.one(from(q)) },
		"retried": func(q string) { e.fail(e.one(from(q)), temporary) },
		"ended":   func(q string) { e.complete(e.one(from(q))) },
	} {
		old := e.spec(every(name, time.Hour, gq.Existing), inQueue(name))
		e.fresh("the first", old)
		prepare(name)
		before := e.snapshot(old.ID)
		e.taken("a job that is "+name, e.spec(unique(name, gq.WhileLive, gq.Replace)), old.ID)
		e.is("by name", e.tryInsert(store.One(e.spec(replacing(old.ID))))[0].Err, gq.ErrIllegalMove)
		e.unchanged("a refused replacement", before, old.ID)
	}
}

func replaceNamed(e *env) {
	old := e.spec()
	e.fresh("a job without a key", old)
	next := e.spec(replacing(old.ID), inQueue("elsewhere"))
	e.fresh("one that replaces it", next)
	e.replaced("the job", old.ID, next.ID)
	e.none("the replaced job")
	e.claimed("the new one", 10, []gq.JobID{next.ID}, from("elsewhere"))
	e.is("a job that was replaced", e.tryInsert(store.One(e.spec(replacing(old.ID))))[0].Err, gq.ErrIllegalMove)
	e.is("an unknown job", e.tryInsert(store.One(e.spec(replacing(e.id()))))[0].Err, gq.ErrNotFound)
	twice := e.spec()
	e.fresh("another one", twice)
	e.refused(gq.ErrInvalid, e.spec(replacing(twice.ID)), e.spec(replacing(twice.ID)))
	self := e.spec(replacing(twice.ID), depends(gq.DependencyAfter, twice.ID))
	e.refused(gq.ErrInvalid, self)
	e.stands("after refused replacements", twice.ID, gq.StatusScheduled)
}

func replaceTakesKey(e *env) {
	old := e.spec(keyed("k", 1))
	e.fresh("a job with an idempotency key", old)
	next := e.spec(keyed("k", 1), replacing(old.ID))
	e.fresh("one that replaces it", next)
	e.replaced("the job", old.ID, next.ID)
	e.hit("the key", e.spec(keyed("k", 1)), next.ID, true)

	other := e.spec(keyed("other", 1))
	e.fresh("a third job", other)
	e.taken("a replacement with the key of a third one", e.spec(keyed("other", 1), replacing(next.ID)), other.ID)
	e.stands("after that", next.ID, gq.StatusScheduled)
}

func replaceDependents(e *env) {
	old := e.spec(unique("k", gq.WhileWaiting, gq.Existing), delayed(time.Hour))
	e.fresh("the job", old)
	after, any, always := e.spec(depends(gq.DependencyAfter, old.ID)), e.spec(depends(gq.DependencyAfterAny, old.ID)), e.spec(depends(gq.DependencyFanIn, old.ID))
	e.each(after, any, always)
	second := e.spec(unique("k", gq.WhileWaiting, gq.Replace), delayed(time.Hour))
	e.fresh("its successor", second)
	third := e.spec(replacing(second.ID), delayed(time.Hour))
	e.fresh("the successor's successor", third)
	e.release()
	for _, id := range []gq.JobID{after.ID, any.ID, always.ID} {
		if s := e.state(id); s.Status != gq.StatusPending {
			e.Errorf("a dependent of the replaced job is %s (%s), want PENDING", s.Status, s.Reason)
		}
	}
	e.clock.Advance(time.Hour)
	e.end(third.ID, gq.StatusFailed)
	e.release()
	for id, want := range map[gq.JobID]gq.Status{after.ID: gq.StatusFailed, any.ID: gq.StatusScheduled, always.ID: gq.StatusScheduled} {
		e.stands("a dependent, after the last successor failed", id, want)
	}

	olds := e.specs(2, inQueue("two"), delayed(time.Hour))
	e.each(olds...)
	var children, heirs []gq.Spec
	for i := range olds {
		children = append(children, e.spec(depends(gq.DependencyAfter, olds[i].ID)))
		heirs = append(heirs, e.spec(inQueue("two"), replacing(olds[i].ID)))
	}
	e.each(children...)
	e.each(heirs...) // in one call
	for i := range heirs {
		e.end(heirs[i].ID, gq.StatusFailed, from("two"))
	}
	e.release()
	for i := range children {
		e.stands("the dependent of one of two replaced jobs", children[i].ID, gq.StatusFailed)
	}
}

func replaceLate(e *env) {
	first := e.spec(delayed(time.Hour))
	e.fresh("a job", first)
	second := e.spec(replacing(first.ID), delayed(time.Hour))
	e.fresh("its successor", second)
	after := e.spec(depends(gq.DependencyAfter, first.ID))
	e.fresh("a job that names the replaced one", after)
	third := e.spec(replacing(second.ID), delayed(time.Hour), depends(gq.DependencyFanOut, first.ID))
	if got := e.refused(gq.ErrInvalid, third).fields(); !slices.Equal(got, []string{"depends_on[0].job"}) {
		e.Errorf("a successor that depends on what it stands for: faults of %v, want depends_on[0].job", got)
	}
	third.DependsOn = nil
	e.fresh("the successor's successor", third)
	always, inside := e.spec(depends(gq.DependencyFanIn, first.ID)), e.spec(depends(gq.DependencyAfter, second.ID))
	e.each(always)
	fourth := e.spec(replacing(third.ID), delayed(time.Hour))
	e.insert(inside, fourth) // the last successor, and one that names an earlier one
	e.release()
	for _, id := range []gq.JobID{after.ID, always.ID, inside.ID} {
		e.stands("a job that names a replaced one", id, gq.StatusPending)
	}
	e.clock.Advance(time.Hour)
	e.complete(e.one())
	e.release()
	for _, id := range []gq.JobID{after.ID, always.ID, inside.ID} {
		e.stands("a job that names a replaced one, after the last successor", id, gq.StatusScheduled)
	}
	late := e.spec(depends(gq.DependencyAfter, first.ID))
	e.fresh("a job that names it after that", late)
	e.release()
	e.stands("that job", late.ID, gq.StatusScheduled)
	once := e.spec(delayed(time.Hour), inQueue("failing"))
	e.fresh("another job", once)
	twice := e.spec(replacing(once.ID), inQueue("failing"))
	e.fresh("its successor", twice)
	e.end(twice.ID, gq.StatusFailed, from("failing"))
	failed := e.spec(depends(gq.DependencyAfter, once.ID))
	e.fresh("a job that names it", failed)
	e.release()
	e.stands("that job, of which the successor failed", failed.ID, gq.StatusFailed)
}

func replaceOften(e *env) {
	jobs := e.specs(gq.MaxReplacements+2, delayed(time.Hour))
	for i := range jobs {
		if i > 0 {
			jobs[i].Replaces = jobs[i-1].ID
		}
		e.fresh("a job", jobs[i])
	}
	child := e.spec(depends(gq.DependencyAfter, jobs[1].ID))
	e.insert(child)
	e.stands("the child of one that was replaced a hundred times", child.ID, gq.StatusPending)
	if got := e.refused(gq.ErrInvalid, e.spec(depends(gq.DependencyAfter, jobs[0].ID))); !slices.Equal(got.fields(), []string{"depends_on"}) || !strings.Contains(got.err.Error(), jobs[0].ID.String()) {
		e.Errorf("a dependency on a job that was replaced more often: %v, want depends_on and the job", got.err)
	}
	e.insert(e.spec(depends(gq.DependencyAfter, jobs[len(jobs)-1].ID)))
}

func replaceTwice(e *env) {
	first, second, third := e.spec(delayed(time.Hour)), e.spec(delayed(time.Hour)), e.spec(delayed(time.Hour))
	second.Replaces, third.Replaces = first.ID, second.ID
	for _, s := range []gq.Spec{first, second, third} {
		e.fresh("a job", s)
	}
	for _, c := range []struct {
		named []gq.JobID
		want  string
	}{
		{[]gq.JobID{first.ID, third.ID}, third.ID.String() + " is named twice, because it stands for " + first.ID.String() + ";"},
		{[]gq.JobID{third.ID, second.ID}, third.ID.String() + " is named twice, because it stands for " + second.ID.String() + ";"},
		{[]gq.JobID{first.ID, second.ID}, third.ID.String() + " is named twice, because it stands for " + first.ID.String() + " and " + second.ID.String() + ";"},
		{[]gq.JobID{first.ID, first.ID}, first.ID.String() + " is named twice"},
	} {
		got := e.refused(gq.ErrInvalid, e.spec(depends(gq.DependencyAfter, c.named...)))
		if !slices.Equal(got.fields(), []string{"depends_on[1].job"}) || !strings.Contains(got.err.Error(), c.want) {
			e.Errorf("dependencies on %s: %v, want %q", c.named, got.err, c.want)
		}
	}
}

func replaceGone(e *env) {
	keep := e.keeping()
	old := e.spec(under(brief))
	e.fresh("a job", old)
	heir := e.spec(under(brief), replacing(old.ID))
	e.fresh("its successor", heir)
	e.complete(e.one())
	e.clock.Advance(keep.Completed)
	e.collect()
	e.absent("the successor", heir.ID)
	e.stands("the replaced job, which is kept for longer", old.ID, gq.StatusCancelled)
	got := e.refused(gq.ErrInvalid, e.spec(depends(gq.DependencyAfter, old.ID)))
	want := old.ID.String() + " was replaced by " + heir.ID.String() + ", which does not exist any more"
	if !slices.Equal(got.fields(), []string{"depends_on[0].job"}) || !strings.Contains(got.err.Error(), want) {
		e.Errorf("a dependency on it: %v, want %q", got.err, want)
	}
}

func replaceChain(e *env) {
	old := e.spec(delayed(time.Hour))
	e.fresh("a job", old)
	child := e.spec(depends(gq.DependencyAfter, old.ID))
	e.insert(child)
	before := e.snapshot(old.ID, child.ID)
	if got := e.refused(gq.ErrInvalid, e.spec(replacing(old.ID), depends(gq.DependencyAfter, child.ID))).fields(); !slices.Equal(got, []string{"depends_on"}) {
		e.Errorf("a job that depends on the dependent: faults of %v, want depends_on", got)
	}
	e.unchanged("a refused replacement", before, old.ID, child.ID)

	// An order key leads back to the dependent, although the chain is no longer.
	top := e.add(delayed(time.Hour), inQueue("order"))
	first := e.spec(depends(gq.DependencyAfter, top.ID), inQueue("order"))
	e.insert(first)
	follower := e.add(depends(gq.DependencyAfter, first.ID), inQueue("order"), inOrder("k"))
	behind := e.add(inQueue("order"), inOrder("k"))
	if got := e.refused(gq.ErrInvalid, e.spec(replacing(first.ID), depends(gq.DependencyAfter, behind.ID), inQueue("order"))).fields(); !slices.Equal(got, []string{"depends_on"}) {
		e.Errorf("a job that depends on one behind its dependent: faults of %v, want depends_on", got)
	}
	e.stands("the job that was not replaced", first.ID, gq.StatusPending)
	e.stands("its dependent", follower.ID, gq.StatusPending)
	same := e.spec(replacing(first.ID), depends(gq.DependencyAfter, top.ID), inQueue("order"))
	e.fresh("a job with the same dependencies", same)

	crowded := e.spec(delayed(time.Hour), inQueue("crowded"))
	e.fresh("a job", crowded)
	e.each(e.specs(gq.MaxFollowers+1, depends(gq.DependencyAfter, crowded.ID), inQueue("crowd"))...)
	e.refused(gq.ErrTooMany, e.spec(replacing(crowded.ID)))
	e.stands("a job with too many dependents", crowded.ID, gq.StatusDelayed)
}

func replaceDepth(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxDepth = 1 })
	rule := unique("k", gq.WhileWaiting, gq.Replace)
	first := e.spec(rule)
	e.fresh("the first", first)
	e.refused(gq.ErrQueueFull, e.spec())
	second := e.spec(rule)
	e.fresh("one that takes its place", second)
	e.refused(gq.ErrQueueFull, e.spec())
	e.refused(gq.ErrQueueFull, e.spec(rule), e.spec())
	if c := e.counts()["q"]; c.Live() != 1 || c.By[gq.StatusCancelled] != 1 {
		e.Errorf("%d jobs are live and %d cancelled, want 1 and 1", c.Live(), c.By[gq.StatusCancelled])
	}
	e.put("later", func(q *gq.Queue) { q.MaxDepth = 1 })
	postponed := func(d time.Duration) gq.Spec {
		return e.spec(unique("d", gq.WhileWaiting, gq.Debounced), delayed(d), inQueue("later"))
	}
	e.fresh("one to be postponed", postponed(time.Minute))
	e.refused(gq.ErrQueueFull, postponed(time.Hour), e.spec(inQueue("later"))) // a job that is postponed keeps its place
}

func replaceRefused(e *env) {
	old, later := e.spec(unique("k", gq.WhileWaiting, gq.Existing)), e.spec(unique("d", gq.WhileWaiting, gq.Existing), delayed(time.Minute))
	e.fresh("a job", old)
	e.fresh("a job to be postponed", later)
	before := e.snapshot(old.ID, later.ID)
	taken := e.spec()
	taken.ID = old.ID
	replace, postpone := e.spec(unique("k", gq.WhileWaiting, gq.Replace)), e.spec(unique("d", gq.WhileWaiting, gq.Debounced), delayed(time.Hour))
	e.refused(gq.ErrDuplicateID, replace, postpone, taken)
	e.refused(gq.ErrInvalid, replace, postpone, e.spec(depends(gq.DependencyAfter, e.id())))
	e.unchanged("a refused group", before, old.ID, later.ID)
	e.hit("the key", e.spec(unique("k", gq.WhileWaiting, gq.Existing)), old.ID, true)
}

func replaceUnauthorized(e *env) {
	old, later := e.spec(unique("k", gq.WhileWaiting, gq.Existing), inQueue("theirs")), e.spec(unique("d", gq.WhileWaiting, gq.Existing), delayed(time.Minute), inQueue("theirs"))
	e.fresh("a job", old)
	e.fresh("a job to be postponed", later)
	before := e.snapshot(old.ID, later.ID)
	no := errors.New("not yours")
	asked := ""
	for _, s := range []gq.Spec{
		e.spec(unique("k", gq.WhileWaiting, gq.Replace)), e.spec(replacing(old.ID)), e.spec(unique("d", gq.WhileWaiting, gq.Debounced), delayed(time.Hour)),
	} {
		g := store.One(s)
		g.Authorize = func(queue string) error {
			asked = queue
			return no
		}
		e.is("who may not change the job", e.tryInsert(g)[0].Err, no)
		if asked != "theirs" {
			e.Errorf("asked about queue %q, want that of the job, theirs", asked)
		}
	}
	e.unchanged("an unauthorized replacement", before, old.ID, later.ID)
}

func replaceSpawned(e *env) {
	old := e.spec(unique("k", gq.WhileWaiting, gq.Existing), delayed(time.Hour))
	e.fresh("a job", old)
	parent := e.add(inQueue("parent"))
	j := e.one(from("parent"))
	child := e.spec(unique("k", gq.WhileWaiting, gq.Replace))
	e.updated(store.Update{Ref: byID(parent.ID), Apply: completing(j.State.Lease.Ref(), nil), Spawn: []gq.Spec{child}})
	e.replaced("the job", old.ID, child.ID)
	e.stands("the parent", parent.ID, gq.StatusCompleted)
	e.claimed("the child", 10, []gq.JobID{child.ID})
	e.recount("after a child replaced a job")
}

func replaceRace(e *env) {
	const rounds = 40
	e.open()
	won := make(map[bool]int) // by whether the claim came first
	for round := range rounds {
		old := e.spec(unique("k", gq.WhileLive, gq.Existing))
		e.fresh("the job", old)
		successors := e.specs(2, unique("k", gq.WhileLive, gq.Replace), delayed(time.Hour))
		var (
			wait    sync.WaitGroup
			claimed []gq.Job
			refused [2]error
			failed  [3]error
		)
		insert := func(i int) {
			answers, err := e.s.Insert(e.Context(), []store.Group{store.One(successors[i])})
			if failed[i] = err; err == nil {
				refused[i] = answers[0].Err
			}
		}
		calls := []func(){
			func() { insert(0) },
			func() {
				answers, err := e.s.Claim(e.Context(), []store.Claim{claimOf(1)})
				if failed[2] = err; err == nil {
					claimed, failed[2] = answers[0].Jobs, answers[0].Err
				}
			},
			func() { insert(1) },
		}
		for i := range calls { // the last goroutine usually runs first
			wait.Go(calls[(i+round)%len(calls)])
		}
		wait.Wait()
		won[len(claimed) > 0]++
		for _, err := range failed {
			e.check("a call of the race", err)
		}
		s := e.state(old.ID)
		made := 0
		for i, err := range refused {
			if err == nil {
				made++
			} else {
				e.is("a submission of the race", err, gq.ErrNotUnique)
				e.absent("a refused submission", successors[i].ID)
			}
		}
		switch {
		case len(claimed) == 1:
			if s.Status != gq.StatusRunning || made != 0 || !s.ReplacedBy.IsZero() {
				e.Errorf("the job was claimed: it is %s, replaced by %s, and %d submissions succeeded; want RUNNING, none, 0", s.Status, s.ReplacedBy, made)
			}
			e.complete(claimed[0])
		case made != 2:
			e.Errorf("the job was not claimed, and %d submissions succeeded; want both, one after the other", made)
		default:
			first, last := successors[0].ID, successors[1].ID
			if s.ReplacedBy != first {
				first, last = last, first
			}
			e.replaced("the job", old.ID, first)
			e.replaced("its successor", first, last)
			e.stands("the last one", last, gq.StatusDelayed)
			e.cancel(last)
		}
	}
	e.Logf("the claim came first in %d of %d rounds", won[true], rounds)
	if live := e.counts()["q"].Live(); live != 0 {
		e.Errorf("%d jobs are left, want none", live)
	}
}
