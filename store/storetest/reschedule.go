package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var rescheduleCases = []Case{
	{
		Name:   "Reschedule/Sooner",
		Clause: "a delayed or retrying job that is to run now is claimable at once, in its place",
		run:    rescheduleSooner,
	},
	{
		Name:   "Reschedule/Later",
		Clause: "a delayed or retrying job that is to run later is due then; a claimable one does not go back, and nothing changes",
		run:    rescheduleLater,
	},
	{
		Name:   "PutOff/Later",
		Clause: "a job that takes the place of a claimable one to run later is delayed until then, and carries on with its attempts, bound, failure, lease versions, checkpoint, key and deadlines; each names the other",
		run:    putOffLater,
	},
	{
		Name:   "PutOff/Dependents",
		Clause: "jobs that wait for a job that is put off after an attempt wait for the one that takes its place",
		run:    putOffDependents,
	},
	{
		Name:   "PutOff/Refused",
		Clause: "a job that was claimed since it was read, that is held, that waits or that has ended is not put off, and nothing changes",
		run:    putOffRefused,
	},
	{
		Name:   "Replace/Deadlines",
		Clause: "a job that names another one in its spec has the deadlines of that one, and a job that replaces the holder of its key its own",
		run:    replaceDeadlines,
	},
	{
		Name:   "Replace/Priority",
		Clause: "a job that names another one in its spec, also one that was replaced twice or put off, inherits what that one inherited, although it names no dependencies, and takes its turn in a fair queue there",
		run:    replacePriority,
	},
	{
		Name:    "Reschedule/Reopen",
		Clause:  "a new run time holds after a restart, and so does what a job that was put off carries on with",
		Reopens: true,
		run:     rescheduleReopen,
	},
	{
		Name:   "Reschedule/Race",
		Clause: "a claim and a job that takes the place at the same moment, to run later: either the old job is held and the new one refused, or the new one waits and nobody has either",
		run:    rescheduleRace,
	},
}

func rescheduleSooner(e *env) {
	tried := e.add(forever(func(p *gq.Policy) { p.Backoff.Initial = time.Hour }))
	e.fail(e.one(), temporary)
	first := e.add(forever(endless), delayed(time.Hour), at(gq.PriorityHigh))
	second := e.add(forever(endless))
	e.update(first.ID, rescheduling(time.Time{}))
	e.update(tried.ID, rescheduling(e.now().Add(-time.Minute)))
	e.stands("a delayed job that is to run now", first.ID, gq.StatusScheduled)
	e.stands("a retrying job that is to run now", tried.ID, gq.StatusScheduled)
	if due := e.due(10); len(due.Jobs) > 0 || !nextIs(due, time.Time{}) {
		e.Errorf("due are %s, next %v; want none", briefs(due.Jobs), due.Next)
	}
	e.claimed("after their run times changed", 10, []gq.JobID{first.ID, tried.ID, second.ID})
}

func rescheduleLater(e *env) {
	job := e.add(forever(endless), delayed(time.Minute))
	e.update(job.ID, rescheduling(e.now().Add(2*time.Minute)))
	if due := e.due(10); len(due.Jobs) > 0 || !nextIs(due, e.now().Add(2*time.Minute)) {
		e.Errorf("due are %s, next %v; want none, next in two minutes", briefs(due.Jobs), due.Next)
	}
	e.clock.Advance(2*time.Minute - 1)
	e.none("before its time")
	e.clock.Advance(1)
	refuse := func(what string) {
		e.Helper()
		before := e.snapshot(job.ID)
		answer := e.tryUpdate(store.Update{Ref: byID(job.ID), Apply: rescheduling(e.now().Add(time.Minute))})[0]
		e.is(what+" that is to run later", answer.Err, machine.ErrClaimable)
		e.unchanged(what, before, job.ID)
	}
	refuse("a job whose time has come")
	e.fail(e.one(), temporary)
	e.update(job.ID, rescheduling(e.now().Add(time.Hour)))
	e.stands("a retrying job", job.ID, gq.StatusRetrying)
	e.update(job.ID, rescheduling(time.Time{}))
	refuse("a claimable job")
}

// putOff submits a job that takes the place of a claimable one and runs later.
func (e *env) putOff(id gq.JobID, at time.Time) store.Inserted {
	e.Helper()
	found, err := e.store().Get(e.Context(), []store.Ref{byID(id)}, gq.WithPayload|gq.WithCheckpoint)
	e.check("Get", err)
	e.check("Get", found[0].Err)
	old := found[0].Job
	next := old.Spec
	next.ID, next.Replaces, next.RunAt = e.id(), id, at
	next.DependsOn = nil // a claimable job waits for none
	return e.tryInsert(store.Group{Jobs: []gq.Spec{next}, CarryOn: &store.CarryOn{Version: old.State.Version, Checkpoint: old.Checkpoint}})[0]
}

func (e *env) isPutOff(id gq.JobID, at time.Time) gq.State {
	e.Helper()
	answer := e.putOff(id, at)
	e.check("Insert", answer.Err)
	next := answer.Jobs[0]
	if next.Replaces != id || next.Existing || next.State.Status != gq.StatusDelayed || !next.State.RunAt.Equal(at) {
		e.Errorf("the answer is %+v, want a job delayed until %v that replaces %s", next, at, id)
	}
	e.replaced("the job that was put off", id, next.State.ID)
	return next.State
}

func putOffLater(e *env) {
	p := machine.DefaultPolicy()
	p.Lifetime = time.Hour
	start := e.now()
	first, second := e.add(forever(func(to *gq.Policy) { *to = p }), keyed("k", 1)), e.add(forever(endless))
	held := e.one()
	e.updated(store.Update{Ref: byID(first.ID), Apply: beating(held.State.Lease.Ref(), machine.Report{CheckpointBytes: 2}), Checkpoint: []byte("cp")})
	e.fail(held, temporary)
	e.clock.Advance(time.Minute)
	e.update(first.ID, advancing)
	old := e.state(first.ID)
	next := e.isPutOff(first.ID, e.now().Add(10*time.Minute))
	check := func(s gq.State) {
		e.Helper()
		if s.Attempt != 1 || s.Faults != 1 || s.Bound != old.Bound || s.Version != old.Version || s.Failure == nil || s.Checkpoints != 1 || s.CheckpointBytes != 2 ||
			s.PreviousLease != held.State.Lease.ID || !s.SubmittedAt.Equal(start) || !machine.LifeEnd(&s).Equal(start.Add(p.Lifetime)) {
			e.Errorf("it carries on with %+v, want what %+v has", s, old)
		}
	}
	check(next)
	if again := e.placed(e.spec(keyed("k", 1))); !again.Existing || again.State.ID != next.ID {
		e.Errorf("the key belongs to %+v, want the job that took the place", again)
	}
	if c := e.counts()["q"]; c.By[gq.StatusDelayed] != 1 || c.By[gq.StatusScheduled] != 1 || c.By[gq.StatusCancelled] != 1 {
		e.Errorf("counted are %v", c.By)
	}
	if due := e.due(10); len(due.Jobs) > 0 || !nextIs(due, e.now().Add(10*time.Minute)) {
		e.Errorf("due are %s, next %v; want none, next in ten minutes", briefs(due.Jobs), due.Next)
	}
	e.claimed("before its time", 10, []gq.JobID{second.ID})
	e.cancel(second.ID)
	check(e.state(next.ID))
	e.clock.Advance(10 * time.Minute)
	got := e.claim(10, func(c *store.Claim) { c.Parts = gq.WithCheckpoint })
	if len(got) != 1 || got[0].State.ID != next.ID || got[0].State.Attempt != 2 || got[0].State.Version != old.Version+1 || string(got[0].Checkpoint) != "cp" {
		e.Errorf("at its time a claim got %+v, want its second attempt with the checkpoint", got)
	}
	e.clock.Advance(time.Hour - 11*time.Minute)
	e.update(next.ID, advancing)
	e.stands("at the end of the first one's lifetime", next.ID, gq.StatusDeadLetter)
}

func putOffDependents(e *env) {
	first := e.add(forever(endless))
	child := e.add(forever(endless), depends(gq.DependencyAfter, first.ID))
	e.fail(e.one(), temporary)
	e.update(first.ID, rescheduling(time.Time{}))
	next := e.isPutOff(first.ID, e.now().Add(time.Minute))
	e.release()
	e.stands("a dependent", child.ID, gq.StatusPending)
	e.clock.Advance(time.Minute)
	e.complete(e.one())
	e.release()
	e.stands("the job that took the place", next.ID, gq.StatusCompleted)
	e.stands("a dependent", child.ID, gq.StatusScheduled)
}

func putOffRefused(e *env) {
	job := e.add(forever(endless))
	spec := e.get(job.ID).Spec
	spec.ID, spec.Replaces, spec.RunAt = e.id(), job.ID, e.now().Add(time.Hour)
	refuse := func(what string, version gq.LeaseVersion, want error) {
		e.Helper()
		before := e.snapshot(job.ID)
		answer := e.tryInsert(store.Group{Jobs: []gq.Spec{spec}, CarryOn: &store.CarryOn{Version: version}})[0]
		e.is(what, answer.Err, want)
		e.unchanged(what, before, job.ID)
		if found, err := e.store().Get(e.Context(), []store.Ref{byID(spec.ID)}, 0); err != nil || !errors.Is(found[0].Err, gq.ErrNotFound) {
			e.Errorf("%s: there is a second job: %+v, %v", what, found, err)
		}
	}
	refuse("another version", 1, gq.ErrConflict)
	held := e.one()
	refuse("claimed since", 0, gq.ErrConflict)
	refuse("held", 1, gq.ErrIllegalMove)
	e.fail(held, temporary)
	refuse("retrying", 1, gq.ErrIllegalMove)
	e.cancel(job.ID)
	refuse("ended", 1, gq.ErrIllegalMove)
}

func replaceDeadlines(e *env) {
	rule := func(s *gq.Spec) { unique("k", gq.WhileWaiting, gq.Replace)(s); s.Policy.Lifetime = time.Hour }
	start := e.now()
	old := e.add(delayed(time.Minute), rule)
	e.clock.Advance(time.Second)
	named := e.insert(e.spec(delayed(time.Minute), rule, replacing(old.ID)))[0]
	if !named.CreatedAt.Equal(e.now()) || !machine.LifeEnd(&named).Equal(start.Add(time.Hour)) {
		e.Errorf("a job of %v that names another one ends at %v, want at %v", named.CreatedAt, machine.LifeEnd(&named), start.Add(time.Hour))
	}
	e.clock.Advance(time.Second)
	twice := e.insert(e.spec(delayed(time.Minute), rule, replacing(named.ID)))[0]
	if got := e.state(twice.ID); !got.SubmittedAt.Equal(start) || !machine.LifeEnd(&got).Equal(start.Add(time.Hour)) {
		e.Errorf("replaced twice by name it ends at %v, want at %v", machine.LifeEnd(&got), start.Add(time.Hour))
	}
	other := e.add(delayed(time.Minute), rule)
	if got := e.state(other.ID); !got.SubmittedAt.IsZero() || !machine.LifeEnd(&got).Equal(e.now().Add(time.Hour)) {
		e.Errorf("a job that replaces the holder of its key ends at %v, want at %v", machine.LifeEnd(&got), e.now().Add(time.Hour))
	}
}

func replacePriority(e *env) {
	e.fair()
	parent := e.add(at(gq.PriorityCritical), inQueue("parent"))
	old := e.adds(4, "a", at(gq.PriorityBulk), depends(gq.DependencyAfter, parent.ID))
	e.complete(e.one(from("parent")))
	e.release()
	want := e.adds(2, "b", at(gq.PriorityCritical)) // whose turn comes before that of a fifth job of the other key
	named := func(id gq.JobID) gq.State {
		return e.insert(e.spec(at(gq.PriorityBulk), fairly("a"), replacing(id)))[0]
	}
	later := e.now().Add(time.Minute)
	next := []gq.State{named(old[0]), named(named(old[1]).ID), e.isPutOff(old[2], later), e.isPutOff(old[3], later)}
	for i, s := range next {
		if s.Own != gq.PriorityBulk || s.Inherited != gq.PriorityCritical {
			e.Errorf("job %d, which takes the place of a BULK job after a CRITICAL one, has priority %s and inherits %s, want BULK and CRITICAL", i, s.Own, s.Inherited)
		}
		want = append(want, s.ID)
	}
	normal := e.add()
	e.clock.Advance(time.Minute)
	e.claimed("jobs that took the place of others", 10, append(want, normal.ID))
}

func rescheduleReopen(e *env) {
	later, sooner := e.add(forever(endless), delayed(time.Second)), e.add(forever(endless), delayed(time.Hour))
	e.update(later.ID, rescheduling(e.now().Add(time.Minute)))
	e.update(sooner.ID, rescheduling(time.Time{}))
	start := e.now()
	tried := e.add(forever(endless), at(gq.PriorityHigh))
	held := e.one()
	e.updated(store.Update{Ref: byID(tried.ID), Apply: beating(held.State.Lease.Ref(), machine.Report{CheckpointBytes: 2}), Checkpoint: []byte("cp")})
	e.fail(held, temporary)
	e.update(tried.ID, rescheduling(time.Time{}))
	next := e.isPutOff(tried.ID, start.Add(time.Minute))
	e.reopen()
	e.equal("after a restart a job that was put off", e.state(next.ID), next)
	e.claimed("after a restart", 10, []gq.JobID{sooner.ID})
	e.clock.Advance(time.Minute)
	got := e.claim(10, func(c *store.Claim) { c.Parts = gq.WithCheckpoint })
	if !slices.Equal(idsOf(got), []gq.JobID{next.ID, later.ID}) || got[0].State.Attempt != 2 || string(got[0].Checkpoint) != "cp" {
		e.Errorf("at its time a claim got %s, want the job that was put off with its checkpoint, then the other one", briefs(idsOf(got)))
	}
}

func rescheduleRace(e *env) {
	const rounds = 20
	e.open()
	for range rounds {
		job := e.add(forever(endless))
		var (
			wait    sync.WaitGroup
			claimed []store.Claimed
			err     error
			placed  store.Inserted
		)
		at := e.now().Add(time.Hour)
		wait.Go(func() { claimed, err = e.s.Claim(e.Context(), []store.Claim{claimOf(1)}) })
		wait.Go(func() { placed = e.putOff(job.ID, at) })
		wait.Wait()
		e.check("a claim", errors.Join(err, claimed[0].Err))
		got, refused := len(claimed[0].Jobs) == 1, errors.Is(placed.Err, gq.ErrConflict) || errors.Is(placed.Err, gq.ErrIllegalMove)
		if got != refused || !refused && placed.Err != nil {
			e.Errorf("the claim got %d jobs and the new job was answered with %v", len(claimed[0].Jobs), placed.Err)
		}
		e.none("the job is held or waits")
		if got {
			e.stands("after the race", job.ID, gq.StatusRunning)
			e.cancel(job.ID)
			continue
		}
		e.stands("after the race", job.ID, gq.StatusCancelled)
		e.cancel(placed.Jobs[0].State.ID)
	}
}
