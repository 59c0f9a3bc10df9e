package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var keyCases = []Case{
	{
		Name:   "Keys/Taken",
		Clause: "a job whose key is taken is not inserted: the answer is the job that has the key, and whether the submission was the same",
		Covers: []string{"J-15"},
		run:    keyTaken,
	},
	{
		Name:   "Keys/None",
		Clause: "without a key, equal submissions make separate jobs",
		Covers: []string{"J-11"},
		run:    keyNone,
	},
	{
		Name:   "Keys/Scope",
		Clause: "a key is unique within its scope only",
		Covers: []string{"J-14"},
		run:    keyScope,
	},
	{
		Name:   "Keys/Window",
		Clause: "a key is taken until exactly the end of the window of the job that has it, and free from then on",
		Covers: []string{"J-16"},
		run:    keyWindow,
	},
	{
		Name:   "Keys/Found",
		Clause: "a key is found in the scopes that are named, and without any in those of all types, as long as a job has it",
		run:    keysFound,
	},
	{
		Name:   "Keys/Retry",
		Clause: "a key for retries names its job for an hour, whatever the policy says, to any number of callers at once",
		run:    keyRetry,
	},
	{
		Name:   "Keys/Finished",
		Clause: "a finished job keeps its key for the rest of the window",
		run:    keyFinished,
	},
	{
		Name:   "Keys/InCall",
		Clause: "two groups of one call with the same key make one job",
		run:    keyInCall,
	},
	{
		Name:   "Keys/InGroup",
		Clause: "two jobs of one group with the same key are one job",
		run:    keyInGroup,
	},
	{
		Name:   "Keys/Dependency",
		Clause: "a dependency on a member whose key is taken means the job that has the key",
		run:    keyDependency,
	},
	{
		Name:   "Keys/RefusedGroup",
		Clause: "a refused group leaves its keys free",
		run:    keyRefused,
	},
	{
		Name:   "Keys/Concurrent",
		Clause: "however many submit a key at once, it makes one job",
		run:    keyConcurrent,
	},
	{
		Name:   "Keys/Length",
		Clause: "a key has up to 256 characters, not bytes",
		Covers: []string{"J-12"},
		run:    keyLength,
	},
	{
		Name:    "Keys/Reopen",
		Clause:  "keys survive a restart, with their windows and fingerprints",
		Reopens: true,
		run:     keyReopen,
	},
}

// hit fails unless submitting the spec returns another job.
func (e *env) hit(what string, spec gq.Spec, want gq.JobID, same bool) {
	e.Helper()
	answer := e.tryInsert(store.One(spec))[0]
	e.check(what, answer.Err)
	if p := answer.Jobs[0]; !p.Existing || p.Same != same || p.State.ID != want {
		e.Errorf("%s: existing %t, same %t, job %s; want existing true, same %t, job %s", what, p.Existing, p.Same, p.State.ID, same, want)
	}
}

// fresh fails unless submitting the spec creates a job.
func (e *env) fresh(what string, spec gq.Spec) {
	e.Helper()
	answer := e.tryInsert(store.One(spec))[0]
	e.check(what, answer.Err)
	if p := answer.Jobs[0]; p.Existing || p.State.ID != spec.ID {
		e.Errorf("%s: existing %t, job %s; want a new job %s", what, p.Existing, p.State.ID, spec.ID)
	}
}

func keyTaken(e *env) {
	first := e.spec(keyed("k", 7), delayed(time.Hour))
	e.fresh("a key for the first time", first)
	before := e.snapshot(first.ID)
	e.clock.Advance(time.Minute)

	same, different := e.spec(keyed("k", 7), at(gq.PriorityHigh)), e.spec(keyed("k", 8))
	e.hit("the same submission again", same, first.ID, true)
	e.hit("a different submission with that key", different, first.ID, false)
	answer := e.tryInsert(store.One(e.spec(keyed("k", 7))))[0]
	e.equal("the state in the answer", answer.Jobs[0].State, before.Jobs[0].State)
	e.absent("the same submission", same.ID)
	e.absent("a different submission", different.ID)
	e.unchanged("submitting its key again", before, first.ID)
}

func keyNone(e *env) {
	states := e.each(e.specs(2)...)
	e.claimed("two equal submissions", 10, stateIDs(states))
}

func keyScope(e *env) {
	scope := func(name string) setting { return func(s *gq.Spec) { s.Key.Scope = name } }
	first := e.spec(keyed("k", 1), ofType("mail"))
	e.fresh("a key for the first time", first)
	e.fresh("the key under another type", e.spec(keyed("k", 1), ofType("print")))
	e.fresh("the key in another scope", e.spec(keyed("k", 1), scope("tenant"), ofType("mail")))
	e.fresh("another key in that scope", e.spec(keyed("K", 1), ofType("mail")))
	// Scope and name stay separate, whatever separator they contain.
	e.fresh("scope ab, key c", e.spec(keyed("c", 1), scope("ab")))
	e.fresh("scope a, key bc", e.spec(keyed("bc", 1), scope("a")))
	e.hit("the key in its scope, from another queue", e.spec(keyed("k", 1), ofType("mail"), inQueue("other")), first.ID, true)
}

func keyWindow(e *env) {
	window := func(d time.Duration) setting { return under(func(p *gq.Policy) { p.IdempotencyWindow = d }) }
	day := e.spec(keyed("day", 1))
	e.fresh("a key with the default window", day)
	short := e.spec(keyed("short", 1), window(time.Second))
	e.fresh("a key with a window of a second", short)

	e.clock.Advance(time.Second - 1)
	e.hit("1 ns before the window ends", e.spec(keyed("short", 1), window(time.Hour)), short.ID, true)
	e.clock.Advance(1)
	renewed := e.spec(keyed("short", 1), window(time.Minute))
	e.fresh("at the end of the window, for all that a submission asked for a longer one in between", renewed)
	e.clock.Advance(time.Minute - 1)
	e.hit("1 ns before the new owner's window ends", e.spec(keyed("short", 2), window(time.Second)), renewed.ID, false)

	e.clock.Set(start.Add(24*time.Hour - 1))
	e.hit("1 ns before the default window ends", e.spec(keyed("day", 1)), day.ID, true)
	e.clock.Advance(1)
	e.fresh("at the end of the default window", e.spec(keyed("day", 1)))
}

func keyFinished(e *env) {
	first := e.add(keyed("k", 1))
	e.complete(e.one())
	e.hit("the key of a completed job", e.spec(keyed("k", 1)), first.ID, true)
	if s := e.tryInsert(store.One(e.spec(keyed("k", 1))))[0].Jobs[0].State; s.Status != gq.StatusCompleted {
		e.Errorf("the answer shows the job as %s, want COMPLETED", s.Status)
	}
}

func keyInCall(e *env) {
	first, second, other := e.spec(keyed("k", 1)), e.spec(keyed("k", 2)), e.spec(keyed("other", 1))
	answers := e.tryInsert(store.One(first), store.One(second), store.One(other))
	for i, a := range answers {
		e.check("Insert", a.Err)
		p := a.Jobs[0]
		want := []store.Placed{{State: gq.State{ID: first.ID}}, {State: gq.State{ID: first.ID}, Existing: true}, {State: gq.State{ID: other.ID}}}[i]
		if p.State.ID != want.State.ID || p.Existing != want.Existing || p.Same != want.Same {
			e.Errorf("group %d: job %s, existing %t, same %t; want %s, %t, %t", i, p.State.ID, p.Existing, p.Same, want.State.ID, want.Existing, want.Same)
		}
	}
	e.absent("the second job with the key", second.ID)
}

func keyInGroup(e *env) {
	first, second := e.spec(keyed("k", 1)), e.spec(keyed("k", 1))
	child := e.spec(depends(gq.DependencyAfter, second.ID))
	answer := e.tryInsert(store.Group{Jobs: []gq.Spec{first, second, child}})[0]
	e.check("Insert", answer.Err)
	if p := answer.Jobs[1]; p.State.ID != first.ID || !p.Existing || !p.Same {
		e.Errorf("the second member: job %s, existing %t, same %t; want job %s, existing and the same", p.State.ID, p.Existing, p.Same, first.ID)
	}
	other := e.tryInsert(store.Group{Jobs: []gq.Spec{e.spec(keyed("l", 1)), e.spec(keyed("l", 2), inQueue("elsewhere"))}})[0]
	e.check("Insert", other.Err)
	if p := other.Jobs[1]; p.State.ID != other.Jobs[0].State.ID || !p.Existing || p.Same {
		e.Errorf("a second member with another content: job %s, existing %t, same %t; want the first, existing and not the same", p.State.ID, p.Existing, p.Same)
	}
	e.absent("the second member", second.ID)
	e.stands("a dependent of the second member", child.ID, gq.StatusPending)
	if got := e.get(child.ID).Spec.DependsOn; len(got) != 1 || got[0].Job != first.ID {
		e.Errorf("a dependent of the second member names %+v, want the first, %s", got, first.ID)
	}
	if got := e.counts()["q"].Live(); got != 3 {
		e.Errorf("%d live jobs are counted, want 3", got)
	}
}

func keyDependency(e *env) {
	owner := e.spec(keyed("k", 1), at(gq.PriorityHigh))
	e.insert(owner)
	again := e.spec(keyed("k", 1), at(gq.PriorityCritical))
	child := e.spec(depends(gq.DependencyAfter, again.ID), at(gq.PriorityLow))
	answer := e.tryInsert(store.Group{Jobs: []gq.Spec{child, again}})[0]
	e.check("Insert", answer.Err)
	if p := answer.Jobs[1]; p.State.ID != owner.ID || !p.Existing {
		e.Errorf("the member with the key: job %s, existing %t; want job %s, existing", p.State.ID, p.Existing, owner.ID)
	}
	if got := e.get(child.ID).Spec.DependsOn; len(got) != 1 || got[0].Job != owner.ID || got[0].Kind != gq.DependencyAfter {
		e.Errorf("the dependent names %+v; want an AFTER on the job that has the key, %s", got, owner.ID)
	}
	s := e.state(child.ID)
	if s.Status != gq.StatusPending || s.Priority() != gq.PriorityHigh || s.Depth != 2 {
		e.Errorf("the dependent is %s, priority %s, depth %d; want PENDING, HIGH as the job that has the key, depth 2", s.Status, s.Priority(), s.Depth)
	}
	e.end(owner.ID, gq.StatusCompleted)
	e.release()
	e.stands("after the job that has the key completed", child.ID, gq.StatusScheduled)

	late := e.spec(keyed("k", 1))
	behind := e.spec(depends(gq.DependencyAfter, late.ID))
	e.insert(late, behind)
	e.release()
	e.stands("a dependent on a key whose job has completed", behind.ID, gq.StatusScheduled)
}

func keyRefused(e *env) {
	bad := e.specs(2, keyed("k", 1))
	bad[0].Key.Name = "fine"
	bad[1].Type = ""
	e.refused(gq.ErrInvalid, bad...)
	taken := e.add()
	group := []gq.Spec{e.spec(keyed("k2", 1)), e.spec()}
	group[1].ID = taken.ID
	e.refused(gq.ErrDuplicateID, group...)
	unknown := []gq.Spec{e.spec(keyed("k3", 1)), e.spec(depends(gq.DependencyAfter, e.id()))}
	e.refused(gq.ErrInvalid, unknown...)
	for _, name := range []string{"fine", "k", "k2", "k3"} {
		e.fresh("the key "+name+" of a refused group", e.spec(keyed(name, 1)))
	}
}

func keyConcurrent(e *env) {
	specs := e.specs(32, keyed("k", 1))
	e.open()
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		made int
		ids  = make(map[gq.JobID]int)
	)
	for _, s := range specs {
		wait.Go(func() {
			answers, err := e.s.Insert(e.Context(), []store.Group{store.One(s)})
			if err != nil || answers[0].Err != nil {
				e.Errorf("Insert: %v, %+v", err, answers)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			p := answers[0].Jobs[0]
			ids[p.State.ID]++
			if !p.Existing {
				made++
			}
		})
	}
	wait.Wait()
	if made != 1 || len(ids) != 1 {
		e.Errorf("%d submissions made %d jobs and named %d, want 1", len(specs), made, len(ids))
	}
	if got := e.counts()["q"].Live(); got != 1 {
		e.Errorf("%d live jobs are counted, want 1", got)
	}
}

func keyLength(e *env) {
	long := strings.Repeat("🙂", gq.MaxKeyRunes)
	first := e.spec(keyed(long, 1))
	e.fresh("a key of 256 characters", first)
	e.hit("that key again", e.spec(keyed(long, 1)), first.ID, true)
	e.fresh("a key that differs in the last character", e.spec(keyed(long[:len(long)-4]+"🙃", 1)))
	if got := e.get(first.ID).Spec.Key.Name; got != long {
		e.Errorf("the key reads back as %d bytes, want %d", len(got), len(long))
	}
	e.refused(gq.ErrInvalid, e.spec(keyed(long+"x", 1)))
}

func keyReopen(e *env) {
	first := e.spec(keyed("k", 1))
	e.insert(first)
	e.clock.Advance(time.Hour)
	e.reopen()
	e.hit("the same submission after a restart", e.spec(keyed("k", 1)), first.ID, true)
	e.hit("a different submission after a restart", e.spec(keyed("k", 2)), first.ID, false)
	e.clock.Set(start.Add(24*time.Hour - 1))
	e.hit("1 ns before the window ends", e.spec(keyed("k", 1)), first.ID, true)
	e.clock.Advance(1)
	e.reopen()
	e.fresh("at the end of the window", e.spec(keyed("k", 1)))
}

func keysFound(e *env) {
	a := e.spec(keyed("k", 1), ofType("a"))
	b := e.spec(keyed("k", 1), ofType("b"))
	c := e.spec(keyed("l", 1), ofType("a"))
	e.fresh("a", a)
	e.fresh("b", b)
	e.fresh("c", c)
	e.cancel(b.ID)
	for _, test := range []struct {
		scopes, names []string
		want          []gq.JobID
	}{
		{nil, []string{"k"}, []gq.JobID{a.ID, b.ID}},
		{nil, []string{"l", "m"}, []gq.JobID{c.ID}},
		{nil, nil, nil},
		{[]string{"b"}, []string{"k", "l"}, []gq.JobID{b.ID}},
		{[]string{"a", "b", "c"}, []string{"k", "l"}, []gq.JobID{a.ID, b.ID, c.ID}},
		{[]string{"c"}, []string{"k"}, nil},
	} {
		got, err := e.store().Keyed(e.Context(), test.scopes, test.names)
		e.check("Keyed", err)
		sorted := func(ids []gq.JobID) []gq.JobID {
			return slices.SortedFunc(slices.Values(ids), func(x, y gq.JobID) int { return bytes.Compare(x[:], y[:]) })
		}
		e.equal(fmt.Sprintf("keys %s in %s", test.names, test.scopes), sorted(got), sorted(test.want))
	}
	_, err := e.store().Keyed(e.Context(), nil, make([]string, gq.MaxQueryKeys+1))
	e.is("too many keys", err, gq.ErrInvalid)

	var more []gq.Spec
	for i := range gq.MaxQueryTypes {
		more = append(more, e.spec(keyed(fmt.Sprint("k", i), 1), ofType(fmt.Sprint("t", i))))
	}
	e.each(more...)
	names := make([]string, gq.MaxQueryKeys)
	for i := range names {
		names[i] = fmt.Sprint("k", i)
	}
	_, err = e.store().Keyed(e.Context(), nil, names)
	if e.is("the most keys among jobs of 103 types", err, gq.ErrInvalid); !strings.Contains(fmt.Sprint(err), "name the types") {
		e.Errorf("the refusal of the most keys among jobs of 103 types says %q, not to name the types", err)
	}
	got, err := e.store().Keyed(e.Context(), nil, names[:gq.MaxQueryKeys*9/10])
	if e.check("fewer keys among them", err); len(got) != gq.MaxQueryTypes {
		e.Errorf("900 keys among jobs of 103 types: %d jobs, want %d", len(got), gq.MaxQueryTypes)
	}
}
