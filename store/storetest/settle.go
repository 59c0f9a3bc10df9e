package storetest

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var settleCases = []Case{
	{
		Name:   "Settle/Complete",
		Clause: "a completed job is stored as such and never handed out again, however much time passes",
		Covers: []string{"Q-12", "Q-28", "Q-31", "Q-47", "Q-48", "J-30", "J-141"},
		run:    settleComplete,
	},
	{
		Name:   "Settle/Retries",
		Clause: "temporary failures are retried with growing delays until the attempts are used up; then the job is DEAD_LETTER for good",
		Covers: []string{"Q-27", "J-24", "J-25", "J-32", "J-33", "J-62", "J-66", "J-135", "J-138"},
		run:    settleRetries,
	},
	{
		Name:   "Settle/RetryBeyondLife",
		Clause: "a failed job whose retry would be due after the end of its lifetime is DEAD_LETTER at once, with that reason and its failure",
		run:    settleBeyondLife,
	},
	{
		Name:   "Settle/Permanent",
		Clause: "a permanent failure is FAILED at once and stays so, with its category, code and message; it can be listed with the dead letters, and nothing revives either",
		Covers: []string{"Q-72", "J-23", "J-31", "J-101", "J-122"},
		run:    settlePermanent,
	},
	{
		Name:   "Settle/Heartbeat",
		Clause: "a heartbeat grants a fresh full lease, is no event, and leaves UpdatedAt alone; as long as they come there is one delivery",
		Covers: []string{"Q-92", "Q-94", "Q-105", "Q-106"},
		run:    settleHeartbeat,
	},
	{
		Name:   "Settle/Release",
		Clause: "a job given back without fault costs nothing and is claimable after the delay",
		run:    settleRelease,
	},
	{
		Name:   "Settle/Cancel",
		Clause: "cancelling ends a job that does not run, and asks one that does; either way it is never handed out again",
		Covers: []string{"J-103", "J-148", "J-149"},
		run:    settleCancel,
	},
	{
		Name:   "Settle/AnyOrder",
		Clause: "jobs held at once may be settled in any order",
		Covers: []string{"Q-18"},
		run:    settleAnyOrder,
	},
	{
		Name:   "Settle/Hint",
		Clause: "what is said to settle a job and does not, or is refused, leaves it as it would without the hint, and so does what does",
		run:    settleHint,
	},
	{
		Name:   "Settle/Repeat",
		Clause: "the identical repeat of the call that settled a job is answered alike and has no second effect, so that a lost reply can be asked for again",
		run:    settleRepeat,
	},
	{
		Name:   "Settle/RepeatAfterRetry",
		Clause: "the identical repeat is answered even when the job has been claimed again since, and leaves the new lease alone",
		run:    settleRepeatAfterRetry,
	},
	{
		Name:   "Settle/Different",
		Clause: "a second, different settlement is ErrStaleLease and changes nothing",
		run:    settleDifferent,
	},
}

// settled fails if any claim of queue "q" finds a job now or in the next minutes, with
// sweeps in between.
func (e *env) settled(what string) {
	e.Helper()
	for range 4 {
		e.none(what)
		e.sweep()
		e.none(what + ", after a sweep")
		e.clock.Advance(3 * time.Minute)
	}
}

func settleComplete(e *env) {
	job := e.add()
	j := e.one()
	e.clock.Advance(time.Second)
	s := e.complete(j)
	want := j.State
	lease := *want.Lease
	lease.State = gq.LeaseCompleted
	want.Status, want.Lease, want.Progress, want.Settled = gq.StatusCompleted, &lease, 1, s.Settled
	want.UpdatedAt, want.CompletedAt = e.now(), e.now()
	e.equal("the answer", s, want)
	e.equal("the stored state", e.state(job.ID), want)
	h := e.history(job.ID)
	last := h[len(h)-1]
	e.equal("the event", last, gq.Event{
		Seq: last.Seq, Time: e.now(), Queue: "q", JobType: "work", Job: job.ID, Type: gq.EventCompleted, Status: gq.StatusCompleted, Attempt: 1,
		Lease: lease.ID, Version: 1, LeaseState: gq.LeaseCompleted, Worker: "worker", Elapsed: time.Second,
	})
	e.settled("after a completion")
	e.equal("the stored state after all", e.state(job.ID), want)
}

func settleRetries(e *env) {
	job := e.add()
	for attempt := 1; attempt <= 3; attempt++ {
		j := e.one()
		if j.State.Attempt != attempt || j.State.Faults != attempt-1 {
			e.Errorf("attempt %d reads %d with %d faults", attempt, j.State.Attempt, j.State.Faults)
		}
		s := e.fail(j, temporary)
		e.equal("the stored state", e.state(job.ID), s)
		if attempt == 3 {
			break
		}
		delay := time.Second << (attempt - 1)
		if s.Status != gq.StatusRetrying || !s.RunAt.Equal(e.now().Add(delay)) || s.Failure == nil || *s.Failure != temporary {
			e.Fatalf("after failure %d: %s until %v (%v), want RETRYING for %v", attempt, s.Status, s.RunAt, s.Failure, delay)
		}
		e.clock.Advance(delay - 1)
		e.none("1 ns before the backoff ends")
		e.clock.Advance(1)
	}
	s := e.state(job.ID)
	if !s.CreatedAt.Equal(start) {
		e.Errorf("after retries the job was created at %v, want %v as ever", s.CreatedAt, start)
	}
	if s.Status != gq.StatusDeadLetter || s.Attempt != 3 || !s.CompletedAt.Equal(e.now()) {
		e.Errorf("after the last failure: %s, attempt %d, ended %v; want DEAD_LETTER, 3, %v", s.Status, s.Attempt, s.CompletedAt, e.now())
	}
	cycle := []gq.Status{gq.StatusScheduled, gq.StatusRunning, gq.StatusRetrying}
	want := append(append([]gq.Status{gq.StatusPending}, append(cycle, cycle...)...), gq.StatusScheduled, gq.StatusRunning, gq.StatusDeadLetter)
	e.equal("the history", trace(e.history(job.ID)), want)
	e.settled("after the last failure")
	e.equal("the state long after", e.state(job.ID), s)
}

func settleBeyondLife(e *env) {
	hour := under(func(p *gq.Policy) { p.Lifetime = time.Hour })
	slow := under(func(p *gq.Policy) { p.Backoff.Initial, p.Backoff.Max = time.Hour, time.Hour })
	lossy := under(func(p *gq.Policy) { p.OnLoss = gq.LossBackoff })
	for name, end := range map[string]func() gq.State{
		"retry_after": func() gq.State {
			e.add(hour)
			return e.fail(e.one(), gq.Failure{Category: gq.CategoryTemporary, Code: "busy", RetryAfter: 24 * time.Hour})
		},
		"backoff": func() gq.State {
			e.add(hour, slow)
			return e.fail(e.one(), temporary)
		},
		"a lost lease": func() gq.State {
			lost := e.add(hour, slow, lossy)
			e.one(lasting(time.Second))
			e.clock.Advance(time.Second)
			e.sweep()
			return e.state(lost.ID)
		},
	} {
		s := end()
		if s.Status != gq.StatusDeadLetter || s.Reason != machine.ReasonLifetime || s.Failure == nil || !s.CompletedAt.Equal(e.now()) {
			e.Errorf("%s: the job is %s because of %q since %v with failure %v, want DEAD_LETTER because of %q now with its failure",
				name, s.Status, s.Reason, s.CompletedAt, s.Failure, machine.ReasonLifetime)
		}
		e.equal(name+": the stored state", e.state(s.ID), s)
		e.equal(name+": the history", trace(e.history(s.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusDeadLetter})
		if due := e.due(10); len(due.Jobs) != 0 || !nextIs(due, time.Time{}) {
			e.Errorf("%s: due are %s, next %v; want none, never", name, briefs(due.Jobs), due.Next)
		}
	}
}

func settlePermanent(e *env) {
	job := e.add()
	s := e.fail(e.one(), permanent)
	if s.Status != gq.StatusFailed || s.Failure == nil || *s.Failure != permanent || s.Attempt != 1 {
		e.Errorf("after a permanent failure: %s, %+v, attempt %d; want FAILED, %+v, 1", s.Status, s.Failure, s.Attempt, permanent)
	}
	exhausted := e.add(under(func(p *gq.Policy) { p.MaxAttempts = 1 }))
	e.fail(e.one(), temporary)
	dead := gq.Query{Statuses: []gq.Status{gq.StatusFailed, gq.StatusDeadLetter}, OldestFirst: true}
	e.listed("what failed for good", dead, []gq.JobID{job.ID, exhausted.ID})
	e.settled("after failures for good")
	e.equal("the stored state", e.state(job.ID), s)
	e.listed("what failed for good, long after", dead, []gq.JobID{job.ID, exhausted.ID})
}

func settleHeartbeat(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.LeaseTTL = 30 * time.Second }))
	j := e.one()
	before := e.snapshot(job.ID)
	for range 30 { // five minutes, a heartbeat every ten seconds
		e.clock.Advance(10 * time.Second)
		s := e.update(job.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: -1}))
		if !s.Lease.ExpiresAt.Equal(e.now().Add(30*time.Second)) || s.Lease.ID != j.State.Lease.ID || s.Version != 1 {
			e.Fatalf("after a heartbeat the lease is %+v, want the same one until %v", s.Lease, e.now().Add(30*time.Second))
		}
		e.none("while heartbeats come")
	}
	after := e.snapshot(job.ID)
	e.equal("the history", after.History, before.History)
	e.equal("the counts", after.Counts, before.Counts)
	if !after.Jobs[0].State.UpdatedAt.Equal(before.Jobs[0].State.UpdatedAt) {
		e.Errorf("heartbeats moved UpdatedAt from %v to %v", before.Jobs[0].State.UpdatedAt, after.Jobs[0].State.UpdatedAt)
	}
	e.clock.Advance(30*time.Second - 1)
	e.none("1 ns before the last heartbeat's lease ends")
	e.clock.Advance(1)
	e.claimed("when the heartbeats have stopped", 1, []gq.JobID{job.ID})
}

func settleRelease(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.MaxAttempts = 1 }))
	for i := range 3 {
		j := e.one()
		s := e.update(job.ID, releasing(j.State.Lease.Ref(), 0, "shutting down"))
		if s.Status != gq.StatusScheduled || s.Attempt != i+1 || s.Bound != i+2 || s.Faults != 0 {
			e.Errorf("release %d: %s, attempt %d of %d, faults %d; want SCHEDULED, %d of %d, 0", i+1, s.Status, s.Attempt, s.Bound, s.Faults, i+1, i+2)
		}
	}
	j := e.one()
	e.update(job.ID, releasing(j.State.Lease.Ref(), time.Minute, "not now"))
	e.clock.Advance(time.Minute - 1)
	e.none("1 ns before the delay ends")
	e.clock.Advance(1)
	held := e.one(holding)
	s := e.update(job.ID, releasing(held.State.Lease.Ref(), 0, "declined"))
	if s.Status != gq.StatusScheduled || s.Attempt != 4 || s.Bound != 5 {
		e.Errorf("a hold given back: %s, attempt %d of %d; want SCHEDULED, 4 of 5", s.Status, s.Attempt, s.Bound)
	}
	h := e.history(job.ID)
	e.equal("the end of the history", trace(h)[len(h)-5:], []gq.Status{gq.StatusRunning, gq.StatusRetrying, gq.StatusScheduled, gq.StatusClaimed, gq.StatusScheduled})
	e.complete(e.one())
}

func settleCancel(e *env) {
	waiting, later := e.add(inQueue("b")), e.add(delayed(time.Minute))
	retrying := e.add()
	e.fail(e.one(), temporary)
	held := e.add()
	e.one(holding)
	pending := e.add(depends(gq.DependencyAfter, e.add(inQueue("c")).ID))
	for name, id := range map[string]gq.JobID{
		"PENDING": pending.ID, "SCHEDULED": waiting.ID, "DELAYED": later.ID, "RETRYING": retrying.ID, "CLAIMED": held.ID,
	} {
		s := e.cancel(id)
		if s.Status != gq.StatusCancelled || !s.CompletedAt.Equal(e.now()) || s.Cancellation.Reason != "no longer wanted" {
			e.Errorf("cancelling a %s job: %s at %v, reason %q; want CANCELLED now", name, s.Status, s.CompletedAt, s.Cancellation.Reason)
		}
		e.equal("the stored state", e.state(id), s)
		e.clock.Advance(time.Second)
		e.equal("the state after cancelling once more", e.cancel(id), s)
	}

	e.add()
	j := e.one()
	s := e.cancel(j.State.ID)
	if s.Status != gq.StatusRunning || !s.Cancellation.Requested() {
		e.Errorf("cancelling a running job: %s, requested %t; want RUNNING, true", s.Status, s.Cancellation.Requested())
	}
	e.clock.Advance(time.Second)
	s = e.update(j.State.ID, beating(j.State.Lease.Ref(), machine.Report{}))
	if !s.Cancellation.DeliveredAt.Equal(e.now()) {
		e.Errorf("the next heartbeat delivered the cancel at %v, want %v", s.Cancellation.DeliveredAt, e.now())
	}
	s = e.fail(j, temporary)
	if s.Status != gq.StatusCancelled || !s.Cancellation.HonouredAt.Equal(e.now()) {
		e.Errorf("a temporary failure after a cancel: %s, honoured %v; want CANCELLED now", s.Status, s.Cancellation.HonouredAt)
	}
	e.settled("after everything was cancelled")
	e.none("in the other queue", from("b"))
}

func settleAnyOrder(e *env) {
	e.each(e.specs(5)...)
	jobs := e.claim(5)
	for _, i := range []int{3, 0, 4, 2, 1} {
		e.complete(jobs[i])
	}
	for _, j := range jobs {
		e.stands("settled out of order", j.State.ID, gq.StatusCompleted)
	}
}

// settleHint makes the same updates with and without the hint.
func settleHint(e *env) {
	var told [2][]string
	var counts [2][]gq.Count
	for round, hint := range []bool{false, true} {
		queue := fmt.Sprint("q", round)
		e.put(queue, func(q *gq.Queue) { q.KeyLimit = 1 })
		var updates []store.Update
		var ids []gq.JobID
		say := func(j gq.Job, apply store.Apply) {
			updates = append(updates, store.Update{Ref: byLease(j.State.Lease.ID), Apply: apply, Settles: hint})
		}
		hold := func(n int) (jobs []gq.Job) {
			for i := range n {
				e.add(inQueue(queue), limitedBy(fmt.Sprint(i)), ofType("special"), requiring("gpu"))
				jobs = append(jobs, e.one(from(queue), offering("gpu")))
				ids = append(ids, jobs[i].State.ID)
			}
			return jobs
		}
		jobs := hold(6)
		stale := gq.LeaseRef{ID: jobs[0].State.Lease.ID, Version: jobs[0].State.Lease.Version + 1}
		say(jobs[0], beating(jobs[0].State.Lease.Ref(), machine.Report{Progress: 0.5}))
		say(jobs[1], completing(jobs[1].State.Lease.Ref(), nil))
		say(jobs[2], failing(jobs[2].State.Lease.Ref(), permanent))
		say(jobs[3], releasing(jobs[3].State.Lease.Ref(), 0, "again"))
		say(jobs[4], completing(stale, nil))
		say(jobs[4], beating(jobs[4].State.Lease.Ref(), machine.Report{}))
		say(jobs[4], completing(jobs[4].State.Lease.Ref(), nil))
		say(jobs[5], completing(stale, nil))
		for i, answer := range e.tryUpdate(updates...) {
			if refused := i == 4 || i == 7; (answer.Err != nil) != refused {
				e.Errorf("hint %t, update %d: %v", hint, i, answer.Err)
			}
		}
		e.is("an update that is refused alone", e.tryUpdate(updates[7])[0].Err, gq.ErrStaleLease)
		e.none("what was given back, without what it requires", from(queue))
		e.none("what was given back, by another type", from(queue), offering("gpu"), types("t"))
		if j := e.one(from(queue), offering("gpu"), types("special")); j.State.ID != ids[3] {
			e.Errorf("hint %t: claimed %s, want what was given back", hint, j.State.ID)
		}
		e.add(inQueue(queue), limitedBy("5"))
		e.none("while another job with the limit key is held", from(queue))
		for i, id := range ids {
			told[round] = append(told[round], fmt.Sprint(i, e.get(id).State.Status))
			for _, v := range e.events(0) {
				if v.Job == id {
					told[round] = append(told[round], fmt.Sprint(i, v.Type))
				}
			}
		}
		all, err := e.store().Counts(e.Context(), queue)
		e.check("Counts", err)
		all[0].Queue = ""
		counts[round] = all
	}
	e.equal("what has become of the jobs, with the hint and without", told[1], told[0])
	e.equal("the counts, with the hint and without", counts[1], counts[0])
}

func settleRepeat(e *env) {
	for name, settle := range map[string]func(gq.LeaseRef) store.Update{
		"complete": func(ref gq.LeaseRef) store.Update {
			return store.Update{Apply: completing(ref, []byte("result")), Result: []byte("result")}
		},
		"fail":    func(ref gq.LeaseRef) store.Update { return store.Update{Apply: failing(ref, permanent)} },
		"release": func(ref gq.LeaseRef) store.Update { return store.Update{Apply: releasing(ref, 24*time.Hour, "later")} },
	} {
		id := e.add().ID
		ref := e.one().State.Lease.Ref()
		u := settle(ref)
		u.Ref = byID(id)
		first := e.updated(u)
		before := e.snapshot(id)
		e.clock.Advance(time.Hour) // well after the lease would have expired
		for _, u.Ref = range []store.Ref{byID(id), byLease(ref.ID)} {
			e.equal("the answer to the repeated "+name, e.updated(u), first)
			e.unchanged("the repeated "+name, before, id)
		}
	}
}

func settleRepeatAfterRetry(e *env) {
	job := e.add()
	first := e.one()
	s := e.fail(first, temporary)
	e.clock.Set(s.RunAt)
	second := e.one()
	e.updated(store.Update{
		Ref: byID(job.ID), Apply: beating(second.State.Lease.Ref(), machine.Report{CheckpointBytes: 3}), Checkpoint: []byte("new"),
	})
	before := e.snapshot(job.ID)
	answer := e.tryUpdate(store.Update{
		Ref: byLease(first.State.Lease.ID), Apply: failing(first.State.Lease.Ref(), temporary), Checkpoint: []byte("old"),
	})[0]
	e.check("the repeat", answer.Err)
	if answer.Changed {
		e.Errorf("the repeat reports a change")
	}
	e.unchanged("the repeat", before, job.ID)
	e.complete(second)
}

func settleDifferent(e *env) {
	job := e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	e.updated(store.Update{Ref: byID(job.ID), Apply: completing(ref, []byte("one")), Result: []byte("one")})
	before := e.snapshot(job.ID)
	for name, u := range map[string]store.Update{
		"another result": {Apply: completing(ref, []byte("two")), Result: []byte("two")},
		"a failure":      {Apply: failing(ref, temporary)},
		"a release":      {Apply: releasing(ref, 0, "")},
		"a heartbeat":    {Apply: beating(ref, machine.Report{CheckpointBytes: 3}), Checkpoint: []byte("two")},
	} {
		for _, u.Ref = range []store.Ref{byID(job.ID), byLease(ref.ID)} {
			e.is(name+" after a completion", e.tryUpdate(u)[0].Err, gq.ErrStaleLease)
			e.unchanged(name+" after a completion", before, job.ID)
		}
	}
}
