package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var updateCases = []Case{
	{
		Name:   "Update/Unknown",
		Clause: "an unknown job is ErrNotFound, a lease that the store does not know ErrStaleLease, and the function is not asked",
		run:    updateUnknown,
	},
	{
		Name:   "Update/Refused",
		Clause: "a function that returns an error changes nothing, and its error is the answer",
		run:    updateRefused,
	},
	{
		Name:   "Update/Unauthorized",
		Clause: "an update that is not authorised for the job's queue changes nothing and is answered with that error and without a state; a lease that the job does not have is stale, as any unknown one",
		run:    updateUnauthorized,
	},
	{
		Name:   "Update/Panics",
		Clause: "a function that panics or returns the state of another job changes nothing, and the store goes on",
		run:    updatePanics,
	},
	{
		Name:   "Update/Nothing",
		Clause: "a function that changes nothing is answered with the state and writes nothing",
		run:    updateNothing,
	},
	{
		Name:   "Update/ByLease",
		Clause: "a job is named by its id or by any lease it ever had",
		run:    updateByLease,
	},
	{
		Name:   "Update/Twice",
		Clause: "two updates of one job in one call see each other in order",
		run:    updateTwice,
	},
	{
		Name:   "Update/Mixed",
		Clause: "each update of a call has its own answer, and a bad one does not disturb the others",
		run:    updateMixed,
	},
	{
		Name:   "Update/Concurrent",
		Clause: "updates of one job happen one after the other: none is lost",
		run:    updateConcurrent,
	},
	{
		Name:   "Update/Time",
		Clause: "the function gets the time of the store, and its events carry it",
		run:    updateTime,
	},
	{
		Name:   "Update/Priority",
		Clause: "a new priority changes a waiting job's place, also between two attempts, and stands while a worker holds the job",
		run:    updatePriority,
	},
	{
		Name:   "Update/Large",
		Clause: "a call may carry a thousand updates",
		run:    updateLarge,
	},
}

func updateUnknown(e *env) {
	e.add()
	ask := func(gq.State, time.Time) (gq.State, []gq.Event, error) {
		e.Errorf("the function was called for a job that does not exist")
		return gq.State{}, nil, gq.ErrConflict
	}
	answers := e.tryUpdate(
		store.Update{Ref: byID(e.id()), Apply: ask},
		store.Update{Ref: byLease("unknown"), Apply: ask},
		store.Update{Ref: byLease("00000000-0000-4000-8000-000000000000"), Apply: ask},
	)
	e.is("an unknown job", answers[0].Err, gq.ErrNotFound)
	e.is("an unknown lease", answers[1].Err, gq.ErrStaleLease)
	e.is("an unknown lease in UUID form", answers[2].Err, gq.ErrStaleLease)
}

func updateRefused(e *env) {
	job := e.add()
	j := e.one()
	e.updated(store.Update{
		Ref: byID(job.ID), Apply: beating(j.State.Lease.Ref(), machine.Report{CheckpointBytes: 3}), Checkpoint: []byte("one"),
		Metadata: &gq.Metadata{Priority: gq.PriorityNormal, CorrelationID: "one"}, Result: []byte("one"),
	})
	before := e.snapshot(job.ID)
	mine := errors.New("not today")
	for _, ref := range []store.Ref{byID(job.ID), byLease(j.State.Lease.ID)} {
		answer := e.tryUpdate(store.Update{
			Ref: ref,
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				next, events, _ := machine.Complete(s, s.Lease.Ref(), nil, now)
				return next, events, mine
			},
			Metadata: &gq.Metadata{Priority: gq.PriorityCritical, CorrelationID: "two"}, Result: []byte("two"), Checkpoint: []byte("two"),
		})[0]
		e.is("a function that refuses", answer.Err, mine)
		if answer.Changed {
			e.Errorf("a refused update reports a change")
		}
		e.unchanged("a refused update", before, job.ID)
	}
}

func updateUnauthorized(e *env) {
	job := e.add()
	j := e.one()
	lease := j.State.Lease.Ref()
	denied := errors.New("not on this queue")
	refuse := func(what string, ref store.Ref, want error) {
		e.Helper()
		before := e.snapshot(job.ID)
		queue := ""
		answer := e.tryUpdate(store.Update{
			Ref:       ref,
			Authorize: func(q string) error { queue = q; return denied },
			Apply:     completing(lease, []byte("stolen")), Result: []byte("stolen"), Settles: true,
		})[0]
		e.is(what, answer.Err, want)
		if answer.Changed || !answer.State.ID.IsZero() {
			e.Errorf("%s: the answer is %+v, want no state", what, answer)
		}
		if queue != j.Spec.Queue {
			e.Errorf("%s: asked about queue %q, want %q", what, queue, j.Spec.Queue)
		}
		e.unchanged(what, before, job.ID)
	}
	refuse("an update by id", byID(job.ID), denied)
	refuse("an update by lease", store.Ref{Lease: lease.ID}, denied)
	answer := e.tryUpdate(store.Update{
		Ref: store.Ref{Lease: lease.ID}, Authorize: func(string) error { return nil },
		Apply: completing(lease, []byte("done")), Result: []byte("done"), Settles: true,
	})[0]
	e.check("an update that is authorised", answer.Err)
	e.stands("after that", job.ID, gq.StatusCompleted)
	refuse("an update of a finished job by id", byID(job.ID), denied)
	refuse("an update of a finished job by lease", store.Ref{Lease: lease.ID}, denied)
}

func updatePanics(e *env) {
	job := e.add()
	j := e.one()
	before := e.snapshot(job.ID)
	for what, apply := range map[string]store.Apply{
		"panicked": func(gq.State, time.Time) (gq.State, []gq.Event, error) { panic("planted") },
		"returned the state of another job": func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			s.ID = machine.NewJobID([16]byte{1})
			return machine.Complete(s, j.State.Lease.Ref(), nil, now)
		},
	} {
		failed := func() (failed bool) {
			defer func() { failed = failed || recover() != nil }() // a panic may reach the caller
			answers, err := e.s.Update(e.Context(), []store.Update{{Ref: byID(job.ID), Apply: apply, Result: []byte("none")}})
			return err != nil || answers[0].Err != nil
		}()
		if !failed {
			e.Errorf("an update whose function %s was answered as if it had succeeded", what)
		}
		e.unchanged("a function that "+what, before, job.ID)
	}
	e.complete(j)
	e.stands("after that", job.ID, gq.StatusCompleted)
}

func updateNothing(e *env) {
	job := e.add()
	e.cancel(job.ID)
	before := e.snapshot(job.ID)
	for name, apply := range map[string]store.Apply{"cancelling again": cancelling("once more"), "advancing a finished job": advancing} {
		e.clock.Advance(time.Second)
		answer := e.tryUpdate(store.Update{Ref: byID(job.ID), Apply: apply})[0]
		e.check(name, answer.Err)
		if answer.Changed {
			e.Errorf("%s reports a change", name)
		}
		e.equal(name+": the state in the answer", answer.State, before.Jobs[0].State)
		e.unchanged(name, before, job.ID)
	}
}

func updateByLease(e *env) {
	job := e.add()
	first := e.one()
	e.clock.Set(first.State.Lease.ExpiresAt)
	second := e.one()
	s := e.updated(store.Update{Ref: byLease(second.State.Lease.ID), Apply: beating(second.State.Lease.Ref(), machine.Report{Progress: 0.5})})
	if s.ID != job.ID || s.Progress != 0.5 {
		e.Errorf("a heartbeat by lease answered job %s with progress %v, want %s with 0.5", s.ID, s.Progress, job.ID)
	}
	// An old lease still names the job; the function decides what it may do.
	s = e.updated(store.Update{Ref: byLease(first.State.Lease.ID), Apply: cancelling("by an old lease")})
	if s.ID != job.ID || !s.Cancellation.Requested() {
		e.Errorf("a cancel by an old lease answered job %s, cancel requested %t; want %s, true", s.ID, s.Cancellation.Requested(), job.ID)
	}
	s = e.updated(store.Update{Ref: byLease(second.State.Lease.ID), Apply: releasing(second.State.Lease.Ref(), 0, "stopping")})
	if s.Status != gq.StatusCancelled {
		e.Errorf("a release of a job that was asked to stop ends %s, want CANCELLED", s.Status)
	}
	for _, lease := range []gq.LeaseID{first.State.Lease.ID, second.State.Lease.ID} {
		found := e.find(byLease(lease), 0)
		e.check("Get by a lease that has ended", found.Err)
		if found.State.ID != job.ID {
			e.Errorf("Get by a lease that has ended found %s, want %s", found.State.ID, job.ID)
		}
	}
}

func updateTwice(e *env) {
	job := e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	answers := e.tryUpdate(
		store.Update{Ref: byID(job.ID), Apply: beating(ref, machine.Report{Progress: 0.25})},
		store.Update{Ref: byLease(ref.ID), Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Heartbeat(s, ref, machine.Report{Progress: s.Progress * 2}, now)
		}},
		store.Update{Ref: byID(job.ID), Apply: completing(ref, nil)},
		store.Update{Ref: byLease(ref.ID), Apply: failing(ref, permanent)},
		store.Update{Ref: byID(job.ID), Apply: cancelling("too late")},
	)
	for i, want := range []error{nil, nil, nil, gq.ErrStaleLease, gq.ErrIllegalMove} {
		if want == nil {
			e.check(fmt.Sprintf("update %d", i), answers[i].Err)
		} else {
			e.is(fmt.Sprintf("update %d", i), answers[i].Err, want)
		}
	}
	if got := answers[1].State.Progress; got != 0.5 {
		e.Errorf("the second update made the progress %v out of the first one's 0.25, want 0.5", got)
	}
	s := e.state(job.ID)
	e.equal("the state", s, answers[2].State)
	e.equal("the history", trace(e.history(job.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusCompleted})
}

func updateMixed(e *env) {
	ids := stateIDs(e.each(e.specs(3)...))
	jobs := e.claim(3)
	answers := e.tryUpdate(
		store.Update{Ref: byID(ids[0]), Apply: completing(jobs[0].State.Lease.Ref(), nil)},
		store.Update{Ref: byID(e.id()), Apply: cancelling("")},
		store.Update{Ref: byID(ids[1]), Apply: completing(jobs[0].State.Lease.Ref(), nil)}, // the lease of another job
		store.Update{Ref: byID(ids[2]), Apply: failing(jobs[2].State.Lease.Ref(), permanent)},
		store.Update{Ref: byLease("unknown"), Apply: cancelling("")},
	)
	for i, want := range []error{nil, gq.ErrNotFound, gq.ErrStaleLease, nil, gq.ErrStaleLease} {
		if want == nil {
			e.check(fmt.Sprintf("update %d", i), answers[i].Err)
			continue
		}
		e.is(fmt.Sprintf("update %d", i), answers[i].Err, want)
	}
	for i, want := range []gq.Status{gq.StatusCompleted, gq.StatusRunning, gq.StatusFailed} {
		e.stands(fmt.Sprintf("job %d", i), ids[i], want)
	}
}

func updateConcurrent(e *env) {
	job := e.add()
	ref := e.one().State.Lease.Ref()
	const n = 64 // a power of two: the sum of 64 times 1/64 is exactly 1
	var wait sync.WaitGroup
	ready := make(chan struct{})
	for range n {
		wait.Go(func() {
			<-ready
			answers, err := e.s.Update(e.Context(), []store.Update{{
				Ref: byID(job.ID),
				Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Heartbeat(s, ref, machine.Report{Progress: s.Progress + 1.0/n}, now)
				},
			}})
			if err != nil || answers[0].Err != nil {
				e.Errorf("Update: %v, %+v", err, answers)
			}
		})
	}
	close(ready)
	wait.Wait()
	if got := e.state(job.ID).Progress; got != 1 {
		e.Errorf("%d updates each added 1/%d to the progress; it is %v, want 1", n, n, got)
	}
}

func updateTime(e *env) {
	job := e.add(delayed(time.Hour))
	e.clock.Advance(time.Minute)
	var got time.Time
	e.update(job.ID, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		got = now
		return machine.Cancel(s, "", now)
	})
	if !got.Equal(e.now()) {
		e.Errorf("the function got %v, want %v", got, e.now())
	}
	h := e.history(job.ID)
	if last := h[len(h)-1]; !last.Time.Equal(e.now()) || last.Type != gq.EventCancelled {
		e.Errorf("the last event is %s at %v, want %s at %v", last.Type, last.Time, gq.EventCancelled, e.now())
	}
}

func updatePriority(e *env) {
	first, second := e.add(), e.add()
	delayed := e.add(delayed(time.Second), at(gq.PriorityLow))
	change := func(id gq.JobID, p gq.Priority) store.Updated {
		return e.tryUpdate(store.Update{Ref: byID(id), Apply: updating(p), Metadata: &gq.Metadata{Priority: p}})[0]
	}
	e.check("a new priority for a waiting job", change(second.ID, gq.PriorityHigh).Err)
	e.check("a new priority for a delayed job", change(delayed.ID, gq.PriorityCritical).Err)
	if j := e.get(second.ID); j.State.Own != gq.PriorityHigh || j.Metadata.Priority != gq.PriorityHigh || j.Spec.Metadata.Priority != gq.PriorityNormal {
		e.Errorf("the job reads priority %s, metadata %s, as submitted %s; want HIGH, HIGH, NORMAL", j.State.Own, j.Metadata.Priority, j.Spec.Metadata.Priority)
	}
	e.clock.Advance(time.Second)
	e.claimed("after the priorities changed", 10, []gq.JobID{delayed.ID, second.ID, first.ID})
	e.is("a new priority for a running job", change(first.ID, gq.PriorityHigh).Err, gq.ErrIllegalMove)

	again := e.add()
	e.clock.Advance(time.Second)
	tried := e.one()
	e.fail(tried, temporary)
	last := e.add(at(gq.PriorityHigh))
	e.check("a new priority between two attempts", change(again.ID, gq.PriorityCritical).Err)
	e.clock.Advance(time.Minute)
	e.claimed("after a new priority between two attempts", 2, []gq.JobID{again.ID, last.ID})
}

func updateLarge(e *env) {
	e.insert(e.specs(1000)...)
	var updates []store.Update
	for _, j := range e.claim(1000) {
		updates = append(updates, store.Update{Ref: byID(j.State.ID), Apply: completing(j.State.Lease.Ref(), nil)})
	}
	for _, answer := range e.tryUpdate(updates...) {
		e.check("Update", answer.Err)
	}
	if got := e.counts()["q"]; got.By[gq.StatusCompleted] != 1000 || got.Live() != 0 {
		e.Errorf("%d jobs are counted COMPLETED and %d live, want 1000 and 0", got.By[gq.StatusCompleted], got.Live())
	}
}
