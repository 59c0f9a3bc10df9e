package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var rescheduleCases = []Case{
	{
		Name:   "Reschedule/Sooner",
		Clause: "a delayed or retrying job that is to run now is claimable at once, in its place",
		Needs:  []string{"Insert", "Claim", "Update", "Get", "Due", "Close"},
		run:    rescheduleSooner,
	},
	{
		Name:   "Reschedule/Later",
		Clause: "a claimable job that is to run later is not claimable before, is due then, and keeps its place",
		Needs:  []string{"Insert", "Claim", "Update", "Get", "Due", "Counts", "Close"},
		run:    rescheduleLater,
	},
	{
		Name:   "Reschedule/Reopen",
		Clause: "a new run time holds after a restart",
		Needs:  []string{"Insert", "Claim", "Update", "Close", reopening},
		run:    rescheduleReopen,
	},
	{
		Name:   "Reschedule/Race",
		Clause: "a claim and a new run time at the same moment: either the job is held and the change is refused, or the job waits and nobody has it",
		Needs:  []string{"Insert", "Claim", "Update", "Get", "Close"},
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
	first, second := e.add(forever(endless)), e.add(forever(endless))
	e.update(first.ID, rescheduling(e.now().Add(time.Minute)))
	e.stands("a claimable job that is to run later", first.ID, gq.StatusDelayed)
	if c := e.counts()["q"]; c.By[gq.StatusDelayed] != 1 || c.By[gq.StatusScheduled] != 1 {
		e.Errorf("counted are %d delayed and %d scheduled jobs, want 1 and 1", c.By[gq.StatusDelayed], c.By[gq.StatusScheduled])
	}
	if due := e.due(10); len(due.Jobs) > 0 || !nextIs(due, e.now().Add(time.Minute)) {
		e.Errorf("due are %s, next %v; want none, next in a minute", briefs(due.Jobs), due.Next)
	}
	e.update(first.ID, rescheduling(e.now().Add(2*time.Minute)))
	e.clock.Advance(2*time.Minute - 1)
	if due := e.due(10); len(due.Jobs) > 0 || !nextIs(due, e.now().Add(1)) {
		e.Errorf("due are %s, next %v; want none, next in 1 ns", briefs(due.Jobs), due.Next)
	}
	got := e.claim(10)
	if len(got) != 1 || got[0].State.ID != second.ID {
		e.Errorf("before its time a claim got %d jobs, want only the other one", len(got))
	}
	third := e.add(forever(endless))
	e.clock.Advance(1)
	e.claimed("at its time", 10, []gq.JobID{first.ID, third.ID})

	e.fail(got[0], temporary)
	e.update(second.ID, rescheduling(time.Time{}))
	e.update(second.ID, rescheduling(e.now().Add(time.Minute)))
	e.stands("a job that is to run later, after an attempt", second.ID, gq.StatusRetrying)
	e.none("before its time")
	e.clock.Advance(time.Minute)
	e.claimed("at its time after an attempt", 1, []gq.JobID{second.ID})
}

func rescheduleReopen(e *env) {
	later, sooner := e.add(forever(endless)), e.add(forever(endless), delayed(time.Hour))
	e.update(later.ID, rescheduling(e.now().Add(time.Minute)))
	e.update(sooner.ID, rescheduling(time.Time{}))
	e.reopen()
	e.claimed("after a restart", 10, []gq.JobID{sooner.ID})
	e.clock.Advance(time.Minute)
	e.claimed("at its time", 10, []gq.JobID{later.ID})
}

func rescheduleRace(e *env) {
	const rounds = 20
	e.open()
	for range rounds {
		job := e.add(forever(endless))
		at := e.now().Add(time.Hour)
		var (
			wait    sync.WaitGroup
			claimed []store.Claimed
			updated []store.Updated
			errs    [2]error
		)
		wait.Go(func() { claimed, errs[0] = e.s.Claim(e.Context(), []store.Claim{claimOf(1)}) })
		wait.Go(func() {
			updated, errs[1] = e.s.Update(e.Context(), []store.Update{{Ref: byID(job.ID), Apply: rescheduling(at)}})
		})
		wait.Wait()
		e.check("a claim and a new run time", errors.Join(errs[0], errs[1], claimed[0].Err))
		got, refused := len(claimed[0].Jobs) == 1, errors.Is(updated[0].Err, gq.ErrIllegalMove)
		if got != refused || !refused && updated[0].Err != nil {
			e.Errorf("the claim got %d jobs and the new run time was answered with %v", len(claimed[0].Jobs), updated[0].Err)
		}
		want := gq.StatusDelayed
		if got {
			want = gq.StatusRunning
		}
		e.stands("after the race", job.ID, want)
		e.none("the job is held or waits")
		e.cancel(job.ID)
	}
}
