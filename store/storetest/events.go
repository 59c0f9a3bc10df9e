package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var eventCases = []Case{
	{
		Name:   "Events/Replay",
		Clause: "events are read in ascending order, and from any of them on the rest follows",
		run:    eventReplay,
	},
	{
		Name:   "Events/History",
		Clause: "a job's history is what the events tell of it, and its last entry tells the status it has",
		run:    eventHistory,
	},
	{
		Name:   "Events/Legal",
		Clause: "every change of status has its event, and each is a move that the table of moves allows",
		Covers: []string{"J-36"},
		run:    eventLegal,
	},
	{
		Name:   "Events/Only",
		Clause: "reads, heartbeats, refusals and repeats are no events",
		run:    eventOnly,
	},
	{
		Name:   "Events/Order",
		Clause: "no event ever appears behind one that was returned, also while many write",
		run:    eventOrder,
	},
	{
		Name:   "Events/Turns",
		Clause: "what was done by calls that were made one after the other is told in that order",
		run:    eventTurns,
	},
	{
		Name:   "Events/Last",
		Clause: "the number of the newest event is 0 before there was any, is that of the last one that can be read, and stays when that is collected",
		run:    eventLast,
	},
	{
		Name:   "Events/Unknown",
		Clause: "the history of an unknown job is ErrNotFound",
		run:    eventUnknown,
	},
	{
		Name:    "Events/Reopen",
		Clause:  "events keep their numbers over a restart, and new ones get larger ones",
		Reopens: true,
		run:     eventReopen,
	},
}

// story takes a few jobs through most kinds of transitions.
func (e *env) story() {
	e.Helper()
	parent := e.add()
	e.each(e.spec(inQueue("b"), depends(gq.DependencyAfter, parent.ID)), e.spec(inQueue("b"), depends(gq.DependencyFanIn, parent.ID)), e.spec(delayed(time.Second)))
	j := e.one()
	e.clock.Advance(time.Second)
	e.update(j.State.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: 0.5}))
	s := e.fail(j, temporary)
	e.clock.Set(s.RunAt)
	j = e.one()
	e.clock.Set(j.State.Lease.ExpiresAt)
	for range 2 {
		j = e.one(holding)
		if j.State.ID == parent.ID {
			e.update(parent.ID, starting(j.State.Lease.Ref(), 0))
			e.fail(j, permanent)
			e.release()
			continue
		}
		e.cancel(j.State.ID)
	}
	e.insert(e.chainOf(3, gq.DependencyChain)...)
	j = e.one()
	e.cancel(j.State.ID)
	e.update(j.State.ID, releasing(j.State.Lease.Ref(), 0, ""))
	e.release()
	e.one(from("b"))
	e.clock.Advance(time.Hour)
	e.sweep()
	e.add(keyed("k", 1))
	e.complete(e.one())
	e.one(from("b"))
}

func eventReplay(e *env) {
	e.story()
	all := e.events(0)
	if len(all) < 20 {
		e.Fatalf("the story has %d events, want many", len(all))
	}
	for i, v := range all {
		if v.Seq == 0 || i > 0 && (v.Seq <= all[i-1].Seq || v.Time.Before(all[i-1].Time)) {
			e.Errorf("event %d has number %d and time %v, the one before %d and %v", i, v.Seq, v.Time, all[max(i-1, 0)].Seq, all[max(i-1, 0)].Time)
		}
		if v.Time.IsZero() || v.Queue == "" || v.Job.IsZero() || !v.Type.Valid() || !v.Status.Valid() {
			e.Errorf("event %d is incomplete: %+v", i, v)
		}
	}
	for i := range all {
		got, err := e.store().Events(e.Context(), all[i].Seq, 1000)
		e.check("Events", err)
		e.equal("the events after one of them", got, all[i+1:])
		one, err := e.store().Events(e.Context(), all[i].Seq, 1)
		e.check("Events", err)
		e.equal("one event", one, all[i+1:min(i+2, len(all))])
	}
	beyond, err := e.store().Events(e.Context(), all[len(all)-1].Seq+1000, 10)
	if err != nil || len(beyond) != 0 {
		e.Errorf("after a number that was not given yet: %d events, %v; want none", len(beyond), err)
	}
}

func eventHistory(e *env) {
	e.story()
	by := make(map[gq.JobID][]gq.Event)
	for _, v := range e.events(0) {
		by[v.Job] = append(by[v.Job], v)
	}
	for id, want := range by {
		e.equal("a history", e.history(id), want)
		j := e.get(id)
		last := want[len(want)-1]
		if last.Status != j.State.Status || last.Queue != j.Spec.Queue || last.Attempt != j.State.Attempt {
			e.Errorf("the last event says %s, attempt %d, queue %s; the job %s, %d, %s",
				last.Status, last.Attempt, last.Queue, j.State.Status, j.State.Attempt, j.Spec.Queue)
		}
	}
}

func eventLegal(e *env) {
	e.story()
	status := make(map[gq.JobID]gq.Status)
	moved := []gq.EventType{
		gq.EventSubmitted, gq.EventScheduled, gq.EventDelayed, gq.EventClaimed, gq.EventStarted, gq.EventCompleted,
		gq.EventFailed, gq.EventRetrying, gq.EventDeadLettered, gq.EventCancelled,
	}
	for _, v := range e.events(0) {
		before := status[v.Job]
		if slices.Contains(moved, v.Type) {
			if !machine.CanMove(before, v.Status) {
				e.Errorf("event %d (%s) of job %s moves it from %s to %s", v.Seq, v.Type, v.Job, before, v.Status)
			}
		} else if v.Status != before {
			e.Errorf("event %d (%s) of job %s changes its status from %s to %s", v.Seq, v.Type, v.Job, before, v.Status)
		}
		status[v.Job] = v.Status
	}
	for _, want := range []gq.Status{gq.StatusFailed, gq.StatusCancelled, gq.StatusCompleted, gq.StatusRunning} {
		if !slices.Contains(slices.Collect(maps.Values(status)), want) {
			e.Errorf("no job of the story ended up %s", want)
		}
	}
}

func eventOnly(e *env) {
	job := e.add(keyed("k", 1))
	j := e.one()
	want := e.events(0)
	ref := j.State.Lease.Ref()
	e.update(job.ID, beating(ref, machine.Report{Progress: 0.5, Note: "half"}))
	e.updated(store.Update{Ref: byID(job.ID), Apply: beating(ref, machine.Report{CheckpointBytes: 1}), Checkpoint: []byte("c")})
	e.tryUpdate(store.Update{Ref: byID(job.ID), Apply: completing(gq.LeaseRef{ID: "other"}, nil)})
	e.update(job.ID, advancing)
	e.hit("a taken key", e.spec(keyed("k", 1)), job.ID, true)
	e.refused(gq.ErrInvalid, gq.Spec{})
	e.none("with everything leased")
	e.claimed("with everything leased", 1, nil)
	_, err := e.store().Peek(e.Context(), store.Filter{Queues: []string{"q"}}, 1)
	e.check("Peek", err)
	e.get(job.ID)
	e.history(job.ID)
	e.list(gq.Query{})
	e.counts()
	e.due(10)
	e.release()
	e.collect()
	e.put("q", func(q *gq.Queue) { q.MaxRunning = 5 })
	_, err = e.store().Queues(e.Context(), store.QueueQuery{})
	e.check("Queues", err)
	e.equal("the events", e.events(0), want)
}

// eventOrder follows the events while others write, and compares what it saw with a read at
// the end.
func eventOrder(e *env) {
	e.open()
	specs := make([][]gq.Spec, 4)
	for i := range specs {
		specs[i] = e.specs(50)
	}
	writing, done := context.WithCancel(context.Background())
	var writers, follower sync.WaitGroup
	for _, mine := range specs {
		writers.Go(func() {
			for _, s := range mine {
				answers, err := e.s.Insert(e.Context(), []store.Group{store.One(s)})
				if err != nil || answers[0].Err != nil {
					e.Errorf("Insert: %v, %+v", err, answers)
				}
				claimed, err := e.s.Claim(e.Context(), []store.Claim{claimOf(2)})
				if err != nil {
					e.Errorf("Claim: %v", err)
					continue
				}
				for _, j := range claimed[0].Jobs {
					if _, err := e.s.Update(e.Context(), []store.Update{{Ref: byID(j.State.ID), Apply: completing(j.State.Lease.Ref(), nil)}}); err != nil {
						e.Errorf("Update: %v", err)
					}
				}
			}
		})
	}
	var seen []gq.Event
	follower.Go(func() {
		after := uint64(0)
		for last := false; ; {
			events, err := e.s.Events(e.Context(), after, 64)
			if err != nil {
				e.Errorf("Events: %v", err)
				return
			}
			if len(events) > 0 {
				seen = append(seen, events...)
				after = events[len(events)-1].Seq
				continue
			}
			if last {
				return
			}
			last = writing.Err() != nil // then reads once more
		}
	})
	writers.Wait()
	for _, j := range e.claim(200) { // a store with Backend.Late may have left some
		e.complete(j)
	}
	done()
	follower.Wait()
	e.equal("what a follower saw and what there is", seen, e.events(0))
	if len(seen) != 200*4 {
		e.Errorf("a follower saw %d events, want 4 for each of 200 jobs", len(seen))
	}
}

// eventTurns reads only at the end, because reading may fix the order.
func eventTurns(e *env) {
	told := func(job gq.JobID, kind gq.EventType) string { return fmt.Sprintf("%s of %s", kind, job) }
	var want, got []string
	for range 30 {
		id := e.add().ID
		e.complete(e.one())
		want = append(want, told(id, gq.EventSubmitted), told(id, gq.EventCompleted))
	}
	for _, v := range e.events(0) {
		if v.Type == gq.EventSubmitted || v.Type == gq.EventCompleted {
			got = append(got, told(v.Job, v.Type))
		}
	}
	e.equal("what happened to 30 jobs, one after the other", got, want)
}

func eventLast(e *env) {
	last := func() uint64 {
		n, err := e.store().LastEvent(e.Context())
		e.check("LastEvent", err)
		return n
	}
	e.equal("the newest event of a new store", last(), uint64(0))
	for range 3 {
		e.add()
		e.complete(e.one())
		all := e.events(0)
		e.equal("the newest event", last(), all[len(all)-1].Seq)
	}
	before := last()
	e.clock.Advance(365 * 24 * time.Hour)
	_, _, err := e.store().Collect(e.Context(), 1000)
	e.check("Collect", err)
	e.equal("the newest event after a collection", last(), before)
	rest, err := e.store().Events(e.Context(), before, 10)
	if err != nil || len(rest) != 0 {
		e.Errorf("after the newest event: %d events, %v; want none", len(rest), err)
	}
	e.add()
	if n := last(); n <= before {
		e.Errorf("after another job the newest event is %d, and was %d before", n, before)
	}
}

func eventUnknown(e *env) {
	_, err := e.store().History(e.Context(), e.id())
	e.is("History", err, gq.ErrNotFound)
}

func eventReopen(e *env) {
	job := e.add()
	j := e.one()
	want := e.events(0)
	e.reopen()
	e.equal("the events after a restart", e.events(0), want)
	e.complete(j)
	after := e.events(want[len(want)-1].Seq)
	if len(after) != 1 || after[0].Seq <= want[len(want)-1].Seq || after[0].Type != gq.EventCompleted {
		e.Errorf("after a restart and a completion the new events are %+v, want one with a larger number than %d", after, want[len(want)-1].Seq)
	}
	e.equal("the history", e.history(job.ID), append(want, after...))
}
