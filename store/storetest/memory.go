package storetest

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/scribble"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var memoryCases = []Case{
	{
		Name:   "Memory/Read",
		Clause: "what a read returned belongs to the caller: overwriting it changes nothing in the store",
		run:    memoryRead,
	},
	{
		Name:   "Memory/Written",
		Clause: "what a write returned belongs to the caller: overwriting it changes nothing in the store",
		run:    memoryWritten,
	},
	{
		Name:   "Memory/Held",
		Clause: "a claimant that overwrites its job neither keeps it longer nor disturbs anybody else",
		run:    memoryHeld,
	},
	{
		Name:   "Memory/Apart",
		Clause: "the items of an answer share no memory, since they may go to different callers",
		run:    memoryApart,
	},
}

// stock is a store with at least one item of each kind.
type stock struct {
	*env
	ids  []gq.JobID
	held []gq.Job // running
}

// stocked fills the store: jobs under a preset and under custom policies, with every field
// of a spec set, in various states.
func stocked(e *env) *stock {
	e.Helper()
	e.check("PutPool", e.store().PutPool(e.Context(), gq.Pool{Name: "pool", Capacity: 100}))
	e.put("q", func(q *gq.Queue) { q.MaxRunning, q.Pool = 50, "pool" })
	s := &stock{env: e}
	parent := e.add(inQueue("parents"))
	s.ids = append(s.ids, parent.ID)
	rich := func(spec *gq.Spec) {
		spec.Payload = gq.Payload{Data: []byte("payload"), ContentType: "application/octet-stream"}
		spec.Attributes = map[string]string{"attribute": "value"}
		spec.Metadata.Tags = map[string]string{"tag": "value"}
		spec.Requires = []string{"gpu", "ram"}
	}
	for i := range 8 {
		settings := []setting{rich}
		if i%2 == 1 {
			settings = append(settings, under(func(p *gq.Policy) { p.MaxAttempts = 7 }))
		}
		s.ids = append(s.ids, e.add(settings...).ID)
	}
	s.ids = append(s.ids,
		e.add(rich, depends(gq.DependencyAfter, parent.ID)).ID,
		e.add(rich, keyed("key", 1)).ID)
	claimed := e.claim(6, offering("gpu", "ram"), lasting(time.Hour), with(allParts))
	if len(claimed) != 6 {
		e.Fatalf("claimed %d jobs, want 6", len(claimed))
	}
	e.complete(claimed[0])
	e.fail(claimed[1], permanent)
	e.fail(claimed[2], temporary)
	s.held = claimed[3:]
	for _, j := range s.held {
		e.updated(store.Update{
			Ref: byID(j.State.ID), Apply: beating(j.State.Lease.Ref(), machine.Report{Progress: 0.5, Note: "half", CheckpointBytes: 5}),
			Checkpoint: []byte("check"), Result: []byte("result"),
			Metadata: &gq.Metadata{Priority: gq.PriorityNormal, Tags: map[string]string{"new": "tag"}},
		})
	}
	e.putDocs(doc("k", "a", 0, "first"), doc("k", "b", 0, "second"))
	return s
}

// reads returns the results of all reads, by method.
func (s *stock) reads() map[string]any {
	s.Helper()
	ctx, t := s.Context(), s.store()
	refs := make([]store.Ref, 0, len(s.ids)+1)
	for _, id := range s.ids {
		refs = append(refs, byID(id))
	}
	refs = append(refs, byLease(s.held[0].State.Lease.ID))
	out := map[string]any{}
	keep := func(method string, answer any, err error) {
		s.Helper()
		s.check(method, err)
		out[method] = answer
	}
	found, err := t.Get(ctx, refs, allParts)
	keep("Get", found, err)
	page, err := t.List(ctx, gq.Query{Limit: 100})
	keep("List", page.Jobs, err)
	peeked, err := t.Peek(ctx, store.Filter{Queues: []string{"q", "parents"}, Offers: []string{"gpu", "ram"}}, 10)
	keep("Peek", peeked, err)
	due, err := t.Due(ctx, 10)
	keep("Due", due.Jobs, err)
	counts, err := t.Counts(ctx, "q", "parents")
	slices.SortFunc(counts, func(a, b gq.Count) int { return cmp.Compare(a.Queue, b.Queue) })
	keep("Counts", counts, err)
	events, err := t.Events(ctx, 0, 1000)
	keep("Events", events, err)
	history := make([][]gq.Event, len(s.ids))
	for i, id := range s.ids {
		history[i] = s.history(id)
	}
	keep("History", history, nil)
	queues, err := t.Queues(ctx, store.QueueQuery{})
	keep("Queues", queues, err)
	pools, err := t.Pools(ctx)
	keep("Pools", pools, err)
	one, err := t.Doc(ctx, "k", "a")
	keep("Doc", &one, err)
	docs, err := t.Docs(ctx, "k", "", 10)
	keep("Docs", docs, err)
	presets := map[gq.Preset]gq.Policy{}
	for _, p := range enum.All[gq.Preset]() {
		presets[p] = p.Policy()
	}
	keep("Presets", presets, nil)
	for _, f := range append(found, peeked...) {
		s.check("Get and Peek", f.Err)
	}
	return out
}

// belongs overwrites a result and fails if any read then returns something else.
func (s *stock) belongs(what string, answer any) {
	s.Helper()
	want := scribble.Copy(s.reads())
	scribble.Over(answer)
	for method, got := range s.reads() {
		s.equal("after the answer of "+what+" was overwritten, "+method, got, want[method])
	}
}

func memoryRead(e *env) {
	s := stocked(e)
	for method, answer := range s.reads() {
		s.belongs(method, answer)
	}
}

func memoryWritten(e *env) {
	s := stocked(e)
	ctx, t := e.Context(), e.store()
	update := func(what string, u ...store.Update) {
		e.Helper()
		answers, err := t.Update(ctx, u)
		e.check("Update", err)
		s.belongs(what, answers)
	}
	insert := func(what string, specs ...gq.Spec) {
		e.Helper()
		answers := e.tryInsert(store.Group{Jobs: specs})
		for i := range answers[0].Jobs {
			s.ids = append(s.ids, answers[0].Jobs[i].State.ID)
		}
		s.belongs(what, answers)
	}
	refs := make([]gq.LeaseRef, len(s.held))
	for i := range s.held {
		refs[i] = s.held[i].State.Lease.Ref()
	}
	own := under(func(p *gq.Policy) { p.MaxAttempts = 7 })
	insert("Insert", e.spec())
	insert("Insert of a policy of its own", e.spec(own))
	insert("Insert of a group", e.specs(3, own)...)
	insert("Insert of a taken key", e.spec(keyed("key", 1)))
	ended := e.add(inQueue("other"), keyed("ended", 1))
	e.cancel(ended.ID)
	insert("Insert of the key of a job that has ended", e.spec(keyed("ended", 1)))

	answers := e.tryClaim(
		claimOf(2, offering("gpu", "ram"), with(allParts)),
		claimOf(1, offering("gpu", "ram"), holding),
	)
	s.belongs("Claim", answers)

	job := func(i int) gq.JobID { return jobOf(e, refs[i]) }
	update("Update by a heartbeat", store.Update{Ref: byID(job(0)), Apply: beating(refs[0], machine.Report{Progress: 0.7})})
	update("Update by a lease", store.Update{Ref: byLease(refs[0].ID), Apply: beating(refs[0], machine.Report{Progress: 0.8})})
	update("Update that changes nothing", store.Update{Ref: byID(job(0)), Apply: func(s gq.State, _ time.Time) (gq.State, []gq.Event, error) { return s, nil, nil }})
	update("Update that is refused", store.Update{Ref: byID(job(0)), Apply: func(s gq.State, _ time.Time) (gq.State, []gq.Event, error) {
		return s, nil, gq.ErrIllegalMove
	}})
	child := e.spec(own)
	s.ids = append(s.ids, child.ID)
	first := job(0)
	answer, err := t.Update(ctx, []store.Update{{Ref: byID(first), Apply: completing(refs[0], nil), Spawn: []gq.Spec{child}}})
	e.check("Update", err)
	e.check("Update", answer[0].Err)
	s.belongs("Update with a child", answer)
	update("Update by a failure", store.Update{Ref: byID(job(1)), Apply: failing(refs[1], temporary)})
	update("Update of a job that has ended", store.Update{Ref: byID(first), Apply: completing(refs[0], nil)})

	versions, err := t.PutDocs(ctx, []store.Doc{doc("k", "c", 0, "third")})
	e.check("PutDocs", err)
	s.belongs("PutDocs", versions)
	if c := e.changer(); c != nil {
		changed, err := c.Change(ctx, store.Change{
			Docs:    []store.Doc{doc("k", "d", 0, "fourth")},
			Updates: []store.Update{{Ref: byID(job(2)), Apply: beating(refs[2], machine.Report{Progress: 0.9})}},
		})
		e.check("Change", err)
		s.belongs("Change", &changed)
	}
}

// jobOf returns the job that has the lease.
func jobOf(e *env, ref gq.LeaseRef) gq.JobID {
	e.Helper()
	found := e.find(byLease(ref.ID), 0)
	e.check("Get", found.Err)
	return found.State.ID
}

func memoryHeld(e *env) {
	id := e.add().ID
	jobs := e.claim(1, lasting(time.Minute))
	ref := jobs[0].State.Lease.Ref()
	jobs[0].State.Lease.ExpiresAt = e.now().Add(time.Hour)
	jobs[0].State.Lease.Worker = "another"
	jobs[0].State.Policy.MaxAttempts = 99
	e.update(id, beating(ref, machine.Report{}))
	if got := machine.DefaultPolicy().MaxAttempts; got != 3 {
		e.Errorf("the default policy allows %d attempts", got)
	}
	e.clock.Advance(time.Minute)
	if again := e.claim(1, by("next")); len(again) != 1 || again[0].State.Lease.Worker != "next" || again[0].State.Policy.MaxAttempts != 3 {
		e.Errorf("after its lease had run out the job was not claimed as it was: %+v", again)
	}
}

func memoryApart(e *env) {
	s := stocked(e)
	ctx, t := e.Context(), e.store()
	apart := func(what string, answers any) {
		e.Helper()
		v := reflect.ValueOf(answers)
		if v.Len() < 2 {
			e.Fatalf("%s answered %d items, want some", what, v.Len())
		}
		rest := v.Slice(1, v.Len()).Interface()
		kept := scribble.Copy(rest)
		scribble.Over(v.Index(0).Addr().Interface())
		e.equal("after the first item of "+what+" was overwritten, the others", rest, kept)
	}
	for method, answers := range s.reads() {
		if v := reflect.ValueOf(answers); v.Kind() == reflect.Slice && v.Len() > 1 {
			apart(method, answers)
		}
	}
	twice, err := t.Get(ctx, []store.Ref{byID(s.ids[1]), byID(s.ids[1]), byLease(s.held[0].State.Lease.ID), byID(s.held[0].State.ID)}, allParts)
	e.check("Get", err)
	apart("Get of one job twice", twice[2:])
	apart("Get of one job twice", twice)

	inserted := e.tryInsert(store.One(e.spec(inQueue("new"))), store.One(e.spec(inQueue("new"))), store.One(e.spec(inQueue("new"), keyed("key", 1))), store.One(e.spec(inQueue("new"), keyed("key", 2))))
	apart("Insert of a taken key", inserted[2:])
	apart("Insert", inserted)
	group := e.tryInsert(store.Group{Jobs: e.specs(3, inQueue("new"))})
	apart("Insert of a group", group[0].Jobs)
	claimed := e.tryClaim(claimOf(2, from("new"), with(allParts)), claimOf(2, from("new"), with(allParts)))
	for _, c := range claimed {
		if len(c.Jobs) != 2 {
			e.Fatalf("a claim got %d jobs, want 2", len(c.Jobs))
		}
	}
	id, ref := claimed[1].Jobs[0].State.ID, claimed[1].Jobs[0].State.Lease.Ref()
	apart("Claim", claimed[0].Jobs)
	apart("Claim", claimed)
	updated := e.tryUpdate(
		store.Update{Ref: byID(id), Apply: beating(ref, machine.Report{Progress: 0.1})},
		store.Update{Ref: byID(id), Apply: beating(ref, machine.Report{Progress: 0.2})},
		store.Update{Ref: byID(id), Apply: func(s gq.State, _ time.Time) (gq.State, []gq.Event, error) {
			return s, nil, errors.New("refused")
		}},
	)
	updated[2].Err = nil
	apart("Update of one job", updated)
}
