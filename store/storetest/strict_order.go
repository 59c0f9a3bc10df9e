package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var strictOrderCases = []Case{
	{
		Name:   "StrictOrder/Retries",
		Clause: "jobs of a queue with the same order key run one after another in the order of submission, whatever their priorities, and through all retries",
		run:    strictRetries,
	},
	{
		Name:   "StrictOrder/Ends",
		Clause: "the next job of an order key runs once this one has ended, however",
		run:    strictEnds,
	},
	{
		Name:   "StrictOrder/Skipped",
		Clause: "a job that ends before its turn lets nobody past: the jobs behind it, and those submitted later, wait for the one ahead of it",
		run:    strictSkipped,
	},
	{
		Name:   "StrictOrder/Keys",
		Clause: "jobs with another order key, in another queue or without one do not wait",
		run:    strictKeys,
	},
	{
		Name:   "StrictOrder/State",
		Clause: "a job that waits because of its order key is PENDING and names the job ahead of it; it takes over neither depth nor priority",
		run:    strictState,
	},
	{
		Name:   "StrictOrder/Dependencies",
		Clause: "a job may wait for others besides the one ahead of it, and for that one in another way",
		run:    strictDependencies,
	},
	{
		Name:   "StrictOrder/Group",
		Clause: "the jobs of a group are in the order given; one that depends on a later one with the same order key is refused",
		run:    strictGroup,
	},
	{
		Name:   "StrictOrder/Faults",
		Clause: "an order key on a job that is spawned, fanned out to or replaced, or that replaces another, is refused and changes nothing",
		run:    strictFaults,
	},
	{
		Name:   "StrictOrder/Gone",
		Clause: "a removed job holds up nobody",
		run:    strictGone,
	},
	{
		Name:    "StrictOrder/Reopen",
		Clause:  "the order of an order key survives a restart",
		Reopens: true,
		run:     strictReopen,
	},
	{
		Name:   "StrictOrder/Moved",
		Clause: "the order of an order key goes along when a store is moved",
		run:    strictMoved,
	},
	{
		Name:   "StrictOrder/Concurrent",
		Clause: "however many submit, claim, cancel and settle at once, two jobs of an order key are never held together and all of them end",
		run:    strictConcurrent,
	},
}

func inOrder(key string) setting { return func(s *gq.Spec) { s.OrderKey = key } }

// next claims the only job that is claimable, which must be this one.
func (e *env) next(what string, want gq.JobID, asks ...asking) gq.Job {
	e.Helper()
	e.release()
	jobs := e.claim(5, asks...)
	if len(jobs) != 1 || jobs[0].State.ID != want {
		e.Fatalf("%s: claimed %s, want %s", what, briefs(idsOf(jobs)), briefs([]gq.JobID{want}))
	}
	return jobs[0]
}

func strictRetries(e *env) {
	a := e.add(inOrder("k"), delayed(time.Second))
	b := e.add(inOrder("k"), at(gq.PriorityCritical))
	c := e.add(inOrder("k"))
	e.none("while the first one is delayed")
	e.clock.Advance(time.Second)
	j := e.next("the first", a.ID)
	e.none("while it runs")
	retrying := e.fail(j, temporary)
	e.none("while it waits for its retry")
	e.clock.Set(retrying.RunAt)
	j = e.next("its retry", a.ID)
	e.clock.Advance(j.State.Lease.TTL)
	e.sweep()
	lost := e.state(a.ID)
	e.clock.Set(lost.RunAt)
	e.complete(e.next("after its lease was lost", a.ID))
	e.complete(e.next("the second", b.ID))
	e.complete(e.next("the third", c.ID))
}

func strictEnds(e *env) {
	for _, end := range []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled} {
		a, b := e.add(inOrder("k")), e.add(inOrder("k"))
		e.end(a.ID, end)
		e.complete(e.next(fmt.Sprint("after one that is ", end), b.ID))
	}
}

func strictSkipped(e *env) {
	a := e.add(inOrder("k"))
	var line []gq.State
	for range 4 {
		line = append(line, e.add(inOrder("k")))
	}
	running := e.next("the first", a.ID)
	e.cancel(line[0].ID)
	e.release()
	e.none("after the second was cancelled")
	e.cancel(line[2].ID)
	e.cancel(line[1].ID)
	e.release()
	e.none("after all but the last were cancelled")
	e.cancel(line[3].ID)
	e.release()
	late := e.add(inOrder("k"))
	if late.OrderedAfter != a.ID {
		e.Errorf("a job behind cancelled ones waits for %v, want %s", late.OrderedAfter, a.ID)
	}
	e.none("behind cancelled ones")
	e.complete(running)
	e.next("at last", late.ID)
}

func strictKeys(e *env) {
	a := e.add(inOrder("k"))
	b, c := e.add(inOrder("l")), e.add()
	other := e.add(inOrder("k"), inQueue("other"))
	e.claimed("jobs that do not wait", 5, []gq.JobID{a.ID, b.ID, c.ID})
	e.claimed("jobs of another queue", 5, []gq.JobID{other.ID}, from("other"))
}

func strictState(e *env) {
	a := e.add(inOrder("k"), at(gq.PriorityHigh))
	if a.Status != gq.StatusScheduled || !a.OrderedAfter.IsZero() {
		e.Errorf("the first job is %s after %v, want SCHEDULED after none", a.Status, a.OrderedAfter)
	}
	b := e.add(inOrder("k"), at(gq.PriorityLow))
	if b.Status != gq.StatusPending || b.OrderedAfter != a.ID || b.Waits != 1 {
		e.Errorf("the second job is %s after %v and waits for %d, want PENDING after %s and 1", b.Status, b.OrderedAfter, b.Waits, a.ID)
	}
	e.complete(e.next("the first", a.ID))
	e.release()
	s := e.state(b.ID)
	if s.Status != gq.StatusScheduled || s.Priority() != gq.PriorityLow || s.Depth != 1 || s.Waits != 0 {
		e.Errorf("then the second job is %s, %s, of depth %d and waits for %d; want SCHEDULED, LOW, 1 and 0", s.Status, s.Priority(), s.Depth, s.Waits)
	}
	for range gq.MaxDepth + 1 {
		e.add(inOrder("long"))
	}
}

func strictDependencies(e *env) {
	a, other := e.add(inOrder("k")), e.add(inQueue("other"))
	b := e.add(inOrder("k"), depends(gq.DependencyAfter, a.ID, other.ID))
	if b.Waits != 3 {
		e.Errorf("a job behind one that it also depends on, with another dependency, waits for %d, want 3", b.Waits)
	}
	c := e.add(inOrder("k"), depends(gq.DependencyAfterAny, b.ID, other.ID))
	e.complete(e.next("the other", other.ID, from("other")))
	running := e.next("the first", a.ID)
	e.none("an AFTER_ANY job behind")
	e.fail(running, permanent)
	e.release()
	e.release()
	e.stands("a dependent of a failed job", b.ID, gq.StatusFailed)
	e.complete(e.next("the last", c.ID))
}

func strictGroup(e *env) {
	first := e.add(inOrder("k"))
	group := e.specs(3, inOrder("k"))
	group[2].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: group[0].ID}}
	e.insert(group...)
	for _, id := range []gq.JobID{first.ID, group[0].ID, group[1].ID, group[2].ID} {
		e.complete(e.next("in the order given", id))
	}
	before := e.counts("q")
	bad := e.specs(2, inOrder("k"))
	bad[0].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: bad[1].ID}}
	if got := e.refused(gq.ErrInvalid, bad...).fields(); len(got) != 1 {
		e.Errorf("a job that depends on a later one: faults of %v, want one", got)
	}
	crossed := e.specs(4)
	crossed[0].OrderKey, crossed[1].OrderKey, crossed[2].OrderKey, crossed[3].OrderKey = "a", "a", "b", "b"
	crossed[0].DependsOn = []gq.Dependency{{Kind: gq.DependencyFanIn, Job: crossed[3].ID}}
	crossed[2].DependsOn = []gq.Dependency{{Kind: gq.DependencyFanIn, Job: crossed[1].ID}}
	e.refused(gq.ErrInvalid, crossed...)
	e.equal("what is there", e.counts("q"), before)
}

func strictFaults(e *env) {
	a := e.add(inOrder("k"), func(s *gq.Spec) {
		s.Key = gq.IdempotencyKey{Name: "key", Fingerprint: 1}
		s.Unique.While = gq.WhileWaiting
	})
	for what, spec := range map[string]gq.Spec{
		"one that is fanned out to":  e.spec(inOrder("k"), depends(gq.DependencyFanOut, a.ID)),
		"one that replaces":          e.spec(inOrder("k"), unique("other", gq.WhileWaiting, gq.Replace)),
		"a key with a control byte":  e.spec(inOrder("\x01")),
		"a key that is too long":     e.spec(inOrder(string(make([]byte, gq.MaxNameBytes+1)))),
		"a kind of stores":           e.spec(depends(6, a.ID)),
		"one that replaces this one": e.spec(unique("key", gq.WhileWaiting, gq.Replace)),
	} {
		if got := e.refused(gq.ErrInvalid, spec).fields(); len(got) != 1 {
			e.Errorf("%s: faults of %v, want one", what, got)
		}
		e.absent(what, spec.ID)
	}
	child := e.spec(inOrder("l"))
	j := e.one()
	err := e.tryUpdate(store.Update{Ref: byID(a.ID), Apply: completing(j.State.Lease.Ref(), nil), Spawn: []gq.Spec{child}})[0].Err
	e.is("a child with an order key", err, gq.ErrInvalid)
	e.equal("its faults", fields(err), []string{"spawn[0].order_key"})
	e.stands("its parent", a.ID, gq.StatusRunning)
}

func strictGone(e *env) {
	a := e.add(inOrder("k"))
	e.complete(e.next("the first", a.ID))
	e.clock.Advance(store.DefaultRetention().Completed)
	e.collect()
	b := e.add(inOrder("k"))
	e.next("after the first is gone", b.ID)
}

// lined submits jobs of a key, lets the first run and the second be cancelled.
func (e *env) lined() (line []gq.State) {
	for range 4 {
		line = append(line, e.add(inOrder("k")))
	}
	e.next("the first", line[0].ID)
	e.cancel(line[1].ID)
	return line
}

func (e *env) continues(line []gq.State) {
	late := e.add(inOrder("k"))
	e.release()
	e.none("while the first runs")
	e.cancel(line[2].ID)
	e.release()
	e.none("after another one was cancelled")
	e.update(line[0].ID, completing(e.state(line[0].ID).Lease.Ref(), nil))
	e.complete(e.next("the fourth", line[3].ID))
	e.complete(e.next("the new one", late.ID))
}

func strictReopen(e *env) {
	line := e.lined()
	e.reopen()
	e.continues(line)
}

func strictMoved(e *env) {
	if !e.movable() {
		return
	}
	line := e.lined()
	other := e.another()
	other.fill(e, 3)
	other.continues(line)
}

func strictConcurrent(e *env) {
	const keys, submitters, each = 3, 4, 25
	e.open()
	var wait sync.WaitGroup
	var mu sync.Mutex
	held, ended := map[string]int{}, 0
	all := make(chan gq.State, submitters*each)
	for range submitters {
		mine := e.specs(each)
		wait.Go(func() {
			for i := range mine {
				mine[i].OrderKey = fmt.Sprint(i % keys)
				answers, err := e.store().Insert(e.Context(), []store.Group{store.One(mine[i])})
				if err != nil || answers[0].Err != nil {
					e.Errorf("Insert: %v %v", err, answers)
					return
				}
				if s := answers[0].Jobs[0].State; i%5 == 4 && s.Status == gq.StatusPending {
					out, err := e.store().Update(e.Context(), []store.Update{{Ref: byID(s.ID), Apply: cancelling("")}})
					if err == nil && out[0].Err == nil && out[0].State.Status == gq.StatusCancelled {
						mu.Lock()
						ended++
						mu.Unlock()
					}
				}
				all <- answers[0].Jobs[0].State
			}
		})
	}
	for range 3 {
		wait.Go(func() {
			for e.Context().Err() == nil {
				mu.Lock()
				done := ended == submitters*each
				mu.Unlock()
				if done || e.Failed() {
					return
				}
				answers, err := e.store().Claim(e.Context(), []store.Claim{claimOf(2)})
				if err != nil {
					e.Errorf("Claim: %v", err)
					return
				}
				for _, j := range answers[0].Jobs {
					mu.Lock()
					if held[j.Spec.OrderKey]++; held[j.Spec.OrderKey] > 1 {
						e.Errorf("%d jobs of order key %s are held at once", held[j.Spec.OrderKey], j.Spec.OrderKey)
					}
					mu.Unlock()
				}
				for _, j := range answers[0].Jobs {
					mu.Lock()
					held[j.Spec.OrderKey]--
					mu.Unlock()
					out, err := e.store().Update(e.Context(), []store.Update{{Ref: byID(j.State.ID), Apply: completing(j.State.Lease.Ref(), nil)}})
					if err != nil || out[0].Err != nil {
						e.Errorf("Update: %v %v", err, out)
						return
					}
					mu.Lock()
					ended++
					mu.Unlock()
				}
				if _, err := e.store().ReleaseDependents(e.Context(), 100); err != nil {
					e.Errorf("ReleaseDependents: %v", err)
					return
				}
			}
		})
	}
	wait.Wait()
	if len(all) != submitters*each && !e.Failed() {
		e.Errorf("%d of %d jobs were submitted", len(all), submitters*each)
	}
}
