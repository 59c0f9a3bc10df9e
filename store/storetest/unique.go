package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var uniqueCases = []Case{
	{
		Name:   "Unique/Waiting",
		Clause: "a job that is unique while it waits holds its key until it is claimed or ends",
		run:    uniqueWaiting,
	},
	{
		Name:   "Unique/Live",
		Clause: "a job that is unique while it is live holds its key until it ends, however, and through its retries",
		run:    uniqueLive,
	},
	{
		Name:   "Unique/Done",
		Clause: "a job that is unique until done holds its key until it completes or is cancelled; after a failure only its replay takes the key",
		run:    uniqueDone,
	},
	{
		Name:   "Unique/Replayed",
		Clause: "a job is replayed once: another replay is answered with the first, even when that has lost its key",
		run:    uniqueReplayed,
	},
	{
		Name:   "Unique/Lifetime",
		Clause: "a job whose lifetime is over no longer holds its key as a live one, swept or not",
		run:    uniqueLifetime,
	},
	{
		Name:   "Unique/Period",
		Clause: "a job that is unique for a period holds its key exactly so long from its submission, whatever becomes of it",
		run:    uniquePeriod,
	},
	{
		Name:   "Unique/Rules",
		Clause: "the rule of the job that has the key says for how long, and that of the submission what happens",
		run:    uniqueRules,
	},
	{
		Name:   "Unique/Refuse",
		Clause: "a submission that refuses collisions fails with an error that names the job which has the key, and changes nothing",
		run:    uniqueRefuse,
	},
	{
		Name:   "Unique/Debounce",
		Clause: "a submission that debounces moves the waiting job to now plus its delay, never forward, and is answered with that job",
		run:    uniqueDebounce,
	},
	{
		Name:   "Unique/Throttle",
		Clause: "a throttled submission waits until the period of the job that has the key ends; those that follow meanwhile are answered with the waiting one",
		run:    uniqueThrottle,
	},
	{
		Name:   "Unique/InCall",
		Clause: "submissions of one call that collide are decided one after the other",
		run:    uniqueInCall,
	},
	{
		Name:   "Unique/InGroup",
		Clause: "jobs of one group with the same key cannot replace, postpone or refuse each other; dependencies on a postponed or replaced job lead to the job that stands for it",
		run:    uniqueInGroup,
	},
	{
		Name:   "Unique/Collected",
		Clause: "the key of a removed job is free",
		run:    uniqueCollected,
	},
	{
		Name:   "Unique/Kept",
		Clause: "a period longer than finished jobs are kept is refused, since the key would outlive its job",
		run:    uniqueKept,
	},
	{
		Name:    "Unique/Reopen",
		Clause:  "rules survive a restart",
		Reopens: true,
		run:     uniqueReopen,
	},
	{
		Name:   "Unique/Moved",
		Clause: "rules, periods and links go along when a store is moved",
		run:    uniqueMoved,
	},
}

// unique gives a job a key and a rule.
func unique(name string, while gq.While, on gq.OnCollision) setting {
	return func(s *gq.Spec) {
		s.Key = gq.IdempotencyKey{Name: name, Fingerprint: 1}
		s.Unique = gq.UniqueRule{While: while, OnCollision: on}
	}
}

// every is unique for a period.
func every(name string, period time.Duration, on gq.OnCollision) setting {
	return func(s *gq.Spec) {
		unique(name, gq.ForPeriod, on)(s)
		s.Unique.Period = period
	}
}

// taken fails unless a submission is refused because a job has the key.
func (e *env) taken(what string, spec gq.Spec, by gq.JobID) {
	e.Helper()
	err := e.tryInsert(store.One(spec))[0].Err
	e.is(what, err, gq.ErrNotUnique)
	if u, ok := errors.AsType[*gq.UniqueError](err); !ok || u.Job != by {
		e.Errorf("%s: error %v, want a UniqueError that names job %s", what, err, by)
	}
	e.absent(what, spec.ID)
}

func uniqueWaiting(e *env) {
	rule := unique("k", gq.WhileWaiting, gq.Existing)
	first := e.spec(rule)
	e.fresh("the first", first)
	e.clock.Advance(48 * time.Hour) // longer than the window of idempotency keys
	e.hit("while it waits", e.spec(rule), first.ID, true)
	held := e.one(holding)
	second := e.spec(rule)
	e.fresh("once it is claimed", second)
	e.hit("while the second one waits", e.spec(rule), second.ID, true)
	e.update(held.State.ID, releasing(held.State.Lease.Ref(), 0, ""))
	e.hit("the first one waits again, but its key is taken", e.spec(rule), second.ID, true)

	delayedOne := e.spec(unique("delayed", gq.WhileWaiting, gq.Existing), delayed(time.Hour))
	e.fresh("a delayed one", delayedOne)
	e.hit("while it is delayed", e.spec(unique("delayed", gq.WhileWaiting, gq.Existing)), delayedOne.ID, true)
	e.cancel(delayedOne.ID)
	e.fresh("once it is cancelled", e.spec(unique("delayed", gq.WhileWaiting, gq.Existing), delayed(time.Hour)))

	e.clock.Advance(time.Second)
	retried := e.spec(unique("retried", gq.WhileWaiting, gq.Existing), inQueue("retry"))
	e.fresh("one that will fail", retried)
	e.fail(e.one(from("retry")), temporary)
	e.fresh("an attempt has started, so it does not wait any more", e.spec(unique("retried", gq.WhileWaiting, gq.Existing)))
}

func uniqueLive(e *env) {
	for _, as := range []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled} {
		queue := as.String()
		rule := unique(queue, gq.WhileLive, gq.Existing)
		first := e.spec(rule, inQueue(queue))
		e.fresh("the first", first)
		if as == gq.StatusDeadLetter {
			s := e.fail(e.one(from(queue)), temporary)
			e.hit("while it waits for a retry", e.spec(rule), first.ID, true)
			e.clock.Set(s.RunAt)
			e.hit("when its retry is due", e.spec(rule), first.ID, true)
		}
		if as == gq.StatusCompleted {
			j := e.one(from(queue))
			e.hit("while it runs", e.spec(rule), first.ID, true)
			e.complete(j)
		} else {
			e.end(first.ID, as, from(queue))
		}
		e.fresh("once it is "+queue, e.spec(rule, inQueue("free")))
	}
}

func uniqueDone(e *env) {
	for as, frees := range map[gq.Status]bool{gq.StatusCompleted: true, gq.StatusCancelled: true, gq.StatusFailed: false, gq.StatusDeadLetter: false} {
		queue := as.String()
		rule := unique(queue, gq.UntilDone, gq.Existing)
		first := e.spec(rule, inQueue(queue))
		e.fresh("the first", first)
		e.hit("while it waits", e.spec(rule), first.ID, true)
		e.end(first.ID, as, from(queue))
		if frees {
			e.fresh("once it is "+queue, e.spec(rule, inQueue("free")))
			continue
		}
		e.hit("it is "+queue, e.spec(rule), first.ID, true)
		again := e.spec(rule, inQueue(queue), func(s *gq.Spec) { s.ReplayOf = first.ID })
		e.fresh("its replay", again)
		e.hit("after its replay", e.spec(rule), again.ID, true)
		e.taken("another replay", e.spec(rule, func(s *gq.Spec) { s.ReplayOf = first.ID }), again.ID)
		e.end(again.ID, gq.StatusCompleted, from(queue))
		e.fresh("once its replay is done", e.spec(rule, inQueue("free")))
	}
}

func uniqueReplayed(e *env) {
	for i, rule := range []setting{
		func(*gq.Spec) {},
		unique("live", gq.WhileLive, gq.Existing),
		unique("refused", gq.UntilDone, gq.Refuse),
		func(s *gq.Spec) {
			unique("period", gq.ForPeriod, gq.Existing)(s)
			s.Unique.Period = time.Minute
		},
	} {
		queue := fmt.Sprint("r", i)
		first := e.spec(rule, inQueue(queue))
		e.fresh("the first", first)
		e.end(first.ID, gq.StatusFailed, from(queue))
		replay := func() gq.Spec {
			return e.spec(rule, inQueue(queue), func(s *gq.Spec) { s.Key, s.ReplayOf = machine.ReplayKey(&first), first.ID })
		}
		again := replay()
		e.fresh("its replay", again)
		e.hit("while the replay waits", replay(), again.ID, true)
		e.clock.Advance(48 * time.Hour)
		e.hit("much later", replay(), again.ID, true)
		e.end(again.ID, gq.StatusCompleted, from(queue))
		e.hit("after it has ended", replay(), again.ID, true)
	}
}

func uniqueLifetime(e *env) {
	short := under(func(p *gq.Policy) { p.Lifetime = time.Minute })
	for _, while := range []gq.While{gq.WhileWaiting, gq.WhileLive} {
		first := e.spec(unique(while.String(), while, gq.Existing), short)
		e.fresh("the first", first)
		e.clock.Advance(time.Minute - 1)
		e.hit("1 ns before its lifetime is over", e.spec(unique(while.String(), while, gq.Existing)), first.ID, true)
		e.clock.Advance(1)
		e.fresh("its lifetime is over", e.spec(unique(while.String(), while, gq.Existing)))
	}
	dead := e.spec(unique("done", gq.UntilDone, gq.Existing), short)
	e.fresh("the first", dead)
	e.clock.Advance(time.Hour)
	e.hit("a dead letter holds it", e.spec(unique("done", gq.UntilDone, gq.Existing)), dead.ID, true)
}

func uniquePeriod(e *env) {
	rule := every("k", time.Minute, gq.Existing)
	first := e.spec(rule, delayed(time.Second))
	e.fresh("the first", first)
	e.clock.Advance(time.Second)
	e.complete(e.one())
	e.hit("it has completed within the period", e.spec(rule), first.ID, true)
	e.clock.Set(start.Add(time.Minute - 1))
	e.hit("1 ns before the period ends", e.spec(every("k", time.Second, gq.Existing)), first.ID, true)
	e.clock.Advance(1)
	e.fresh("at its end", e.spec(rule))

	cancelled := e.spec(every("cancelled", time.Minute, gq.Existing))
	e.fresh("one that is cancelled", cancelled)
	e.cancel(cancelled.ID)
	e.hit("after it was cancelled", e.spec(every("cancelled", time.Minute, gq.Existing)), cancelled.ID, true)
}

func uniqueRules(e *env) {
	plain := e.spec(keyed("plain", 7))
	e.fresh("a job with an idempotency key", plain)
	e.hit("a unique submission accepts any content", e.spec(unique("plain", gq.WhileWaiting, gq.Existing)), plain.ID, true)
	e.complete(e.one())
	e.hit("its window counts, whatever the submission's rule", e.spec(unique("plain", gq.WhileWaiting, gq.Existing)), plain.ID, true)
	e.taken("its window counts", e.spec(unique("plain", gq.WhileWaiting, gq.Refuse)), plain.ID)
	e.clock.Advance(24 * time.Hour)
	waiting := e.spec(unique("plain", gq.WhileWaiting, gq.Existing))
	e.fresh("after its window", waiting)

	e.hit("a submission without a rule tells whether the content is the same", e.spec(keyed("plain", 1)), waiting.ID, true)
	e.hit("and if it is not", e.spec(keyed("plain", 2)), waiting.ID, false)
	e.one()
	e.fresh("the rule of the job that has the key counts for submissions without one", e.spec(keyed("plain", 1)))
}

func uniqueRefuse(e *env) {
	first := e.spec(unique("k", gq.WhileLive, gq.Refuse), delayed(time.Hour))
	e.fresh("the first", first)
	before := e.snapshot(first.ID)
	e.taken("the second", e.spec(unique("k", gq.WhileLive, gq.Refuse)), first.ID)
	answers := e.tryInsert(store.One(e.spec(unique("k", gq.WhileLive, gq.Refuse))), store.One(e.spec(delayed(time.Hour), inQueue("other"))))
	e.is("one of a call", answers[0].Err, gq.ErrNotUnique)
	e.check("the other one of the call", answers[1].Err)
	before.Counts = e.counts()
	group := e.tryInsert(store.Group{Jobs: []gq.Spec{e.spec(), e.spec(unique("k", gq.WhileLive, gq.Refuse))}})[0]
	e.is("a member of a group refuses the group", group.Err, gq.ErrNotUnique)
	e.unchanged("refused submissions", before, first.ID)
	e.hit("another submission asks for the existing one", e.spec(unique("k", gq.WhileLive, gq.Existing)), first.ID, true)
}

func uniqueDebounce(e *env) {
	rule := unique("k", gq.WhileWaiting, gq.Debounced)
	first := e.spec(rule, delayed(time.Minute))
	e.fresh("the first", first)
	e.clock.Advance(40 * time.Second)
	e.hit("the second", e.spec(rule, delayed(time.Minute)), first.ID, true)
	runs := start.Add(100 * time.Second)
	s := e.state(first.ID)
	if s.Status != gq.StatusDelayed || !s.RunAt.Equal(runs) {
		e.Fatalf("the job is %s and runs at %v, want DELAYED until %v", s.Status, s.RunAt, runs)
	}
	history := e.history(first.ID)
	if last := history[len(history)-1]; last.Type != gq.EventUpdated || !last.Until.Equal(runs) || last.Status != gq.StatusDelayed {
		e.Errorf("its last event is %+v, want it updated until %v", last, runs)
	}
	e.hit("a shorter delay does not move it forward", e.spec(rule, delayed(time.Second)), first.ID, true)
	e.clock.Set(runs.Add(-1))
	e.none("1 ns before its new time")
	if due := e.due(10); len(due.Jobs) != 0 {
		e.Errorf("it is due before its time")
	}
	e.clock.Set(runs)
	e.hit("its time has come: it stays as it is", e.spec(rule, delayed(time.Minute)), first.ID, true)
	j := e.one()
	if j.State.ID != first.ID {
		e.Errorf("claimed job %s, want %s", j.State.ID, first.ID)
	}
	e.fresh("once it is claimed", e.spec(rule, delayed(time.Minute)))

	running := e.spec(unique("live", gq.WhileLive, gq.Debounced), delayed(time.Minute), inQueue("live"))
	e.fresh("one that is unique while live", running)
	e.clock.Advance(time.Minute)
	e.one(from("live"))
	e.taken("it runs and cannot be postponed", e.spec(unique("live", gq.WhileLive, gq.Debounced), delayed(time.Minute)), running.ID)

	short := e.spec(unique("short", gq.WhileWaiting, gq.Debounced), delayed(time.Minute), under(func(p *gq.Policy) { p.Lifetime = 2 * time.Minute }), inQueue("short"))
	e.fresh("one with a lifetime", short)
	before := e.state(short.ID).RunAt
	e.hit("it is not postponed past its lifetime", e.spec(unique("short", gq.WhileWaiting, gq.Debounced), delayed(2*time.Minute)), short.ID, true)
	if got := e.state(short.ID).RunAt; !got.Equal(before) {
		e.Errorf("it runs at %v, want %v as before", got, before)
	}
}

func uniqueThrottle(e *env) {
	rule := every("k", time.Minute, gq.Throttled)
	first := e.spec(rule)
	e.fresh("the first runs at once", first)
	runsAt := func(what string, spec gq.Spec, want time.Time) gq.Spec {
		e.Helper()
		answer := e.tryInsert(store.One(spec))[0]
		e.check(what, answer.Err)
		if p := answer.Jobs[0]; p.Existing || p.State.ID != spec.ID || !p.State.RunAt.Equal(want) {
			e.Errorf("%s: existing %t, runs at %v; want a new job at %v", what, p.Existing, p.State.RunAt, want)
		}
		return spec
	}
	e.clock.Advance(10 * time.Second)
	second := runsAt("the second waits for the end of the period, though the first one has not been claimed", e.spec(rule), start.Add(time.Minute))
	e.hit("the third is answered with the second", e.spec(rule), second.ID, true)
	e.claimed("only the first may run", 10, []gq.JobID{first.ID})
	e.clock.Set(start.Add(time.Minute - 1))
	e.none("before the period ends")
	e.hit("until then", e.spec(rule), second.ID, true)
	e.clock.Advance(1)
	e.claimed("the second runs when the period ends", 10, []gq.JobID{second.ID})
	third := runsAt("the next waits for the end of the second period", e.spec(rule), start.Add(2*time.Minute))
	e.cancel(third.ID)
	fourth := runsAt("the turn of a cancelled one is not used again, so that there is never one too many", e.spec(rule), start.Add(3*time.Minute))
	e.clock.Set(start.Add(4 * time.Minute))
	e.claimed("the fourth", 10, []gq.JobID{fourth.ID})
	runsAt("after all periods one runs at once", e.spec(rule), e.now())
}

func uniqueInCall(e *env) {
	a, b, c := e.spec(unique("k", gq.WhileWaiting, gq.Replace)), e.spec(unique("k", gq.WhileWaiting, gq.Replace)), e.spec(unique("k", gq.WhileWaiting, gq.Replace))
	for i, answer := range e.tryInsert(store.One(a), store.One(b), store.One(c)) {
		if e.check("Insert", answer.Err); answer.Jobs[0].Existing {
			e.Errorf("submission %d was answered with an existing job", i)
		}
	}
	e.replaced("the first", a.ID, b.ID)
	e.replaced("the second", b.ID, c.ID)
	e.claimed("only the last one runs", 10, []gq.JobID{c.ID})
	e.recount("after three submissions in one call")

	d, f := e.spec(unique("d", gq.WhileWaiting, gq.Debounced), delayed(time.Minute)), e.spec(unique("d", gq.WhileWaiting, gq.Debounced), delayed(time.Hour))
	answers := e.tryInsert(store.One(d), store.One(f))
	e.check("Insert", answers[1].Err)
	if p := answers[1].Jobs[0]; !p.Existing || p.State.ID != d.ID || !p.State.RunAt.Equal(e.now().Add(time.Hour)) {
		e.Errorf("the second of a call: existing %t, job %s at %v; want the first, postponed", p.Existing, p.State.ID, p.State.RunAt)
	}
	if got := e.state(d.ID).RunAt; !got.Equal(e.now().Add(time.Hour)) {
		e.Errorf("the first of a call runs at %v, want it postponed by an hour", got)
	}
}

func uniqueInGroup(e *env) {
	for _, on := range []gq.OnCollision{gq.Refuse, gq.Replace} {
		r := e.refused(gq.ErrInvalid, e.spec(unique("k", gq.WhileLive, on)), e.spec(unique("k", gq.WhileLive, on)))
		if !slices.Contains(r.fields(), "jobs[1].unique.on_collision") {
			e.Errorf("two members that %s each other: faults of %v, want jobs[1].unique.on_collision", on, r.fields())
		}
	}
	same := e.tryInsert(store.Group{Jobs: []gq.Spec{e.spec(unique("same", gq.WhileLive, gq.Existing)), e.spec(unique("same", gq.WhileLive, gq.Existing))}})[0]
	e.check("Insert", same.Err)
	if p := same.Jobs[1]; !p.Existing || !p.Same || p.State.ID != same.Jobs[0].State.ID {
		e.Errorf("a second member with the key: existing %t, same %t; want the first", p.Existing, p.Same)
	}
	e.complete(e.one())

	old := e.spec(unique("old", gq.WhileWaiting, gq.Existing), delayed(time.Hour))
	e.fresh("a waiting job", old)
	next := e.spec(unique("old", gq.WhileWaiting, gq.Replace))
	onNext, onOld := e.spec(depends(gq.DependencyAfter, next.ID)), e.spec(depends(gq.DependencyAfter, old.ID))
	e.insert(onOld, onNext, next)
	e.replaced("a job replaced by a member", old.ID, next.ID)
	e.end(next.ID, gq.StatusCompleted)
	e.release()
	e.stands("a dependent of the new job", onNext.ID, gq.StatusScheduled)
	e.stands("a dependent of the replaced job", onOld.ID, gq.StatusScheduled)
	e.complete(e.one())
	e.complete(e.one())

	postponed := e.spec(unique("later", gq.WhileWaiting, gq.Debounced), delayed(time.Minute))
	e.fresh("a delayed job", postponed)
	again := e.spec(unique("later", gq.WhileWaiting, gq.Debounced), delayed(time.Hour))
	child := e.spec(depends(gq.DependencyAfter, again.ID))
	e.insert(again, child)
	e.clock.Advance(time.Hour)
	e.end(postponed.ID, gq.StatusCompleted)
	e.release()
	e.stands("a dependent of the postponed job", child.ID, gq.StatusScheduled)
	e.complete(e.one())

	twice := e.spec(unique("twice", gq.WhileWaiting, gq.Debounced), delayed(time.Minute))
	e.fresh("a job that two members submit again", twice)
	both := e.tryInsert(store.Group{Jobs: []gq.Spec{
		e.spec(unique("twice", gq.WhileWaiting, gq.Debounced), delayed(time.Hour)),
		e.spec(unique("twice", gq.WhileWaiting, gq.Existing), delayed(time.Hour)),
	}})[0]
	e.check("Insert", both.Err)
	for i, p := range both.Jobs {
		if want := e.now().Add(time.Hour); p.State.ID != twice.ID || !p.State.RunAt.Equal(want) {
			e.Errorf("member %d is answered with job %s, which runs at %v; want %s at %v, to which the first postponed it", i, p.State.ID, p.State.RunAt, twice.ID, want)
		}
	}
}

func uniqueCollected(e *env) {
	rule := unique("k", gq.UntilDone, gq.Existing)
	first := e.spec(rule)
	e.fresh("the first", first)
	s := e.fail(e.one(), permanent)
	e.clock.Set(s.CompletedAt.Add(store.DefaultRetention().Failed - 1))
	e.hit("a failed job that is kept", e.spec(rule), first.ID, true)
	e.clock.Advance(1)
	e.collect()
	e.fresh("once it is removed", e.spec(rule))
}

func uniqueKept(e *env) {
	kept := store.DefaultRetention().Shortest()
	e.fresh("as long as finished jobs are kept", e.spec(every("k", kept, gq.Existing)))
	if got := e.refused(gq.ErrInvalid, e.spec(every("l", kept+1, gq.Existing))).fields(); !slices.Equal(got, []string{"unique.period"}) {
		e.Errorf("a longer period: faults of %v, want unique.period", got)
	}
	e.fresh("the window does not matter", e.spec(unique("m", gq.WhileLive, gq.Existing), under(func(p *gq.Policy) { p.IdempotencyWindow = 2 * kept })))
}

// ruled inserts a job under each rule, and one that was replaced.
func (e *env) ruled() (jobs map[string]gq.JobID, old gq.JobID) {
	e.Helper()
	jobs = make(map[string]gq.JobID)
	for _, s := range []gq.Spec{
		e.spec(unique("waiting", gq.WhileWaiting, gq.Existing), inQueue("waiting")), e.spec(unique("live", gq.WhileLive, gq.Replace), inQueue("live")),
		e.spec(unique("done", gq.UntilDone, gq.Refuse), inQueue("done")), e.spec(every("period", time.Minute, gq.Throttled), inQueue("period")),
		e.spec(unique("fields", gq.WhileWaiting, gq.Existing), func(s *gq.Spec) { s.Unique.Fields = []string{"a", "b.c"} }, inQueue("fields")),
	} {
		e.fresh("the first "+s.Key.Name, s)
		jobs[s.Key.Name] = s.ID
	}
	e.one(from("live"))
	e.fail(e.one(from("done")), permanent)
	replaced, by := e.spec(unique("replaced", gq.WhileWaiting, gq.Existing)), e.spec(unique("replaced", gq.WhileWaiting, gq.Replace), delayed(time.Hour))
	e.fresh("one to be replaced", replaced)
	e.fresh("one that replaces it", by)
	jobs["replaced"] = by.ID
	return jobs, replaced.ID
}

// obeys checks the jobs of ruled.
func (e *env) obeys(jobs map[string]gq.JobID, old gq.JobID) {
	e.Helper()
	for name, id := range jobs {
		e.hit(fmt.Sprintf("the key %q", name), e.spec(unique(name, gq.WhileLive, gq.Existing)), id, true)
	}
	e.replaced("the replaced job", old, jobs["replaced"])
	if got := e.get(jobs["fields"]).Spec.Unique; !slices.Equal(got.Fields, []string{"a", "b.c"}) || got.While != gq.WhileWaiting {
		e.Errorf("the rule of a job is %+v, want its fields a and b.c", got)
	}
	e.one(from("waiting"))
	e.fresh("a job that is claimed", e.spec(unique("waiting", gq.WhileLive, gq.Existing)))
	e.clock.Advance(time.Minute)
	e.fresh("the period is over", e.spec(every("period", time.Minute, gq.Existing)))
}

func uniqueReopen(e *env) {
	jobs, old := e.ruled()
	e.reopen()
	e.obeys(jobs, old)
}

func uniqueMoved(e *env) {
	if !e.movable() {
		return
	}
	jobs, old := e.ruled()
	other := e.another()
	other.fill(e, 3)
	other.obeys(jobs, old)
}
