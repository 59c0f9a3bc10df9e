package storetest

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var dependCases = []Case{
	{
		Name:   "Depend/After",
		Clause: "an AFTER job waits, PENDING and out of reach, until every dependency has completed",
		Covers: []string{"J-75", "J-85"},
		run:    dependAfter,
	},
	{
		Name:   "Depend/Failure",
		Clause: "an AFTER or CHAIN job shares the bad end of its dependency, and so do the jobs behind it; none of them runs",
		Covers: []string{"J-77", "J-86", "J-87", "J-88"},
		run:    dependFailure,
	},
	{
		Name:   "Depend/AfterAny",
		Clause: "an AFTER_ANY job runs as soon as one of its dependencies has ended, however",
		Covers: []string{"J-76"},
		run:    dependAfterAny,
	},
	{
		Name:   "Depend/FanIn",
		Clause: "a FAN_IN job runs once, when all have ended, however they did",
		Covers: []string{"J-79"},
		run:    dependFanIn,
	},
	{
		Name:   "Depend/FanOut",
		Clause: "FAN_OUT records who spawned a job and waits for nobody",
		Covers: []string{"J-78"},
		run:    dependFanOut,
	},
	{
		Name:   "Depend/Mixed",
		Clause: "kinds may be mixed: every AFTER, CHAIN and FAN_IN must be satisfied and one of the AFTER_ANY",
		run:    dependMixed,
	},
	{
		Name:   "Depend/Chain",
		Clause: "the links of a chain run one after another",
		Covers: []string{"J-77"},
		run:    dependChain,
	},
	{
		Name:   "Depend/Ended",
		Clause: "a dependency that ended before the submission counts like one that ends after it",
		run:    dependEnded,
	},
	{
		Name:   "Depend/Delay",
		Clause: "a dependent with a delay waits for both",
		run:    dependDelay,
	},
	{
		Name:   "Depend/Priority",
		Clause: "a dependent takes over the priority that its dependency has when it ends",
		run:    dependPriority,
	},
	{
		Name:   "Depend/Left",
		Clause: "a dependent that ended while it waited is left as it is",
		run:    dependLeft,
	},
	{
		Name:   "Depend/Many",
		Clause: "all of a job's dependents are told, in bounded steps, each exactly once; 0 means that none is left",
		run:    dependMany,
	},
	{
		Name:    "Depend/Reopen",
		Clause:  "dependents that were not told before a restart are told after it",
		Reopens: true,
		run:     dependReopen,
	},
}

func dependAfter(e *env) {
	a, b := e.add(), e.add()
	child := e.add(inQueue("c"), depends(gq.DependencyAfter, a.ID, b.ID))
	if child.Status != gq.StatusPending || child.Waits != 2 || !child.ScheduledAt.IsZero() {
		e.Errorf("a dependent is %s and waits for %d, want PENDING and 2", child.Status, child.Waits)
	}
	e.none("before its dependencies ended", from("c"))
	e.clock.Advance(time.Second)
	e.end(a.ID, gq.StatusCompleted)
	e.release()
	e.none("after one of two ended", from("c"))
	e.stands("after one of two ended", child.ID, gq.StatusPending)
	e.clock.Advance(time.Second)
	e.end(b.ID, gq.StatusCompleted)
	e.release()
	s := e.state(child.ID)
	if s.Status != gq.StatusScheduled || !s.ScheduledAt.Equal(e.now()) {
		e.Errorf("after both completed the dependent is %s since %v, want SCHEDULED since %v", s.Status, s.ScheduledAt, e.now())
	}
	e.equal("the history", trace(e.history(child.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled})
	e.claimed("after both completed", 5, []gq.JobID{child.ID}, from("c"))
}

var badEnds = []gq.Status{gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}

func dependFailure(e *env) {
	for _, kind := range []gq.DependencyKind{gq.DependencyAfter, gq.DependencyChain} {
		for _, end := range badEnds {
			what := fmt.Sprintf("%s a job that ended %s", kind, end)
			parent, other := e.add(), e.add(inQueue("other"))
			child := e.add(inQueue("c"), depends(kind, other.ID, parent.ID))
			grandchild := e.add(inQueue("c"), depends(kind, child.ID))
			great := e.add(inQueue("c"), depends(gq.DependencyFanIn, grandchild.ID)) // a fan-in accepts any end
			e.end(parent.ID, end)
			e.release()
			for _, id := range []gq.JobID{child.ID, grandchild.ID} {
				s := e.state(id)
				if s.Status != end || s.Attempt != 0 || s.Reason != "dependency" || !s.CompletedAt.Equal(e.now()) {
					e.Errorf("%s: %s, attempt %d, reason %q, ended %v; want the same end now", what, s.Status, s.Attempt, s.Reason, s.CompletedAt)
				}
				e.equal("the history of a job "+what, trace(e.history(id)), []gq.Status{gq.StatusPending, end})
			}
			e.claimed("behind jobs "+what, 5, []gq.JobID{great.ID}, from("c"))
			e.cancel(other.ID)
			e.release()
			e.stands(what+", after the other ended as well", child.ID, end)
		}
	}
}

func dependAfterAny(e *env) {
	for _, end := range append([]gq.Status{gq.StatusCompleted}, badEnds...) {
		first, second := e.add(), e.add(inQueue("other"))
		child := e.add(inQueue("c"), depends(gq.DependencyAfterAny, second.ID, first.ID))
		if child.Status != gq.StatusPending {
			e.Errorf("an AFTER_ANY job is %s before any ended, want PENDING", child.Status)
		}
		e.end(first.ID, end)
		e.release()
		j := e.claim(5, from("c"))
		if len(j) != 1 || j[0].State.ID != child.ID {
			e.Fatalf("after one of two ended %s a claim found %s, want the dependent", end, briefs(idsOf(j)))
		}
		e.cancel(second.ID)
		e.release()
		e.equal("the dependent after the other ended as well", e.state(child.ID), j[0].State)
		e.equal("its history", trace(e.history(child.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusRunning})
	}
}

func dependFanIn(e *env) {
	ends := append([]gq.Status{gq.StatusCompleted}, badEnds...)
	var parents []gq.JobID
	for range ends {
		parents = append(parents, e.add().ID)
	}
	child := e.add(inQueue("c"), depends(gq.DependencyFanIn, parents...))
	for i, end := range ends {
		e.none(fmt.Sprintf("with %d of %d ended", i, len(ends)), from("c"))
		e.end(parents[i], end)
		e.release()
	}
	e.equal("the history", trace(e.history(child.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled})
	e.claimed("after all ended", 5, []gq.JobID{child.ID}, from("c"))
	e.none("a second time", from("c"))
	e.stands("at last", child.ID, gq.StatusRunning)
}

func dependFanOut(e *env) {
	parent := e.add()
	e.one()
	spawned := e.specs(5, depends(gq.DependencyFanOut, parent.ID))
	ids := stateIDs(e.insert(spawned...))
	e.claimed("spawned jobs beside their parent", 10, ids)
	e.equal("who spawned it", e.get(ids[0]).Spec.DependsOn, spawned[0].DependsOn)
}

func dependMixed(e *env) {
	after, fanIn, any1, any2 := e.add(), e.add(), e.add(inQueue("any")), e.add(inQueue("any"))
	child := e.add(inQueue("c"), depends(gq.DependencyAfter, after.ID), depends(gq.DependencyFanIn, fanIn.ID), depends(gq.DependencyAfterAny, any1.ID, any2.ID))
	e.end(after.ID, gq.StatusCompleted)
	e.release()
	e.cancel(any2.ID)
	e.release()
	e.stands("with AFTER and AFTER_ANY satisfied", child.ID, gq.StatusPending)
	e.end(fanIn.ID, gq.StatusFailed)
	e.release()
	e.stands("with all satisfied", child.ID, gq.StatusScheduled)

	doomed := e.add(inQueue("c"), depends(gq.DependencyAfterAny, any1.ID), depends(gq.DependencyAfter, any2.ID))
	e.release()
	e.stands("AFTER a cancelled job, AFTER_ANY a live one", doomed.ID, gq.StatusCancelled)
}

func dependChain(e *env) {
	chain := e.chainOf(5, gq.DependencyChain)
	e.insert(chain...)
	for _, link := range chain {
		j := e.one()
		if j.State.ID != link.ID {
			e.Fatalf("claimed %s, want the next link %s", j.State.ID, link.ID)
		}
		e.none("while a link runs")
		e.complete(j)
		e.release()
	}
	e.none("after the last link")
}

func dependEnded(e *env) {
	for _, end := range append([]gq.Status{gq.StatusCompleted}, badEnds...) {
		live := e.add(inQueue("live"))
		parent := e.add()
		e.end(parent.ID, end)
		e.release()
		bad := end
		if end == gq.StatusCompleted {
			bad = gq.StatusScheduled
		}
		for _, test := range []struct {
			name     string
			settings []setting
			want     gq.Status
		}{
			{"AFTER", []setting{depends(gq.DependencyAfter, parent.ID)}, bad},
			{"CHAIN", []setting{depends(gq.DependencyChain, parent.ID)}, bad},
			{"FAN_IN", []setting{depends(gq.DependencyFanIn, parent.ID)}, gq.StatusScheduled},
			{"FAN_OUT", []setting{depends(gq.DependencyFanOut, parent.ID)}, gq.StatusScheduled},
			{"AFTER_ANY", []setting{depends(gq.DependencyAfterAny, live.ID, parent.ID)}, gq.StatusScheduled},
			{"FAN_IN, and a live one", []setting{depends(gq.DependencyFanIn, parent.ID, live.ID)}, gq.StatusPending},
		} {
			child := e.add(append(test.settings, inQueue("c"))...)
			e.release()
			what := test.name + " a job that had ended " + end.String()
			e.stands(what, child.ID, test.want)
			want := []gq.Status{gq.StatusPending, test.want}
			if test.want == gq.StatusPending {
				want = want[:1]
			}
			e.equal(what+": the history", trace(e.history(child.ID)), want)
		}
		// In one group, after a job that ends the same way at once.
		group := e.chainOf(2, gq.DependencyAfter, inQueue("c"))
		group[0].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent.ID}}
		e.insert(group...)
		e.release()
		want := end
		if end == gq.StatusCompleted {
			want = gq.StatusPending
		}
		e.stands("behind a job that had to end at once", group[1].ID, want)
	}
}

func dependDelay(e *env) {
	parent := e.add()
	late := e.add(inQueue("c"), depends(gq.DependencyAfter, parent.ID), delayed(time.Minute))
	soon := e.add(inQueue("c"), depends(gq.DependencyAfter, parent.ID), delayed(time.Second))
	e.clock.Advance(30 * time.Second)
	e.end(parent.ID, gq.StatusCompleted)
	e.release()
	e.stands("a delay that is over", soon.ID, gq.StatusScheduled)
	s := e.state(late.ID)
	if s.Status != gq.StatusDelayed || !s.RunAt.Equal(start.Add(time.Minute)) {
		e.Errorf("a delay that is not over: %s until %v, want DELAYED until %v", s.Status, s.RunAt, start.Add(time.Minute))
	}
	e.claimed("before the delay is over", 5, []gq.JobID{soon.ID}, from("c"))
	e.clock.Set(start.Add(time.Minute))
	e.claimed("at the end of the delay", 5, []gq.JobID{late.ID}, from("c"))
}

func dependPriority(e *env) {
	parent := e.add(at(gq.PriorityLow))
	child := e.add(inQueue("c"), at(gq.PriorityBulk), depends(gq.DependencyFanIn, parent.ID))
	rival := e.add(inQueue("c"), at(gq.PriorityHigh))
	e.update(parent.ID, updating(gq.PriorityCritical))
	e.end(parent.ID, gq.StatusCompleted)
	e.release()
	if s := e.state(child.ID); s.Own != gq.PriorityBulk || s.Priority() != gq.PriorityCritical {
		e.Errorf("the dependent of a job that became CRITICAL is %s, of its own %s; want CRITICAL and BULK", s.Priority(), s.Own)
	}
	e.claimed("by priority", 5, []gq.JobID{child.ID, rival.ID}, from("c"))
}

func dependLeft(e *env) {
	parent := e.add()
	child := e.add(inQueue("c"), depends(gq.DependencyAfter, parent.ID))
	grandchild := e.add(inQueue("c"), depends(gq.DependencyFanIn, child.ID))
	e.cancel(child.ID)
	e.release()
	e.stands("behind a cancelled dependent", grandchild.ID, gq.StatusScheduled)
	before := e.snapshot(child.ID, grandchild.ID)
	j := e.one()
	e.complete(j)
	e.release()
	after := e.snapshot(child.ID, grandchild.ID)
	e.equal("the dependents that wait no longer", after.Jobs, before.Jobs)
	e.equal("their history", after.History, before.History)
}

func dependMany(e *env) {
	const n = 2500
	parent := e.add(forever(endless))
	for range 5 {
		e.insert(e.specs(n/5, inQueue("c"), forever(endless), depends(gq.DependencyAfter, parent.ID))...)
	}
	e.end(parent.ID, gq.StatusCompleted)
	for steps := 0; ; steps++ {
		limit := 300
		if steps < 3 {
			limit = -steps // 1
		}
		told, err := e.store().ReleaseDependents(e.Context(), limit)
		e.check("ReleaseDependents", err)
		if most := max(limit, 1); told < 0 || told > most {
			e.Fatalf("a step told %d dependents, want at most %d", told, most)
		}
		if told == 0 {
			break
		}
		if steps > n {
			e.Fatalf("ReleaseDependents does not come to an end")
		}
	}
	if got := e.counts("c")["c"]; got.By[gq.StatusScheduled] != n || got.Live() != n {
		e.Fatalf("%d of %d live dependents are SCHEDULED, want all %d", got.By[gq.StatusScheduled], got.Live(), n)
	}
	scheduled := make(map[gq.JobID]int)
	for after := uint64(0); ; {
		events, err := e.store().Events(e.Context(), after, 1000)
		e.check("Events", err)
		if len(events) == 0 {
			break
		}
		after = events[len(events)-1].Seq
		for _, v := range events {
			if v.Queue == "c" && v.Type == gq.EventScheduled {
				scheduled[v.Job]++
			}
		}
	}
	for id, times := range scheduled {
		if times != 1 {
			e.Fatalf("dependent %s was scheduled %d times", id, times)
		}
	}
	if len(scheduled) != n {
		e.Errorf("%d dependents have an event for it, want %d", len(scheduled), n)
	}
}

func dependReopen(e *env) {
	good, bad := e.add(), e.add(inQueue("other"))
	child := e.add(inQueue("c"), depends(gq.DependencyAfter, good.ID))
	doomed := e.add(inQueue("c"), depends(gq.DependencyAfter, bad.ID))
	waiting := e.add(inQueue("c"), depends(gq.DependencyFanIn, good.ID, doomed.ID))
	e.reopen()
	e.end(good.ID, gq.StatusCompleted)
	e.updated(store.Update{Ref: byID(bad.ID), Apply: cancelling("")})
	e.reopen()
	e.release()
	e.stands("after a restart", child.ID, gq.StatusScheduled)
	e.stands("after a restart, behind a bad end", doomed.ID, gq.StatusCancelled)
	e.stands("after a restart, behind both", waiting.ID, gq.StatusScheduled)
	e.reopen()
	e.release()
	e.equal("the history", trace(e.history(child.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled})
}
