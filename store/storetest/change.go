package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// The cases below test the optional [store.Changer]. They end at once if the store does not
// implement it.
var changeCases = []Case{
	{
		Name:   "Change/Together",
		Clause: "documents and jobs change in one commit, with the events of all jobs",
		Covers: []string{"M-119"},
		run:    changeTogether,
	},
	{
		Name:   "Change/AllOrNothing",
		Clause: "where a document has changed or a function refuses nothing is written: no state, no event, no document",
		Covers: []string{"M-119"},
		run:    changeRefused,
	},
	{
		Name:   "Change/Invalid",
		Clause: "a change that cannot be is ErrInvalid, and nothing is written",
		run:    changeInvalid,
	},
	{
		Name:   "Change/Insert",
		Clause: "documents and new jobs are written in one commit, or neither: not where a document has changed, nor where the jobs are refused",
		run:    changeInsert,
	},
	{
		Name:   "Change/Replace",
		Clause: "jobs are changed and others inserted in one commit, or neither: not where a function refuses, nor where the jobs are refused",
		run:    changeReplace,
	},
	{
		Name:   "Change/Successor",
		Clause: "a job that is inserted takes the place of a waiting one in the same commit; if that one cannot be replaced nothing is written",
		run:    changeSuccessor,
	},
	{
		Name:   "Change/InsertConcurrent",
		Clause: "of many who insert jobs with the same document one succeeds, and only its jobs exist",
		run:    changeInsertConcurrent,
	},
	{
		Name:   "Change/Concurrent",
		Clause: "of many who change the same document and jobs one succeeds",
		run:    changeConcurrent,
	},
	{
		Name:    "Change/Reopen",
		Clause:  "what was changed together survives a restart together",
		Reopens: true,
		run:     changeReopen,
	},
	{
		Name:   "Change/Events",
		Clause: "events of providers are numbered in the log after those of the jobs in the same commit, or not written if anything is refused; no job has them",
		Covers: []string{"M-120"},
		run:    changeEvents,
	},
}

// changer returns the store as a [store.Changer], or nil if it is none.
func (e *env) changer() store.Changer {
	e.Helper()
	c, _ := e.store().(store.Changer)
	return c
}

// assign returns an update that assigns a job to a worker under the given lease id.
func assign(id gq.JobID, lease gq.LeaseID, worker string) store.Update {
	return store.Update{Ref: byID(id), Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Claim(s, machine.Grant{Lease: lease, Worker: worker}, now)
	}}
}

func changeReplace(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	old, next := e.add(), e.spec()
	wrong := e.spec(depends(gq.DependencyAfter, e.id()))
	_, err := c.Change(e.Context(), store.Change{
		Docs: []store.Doc{doc("k", "a", 0, "1")}, Updates: []store.Update{{Ref: byID(old.ID), Apply: cancelling("replaced")}}, Insert: []gq.Spec{wrong},
	})
	e.is("a change with a job that is refused", err, gq.ErrInvalid)
	e.stands("after a refused insert", old.ID, gq.StatusScheduled)
	e.absent("after a refused insert", wrong.ID)
	refuse := func(s gq.State, _ time.Time) (gq.State, []gq.Event, error) { return s, nil, gq.ErrIllegalMove }
	_, err = c.Change(e.Context(), store.Change{
		Docs: []store.Doc{doc("k", "a", 0, "1")}, Updates: []store.Update{{Ref: byID(old.ID), Apply: refuse}}, Insert: []gq.Spec{next},
	})
	e.is("a change with a function that refuses", err, gq.ErrIllegalMove)
	e.absent("after a refused function", next.ID)
	out, err := c.Change(e.Context(), store.Change{
		Docs: []store.Doc{doc("k", "a", 0, "1")}, Updates: []store.Update{{Ref: byID(old.ID), Apply: cancelling("replaced")}}, Insert: []gq.Spec{next},
	})
	e.check("Change", err)
	if len(out.States) != 1 || len(out.Placed) != 1 || len(out.Versions) != 1 {
		e.Fatalf("Change answered %+v", out)
	}
	e.stands("replaced", old.ID, gq.StatusCancelled)
	e.stands("the new one", next.ID, gq.StatusScheduled)
	e.reads(doc("k", "a", out.Versions[0], "1"))
	counts, err := e.store().Counts(e.Context())
	e.check("Counts", err)
	if len(counts) != 1 || counts[0].By[gq.StatusScheduled] != 1 || counts[0].By[gq.StatusCancelled] != 1 {
		e.Errorf("counts are %+v", counts)
	}
}

func changeTogether(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	jobs := e.specs(3)
	e.each(jobs...)
	out, err := c.Change(e.Context(), store.Change{
		Docs:    []store.Doc{doc("k", "a", 0, "1"), doc("k", "b", 0, "2")},
		Updates: []store.Update{assign(jobs[0].ID, "lease-0", "w"), assign(jobs[2].ID, "lease-2", "v")},
	})
	e.check("Change", err)
	if len(out.Versions) != 2 || len(out.States) != 2 {
		e.Fatalf("Change answered %+v", out)
	}
	e.reads(doc("k", "a", out.Versions[0], "1"))
	e.reads(doc("k", "b", out.Versions[1], "2"))
	e.stands("changed", jobs[0].ID, gq.StatusClaimed)
	e.stands("not named", jobs[1].ID, gq.StatusScheduled)
	for i, at := range []int{0, 2} {
		e.equal("the state", out.States[i], e.state(jobs[at].ID))
		h := e.history(jobs[at].ID)
		if last := h[len(h)-1]; last.Type != gq.EventClaimed || !last.Time.Equal(e.now()) {
			e.Errorf("the change is told as %+v", last)
		}
	}
	found := e.find(byLease("lease-2"), 0)
	if found.Err != nil || found.State.ID != jobs[2].ID {
		e.Errorf("lease-2 leads to %+v", found)
	}
	// A function that changes nothing does not prevent the others.
	out, err = c.Change(e.Context(), store.Change{
		Docs:    []store.Doc{doc("k", "a", out.Versions[0], "3")},
		Updates: []store.Update{{Ref: byID(jobs[1].ID), Apply: advancing}},
	})
	e.check("Change", err)
	e.reads(doc("k", "a", out.Versions[0], "3"))
}

func changeRefused(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	jobs := e.specs(3)
	e.each(jobs...)
	ids := []gq.JobID{jobs[0].ID, jobs[1].ID, jobs[2].ID}
	v := e.putDocs(doc("k", "a", 0, "1"))[0]
	e.cancel(ids[2])
	before := e.snapshot(ids...)
	last, err := e.store().LastEvent(e.Context())
	e.check("LastEvent", err)
	for _, test := range []struct {
		what string
		c    store.Change
		want error
		at   int // index of the update that refuses, -1 for none
	}{
		{"a document that has changed", store.Change{
			Docs: []store.Doc{doc("k", "b", 0, "2"), doc("k", "a", v+1, "2")}, Updates: []store.Update{assign(ids[0], "l", "w")},
		}, gq.ErrConflict, -1},
		{"a job that is not claimable", store.Change{
			Docs: []store.Doc{doc("k", "a", v, "2")}, Updates: []store.Update{assign(ids[0], "l", "w"), assign(ids[2], "m", "w")},
		}, gq.ErrIllegalMove, 1},
		{"an unknown job", store.Change{
			Docs: []store.Doc{doc("k", "a", v, "2")}, Updates: []store.Update{assign(ids[0], "l", "w"), assign(ids[1], "n", "w"), assign(e.id(), "m", "w")},
		}, gq.ErrNotFound, 2},
		{"an unknown lease", store.Change{
			Updates: []store.Update{assign(ids[0], "l", "w"), {Ref: byLease("nobody's"), Apply: advancing}},
		}, gq.ErrStaleLease, 1},
	} {
		_, err := c.Change(e.Context(), test.c)
		e.is(test.what, err, test.want)
		var refusal *store.ChangeError
		if errors.As(err, &refusal) != (test.at >= 0) || test.at >= 0 && refusal.Update != test.at {
			e.Errorf("%s: the error does not tell which update: %v", test.what, err)
		}
		e.unchanged(test.what, before, ids...)
		e.reads(doc("k", "a", v, "1"))
		e.noDoc(test.what, "k", "b")
	}
	after, err := e.store().LastEvent(e.Context())
	e.check("LastEvent", err)
	e.equal("the newest event", after, last)
}

func changeInvalid(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	jobs := e.specs(2)
	e.each(jobs...)
	held := e.one()
	before := e.snapshot(jobs[0].ID, jobs[1].ID)
	child := assign(jobs[0].ID, "l", "w")
	child.Spawn = e.specs(1)
	for what, updates := range map[string][]store.Update{
		"children":              {child},
		"no function":           {{Ref: byID(jobs[1].ID)}},
		"a job twice":           {assign(jobs[1].ID, "l", "w"), assign(jobs[1].ID, "m", "w")},
		"a job twice, by lease": {{Ref: byID(held.State.ID), Apply: advancing}, {Ref: byLease(held.State.Lease.ID), Apply: advancing}},
	} {
		_, err := c.Change(e.Context(), store.Change{Docs: []store.Doc{doc("k", "a", 0, "1")}, Updates: updates})
		e.is(what, err, gq.ErrInvalid)
	}
	e.unchanged("after invalid changes", before, jobs[0].ID, jobs[1].ID)
}

func changeInsert(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	v := e.putDocs(doc("k", "a", 0, "1"))[0]
	jobs := e.specs(2)
	jobs[1].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: jobs[0].ID}}
	jobs[0].Key = gq.IdempotencyKey{Scope: "s", Name: "key", Fingerprint: 1}
	out, err := c.Change(e.Context(), store.Change{Docs: []store.Doc{doc("k", "a", v, "2"), doc("k", "b", 0, "3")}, Insert: jobs})
	e.check("Change", err)
	if len(out.Versions) != 2 || len(out.Placed) != 2 || len(out.States) != 0 {
		e.Fatalf("Change answered %+v", out)
	}
	v = out.Versions[0]
	e.reads(doc("k", "a", v, "2"))
	e.reads(doc("k", "b", out.Versions[1], "3"))
	for i := range jobs {
		e.equal("the state", out.Placed[i].State, e.state(jobs[i].ID))
	}
	e.stands("inserted", jobs[0].ID, gq.StatusScheduled)
	e.stands("waits for the other", jobs[1].ID, gq.StatusPending)
	if job := e.one(); job.State.ID != jobs[0].ID || len(e.history(jobs[0].ID)) < 2 {
		e.Errorf("claimed %s with the history %v", job.State.ID, e.history(jobs[0].ID))
	}

	again := e.spec()
	again.Key = jobs[0].Key
	out, err = c.Change(e.Context(), store.Change{Docs: []store.Doc{doc("k", "a", v, "4")}, Insert: []gq.Spec{again}})
	e.check("Change with a taken key", err)
	if len(out.Placed) != 1 || !out.Placed[0].Existing || !out.Placed[0].Same || out.Placed[0].State.ID != jobs[0].ID {
		e.Errorf("a taken key was answered with %+v", out.Placed)
	}
	e.absent("a job whose key is taken", again.ID)
	v = out.Versions[0]
	e.reads(doc("k", "a", v, "4"))

	e.put("full", func(q *gq.Queue) { q.MaxDepth = 1 })
	bad := e.spec()
	bad.Type = ""
	last, err := e.store().LastEvent(e.Context())
	e.check("LastEvent", err)
	for _, test := range []struct {
		what string
		docs []store.Doc
		jobs []gq.Spec
		want error
	}{
		{"a document that has changed", []store.Doc{doc("k", "c", 0, "5"), doc("k", "a", v+1, "5")}, e.specs(2), gq.ErrConflict},
		{"a document that is gone", []store.Doc{doc("k", "none", 1, "5")}, e.specs(1), gq.ErrConflict},
		{"a queue that is full", []store.Doc{doc("k", "a", v, "5")}, e.specs(2, inQueue("full")), gq.ErrQueueFull},
		{"an invalid job", []store.Doc{doc("k", "a", v, "5")}, []gq.Spec{e.spec(), bad}, gq.ErrInvalid},
		{"an unknown dependency", []store.Doc{doc("k", "a", v, "5")}, []gq.Spec{e.spec(), e.spec(depends(gq.DependencyAfter, e.id()))}, gq.ErrInvalid},
		{"a taken id", []store.Doc{doc("k", "a", v, "5")}, []gq.Spec{e.spec(), e.spec(func(s *gq.Spec) { s.ID = jobs[1].ID })}, gq.ErrDuplicateID},
	} {
		_, err := c.Change(e.Context(), store.Change{Docs: test.docs, Insert: test.jobs})
		e.is(test.what, err, test.want)
		var refusal *store.ChangeError
		if jobs := test.want != gq.ErrConflict; errors.As(err, &refusal) != jobs || jobs && refusal.Update != store.Inserting {
			e.Errorf("%s: the error does not tell that it is about the jobs: %v", test.what, err)
		}
		e.reads(doc("k", "a", v, "4"))
		e.noDoc(test.what, "k", "c")
		e.absent(test.what, test.jobs[0].ID)
	}
	after, err := e.store().LastEvent(e.Context())
	e.check("LastEvent", err)
	e.equal("the newest event", after, last)
}

func changeSuccessor(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	parent := e.add()
	old := e.add(depends(gq.DependencyAfter, parent.ID))
	next := e.spec(replacing(old.ID), depends(gq.DependencyAfter, parent.ID))
	out, err := c.Change(e.Context(), store.Change{Docs: []store.Doc{doc("k", "a", 0, "1")}, Insert: []gq.Spec{next}})
	e.check("Change", err)
	e.reads(doc("k", "a", out.Versions[0], "1"))
	e.replaced("the old job", old.ID, next.ID)
	e.stands("its successor", next.ID, gq.StatusPending)
	e.claimed("the parent", 10, []gq.JobID{parent.ID})

	late := e.specs(2)
	late[1].Replaces = parent.ID
	_, err = c.Change(e.Context(), store.Change{Docs: []store.Doc{doc("k", "a", out.Versions[0], "2")}, Insert: late})
	e.is("a successor of a held job", err, gq.ErrIllegalMove)
	e.reads(doc("k", "a", out.Versions[0], "1"))
	e.absent("a job beside it", late[0].ID)
	e.absent("the successor", late[1].ID)
	e.recount("after a change")
}

func changeInsertConcurrent(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	e.store()
	var wait sync.WaitGroup
	specs := make([]gq.Spec, 8)
	for n := range specs {
		specs[n] = e.spec()
		if n%2 == 1 {
			specs[n].Key = gq.IdempotencyKey{Scope: "s", Name: "key"}
		}
	}
	var won atomic.Int32
	for n := range specs {
		wait.Go(func() {
			_, err := c.Change(e.Context(), store.Change{Docs: []store.Doc{doc("k", "slot", 0, specs[n].ID.String())}, Insert: specs[n : n+1]})
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, gq.ErrConflict):
				e.Errorf("Change: %v", err)
			}
		})
	}
	wait.Wait()
	d, err := e.store().Doc(e.Context(), "k", "slot")
	e.check("Doc", err)
	if jobs := e.list(gq.Query{}); won.Load() != 1 || len(jobs) != 1 || jobs[0].State.ID.String() != string(d.Data) {
		e.Errorf("%d of 8 succeeded, and there are %d jobs; the document is of %s", won.Load(), len(jobs), d.Data)
	}
}

func changeConcurrent(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	jobs := e.specs(5)
	e.each(jobs...)
	var won atomic.Int32
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			change := store.Change{Docs: []store.Doc{doc("k", "round", 0, string(rune('a'+n)))}}
			for i := range jobs {
				change.Updates = append(change.Updates, assign(jobs[i].ID, gq.LeaseID(string(rune('a'+n))+string(rune('0'+i))), string(rune('a'+n))))
			}
			_, err := c.Change(e.Context(), change)
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, gq.ErrConflict) && !errors.Is(err, gq.ErrIllegalMove):
				e.Errorf("Change: %v", err)
			}
		})
	}
	wait.Wait()
	if won.Load() != 1 {
		e.Errorf("%d of 8 succeeded", won.Load())
	}
	d, err := e.store().Doc(e.Context(), "k", "round")
	e.check("Doc", err)
	for i := range jobs {
		if s := e.state(jobs[i].ID); s.Lease == nil || s.Lease.Worker != string(d.Data) || s.Version != 1 {
			e.Errorf("job %d is with %+v, the document is by %s", i, s.Lease, d.Data)
		}
	}
}

func changeReopen(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	jobs := e.specs(2)
	e.each(jobs...)
	out, err := c.Change(e.Context(), store.Change{
		Docs:    []store.Doc{doc("k", "a", 0, "1")},
		Updates: []store.Update{assign(jobs[0].ID, "lease-0", "w"), assign(jobs[1].ID, "lease-1", "w")},
		Events:  []gq.Event{{Queue: "providers", Job: gq.JobID{6: 0x80, 8: 0x80, 15: 7}, Type: gq.EventProviderStatus, Worker: "gpu"}},
	})
	e.check("Change", err)
	told, err := e.store().Events(e.Context(), 0, 100)
	e.check("Events", err)
	e.reopen()
	again, err := e.store().Events(e.Context(), 0, 100)
	e.check("Events", err)
	e.equal("the events", again, told)
	e.reads(doc("k", "a", out.Versions[0], "1"))
	for i := range jobs {
		e.equal("the state", e.state(jobs[i].ID), out.States[i])
	}
	if found := e.find(byLease("lease-1"), 0); found.Err != nil || found.State.ID != jobs[1].ID {
		e.Errorf("lease-1 leads to %+v", found)
	}
}

func changeEvents(e *env) {
	c := e.changer()
	if c == nil {
		return
	}
	jobs := e.specs(1)
	e.each(jobs...)
	before, err := e.store().LastEvent(e.Context())
	e.check("LastEvent", err)
	id := gq.JobID{6: 0x80, 8: 0x80, 15: 7}
	slashed := gq.Event{Queue: "providers", Job: id, Type: gq.EventProviderSlashed, Worker: "gpu|7", Reason: "forged", CostUnits: 1 << 50}
	status := gq.Event{Queue: "providers", Job: id, Type: gq.EventProviderStatus, Worker: "gpu|7", Reason: "JAILED: audit"}
	_, err = c.Change(e.Context(), store.Change{Docs: []store.Doc{doc("k", "a", 9, "1")}, Events: []gq.Event{slashed}})
	e.is("a change with a document that is not there", err, gq.ErrConflict)
	for _, wrong := range []gq.Event{
		{Queue: "q", Job: jobs[0].ID, Type: gq.EventCompleted}, {Queue: "q", Type: gq.EventProviderStatus, Worker: "p"}, {Job: id, Type: gq.EventProviderStatus, Worker: "p"},
	} {
		_, err = c.Change(e.Context(), store.Change{Events: []gq.Event{wrong}})
		e.is("a change with an event that no provider has", err, gq.ErrInvalid)
	}
	if last, err := e.store().LastEvent(e.Context()); err != nil || last != before {
		e.Errorf("the last event is %d, want %d; %v", last, before, err)
	}
	_, err = c.Change(e.Context(), store.Change{
		Docs: []store.Doc{doc("k", "a", 0, "1")}, Updates: []store.Update{assign(jobs[0].ID, "lease-0", "w")}, Events: []gq.Event{slashed, status},
	})
	e.check("Change", err)
	_, err = c.Change(e.Context(), store.Change{Events: []gq.Event{status}})
	e.check("Change of nothing but an event", err)
	got, err := e.store().Events(e.Context(), before, 10)
	e.check("Events", err)
	if len(got) != 4 || got[0].Type != gq.EventClaimed || got[0].Job != jobs[0].ID {
		e.Fatalf("the events are %+v", got)
	}
	for i, want := range []gq.Event{slashed, status, status} {
		got := got[i+1]
		if got.Seq != before+uint64(i)+2 || got.Time.IsZero() {
			e.Errorf("event %d is number %d at %v", i, got.Seq, got.Time)
		}
		got.Seq, got.Time = 0, time.Time{}
		e.equal("an event of a provider", got, want)
	}
	_, err = e.store().History(e.Context(), id)
	e.is("the history of a provider", err, gq.ErrNotFound)
	if h, err := e.store().History(e.Context(), jobs[0].ID); err != nil || h[len(h)-1].Type != gq.EventClaimed {
		e.Errorf("the history of the job is %+v, %v", h, err)
	}
}
