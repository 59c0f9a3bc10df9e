package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var reopenCases = []Case{
	{
		Name:    "Reopen/Everything",
		Clause:  "a restarted store shows exactly what it had acknowledged: jobs, states, leases, versions, blobs, counts, events, queues",
		Reopens: true,
		Covers:  []string{"Q-03", "Q-04", "J-09"},
		run:     reopenEverything,
	},
	{
		Name:    "Reopen/Order",
		Clause:  "the order of service survives a restart, and sequence numbers go on ascending",
		Reopens: true,
		run:     reopenOrder,
	},
	{
		Name:    "Reopen/Clock",
		Clause:  "the time of a store never runs backwards, not even across a restart with a clock that was set back",
		Reopens: true,
		run:     reopenClock,
	},
	{
		Name:    "Reopen/Refused",
		Clause:  "a lease that was refused because it had run out stays so after a restart with a clock set back",
		Reopens: true,
		run:     reopenRefused,
	},
	{
		Name:   "Clock/Backwards",
		Clause: "the time of a store never runs backwards, even when its clock does",
		run:    clockBackwards,
	},
	{
		Name:   "Clock/Now",
		Clause: "Now is the time that a write at that moment gets, and never runs backwards",
		run:    clockNow,
	},
	{
		Name:   "Clock/Batch",
		Clause: "the clock is read once for each call: everything one call does happens at one instant",
		run:    clockBatch,
	},
	{
		Name:   "Clock/Joined",
		Clause: "a call is judged by a time that is no earlier than the call, also where it shares a commit with calls that came before it",
		Covers: []string{"Q-85", "Q-99"},
		run:    clockJoined,
	},
}

func reopenEverything(e *env) {
	e.story()
	ids := e.mixture()
	e.put("b", func(q *gq.Queue) { q.MaxRunning = 4 })
	e.release()
	type everything struct {
		Jobs      []gq.Job
		Histories [][]gq.Event
		Counts    map[string]gq.Count
		Events    []gq.Event
		Queues    map[string]gq.Queue
		Due       store.Due
	}
	look := func() (all everything) {
		for _, j := range e.list(gq.Query{OldestFirst: true, Limit: 3}) {
			all.Jobs = append(all.Jobs, e.get(j.State.ID))
			all.Histories = append(all.Histories, e.history(j.State.ID))
		}
		all.Counts, all.Events, all.Due = e.counts(), e.events(0), e.due(100)
		_, all.Queues = e.queues()
		return all
	}
	before := look()
	if len(before.Jobs) < len(ids)+8 {
		e.Fatalf("the story has only %d jobs", len(before.Jobs))
	}
	for range 2 {
		e.reopen()
		e.equal("the store after a restart", look(), before)
	}
}

func reopenOrder(e *env) {
	first := e.each(e.spec(at(gq.PriorityLow)), e.spec(), e.spec(delayed(time.Second)), e.spec(), e.spec(at(gq.PriorityHigh)))
	failed := e.fail(e.one(), temporary)
	e.reopen()
	last := e.add()
	if last.Sequence <= first[4].Sequence {
		e.Errorf("the first job after a restart has sequence %d, the last before it %d", last.Sequence, first[4].Sequence)
	}
	e.clock.Set(failed.RunAt)
	e.reopen()
	e.claimed("after restarts", 10, []gq.JobID{first[4].ID, first[1].ID, first[2].ID, first[3].ID, last.ID, first[0].ID})
}

// forward fails unless the times of all events ascend, and returns the last.
func (e *env) forward() (last time.Time) {
	e.Helper()
	for _, v := range e.events(0) {
		if v.Time.Before(last) {
			e.Errorf("event %d (%s) is of %v, an earlier one of %v", v.Seq, v.Type, v.Time, last)
		}
		last = v.Time
	}
	return last
}

func reopenClock(e *env) {
	job := e.add()
	e.clock.Advance(time.Hour)
	high := e.now()
	e.one(lasting(time.Minute)) // committed at the later time
	e.clock.Set(start.Add(-24 * time.Hour))
	e.reopen()
	late := e.add(delayed(time.Second))
	if late.CreatedAt.Before(high) {
		e.Errorf("after a restart with a clock set back a job was created at %v, the last commit was at %v", late.CreatedAt, high)
	}
	e.none("while the lease lives and the delay lasts, by the store's time")
	e.cancel(late.ID)
	if last := e.forward(); last.Before(high) {
		e.Errorf("the last event is of %v, want no earlier than %v", last, high)
	}
	e.clock.Set(high.Add(time.Minute))
	j := e.one()
	if j.State.ID != job.ID || !j.State.StartedAt.Equal(e.now()) {
		e.Errorf("when the clock has caught up job %s starts at %v, want %s at %v", j.State.ID, j.State.StartedAt, job.ID, e.now())
	}
	e.equal("the stored state", e.state(job.ID), j.State)
}

func reopenRefused(e *env) {
	e.add()
	j := e.one(lasting(time.Minute))
	e.clock.Advance(time.Minute)
	e.refusedUpdate(j.State.ID, completing(j.State.Lease.Ref(), nil))
	e.clock.Advance(-time.Second)
	e.reopen()
	e.refusedUpdate(j.State.ID, completing(j.State.Lease.Ref(), nil))
}

func clockNow(e *env) {
	now := func() time.Time {
		e.Helper()
		t, err := e.store().Now(e.Context())
		e.check("Now", err)
		return t
	}
	for range 3 {
		before := now()
		job := e.insert(e.spec())[0]
		if !job.CreatedAt.Equal(before) || !now().Equal(before) {
			e.Errorf("Now is %v and then %v, and a job inserted in between is of %v: want one time, since the clock stands", before, now(), job.CreatedAt)
		}
		if after := e.clock.Advance(time.Minute); !now().Equal(after) {
			e.Errorf("Now is %v after the clock moved on to %v", now(), after)
		}
	}
	high := now()
	e.clock.Advance(-time.Hour)
	if got := now(); got.Before(high) {
		e.Errorf("Now is %v after it was %v", got, high)
	}
}

func clockBackwards(e *env) {
	e.each(e.specs(2)...)
	e.clock.Advance(time.Hour)
	high := e.now()
	j := e.one()
	for _, back := range []time.Duration{time.Nanosecond, time.Minute, 365 * 24 * time.Hour} {
		e.clock.Set(high.Add(-back))
		if s := e.add(inQueue("other")); s.CreatedAt.Before(high) {
			e.Errorf("with the clock set back by %v a job was created at %v, before %v", back, s.CreatedAt, high)
		}
	}
	if s := e.complete(j); s.CompletedAt.Before(high) {
		e.Errorf("with the clock set back a job completed at %v, before it started at %v", s.CompletedAt, high)
	}
	second := e.one()
	if !second.State.Lease.ExpiresAt.After(high) || second.State.StartedAt.Before(high) {
		e.Errorf("with the clock set back a lease was granted from %v to %v, want from %v on", second.State.StartedAt, second.State.Lease.ExpiresAt, high)
	}
	e.forward()
}

// ticking is a clock that never shows the same time twice.
type ticking struct{ clock *Clock }

// Now advances the clock and returns its time.
func (t ticking) Now() time.Time { return t.clock.Advance(time.Microsecond) }

func clockBatch(e *env) {
	e.open(func(c *store.Config) { c.Clock = ticking{e.clock} })
	one := func(what string) {
		e.Helper()
		events := e.events(0)
		last := events[len(events)-1]
		n := 0
		for _, v := range events {
			if v.Time.Equal(last.Time) {
				n++
			}
		}
		want := map[string]int{"Insert": 6, "Claim": 3, "Update": 3}[what]
		if n != want {
			e.Errorf("of the %d events of an %s %d carry its last instant, want all", want, what, n)
		}
	}
	e.each(e.specs(3)...)
	one("Insert")
	jobs := e.claim(3)
	one("Claim")
	var updates []store.Update
	for _, j := range jobs {
		updates = append(updates, store.Update{Ref: byID(j.State.ID), Apply: completing(j.State.Lease.Ref(), nil)})
	}
	e.tryUpdate(updates...)
	one("Update")
}

// clockJoined keeps the store busy, so that calls share commits, and lets a lease expire
// between its claim and each call under it.
func clockJoined(e *env) {
	const busy, rounds, ttl = 4, 40, time.Minute
	e.open()
	var (
		wait sync.WaitGroup
		over = make(chan struct{})
	)
	for range busy {
		specs := e.specs(1000, inQueue("other"))
		wait.Go(func() {
			for _, spec := range specs {
				select {
				case <-over:
					return
				default:
				}
				if out, err := e.s.Insert(e.Context(), []store.Group{store.One(spec)}); err != nil || out[0].Err != nil {
					e.Errorf("Insert: %v, %+v", err, out)
					return
				}
			}
		})
	}
	defer wait.Wait()
	defer close(over)
	for range rounds {
		e.add()
		asked := e.now()
		j := e.one(lasting(ttl))
		if end := j.State.Lease.ExpiresAt; end.Before(asked.Add(ttl)) {
			e.Errorf("a claim at %v was given a lease for %v that ends at %v", asked, ttl, end)
		}
		e.clock.Advance(ttl)
		for _, apply := range []store.Apply{
			beating(j.State.Lease.Ref(), machine.Report{}), completing(j.State.Lease.Ref(), nil),
		} {
			if a := e.tryUpdate(store.Update{Ref: byID(j.State.ID), Apply: apply})[0]; !errors.Is(a.Err, gq.ErrStaleLease) {
				e.Errorf("a word under a lease that ended at %v was judged at %v: %v", e.now(), a.State.UpdatedAt, a.Err)
				return
			}
		}
		e.cancel(j.State.ID)
	}
}
