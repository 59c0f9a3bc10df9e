package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var spawnCases = []Case{
	{
		Name:   "Spawn/Complete",
		Clause: "the children of an update are inserted with it: they may depend on each other and on the job as it is from then on",
		run:    spawnComplete,
	},
	{
		Name:   "Spawn/Heartbeat",
		Clause: "children of a job that goes on wait for it as any dependents do",
		run:    spawnHeartbeat,
	},
	{
		Name:   "Spawn/Unchanged",
		Clause: "an update that is refused, or was answered before, inserts nothing",
		run:    spawnUnchanged,
	},
	{
		Name:   "Spawn/Refused",
		Clause: "children that are refused leave the job as it was, with its blobs, and nothing is inserted",
		run:    spawnRefused,
	},
	{
		Name:   "Spawn/Keys",
		Clause: "a child whose idempotency key is taken is the job that has it",
		run:    spawnKeys,
	},
	{
		Name:   "Spawn/Depth",
		Clause: "a job that ends makes room for its children",
		run:    spawnDepth,
	},
	{
		Name:   "Spawn/Batch",
		Clause: "updates of one call spawn one after the other, and a refused one does not disturb the others",
		run:    spawnBatch,
	},
	{
		Name:    "Spawn/Reopen",
		Clause:  "a job and its children survive a restart together",
		Reopens: true,
		run:     spawnReopen,
	},
}

// tryOne makes one update and returns its result.
func (e *env) tryOne(id gq.JobID, apply store.Apply) (gq.State, error) {
	e.Helper()
	answer := e.tryUpdate(store.Update{Ref: byID(id), Apply: apply})[0]
	return answer.State, answer.Err
}

// spawn makes an update with children, which must be accepted.
func (e *env) spawn(u store.Update) []gq.State {
	e.Helper()
	answer := e.tryUpdate(u)[0]
	e.check("Update", answer.Err)
	if len(answer.Spawned) != len(u.Spawn) {
		e.Fatalf("Update placed %d of %d children", len(answer.Spawned), len(u.Spawn))
	}
	states := make([]gq.State, len(u.Spawn))
	for i, p := range answer.Spawned {
		states[i] = p.State
	}
	return states
}

func spawnComplete(e *env) {
	e.add(at(gq.PriorityHigh))
	j := e.one()
	e.clock.Advance(time.Second)
	ref := j.State.Lease.Ref()
	kids := e.specs(3, at(gq.PriorityLow))
	kids[0].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: j.State.ID}, {Kind: gq.DependencyFanIn, Job: kids[1].ID}}
	kids[1].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: j.State.ID}}
	placed := e.spawn(store.Update{Ref: byLease(ref.ID), Apply: completing(ref, []byte("r")), Result: []byte("r"), Spawn: kids})
	e.stands("the parent", j.State.ID, gq.StatusCompleted)
	e.release()
	for i, want := range []gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusScheduled} {
		got := e.get(kids[i].ID)
		if got.State.Status != want || !got.State.CreatedAt.Equal(e.now()) || got.Spec.Type != "work" {
			e.Errorf("child %d is %s of %v, want %s of %v", i, got.State.Status, got.State.CreatedAt, want, e.now())
		}
		if placed[i].ID != kids[i].ID || placed[i].Sequence != got.State.Sequence {
			e.Errorf("child %d was placed as %+v and reads as %+v", i, placed[i], got.State)
		}
		if inherits := got.State.Inherited == gq.PriorityHigh; inherits != (i < 2) {
			e.Errorf("child %d inherits %s", i, got.State.Inherited)
		}
		if events := e.history(kids[i].ID); len(events) == 0 || events[0].Type != gq.EventSubmitted || !events[0].Time.Equal(e.now()) {
			e.Errorf("the history of child %d begins with %+v", i, events)
		}
	}
	e.claimed("the children", 5, []gq.JobID{kids[1].ID, kids[2].ID})
}

func spawnHeartbeat(e *env) {
	e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	e.clock.Advance(time.Second)
	kids := e.specs(3)
	kids[1].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: j.State.ID}}
	kids[2].DependsOn = []gq.Dependency{{Kind: gq.DependencyFanIn, Job: j.State.ID}, {Kind: gq.DependencyFanIn, Job: kids[0].ID}}
	e.spawn(store.Update{
		Ref: byID(j.State.ID), Apply: beating(ref, machine.Report{Progress: 0.5, CheckpointBytes: 4}), Checkpoint: []byte("half"), Spawn: kids,
	})
	if got := e.get(j.State.ID); got.State.Status != gq.StatusRunning || string(got.Checkpoint) != "half" {
		e.Errorf("the parent is %s with checkpoint %q", got.State.Status, got.Checkpoint)
	}
	e.claimed("while the parent runs", 5, []gq.JobID{kids[0].ID})
	e.stands("a child that waits", kids[1].ID, gq.StatusPending)
	e.complete(j)
	e.release()
	e.stands("a child whose parent has ended", kids[1].ID, gq.StatusScheduled)
	e.stands("a child that waits for another", kids[2].ID, gq.StatusPending)
}

func spawnUnchanged(e *env) {
	e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	wrong := ref
	wrong.Version++
	child := e.spec()
	answer := e.tryUpdate(store.Update{Ref: byID(j.State.ID), Apply: completing(wrong, nil), Spawn: []gq.Spec{child}})[0]
	e.is("a stale completion with a child", answer.Err, gq.ErrStaleLease)
	e.absent("a child of a refused update", child.ID)

	first := e.spec()
	e.spawn(store.Update{Ref: byID(j.State.ID), Apply: completing(ref, nil), Spawn: []gq.Spec{first}})
	again := e.tryUpdate(store.Update{Ref: byID(j.State.ID), Apply: completing(ref, nil), Spawn: []gq.Spec{child}})[0]
	e.check("a repeated completion", again.Err)
	if again.Changed || len(again.Spawned) != 0 {
		e.Errorf("a repeated completion changed something (%t) or spawned %d children", again.Changed, len(again.Spawned))
	}
	e.absent("a child of a repeated update", child.ID)
	e.stands("the child of the first", first.ID, gq.StatusScheduled)

	nothing := func(s gq.State, _ time.Time) (gq.State, []gq.Event, error) { return s, nil, nil }
	answer = e.tryUpdate(store.Update{Ref: byID(first.ID), Apply: nothing, Spawn: []gq.Spec{child}})[0]
	e.check("an update that changes nothing", answer.Err)
	e.absent("a child of an update that changes nothing", child.ID)
}

func spawnRefused(e *env) {
	e.put("full", func(q *gq.Queue) { q.MaxDepth = 1 })
	e.add(inQueue("full"))
	parent := e.add()
	j := e.one()
	e.clock.Advance(time.Second)
	ref := j.State.Lease.Ref()
	before := e.snapshot(parent.ID)
	taken := e.spec()
	taken.ID = parent.ID
	circle := e.specs(2)
	circle[0].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: circle[1].ID}}
	circle[1].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: circle[0].ID}}
	for what, test := range map[string]struct {
		kids []gq.Spec
		want error
	}{
		"invalid":               {[]gq.Spec{e.spec(ofType(""))}, gq.ErrInvalid},
		"one of them invalid":   {[]gq.Spec{e.spec(), e.spec(inQueue("not a name"))}, gq.ErrInvalid},
		"in a circle":           {circle, gq.ErrInvalid},
		"depending on nobody":   {[]gq.Spec{e.spec(), e.spec(depends(gq.DependencyAfter, e.id()))}, gq.ErrInvalid},
		"with the parent's id":  {[]gq.Spec{e.spec(), taken}, gq.ErrDuplicateID},
		"beyond a queue's room": {[]gq.Spec{e.spec(), e.spec(inQueue("full"))}, gq.ErrQueueFull},
	} {
		answer := e.tryUpdate(store.Update{
			Ref: byID(parent.ID), Apply: completing(ref, []byte("r")), Result: []byte("r"), Checkpoint: []byte("c"), Spawn: test.kids,
		})[0]
		e.is("children "+what, answer.Err, test.want)
		if answer.Changed || len(answer.Spawned) != 0 {
			e.Errorf("children %s: the answer is %+v", what, answer)
		}
		for _, f := range fields(answer.Err) {
			if what == "invalid" && !strings.HasPrefix(f, "spawn[0].") || what == "one of them invalid" && !strings.HasPrefix(f, "spawn[1].") {
				e.Errorf("children %s: the error names %q", what, f)
			}
		}
		e.unchanged("an update with children "+what, before, parent.ID)
		for _, s := range test.kids {
			if s.ID != parent.ID {
				e.absent("a child "+what, s.ID)
			}
		}
	}
	e.complete(j)
}

func spawnKeys(e *env) {
	known := e.add(keyed("k", 1), at(gq.PriorityBulk), inQueue("other"))
	e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	kids := []gq.Spec{e.spec(keyed("k", 1)), e.spec(keyed("k", 2)), e.spec()}
	kids[2].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: kids[0].ID}}
	answer := e.tryUpdate(store.Update{Ref: byID(j.State.ID), Apply: completing(ref, nil), Spawn: kids})[0]
	e.check("Update", answer.Err)
	if len(answer.Spawned) != 3 {
		e.Fatalf("Update placed %d of 3 children", len(answer.Spawned))
	}
	for i, want := range []store.Placed{{Existing: true, Same: true}, {Existing: true}, {}} {
		got := answer.Spawned[i]
		if got.Existing != want.Existing || got.Same != want.Same || want.Existing && got.State.ID != known.ID {
			e.Errorf("child %d is existing %t, same %t, job %s", i, got.Existing, got.Same, got.State.ID)
		}
	}
	e.end(known.ID, gq.StatusCompleted, from("other"))
	e.release()
	e.stands("the child that waited for the job with the key", kids[2].ID, gq.StatusScheduled)
}

func spawnDepth(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxDepth = 1 })
	e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	kids := e.specs(2)
	answer := e.tryUpdate(store.Update{Ref: byID(j.State.ID), Apply: completing(ref, nil), Spawn: kids})[0]
	e.is("two children in place of one", answer.Err, gq.ErrQueueFull)
	e.stands("the parent of too many", j.State.ID, gq.StatusRunning)
	e.clock.Advance(time.Second)
	answer = e.tryUpdate(store.Update{Ref: byID(j.State.ID), Apply: beating(ref, machine.Report{}), Spawn: kids[:1]})[0]
	e.is("a child beside its parent", answer.Err, gq.ErrQueueFull)
	e.spawn(store.Update{Ref: byID(j.State.ID), Apply: completing(ref, nil), Spawn: kids[:1]})
	e.stands("the child", kids[0].ID, gq.StatusScheduled)
	e.refused(gq.ErrQueueFull, e.spec())
}

func spawnBatch(e *env) {
	e.each(e.specs(3)...)
	jobs := e.claim(3)
	kids := e.specs(3)
	kids[1].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: e.id()}} // refused
	kids[2].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: kids[0].ID}, {Kind: gq.DependencyFanIn, Job: jobs[0].State.ID}}
	var updates []store.Update
	for i, j := range jobs {
		updates = append(updates, store.Update{Ref: byID(j.State.ID), Apply: completing(j.State.Lease.Ref(), nil), Spawn: kids[i : i+1]})
	}
	twice := updates[0]
	twice.Spawn = e.specs(1)
	updates = append(updates, twice)
	answers := e.tryUpdate(updates...)
	e.check("the first update", answers[0].Err)
	e.is("the second update", answers[1].Err, gq.ErrInvalid)
	e.check("the third update", answers[2].Err)
	e.check("the first update again", answers[3].Err)
	if n := []int{len(answers[0].Spawned), len(answers[1].Spawned), len(answers[2].Spawned), len(answers[3].Spawned)}; !slices.Equal(n, []int{1, 0, 1, 0}) {
		e.Errorf("the updates spawned %v children", n)
	}
	e.stands("the second parent", jobs[1].State.ID, gq.StatusRunning)
	e.absent("the second child", kids[1].ID)
	e.absent("a child of the repeated update", twice.Spawn[0].ID)
	e.end(kids[0].ID, gq.StatusCompleted)
	e.release()
	e.stands("the third child", kids[2].ID, gq.StatusScheduled)
}

func spawnReopen(e *env) {
	e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	e.clock.Advance(time.Second)
	kids := e.specs(2)
	kids[1].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: kids[0].ID}, {Kind: gq.DependencyAfter, Job: j.State.ID}}
	e.spawn(store.Update{Ref: byID(j.State.ID), Apply: beating(ref, machine.Report{}), Spawn: kids})
	e.reopen()
	e.stands("the parent", j.State.ID, gq.StatusRunning)
	e.claimed("after a restart", 5, []gq.JobID{kids[0].ID})
	e.complete(j)
	e.release()
	e.stands("the child that waits for its sibling", kids[1].ID, gq.StatusPending)
	first := e.get(kids[0].ID)
	e.complete(first)
	e.release()
	e.stands("the child when all have ended", kids[1].ID, gq.StatusScheduled)
}
