package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var dueCases = []Case{
	{
		Name:   "Due/Nothing",
		Clause: "with nothing due the list is empty, and Next is when the first job will be due, or zero",
		run:    dueNothing,
	},
	{
		Name:   "Due/Each",
		Clause: "a job is listed exactly from the instant on at which time has something to do for it: delay, backoff, lease, hold, execution timeout, lifetime",
		Covers: []string{"J-57", "J-72"},
		run:    dueEach,
	},
	{
		Name:   "Due/Order",
		Clause: "the most overdue job comes first, a limit, which is 1 at least, cuts the rest, and Next is when the first job is due that is not listed",
		run:    dueOrder,
	},
	{
		Name:   "Due/Once",
		Clause: "a job for which time has several things to do is listed once, for the first of them, and Next is about the others",
		run:    dueOnce,
	},
	{
		Name:   "Due/Moves",
		Clause: "what a job is due for moves with its state: heartbeats, settlements and claims change it at once",
		run:    dueMoves,
	},
	{
		Name:   "Due/Swept",
		Clause: "an advanced job is no longer listed, and a sweep changes nothing about who gets it",
		Covers: []string{"J-28", "J-34", "J-54", "J-139"},
		run:    dueSwept,
	},
	{
		Name:    "Due/Reopen",
		Clause:  "what is due is due after a restart",
		Reopens: true,
		run:     dueReopen,
	},
}

// forever sets a policy without lifetime and timeout, unless change sets them.
func forever(change func(*gq.Policy)) setting {
	return under(func(p *gq.Policy) {
		p.Lifetime, p.ExecutionTimeout = 0, 0
		change(p)
	})
}

func endless(*gq.Policy) {}

func dueNothing(e *env) {
	want := func(when string, next time.Time) {
		e.Helper()
		due := e.due(10)
		if len(due.Jobs) != 0 || !nextIs(due, next) {
			e.Errorf("%s: due are %s, next %v; want none, next %v", when, briefs(due.Jobs), due.Next, next)
		}
	}
	want("in an empty store", time.Time{})
	e.add(forever(endless))
	want("with a job that can wait for ever", time.Time{})
	mortal := e.add(under(func(p *gq.Policy) { p.Lifetime = time.Hour }))
	want("with a lifetime", start.Add(time.Hour))
	later := e.add(forever(endless), delayed(time.Minute))
	want("with a delay", start.Add(time.Minute))
	e.clock.Advance(time.Minute - 1)
	want("1 ns before the delay ends", start.Add(time.Minute))
	e.cancel(later.ID)
	want("after the delayed job ended", start.Add(time.Hour))
	e.cancel(mortal.ID)
	want("after the mortal job ended", time.Time{})
}

func dueEach(e *env) {
	for _, test := range []struct {
		name string
		make func() gq.JobID
		at   time.Duration
		then gq.Status
	}{
		{"delay", func() gq.JobID { return e.add(forever(endless), delayed(time.Minute)).ID }, time.Minute, gq.StatusScheduled},
		{"backoff", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.Backoff.Initial = 2 * time.Minute }))
			return e.fail(e.one(), temporary).ID
		}, 2 * time.Minute, gq.StatusScheduled},
		{"lease", func() gq.JobID {
			e.add(forever(endless))
			return e.one(lasting(time.Minute)).State.ID
		}, time.Minute, gq.StatusScheduled},
		{"last lease", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.MaxAttempts = 1 }))
			return e.one(lasting(time.Minute)).State.ID
		}, time.Minute, gq.StatusDeadLetter},
		{"hold", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.Hold = time.Minute }))
			return e.one(holding).State.ID
		}, time.Minute, gq.StatusScheduled},
		{"execution timeout", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.ExecutionTimeout = time.Minute }))
			return e.one().State.ID
		}, time.Minute, gq.StatusRetrying},
		{"lifetime of a waiting job", func() gq.JobID {
			return e.add(forever(func(p *gq.Policy) { p.Lifetime = time.Minute })).ID
		}, time.Minute, gq.StatusDeadLetter},
		{"lifetime of a dependent", func() gq.JobID {
			parent := e.add(forever(endless), inQueue("parents"))
			return e.add(forever(func(p *gq.Policy) { p.Lifetime = time.Minute }), depends(gq.DependencyAfter, parent.ID)).ID
		}, time.Minute, gq.StatusDeadLetter},
		{"lifetime of a running job", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.Lifetime = time.Minute }))
			e.clock.Advance(20 * time.Second)
			return e.one().State.ID
		}, time.Minute, gq.StatusDeadLetter},
		{"lifetime of a job that was given back", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.Lifetime = time.Minute }))
			j := e.one()
			e.clock.Advance(20 * time.Second)
			return e.update(j.State.ID, releasing(j.State.Lease.Ref(), 0, "")).ID
		}, time.Minute, gq.StatusDeadLetter},
		{"lifetime of a held job", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.Lifetime, p.Hold = time.Minute, time.Hour }))
			e.clock.Advance(20 * time.Second)
			return e.one(holding).State.ID
		}, time.Minute, gq.StatusDeadLetter},
		{"start deadline of a waiting job", func() gq.JobID {
			return e.add(forever(func(p *gq.Policy) { p.StartWithin = time.Minute })).ID
		}, time.Minute, gq.StatusCancelled},
		{"start deadline of a dependent", func() gq.JobID {
			parent := e.add(forever(endless), inQueue("parents"))
			return e.add(forever(func(p *gq.Policy) { p.StartWithin = time.Minute }), depends(gq.DependencyAfter, parent.ID)).ID
		}, time.Minute, gq.StatusCancelled},
		{"start deadline of a held job", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.StartWithin, p.Hold = time.Minute, time.Hour }))
			e.clock.Advance(20 * time.Second)
			return e.one(holding).State.ID
		}, time.Minute, gq.StatusCancelled},
		{"lease of a job that started in time", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.StartWithin = 30 * time.Second }))
			e.clock.Advance(20 * time.Second)
			return e.one(lasting(40 * time.Second)).State.ID
		}, time.Minute, gq.StatusScheduled},
		{"lifetime from the first start", func() gq.JobID {
			e.add(forever(func(p *gq.Policy) { p.RunLifetime = 40 * time.Second }))
			e.clock.Advance(20 * time.Second)
			j := e.one()
			e.clock.Advance(10 * time.Second)
			e.update(j.State.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: -1}))
			return j.State.ID
		}, time.Minute, gq.StatusDeadLetter},
	} {
		at := e.now().Add(test.at) // lifetimes count from the submission
		id := test.make()
		e.clock.Set(at.Add(-1))
		if due := e.due(10); len(due.Jobs) != 0 || !nextIs(due, at) {
			e.Errorf("%s, 1 ns before: due are %s, next %v; want none, next %v", test.name, briefs(due.Jobs), due.Next, at)
		}
		e.clock.Set(at)
		if due := e.due(10); !slices.Equal(due.Jobs, []gq.JobID{id}) {
			e.Errorf("%s, at the instant: due are %s; want the job", test.name, briefs(due.Jobs))
		}
		if got := e.update(id, advancing).Status; got != test.then {
			e.Errorf("%s: the job was advanced to %s, want %s", test.name, got, test.then)
		}
		if due := e.due(10); len(due.Jobs) != 0 {
			e.Errorf("%s, after it was advanced: due are %s; want none", test.name, briefs(due.Jobs))
		}
		if e.find(byID(id), 0).State.Live() {
			e.cancel(id)
		}
	}
}

func dueOrder(e *env) {
	delays := e.random.Perm(20)
	want := make([]gq.JobID, 20)
	specs := e.specs(20, forever(endless))
	for i, d := range delays {
		specs[i].Delay = time.Duration(d+1) * time.Second
		want[d] = specs[i].ID
	}
	e.each(specs...)
	e.clock.Advance(15 * time.Second)
	due := e.due(100)
	if !slices.Equal(due.Jobs, want[:15]) || !nextIs(due, start.Add(16*time.Second)) {
		e.Errorf("due are %s, next %v; want %s, next %v", briefs(due.Jobs), due.Next, briefs(want[:15]), start.Add(16*time.Second))
	}
	cut := e.due(6)
	if !slices.Equal(cut.Jobs, want[:6]) {
		e.Errorf("the first 6 due are %s, want %s", briefs(cut.Jobs), briefs(want[:6]))
	}
	if first := start.Add(7 * time.Second); !nextIs(cut, first) {
		e.Errorf("with more due than the limit, Next is %v; the first job that is not listed was due at %v", cut.Next, first)
	}
	if least := e.due(0); !slices.Equal(least.Jobs, want[:1]) || !nextIs(least, start.Add(2*time.Second)) {
		e.Errorf("with a limit of 0 due are %s, next %v; want %s, next %v", briefs(least.Jobs), least.Next, briefs(want[:1]), start.Add(2*time.Second))
	}
	for _, id := range cut.Jobs {
		e.update(id, advancing)
	}
	if next := e.due(6); !slices.Equal(next.Jobs, want[6:12]) {
		e.Errorf("the next 6 due are %s, want %s", briefs(next.Jobs), briefs(want[6:12]))
	}
}

func dueOnce(e *env) {
	e.add(forever(func(p *gq.Policy) { p.Lifetime = time.Minute }), delayed(time.Second)) // expires a minute before the check
	both := e.add(forever(func(p *gq.Policy) { p.Lifetime = 2 * time.Minute }), delayed(time.Minute))
	e.clock.Advance(2 * time.Minute)
	due := e.due(10)
	if len(due.Jobs) != 2 || !slices.Contains(due.Jobs, both.ID) || due.Jobs[0] == due.Jobs[1] || !nextIs(due, time.Time{}) {
		e.Errorf("due are %s, next %v; want both jobs once, and next never", briefs(due.Jobs), due.Next)
	}
}

func dueMoves(e *env) {
	next := func(when string, at time.Time) {
		e.Helper()
		if due := e.due(10); len(due.Jobs) != 0 || !nextIs(due, at) {
			e.Errorf("%s: due are %s, next %v; want none, next %v", when, briefs(due.Jobs), due.Next, at)
		}
	}
	job := e.add(forever(func(p *gq.Policy) { p.LeaseTTL = time.Minute }), delayed(time.Second))
	e.clock.Advance(time.Second)
	j := e.one() // the delay has passed, so no sweep is needed
	next("after the claim", e.now().Add(time.Minute))
	e.clock.Advance(59 * time.Second)
	e.update(job.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: -1}))
	next("after a heartbeat", e.now().Add(time.Minute))
	e.clock.Advance(time.Second)
	next("when the first lease would have ended", e.now().Add(59*time.Second))
	s := e.fail(j, gq.Failure{Category: gq.CategoryTemporary, RetryAfter: time.Hour})
	next("after a failure", s.RunAt)
	e.clock.Set(s.RunAt)
	j = e.one()
	e.complete(j)
	next("after the completion", time.Time{})
}

func dueSwept(e *env) {
	late := e.add(delayed(time.Second))
	if !late.ScheduledAt.IsZero() {
		e.Errorf("a delayed job is scheduled since %v, want not yet", late.ScheduledAt)
	}
	lost := e.add()
	e.one(lasting(time.Second))
	e.clock.Advance(2 * time.Second)
	e.sweep()
	for _, s := range []gq.State{late, lost} {
		got := e.state(s.ID)
		if got.Status != gq.StatusScheduled || !got.ScheduledAt.Equal(e.now()) {
			e.Errorf("after a sweep the job is %s since %v, want SCHEDULED since %v", got.Status, got.ScheduledAt, e.now())
		}
	}
	e.equal("the history of the delayed job", trace(e.history(late.ID)), []gq.Status{gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled})
	e.equal("the history of the lost job", trace(e.history(lost.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusRetrying, gq.StatusScheduled})
	e.claimed("after the sweep", 10, []gq.JobID{late.ID, lost.ID})

	e.clock.Set(start.Add(7 * 24 * time.Hour))
	e.sweep()
	e.stands("seven days after submission", late.ID, gq.StatusDeadLetter)
	e.stands("seven days after submission", lost.ID, gq.StatusDeadLetter)
}

func dueReopen(e *env) {
	later := e.add(forever(endless), delayed(time.Minute))
	e.add(forever(endless))
	held := e.one(lasting(time.Second))
	mortal := e.add(under(func(p *gq.Policy) { p.Lifetime = time.Hour }))
	e.reopen()
	if due := e.due(10); len(due.Jobs) != 0 || !nextIs(due, start.Add(time.Second)) {
		e.Errorf("after a restart: due are %s, next %v; want none, next %v", briefs(due.Jobs), due.Next, start.Add(time.Second))
	}
	e.clock.Advance(time.Hour)
	e.reopen()
	want := store.Due{Jobs: []gq.JobID{held.State.ID, later.ID, mortal.ID}}
	if due := e.due(10); !slices.Equal(due.Jobs, want.Jobs) || !nextIs(due, time.Time{}) {
		e.Errorf("an hour and a restart later: due are %s, next %v; want %s, next never", briefs(due.Jobs), due.Next, briefs(want.Jobs))
	}
}

// nextIs reports whether the answer of Due may name a time as its next, for want.
func nextIs(due store.Due, want time.Time) bool {
	exactly := due.Now.Add(store.DueExactly)
	return due.Next.Equal(want) ||
		(want.IsZero() || want.After(exactly)) && !due.Next.Before(exactly) && (want.IsZero() || due.Next.Before(want))
}
