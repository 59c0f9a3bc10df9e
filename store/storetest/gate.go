package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var gateCases = []Case{
	{
		Name:   "Gate/Signal",
		Clause: "a job that waits for a signal is PENDING and out of reach until the signal completes it; its dependents go on",
		run:    gateSignal,
	},
	{
		Name:   "Gate/EarlySignal",
		Clause: "a signal that comes before the dependencies have ended is kept and completes the job with the last of them",
		run:    gateEarly,
	},
	{
		Name:   "Gate/Deadline",
		Clause: "a job that gets no signal within its execution timeout, counted from the end of its dependencies, is due then and FAILED",
		run:    gateDeadline,
	},
	{
		Name:   "Gate/Race",
		Clause: "of a signal and a deadline at the same moment exactly one decides, and no signal counts twice",
		run:    gateRace,
	},
	{
		Name:   "Gate/Failure",
		Clause: "a job for failures runs once all have ended if one failed, and is CANCELLED if none did",
		run:    gateFailure,
	},
	{
		Name:    "Gate/Reopen",
		Clause:  "a job that waits for a signal still waits after a restart, until the same deadline",
		Reopens: true,
		run:     gateReopen,
	},
	{
		Name:   "Gate/ManyDependencies",
		Clause: "a job of a workflow may depend on more than 1000 jobs",
		run:    gateMany,
	},
}

var storyWorkflow = gq.WorkflowID{6: 0x70, 8: 0x80, 15: 1}

// gated puts a job into a workflow.
func gated(ref string, g gq.Gate) setting {
	return func(s *gq.Spec) { s.Workflow, s.Ref, s.Gate = storyWorkflow, ref, g }
}

// patient lets a job wait that long for its signal.
func patient(d time.Duration) setting {
	return under(func(p *gq.Policy) { p.ExecutionTimeout, p.Lifetime = d, 0 })
}

func signalling(value []byte) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Signal(s, value, now) }
}

func gateSignal(e *env) {
	waiting := e.add(gated("approved", gq.GateSignal), patient(0))
	e.equal("the gate", waiting.Gate, gq.GateSignal)
	after := e.add(gated("ship", 0), depends(gq.DependencyAfter, waiting.ID))
	e.stands("before the signal", waiting.ID, gq.StatusPending)
	e.none("before the signal")
	e.clock.Advance(time.Hour)
	s := e.updated(store.Update{Ref: byID(waiting.ID), Apply: signalling([]byte(`"yes"`)), Result: []byte(`"yes"`)})
	if s.Status != gq.StatusCompleted || !s.CompletedAt.Equal(e.now()) || s.ResultBytes != 5 {
		e.Errorf("after its signal the job is %s since %v with %d bytes, want COMPLETED since %v with 5", s.Status, s.CompletedAt, s.ResultBytes, e.now())
	}
	e.release()
	e.claimed("after the signal", 5, []gq.JobID{after.ID})
	found := e.find(byID(waiting.ID), gq.WithResult)
	e.equal("the result", string(found.Result), `"yes"`)
	e.equal("the workflow", found.Spec.Workflow, storyWorkflow)
	e.equal("the reference", found.Spec.Ref, "approved")
	again := e.tryUpdate(store.Update{Ref: byID(waiting.ID), Apply: signalling([]byte(`"no"`)), Result: []byte(`"no"`)})[0]
	e.is("a second signal", again.Err, gq.ErrIllegalMove)
	e.equal("the result after a second signal", string(e.find(byID(waiting.ID), gq.WithResult).Result), `"yes"`)
}

func gateEarly(e *env) {
	parent := e.add()
	waiting := e.add(inQueue("c"), gated("approved", gq.GateSignal), patient(time.Minute), depends(gq.DependencyAfter, parent.ID))
	s := e.updated(store.Update{Ref: byID(waiting.ID), Apply: signalling([]byte("1")), Result: []byte("1")})
	e.equal("the status after an early signal", s.Status, gq.StatusPending)
	e.clock.Advance(time.Hour)
	e.end(parent.ID, gq.StatusCompleted)
	e.release()
	found := e.find(byID(waiting.ID), gq.WithResult)
	if found.State.Status != gq.StatusCompleted || string(found.Result) != "1" {
		e.Errorf("after its dependency the job is %s with result %q, want COMPLETED with 1", found.State.Status, found.Result)
	}
}

func gateDeadline(e *env) {
	parent := e.add()
	waiting := e.add(inQueue("c"), gated("approved", gq.GateSignal), patient(time.Minute), depends(gq.DependencyAfter, parent.ID))
	e.clock.Advance(time.Hour)
	e.end(parent.ID, gq.StatusCompleted)
	e.release()
	e.stands("while it waits", waiting.ID, gq.StatusPending)
	by := e.state(waiting.ID).ScheduledAt.Add(time.Minute)
	due, err := e.store().Due(e.Context(), 10)
	e.check("Due", err)
	if len(due.Jobs) != 0 || !due.Next.Equal(by) {
		e.Errorf("due are %v, the next at %v, want none and %v", due.Jobs, due.Next, by)
	}
	e.clock.Advance(time.Minute)
	due, err = e.store().Due(e.Context(), 10)
	e.check("Due", err)
	e.equal("what is due at the deadline", due.Jobs, []gq.JobID{waiting.ID})
	late := e.tryUpdate(store.Update{Ref: byID(waiting.ID), Apply: signalling([]byte("1")), Result: []byte("1")})[0]
	e.is("a signal at the deadline", late.Err, gq.ErrIllegalMove)
	s := e.update(waiting.ID, advancing)
	if s.Status != gq.StatusFailed || s.Failure == nil || s.Failure.Code != machine.ReasonSignalTimeout || s.Reason != machine.ReasonSignalTimeout {
		e.Errorf("after its deadline the job is %s with %+v, want FAILED with code %s", s.Status, s.Failure, machine.ReasonSignalTimeout)
	}
}

func gateRace(e *env) {
	e.open()
	const rounds, callers = 20, 4
	for range rounds {
		waiting := e.add(gated("approved", gq.GateSignal), patient(time.Minute))
		e.clock.Advance(time.Minute - time.Nanosecond)
		results := make([]error, callers)
		var all sync.WaitGroup
		for i := range callers {
			value := []byte(fmt.Sprint(i))
			all.Go(func() {
				u := store.Update{Ref: byID(waiting.ID), Apply: signalling(value), Result: value}
				if i == callers-1 {
					e.clock.Advance(time.Nanosecond) // the deadline
					u = store.Update{Ref: byID(waiting.ID), Apply: advancing}
				}
				answers, err := e.s.Update(e.Context(), []store.Update{u})
				if err == nil {
					err = answers[0].Err
				}
				results[i] = err
			})
		}
		all.Wait()
		found := e.find(byID(waiting.ID), gq.WithResult)
		accepted := ""
		for i, err := range results[:callers-1] {
			if err == nil {
				accepted += fmt.Sprint(i)
			}
		}
		switch found.State.Status {
		case gq.StatusCompleted:
			e.equal("the accepted signals of a completed job", accepted, string(found.Result))
		case gq.StatusFailed:
			e.equal("the accepted signals of a job that missed its deadline", accepted, "")
		default:
			e.Errorf("after signal and deadline the job is %s", found.State.Status)
		}
	}
}

func gateFailure(e *env) {
	for _, end := range []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled} {
		one, two := e.add(), e.add()
		last := e.add(inQueue("c"), gated("clean", gq.GateFailure), depends(gq.DependencyFanIn, one.ID, two.ID))
		e.end(one.ID, end)
		e.release()
		e.stands(fmt.Sprintf("after one ended %s", end), last.ID, gq.StatusPending)
		e.end(two.ID, gq.StatusCompleted)
		e.release()
		if end != gq.StatusCompleted {
			e.claimed(fmt.Sprintf("after one ended %s", end), 5, []gq.JobID{last.ID}, from("c"))
			continue
		}
		s := e.state(last.ID)
		if s.Status != gq.StatusCancelled || s.Reason != machine.ReasonNoFailure {
			e.Errorf("without a failure the job is %s for %q, want CANCELLED for %q", s.Status, s.Reason, machine.ReasonNoFailure)
		}
	}
}

func gateReopen(e *env) {
	waiting := e.add(gated("approved", gq.GateSignal), patient(time.Minute))
	e.reopen()
	e.equal("the state after a restart", e.state(waiting.ID).Gate, gq.GateSignal)
	e.clock.Advance(time.Minute)
	due, err := e.store().Due(e.Context(), 10)
	e.check("Due", err)
	e.equal("what is due after a restart", due.Jobs, []gq.JobID{waiting.ID})
}

func gateMany(e *env) {
	const n = gq.MaxDependencies + 200
	specs := make([]gq.Spec, n, n+1)
	last := e.spec(inQueue("c"), gated("done", 0))
	for i := range specs {
		specs[i] = e.spec(gated(fmt.Sprint(i), 0))
		last.DependsOn = append(last.DependsOn, gq.Dependency{Kind: gq.DependencyFanIn, Job: specs[i].ID})
	}
	e.insert(append(specs, last)...)
	for done := 0; done < n; {
		jobs := e.claim(500)
		if len(jobs) == 0 {
			e.Fatalf("no job after %d", done)
		}
		updates := make([]store.Update, len(jobs))
		for i, j := range jobs {
			updates[i] = store.Update{Ref: byID(j.State.ID), Apply: completing(j.State.Lease.Ref(), nil)}
		}
		e.tryUpdate(updates...)
		done += len(jobs)
	}
	e.release()
	got := e.one(from("c"))
	e.equal("the job behind all of them", got.State.ID, last.ID)
	e.equal("its dependencies", len(got.Spec.DependsOn), n)
	tooMany := e.spec(inQueue("c"))
	tooMany.DependsOn = last.DependsOn
	e.refused(gq.ErrInvalid, tooMany)
}
