package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// repeatable gives a job a key for retries, which does not depend on the policy's window.
func repeatable(name string) setting {
	return func(s *gq.Spec) {
		s.Key = gq.IdempotencyKey{Scope: machine.RetryScope, Name: name, Fingerprint: 1}
		s.Policy.IdempotencyWindow = 0
	}
}

func keyRetry(e *env) {
	minted := func(names ...string) (groups []store.Group) {
		for _, name := range names {
			groups = append(groups, store.Group{Jobs: []gq.Spec{e.spec(repeatable(name))}, Mint: true})
		}
		return groups
	}
	// insert expects new jobs for the first fresh keys and the known jobs for the rest.
	known := make(map[string]gq.JobID)
	insert := func(what string, fresh int, names ...string) {
		e.Helper()
		for i, a := range e.tryInsert(minted(names...)...) {
			e.check(what, a.Err)
			p := a.Jobs[0]
			if id, there := known[names[i]]; p.Existing == (i < fresh) || p.Existing && (!p.Same || !there || p.State.ID != id) {
				e.Errorf("%s: key %s got job %s, existing: %v, same: %v; want job %s", what, names[i], p.State.ID, p.Existing, p.Same, id)
			}
			known[names[i]] = p.State.ID
		}
	}
	insert("for the first time", 1, "a")
	insert("again", 0, "a")
	insert("several", 2, "b", "c")
	insert("some of them again", 1, "d", "b", "a", "c")
	var many []string
	for i := range 300 { // more than a store may take on a short path
		many = append(many, fmt.Sprint("many ", i))
	}
	insert("many", 300, many...)
	insert("one of the many", 0, many[150])
	// Names as clients draw them, which a store may keep in another way.
	drawn := func(place int) string { return machine.RetryName(e.now(), [10]byte{9}, place) }
	insert("as clients draw them", 3, drawn(0), drawn(1), drawn(7))
	insert("one of them again", 1, drawn(2), drawn(1), drawn(0))
	insert("one that is spelled in another way", 1, strings.ToLower(drawn(0)))
	answers := e.tryInsert(minted("twice", "twice")...)
	if first, second := answers[0].Jobs[0], answers[1].Jobs[0]; first.Existing || !second.Existing || first.State.ID != second.State.ID {
		e.Errorf("two groups with the same key are %s and %s", first.State.ID, second.State.ID)
	}
	if key := e.get(known["a"]).Spec.Key; !machine.ForRetry(key) {
		e.Errorf("the job has the key %+v", key)
	}

	const callers, keys = 8, 25 // each key is submitted by all of them at once
	got := make([][keys]gq.JobID, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for k := range keys {
				out, err := e.store().Insert(e.Context(), []store.Group{{Jobs: []gq.Spec{e.specFor(c, k)}, Mint: true}})
				if err != nil || out[0].Err != nil {
					e.Errorf("Insert: %v, %+v", err, out)
					return
				}
				got[c][k] = out[0].Jobs[0].State.ID
			}
		})
	}
	wg.Wait()
	for c := range callers {
		if got[c] != got[0] {
			e.Errorf("callers %d and 0 got different jobs for the same keys", c)
		}
	}

	e.clock.Advance(machine.RetryWindow - time.Nanosecond)
	insert("at the end of the hour", 0, "a")
	e.clock.Advance(time.Nanosecond)
	insert("after an hour", 1, "a")
}

// specFor returns a job for concurrent callers, which must not share the random source.
func (e *env) specFor(caller, key int) gq.Spec {
	s := gq.Spec{ID: machine.NewJobID([16]byte{1, byte(caller), byte(key)}), Queue: "q", Type: "work", Policy: machine.DefaultPolicy()}
	repeatable(fmt.Sprint("shared ", key))(&s)
	return s.WithDefaults()
}
